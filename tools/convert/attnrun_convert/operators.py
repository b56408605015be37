"""How an operator's reference is declared: operands, attributes, examples.

A reference is one torch function in refs/<snake_name>.py:

    @operator("LinformerAttention",
              inputs=["Q: heads B Nq", "K: heads B Nk", "V: heads B Nk", "E", "F?",
                      "E_bias?", "F_bias?", "key_mask?: B Nk"],
              outputs=["Y"], attributes={**HEADS},
              examples=[example(q_num_heads=2, Q=(2, 5, 8), …)])
    def linformer_attention(Q, K, V, E, F, E_bias, F_bias, key_mask, *, q_num_heads, …):

Absent operands are None. After the colon: a word for each dim that may differ from run to
run ("." for one that may not); nothing for an operand of fixed shape; "heads B N" for
(B, N, heads * D) or (B, heads, N, D); "B N . | B . h w" for the one that has the rank.
"""
import importlib
import pkgutil
from dataclasses import dataclass, field

REQUIRED = object()  # an attribute without a default


@dataclass(frozen=True)
class Operand:
    name: str
    optional: bool
    dims: tuple  # words; () where the shape is fixed
    heads: bool

    def dims_for(self, rank):
        """{axis: word} of the dims that may differ."""
        words = self.dims
        if "|" in words:
            forms = " ".join(words).split("|")
            words = next(form.split() for form in forms if len(form.split()) == rank)
        if self.heads:
            batch, tokens = words
            words = (batch, tokens, ".") if rank == 3 else (batch, ".", tokens, ".")
        return {axis: word for axis, word in enumerate(words) if word != "."}


@dataclass(frozen=True)
class Example:
    """Operands and attributes of one node. An operand is a shape (normal numbers), a
    Data, or a tensor; `sizes` gives other values of dims for the second run of its body,
    by default one more for B and three more for the others; None: no second run."""
    values: dict
    sizes: dict | None = field(default_factory=dict)
    tolerance: tuple = (1e-5, 1e-6)  # rtol, atol
    outputs: int = 1


@dataclass(frozen=True)
class Data:
    """An operand of some shape: make(torch generator, shape) gives the tensor."""
    shape: tuple
    make: object


@dataclass(frozen=True)
class Operator:
    name: str
    inputs: tuple
    outputs: tuple
    attributes: dict
    examples: tuple
    reference: object
    note: str

    def attributes_of(self, given):
        """All attributes with defaults filled in; None where one has no default value."""
        unknown = set(given) - set(self.attributes)
        if unknown:
            raise ValueError(f"{self.name} has no attribute {', '.join(sorted(unknown))}; it has "
                             f"{', '.join(sorted(self.attributes))}")
        full = {**self.attributes, **given}
        for name in self.lists():  # a number given for a list of them
            if isinstance(full[name], (int, float)):
                full[name] = [full[name]]
        for name, default in self.attributes.items():  # an int given for a float
            if isinstance(default, float) and full[name] is not None:
                full[name] = float(full[name])
        missing = [name for name, value in full.items() if value is REQUIRED]
        if missing:
            raise ValueError(f"{self.name} needs attribute {', '.join(missing)}")
        return full

    def lists(self):
        """The attributes that are lists, as the examples give them."""
        return {name for one in self.examples for name, value in one.values.items()
                if isinstance(value, list) and name in self.attributes}

    def __call__(self, tensors, attributes):
        """tensors: a list in the operator's order, None where absent. Returns a tuple."""
        tensors = list(tensors) + [None] * (len(self.inputs) - len(tensors))
        result = self.reference(*tensors, **self.attributes_of(attributes))
        return result if isinstance(result, tuple) else (result,)


OPERATORS = {}


def _operand(text):
    name, _, dims = text.partition(":")
    words = tuple(dims.split())
    heads = words[:1] == ("heads",)
    name = name.strip()
    return Operand(name.rstrip("?"), name.endswith("?"), words[1:] if heads else words, heads)


def operator(name, inputs, outputs, attributes, examples, note=""):
    """`note`: what a reader of the operator list should know of the body."""
    def register(function):
        OPERATORS[name] = Operator(name, tuple(map(_operand, inputs)), tuple(outputs),
                                   dict(attributes), tuple(examples), function, note)
        return function
    return register


def example(sizes=(), tolerance=(1e-5, 1e-6), outputs=1, **values):
    """Operands and attributes by name; see Example."""
    return Example(values, None if sizes is None else dict(sizes), tolerance, outputs)


def mask(*shape):
    """Random bools; the last row is all false, the first has its first place true."""
    def make(generator, shape):
        import torch
        bools = torch.rand(shape, generator=generator) < 0.7
        bools[-1] = False
        bools[0, 0] = True
        return bools
    return Data(shape, make)


def integers(low, high, *shape, dtype="int64"):
    """low <= x < high."""
    def make(generator, shape):
        import torch
        return torch.randint(low, high, shape, generator=generator,
                             dtype=getattr(torch, dtype))
    return Data(shape, make)


def load():
    """Imports all of refs/; {operator name: Operator}."""
    from . import refs
    for module in pkgutil.iter_modules(refs.__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"{refs.__name__}.{module.name}")
    return OPERATORS
