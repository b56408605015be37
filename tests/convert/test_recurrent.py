"""Recurrent layers as ONNX nodes, whatever the length.

usage: test_recurrent.py ROOT ATTNRUN [test …]
"""
import onnx
import torch
from torch import nn

import common
from attnrun_convert import convert


class Net(nn.Module):
    """One layer of each kind after the other; `given`: its first state is an input."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 5, 2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(10, 7, batch_first=True)
        self.rnn = nn.RNN(7, 4, nonlinearity="relu", bias=False, bidirectional=True)

    def forward(self, x, state):
        y, (h, c) = self.lstm(x)
        y, last = self.gru(y, state)
        z, end = self.rnn(y.transpose(0, 1))
        return z, h, c, last, end


def test_recurrent_nodes_at_other_sizes(folder):
    torch.manual_seed(0)
    net, path = Net().eval(), folder / "net.onnx"
    axes = {"x": {0: "batch", 1: "time"}, "state": {1: "batch"}}
    names = ["z", "h", "c", "last", "end"]
    convert(net, (torch.randn(2, 9, 6), torch.randn(1, 2, 7)), dynamic=axes, output=path,
            output_names=names)
    kinds = [node.op_type for node in onnx.load(path).graph.node]
    assert kinds.count("LSTM") == 2 and kinds.count("GRU") == 1 and kinds.count("RNN") == 1
    assert not {"Loop", "Scan"} & set(kinds), kinds
    assert net.lstm(torch.randn(1, 3, 6))[0].shape == (1, 3, 10)  # eager again
    for batch, time in ((2, 9), (3, 1), (1, 30)):
        feeds = {"x": torch.randn(batch, time, 6), "state": torch.randn(1, batch, 7)}
        want = net(**feeds)
        common.close(common.in_onnxruntime(path, feeds), want, what="onnxruntime")
        common.close(common.in_attnrun(path, feeds, names), want, what="attnrun")


def test_a_forward_of_its_own_stays(folder):
    """What a user put around the forward of a layer is part of the model."""
    torch.manual_seed(0)
    gru, path, x = nn.GRU(6, 7, batch_first=True).eval(), folder / "gru.onnx", torch.randn(2, 9, 6)
    original = gru.forward
    gru.forward = lambda x: tuple(2 * y for y in original(x))
    want = gru(x)
    convert(gru, x, output=path, output_names=["y", "last"], attnrun=common.ATTNRUN, quiet=True)
    common.close(common.in_attnrun(path, {"x": x}, ["y", "last"]), want)
    common.close([y.detach().numpy() for y in gru(x)], want)


if __name__ == "__main__":
    common.main([test_recurrent_nodes_at_other_sizes, test_a_forward_of_its_own_stays])
