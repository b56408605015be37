"""What factories share: weights, inputs, references, attention swapped in upstream modules."""
import copy
import math
import os
import sys
import types

import torch
from torch import nn

VOCABULARY = 100
WIDTH = 64
HEADS = 4


# ---- weights ------------------------------------------------------------------------

def randomise(module, gain=1.0, seed=7):
    """Weights of unit gain, norms and biases that are not trivial, so that every part of a
    model moves its result."""
    generator = torch.Generator().manual_seed(seed)

    def normal(like):
        return torch.randn(like.shape, generator=generator).to(like.dtype)

    with torch.no_grad():
        for name, value in module.named_parameters():
            if name.endswith("bias"):
                value.copy_(0.1 * normal(value))
            elif value.dim() >= 2:
                value.copy_(gain * normal(value) / max(1, value[0].numel()) ** 0.5)
            else:
                value.copy_(1 + 0.1 * normal(value))
        for name, value in module.named_buffers():
            if name.endswith("running_mean"):
                value.copy_(0.1 * normal(value))
            elif name.endswith("running_var"):
                value.copy_(1 + 0.2 * normal(value).abs())
    return module.eval()


# ---- references ---------------------------------------------------------------------

def in_double(module):
    """The module in double: what the expected outputs of a factory's own module are."""
    wide = copy.deepcopy(module).double().eval()

    def run(*inputs):
        outputs = wide(*[x.double() if x.is_floating_point() else x for x in inputs])
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        return tuple(y.float() if y.is_floating_point() else y for y in outputs)
    return run


def swapped(module, forwards):
    """A copy of `module` in which each instance of a class of `forwards` runs the function
    given for it, forward(self, …), with the weights that it has. It is of no known class
    then; where its structure is one that the converter knows, that has the last word."""
    copied = copy.deepcopy(module).eval()
    for kind, forward in forwards.items():
        found = [part for part in copied.modules() if isinstance(part, kind)]
        if not found:
            raise ValueError(f"{type(module).__name__} has no {kind.__name__}")
        for part in found:
            part.__class__ = type(f"Swapped{kind.__name__}", (nn.Module,),
                                  {"forward": forward})
    return copied


# ---- upstream packages --------------------------------------------------------------

def stub(**packages):
    """Stands in for packages that upstream imports for what is not used here:
    {package: names to be imported from it}; "__" in a package's name is a dot."""
    for package, names in packages.items():
        package = package.replace("__", ".")
        if package not in sys.modules:
            sys.modules[package] = types.ModuleType(package)
            for name in names.split():
                setattr(sys.modules[package], name, type(name, (), {}))


def without_init(*packages):
    """Lets modules of packages be imported without what the packages' __init__.py do."""
    for package in packages:
        if package not in sys.modules:
            folder = package.replace(".", os.sep)
            sys.modules[package] = types.ModuleType(package)
            sys.modules[package].__path__ = [
                os.path.join(place, folder) for place in sys.path
                if os.path.isdir(os.path.join(place, folder))]


# ---- inputs -------------------------------------------------------------------------

def ids(batch, length, seed=0, low=3, high=VOCABULARY):
    """Tokens; those below `low` are kept for padding and the like."""
    generator = torch.Generator().manual_seed(1000 * seed + 31 * length + batch)
    return torch.randint(low, high, (batch, length), generator=generator)


def floats(*shape, seed=0):
    generator = torch.Generator().manual_seed(1000 * seed + sum(shape))
    return torch.randn(shape, generator=generator)


def ragged(batch, length, dtype=torch.int64, most=None):
    """Ones where row b has its last b * length / (2 batch) places cleared, `most` at the
    most: upstream averages where a query sees no key at all, the operators give zeros."""
    mask = torch.ones(batch, length, dtype=dtype)
    for row in range(1, batch):
        mask[row, length - min(max(1, row * length // (2 * batch)), most or length):] = 0
    return mask


def to_multiple(tokens, mask, size):
    """Tokens and mask with places at the end, up to a multiple of `size`."""
    batch, length = tokens.shape
    more = tokens.new_zeros(batch, (length + size - 1) // size * size - length)
    return torch.cat([tokens, more], dim=1), torch.cat([mask, more > 0], dim=1)


# ---- modules ------------------------------------------------------------------------

class Tokens(nn.Module):
    """A model whose one input has the name `tokens`."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(tokens)


class Image(Tokens):
    def forward(self, image):
        return self.model(image)


# ---- layers -------------------------------------------------------------------------

def sinusoids(length, width):
    """P[i, 2j] = sin(i / 10000^(2j / width)), P[i, 2j + 1] = cos of the same."""
    places = torch.arange(length, dtype=torch.float64)[:, None]
    rates = torch.exp(torch.arange(0, width, 2, dtype=torch.float64)
                      * (-math.log(10000.0) / width))
    return torch.stack([torch.sin(places * rates), torch.cos(places * rates)],
                       dim=-1).flatten(1).float()


class Embedding(nn.Module):
    """Tokens and learned positions."""

    def __init__(self, positions, width=WIDTH, vocabulary=VOCABULARY):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.tokens(tokens) + self.positions(places)


class FeedForward(nn.Module):
    def __init__(self, width=WIDTH, inner=None, activation=nn.functional.relu):
        super().__init__()
        self.inner = nn.Linear(width, inner or 2 * width)
        self.outer = nn.Linear(inner or 2 * width, width)
        self.activation = activation

    def forward(self, x):
        return self.outer(self.activation(self.inner(x)))


class PostNorm(nn.Module):
    """A layer of the Transformer of 2017: norms after the sums. `attention` is a module of
    (x, …)."""

    def __init__(self, attention, width=WIDTH, activation=nn.functional.relu):
        super().__init__()
        self.attention, self.feed = attention, FeedForward(width, activation=activation)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x, *more):
        x = self.norm1(x + self.attention(x, *more))
        return self.norm2(x + self.feed(x))


class PreNorm(nn.Module):
    """A layer whose norms come before attention and feed-forward."""

    def __init__(self, attention, width=WIDTH, activation=nn.functional.gelu):
        super().__init__()
        self.attention, self.feed = attention, FeedForward(width, activation=activation)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x, *more):
        x = x + self.attention(self.norm1(x), *more)
        return x + self.feed(self.norm2(x))
