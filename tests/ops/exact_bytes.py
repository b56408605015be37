"""Signed bytes as weights that ONNX Runtime multiplies without an error on this machine.

Without VNNI its kernels for x86-64 add two products of u8 and i8 in 16 bits, which saturate:
its results of large weights are then wrong by up to a third, and no reference. Weights of 7 bits
cannot saturate (2 * 255 * 64 < 2^15), which is what its tool calls reduce_range.
"""
import functools

import numpy as np
import onnxruntime
from onnx import helper


@functools.cache
def sums_are_exact():
    """Whether weights may have all 8 bits here, by the product of the largest ones."""
    a, b = np.full((8, 64), 255, "u1"), np.full((64, 32), 127, "i1")
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "b"], ["y"])], "product",
        [helper.make_tensor_value_info("a", 2, a.shape),
         helper.make_tensor_value_info("b", 3, b.shape)],
        [helper.make_tensor_value_info("y", 6, None)])
    model = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])
    session = onnxruntime.InferenceSession(model.SerializeToString(),
                                           providers=["CPUExecutionProvider"])
    y = session.run(None, {"a": a, "b": b})[0]
    return bool((y == 64 * 255 * 127).all())


def exact_weights(weights, terms=1):
    """`weights`, or, where ONNX Runtime's sums saturate and they are signed, their upper bits, so
    that a sum of `terms` of them has 7. Bytes without sign stay: their sums are exact."""
    if weights.dtype != np.int8 or sums_are_exact():
        return weights
    return weights >> terms
