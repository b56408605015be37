"""--moduleop pkg.Class=attnrun::Op(…): a module of the user's own as one operator.

    pkg.Attention=attnrun::LinearAttention(q, k, v, key_mask=mask, q_num_heads=self.heads)
    pkg.Attention=self.out(attnrun::LinearAttention(*self.qkv(x).chunk(3, -1), q_num_heads=8))
    pkg.Attention=attnrun::LinearAttention(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]).flatten(2)

The right side is an expression that holds the operator once: operands in the operator's order
or by name, then attributes by name. A name is a parameter of the module's forward, None an
absent operand, `self.…` something of the module (a tensor is an operand or, after an
attribute's name, a value; a layer may be called), anything else a constant. Tensors may be
indexed, calculated with and reshaped (METHODS). Without positional operands the tensors of the
call are taken in order. `n_outputs=2` where forward gives a tuple. Structure is not asked for;
the probe is.
"""
import ast
import inspect
import operator as operators_of_python

import torch

from . import operators
from .call import call
from .errors import UnsupportedError, UsageError, nearest, plural
from .registry import Adapter, need

FORM = "pkg.Class=attnrun::Op(operand, name=value)"
MARK = "attnrun__"  # in place of attnrun:: while Python parses the expression
METHODS = {"bool", "chunk", "contiguous", "expand", "expand_as", "flatten", "flip", "float",
           "half", "masked_fill", "mean", "movedim", "narrow", "permute", "repeat",
           "repeat_interleave", "reshape", "reshape_as", "roll", "select", "size", "split",
           "squeeze", "sum", "swapaxes", "to", "transpose", "unbind", "unflatten", "unsqueeze",
           "view", "view_as"}
SIGNS = {ast.Add: operators_of_python.add, ast.Sub: operators_of_python.sub,
         ast.Mult: operators_of_python.mul, ast.Div: operators_of_python.truediv,
         ast.FloorDiv: operators_of_python.floordiv, ast.Pow: operators_of_python.pow,
         ast.Mod: operators_of_python.mod, ast.MatMult: operators_of_python.matmul,
         ast.BitAnd: operators_of_python.and_, ast.BitOr: operators_of_python.or_}
COMPARED = {ast.Lt: operators_of_python.lt, ast.LtE: operators_of_python.le,
            ast.Gt: operators_of_python.gt, ast.GtE: operators_of_python.ge,
            ast.Eq: operators_of_python.eq, ast.NotEq: operators_of_python.ne}


def _is_operator(node):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and \
        node.func.id.startswith(MARK)


def _parsed(text):
    """(class name, operator, expression)"""
    name, equals, right = text.partition("=")
    right = right.strip()
    if not equals or "attnrun::" not in right:
        raise UsageError(f"--moduleop '{text}' is not of the form {FORM}")
    if right.startswith("attnrun::") and "(" not in right:
        right += "()"
    try:
        tree = ast.parse(right.replace("attnrun::", MARK), mode="eval").body
    except SyntaxError as error:
        raise UsageError(f"--moduleop '{text}': {error.msg}, expected {FORM}") from error
    found = [node for node in ast.walk(tree) if _is_operator(node)]
    if len(found) != 1:
        raise UsageError(f"--moduleop '{text}' is not of the form {FORM}, with one operator")
    return name.strip(), found[0].func.id.removeprefix(MARK), tree


def _said(node):
    return ast.unparse(node).replace(MARK, "attnrun::")


