"""nn.LSTM, nn.GRU and nn.RNN as ONNX nodes of the same name while a module is exported.

The exporter would unroll them, or write a Loop where the length may differ. Gates are in
ONNX's order (LSTM i o f c from i f c o, GRU z r h from r z h) in buffers that exist for the
time of the export. Packed sequences, projections, and layers with a forward of their own are
left to the exporter.
"""
import contextlib
import types

import torch
from torch import nn

GATES = {nn.LSTM: (0, 3, 1, 2), nn.GRU: (1, 0, 2), nn.RNN: (0,)}


def _ordered(weight, kind):
    """The blocks of rows of a weight or bias, in ONNX's order."""
    blocks = weight.detach().chunk(len(GATES[kind]))
    return torch.cat([blocks[gate] for gate in GATES[kind]])


def _weights(rnn, layer):
    """W, R and B (None) of a layer, its directions stacked."""
    ends = [f"_l{layer}", f"_l{layer}_reverse"][:2 if rnn.bidirectional else 1]
    w, r = (torch.stack([_ordered(getattr(rnn, name + end), type(rnn)) for end in ends])
            for name in ("weight_ih", "weight_hh"))
    if not rnn.bias:
        return w, r, None
    return w, r, torch.stack([torch.cat([_ordered(getattr(rnn, name + end), type(rnn))
                                         for name in ("bias_ih", "bias_hh")])
                              for end in ends])


def _attributes(rnn):
    found = {"hidden_size": rnn.hidden_size}
    if rnn.bidirectional:
        found["direction"] = "bidirectional"
    if isinstance(rnn, nn.GRU):
        found["linear_before_reset"] = 1
    if isinstance(rnn, nn.RNN):
        word = "Tanh" if rnn.nonlinearity == "tanh" else "Relu"
        found["activations"] = [word] * (2 if rnn.bidirectional else 1)
    return found


def _layer(rnn, layer, x, states):
    """[y, h] or [y, h, c]: y (time, directions, batch, hidden); `states` like h and c, or
    None."""
    time, batch = x.shape[:2]
    directions = 2 if rnn.bidirectional else 1
    last = (directions, batch, rnn.hidden_size)
    shapes = [(time, *last), last] + ([last] if isinstance(rnn, nn.LSTM) else [])
    inputs = [x, *(getattr(rnn, f"attnrun_{name}{layer}") for name in "WRB")]
    if states is not None:
        inputs += [None, *states]
    while inputs[-1] is None:
        inputs.pop()
    return torch.onnx.ops.symbolic_multi_out(
        type(rnn).__name__, inputs, _attributes(rnn), dtypes=[x.dtype] * len(shapes),
        shapes=shapes)


def _forward(self, x, hx=None):
    """In place of the module's own forward."""
    if not isinstance(x, torch.Tensor) or x.dim() != 3:
        return type(self).forward(self, x, hx)
    given = [] if hx is None else list(hx) if isinstance(hx, tuple) else [hx]
    x = x.transpose(0, 1) if self.batch_first else x
    directions, ends = 2 if self.bidirectional else 1, []
    for layer in range(self.num_layers):
        rows = slice(layer * directions, (layer + 1) * directions)
        y, *last = _layer(self, layer, x, [state[rows] for state in given] or None)
        x = y.transpose(1, 2).flatten(2)
        ends.append(last)
    states = tuple(torch.cat(parts) if len(parts) > 1 else parts[0] for parts in zip(*ends))
    x = x.transpose(0, 1) if self.batch_first else x
    return x, states if isinstance(self, nn.LSTM) else states[0]


@contextlib.contextmanager
def as_nodes(module):
    """Inside, the recurrent layers of `module` export as nodes; eager they don't run."""
    found = [part for part in module.modules()
             if type(part) in GATES and not part.proj_size and not part.training
             and "forward" not in vars(part)]
    try:
        for rnn in found:
            for layer in range(rnn.num_layers):
                for name, value in zip("WRB", _weights(rnn, layer)):
                    rnn.register_buffer(f"attnrun_{name}{layer}", value, persistent=False)
            rnn.forward = types.MethodType(_forward, rnn)
        yield
    finally:
        for rnn in found:
            rnn.__dict__.pop("forward", None)
            for name in [n for n in rnn._buffers if n.startswith("attnrun_")]:
                delattr(rnn, name)
