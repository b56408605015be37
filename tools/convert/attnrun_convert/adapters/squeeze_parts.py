"""Squeeze-and-excitation under any class name, whatever its attributes are called.

Told by the layers of a module: one or two linear layers or 1 x 1 convolutions that lead back to
the same channels, at most one BatchNorm, and else only layers without weights. What its forward
does with them is found by a trial in double, on maps with which the numbers before its activation
and before its gate have several magnitudes, at which activations and gates differ plainly, whatever
the size of the weights; a module of which no form gives the results stays as it is.
"""
import copy
import itertools

import torch
from torch import nn

from ..call import call
from ..registry import Adapter, need
from ._layers import ACTIVATIONS, matrix, named, need_matrix

EXACT = 1e-9  # of the largest result, in double
MAGNITUDES = (0.3, 1.0, 3.0, 8.0, 30.0)
GATES = ("sigmoid", "hard_sigmoid")
POOLS = ("avg", "max", "avg_max")
SMALL = (nn.Linear, nn.Conv2d)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)


def _layers(module):
    """The innermost modules, each once."""
    return [part for part in module.modules() if not any(True for _ in part.children())]


def _is_matrix(layer):
    return isinstance(layer, nn.Linear) or isinstance(layer, nn.Conv2d) and \
        layer.kernel_size == (1, 1)


def _sides(layer):
    """(channels in, channels out)"""
    return layer.weight.shape[1], layer.weight.shape[0]


class SqueezeParts(Adapter):
    operator = "SqueezeExcite"
    structural = True

    @classmethod
    def fits(cls, module):
        layers = _layers(module)
        if layers == [module] or len(layers) > 12:
            return False
        matrices = [layer for layer in layers if isinstance(layer, SMALL)]
        rest = [layer for layer in layers if not isinstance(layer, (*SMALL, *NORMS))]
        inside = sum(1 for layer in layers for _ in (*layer.parameters(), *layer.buffers()))
        every = sum(1 for _ in (*module.parameters(), *module.buffers()))
        if not 1 <= len(matrices) <= 2 or not all(map(_is_matrix, matrices)) or every != inside \
                or any(True for layer in rest for _ in (*layer.parameters(), *layer.buffers())):
            return False
        into, out = _sides(matrices[0])
        return len(matrices) == 1 and into == out or len(matrices) == 2 and (out, into) == _sides(
            matrices[1])

    def check(self):
        layers = _layers(self.module)
        self.norms = [layer for layer in layers if isinstance(layer, NORMS)]
        matrices = [layer for layer in layers if isinstance(layer, SMALL)]
        need(len(self.norms) <= 1, "it has more than one normalization")
        need(not self.norms or self.norms[0].track_running_stats and self.norms[0].affine,
             "its normalization has no weights or no statistics")
        for layer in matrices:
            need_matrix(layer, "a layer of it")
        self.orders = [tuple(range(len(matrices)))]
        if len(matrices) == 2:
            (into, out), self.orders = _sides(matrices[0]), [(0, 1), (1, 0)]
            if into != out:  # the first one squeezes
                self.orders = [(0, 1)] if into > out else [(1, 0)]
        self.forms = self._trial()
        need(self.forms, "its results are not those of squeeze-and-excitation")

    def _forms(self):
        """All that the layers may mean."""
        acts = ACTIVATIONS.values() if len(self.orders[0]) == 2 else ["none"]
        for order, pool, act, gate in itertools.product(self.orders, POOLS, acts, GATES):
            yield {"order": order, "pool": pool, "activation": act, "gate": gate}

    @torch.no_grad()
    def _trial(self):
        """The forms that give what a copy of the module gives, in double."""
        twin = copy.deepcopy(self.module).double().eval()
        other = type(self)(twin)
        other.orders = self.orders
        other.norms = [layer for layer in _layers(twin) if isinstance(layer, NORMS)]
        layer = [part for part in _layers(twin) if isinstance(part, SMALL)][self.orders[0][0]]
        generator = torch.Generator().manual_seed(0)
        shape = (16, _sides(layer)[0], 5, 5)
        left = list(self._forms())
        for size, number in itertools.product(MAGNITUDES, range(len(self.orders[0]))):
            x = torch.randn(shape, generator=generator, dtype=torch.float64) + torch.randn(
                (*shape[:2], 1, 1), generator=generator, dtype=torch.float64)
            x = x * (size / other._spread(x, number))
            want = twin(x)
            need(isinstance(want, torch.Tensor) and want.shape == x.shape,
                 "it does not give a map of its input's size")
            bound = EXACT * want.abs().max().item()
            left = [form for form in left
                    if (other._result(x, form) - want).abs().max() <= bound]
        return left

    def _spread(self, x, number):
        """How far apart the results of the first or the second layer are for a map, about; one
        where its weights are zeros."""
        weights, y = self._weights(self.orders[0]), x.mean((2, 3))
        for name in ("w1", "w2")[:number + 1]:
            y = y @ weights[name].t()
        return y.std().item() or 1.0

    def _weights(self, order):
        matrices = [part for part in _layers(self.module) if isinstance(part, SMALL)]
        norm = self.norms[0] if self.norms else None
        need(norm is None or norm.num_features == _sides(matrices[order[0]])[1],
             "its normalization is not that of its first layer")
        return named(**{str(number + 1): matrix(matrices[index], None if number else norm)
                        for number, index in enumerate(order)})

    def _result(self, x, form):
        weights = self._weights(form["order"])
        return self._call(x, [weights.get(name) for name in ("w1", "b1", "w2", "b2")], form)

    def _call(self, x, operands, form):
        words = {word: form[word] for word in ("activation", "gate", "pool")}
        return call("SqueezeExcite", x, *operands, **words)

    def tensors(self):
        self.found = self._weights(self.forms[0]["order"])
        return self.found

    def forward(self, *args, **kwargs):
        given = [*args, *kwargs.values()]
        need(len(given) == 1 and isinstance(given[0], torch.Tensor) and given[0].dim() == 4,
             "it does not take exactly one map")
        return self._call(given[0], [self.tensor(name) if name in self.found else None
                                     for name in ("w1", "b1", "w2", "b2")], self.forms[0])