class _Evaluation:
    """What expressions mean in one call of a module."""

    def __init__(self, module, arguments):
        self.module, self.arguments = module, arguments

    def value(self, node):
        method = getattr(self, "_" + type(node).__name__, None)
        if method is None:
            return self._constant(node)
        return method(node)

    def _constant(self, node):
        try:
            return ast.literal_eval(node)
        except ValueError as error:
            raise UsageError(
                f"--moduleop: '{_said(node)}' is neither a constant, a parameter of forward, "
                f"self.…, nor an index, a sum or one of {', '.join(sorted(METHODS))} of these"
            ) from error

    def _Name(self, node):
        if node.id == "self":
            return self.module
        need(node.id in self.arguments, f"its forward has no parameter '{node.id}'")
        return self.arguments[node.id]

    def _Attribute(self, node):
        owner = self.value(node.value)
        if node.attr.startswith("__"):
            raise UsageError(f"--moduleop: '{_said(node)}' is not a part of a module")
        need(hasattr(owner, node.attr), f"it has no '{_said(node)}'")
        return getattr(owner, node.attr)

    def _Subscript(self, node):
        return self.value(node.value)[self.value(node.slice)]

    def _Slice(self, node):
        return slice(*(None if part is None else self.value(part)
                       for part in (node.lower, node.upper, node.step)))

    def _Tuple(self, node):
        return tuple(self._several(node.elts))

    def _List(self, node):
        return self._several(node.elts)

    def _UnaryOp(self, node):
        value = self.value(node.operand)
        signs = {ast.USub: operators_of_python.neg, ast.Invert: operators_of_python.invert}
        return signs[type(node.op)](value) if type(node.op) in signs else self._constant(node)

    def _BinOp(self, node):
        if type(node.op) not in SIGNS:
            return self._constant(node)
        return SIGNS[type(node.op)](self.value(node.left), self.value(node.right))

    def _Compare(self, node):
        if len(node.ops) != 1 or type(node.ops[0]) not in COMPARED:
            return self._constant(node)
        return COMPARED[type(node.ops[0])](self.value(node.left),
                                           self.value(node.comparators[0]))

    def _several(self, nodes):
        found = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                found += list(self.value(node.value))
            else:
                found.append(self.value(node))
        return found

    def _Call(self, node):
        if _is_operator(node):
            return self._operator(node)
        keywords = {k.arg: self.value(k.value) for k in node.keywords}
        if isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
            owner = self.value(node.func.value)
            if isinstance(owner, torch.Tensor):
                return getattr(owner, node.func.attr)(*self._several(node.args), **keywords)
        layer = self.value(node.func) if isinstance(node.func, (ast.Attribute, ast.Subscript)) \
            else None
        if not isinstance(layer, torch.nn.Module) or layer is self.module:
            return self._constant(node)
        return layer(*self._several(node.args), **keywords)

    def _operator(self, node):
        name = node.func.id.removeprefix(MARK)
        names = [operand.name for operand in operators.load()[name].inputs]
        values = {k.arg: self.value(k.value) for k in node.keywords}
        operands = self._several(node.args)
        if not node.args and not set(values) & set(names):
            operands = [x for x in self.arguments.values() if isinstance(x, torch.Tensor)]
        need(len(operands) <= len(names), f"{name} takes {plural(len(names), 'operand')}")
        operands += [None] * (len(names) - len(operands))
        for i, operand in enumerate(names):
            if operand in values:
                operands[i] = values.pop(operand)
        return call(name, *operands, **values)


class ModuleOp(Adapter):
    """Filled in by `adapter`."""
    bare = True
    text = ""
    tree = None

    @classmethod
    def demand(cls, plan):
        """What the user names must be replaced."""
        mine = [entry for entry in plan.entries if isinstance(entry.adapter, cls)]
        if not mine:
            raise UnsupportedError(f"--moduleop '{cls.text}': the model has no module of "
                                   f"class {cls.names[0]}")
        for entry in mine:
            if not entry.taken:
                raise UnsupportedError(f"--moduleop '{cls.text}': {entry.line()}")

    def forward(self, *args, **kwargs):
        given = inspect.signature(type(self.module).forward).bind(self.module, *args, **kwargs)
        given.apply_defaults()
        arguments = dict(list(given.arguments.items())[1:])
        return _Evaluation(self.module, arguments).value(self.tree)


def adapter(text):
    """The adapter class of one --moduleop."""
    name, operator, tree = _parsed(text)
    if operator not in operators.load():
        raise UsageError(f"--moduleop '{text}': there is no operator attnrun::{operator}"
                         f"{nearest(operator, operators.load())} (attnrun ops lists all)")
    kind = type("ModuleOp_" + operator, (ModuleOp,), {})
    kind.names, kind.operator, kind.text, kind.tree = (name,), operator, text, tree
    return kind
