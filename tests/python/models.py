"""Small models that the tests of the Python package share, as bytes."""
import numpy as np
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


def serialized(nodes, inputs, outputs, initializers=(), opset=21, **more):
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs),
                              list(initializers))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)],
                              ir_version=10, producer_name="tests", **more)
    helper.set_model_props(model, {"language": "en", "labels": "a,b"})
    return model.SerializeToString()


def value(name, dtype, shape):
    return helper.make_tensor_value_info(name, dtype, shape)


def linear(weights):
    """y = x W, z = relu(y); x is (B, K)."""
    k, n = weights.shape
    return serialized(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product"),
         helper.make_node("Relu", ["y"], ["z"])],
        [value("x", FLOAT, ["B", k])],
        [value("y", FLOAT, ["B", n]), value("z", FLOAT, ["B", n])],
        [numpy_helper.from_array(weights, "w")])


def two_shapes():
    """y = -x, and the same elements as one list: flat."""
    return serialized([helper.make_node("Neg", ["x"], ["y"]),
                       helper.make_node("Reshape", ["y", "one"], ["flat"])],
                      [value("x", FLOAT, [2, "N"])],
                      [value("y", FLOAT, [2, "N"]), value("flat", FLOAT, ["M"])],
                      [numpy_helper.from_array(np.array([-1]), "one")])


def cast(dtype):
    return serialized([helper.make_node("Cast", ["x"], ["y"], to=dtype)],
                      [value("x", FLOAT, ["N"])], [value("y", dtype, ["N"])])


def pair():
    """A sequence of ones and x."""
    return serialized([helper.make_node("SequenceConstruct", ["one", "x"], ["y"])],
                      [value("x", FLOAT, ["N"])],
                      [helper.make_tensor_sequence_value_info("y", FLOAT, None)],
                      [numpy_helper.from_array(np.ones(3, "f"), "one")])


def encoder(dim):
    """y = x and attention over the tokens of x (B, S, dim) that the mask shows."""
    def cut(name, perm):
        return [helper.make_node("Reshape", ["x", "heads"], [f"{name}1"]),
                helper.make_node("Transpose", [f"{name}1"], [name], perm=perm)]

    return serialized(
        [*cut("q", [0, 2, 1, 3]), *cut("k", [0, 2, 3, 1]), *cut("v", [0, 2, 1, 3]),
         helper.make_node("Cast", ["mask"], ["kept"], to=FLOAT),
         helper.make_node("Unsqueeze", ["kept", "axes"], ["kept4"]),
         helper.make_node("Sub", ["kept4", "one"], ["left"]),
         helper.make_node("Mul", ["left", "far"], ["added"]),
         helper.make_node("MatMul", ["q", "k"], ["scores"]),
         helper.make_node("Add", ["scores", "added"], ["masked"]),
         helper.make_node("Softmax", ["masked"], ["p"], axis=-1),
         helper.make_node("MatMul", ["p", "v"], ["y1"]),
         helper.make_node("Transpose", ["y1"], ["y2"], perm=[0, 2, 1, 3]),
         helper.make_node("Reshape", ["y2", "flat"], ["y3"]),
         helper.make_node("Add", ["x", "y3"], ["y"])],
        [value("x", FLOAT, ["B", "S", dim]), value("mask", TensorProto.INT64, ["B", "S"])],
        [value("y", FLOAT, ["B", "S", dim])],
        [numpy_helper.from_array(np.array(v), name) for name, v in
         (("heads", [0, 0, 2, dim // 2]), ("flat", [0, 0, dim]), ("axes", [1, 2]),
          ("one", np.float32(1)), ("far", np.float32(1e4)))])


def identity(dtype, shape=("N",), name="x"):
    return serialized([helper.make_node("Identity", [name], ["y"])],
                      [value(name, dtype, list(shape))], [value("y", dtype, list(shape))])


def joined():
    """y holds the numbers of the sequence x."""
    number = helper.make_tensor_type_proto(FLOAT, [])
    return serialized([helper.make_node("ConcatFromSequence", ["x"], ["y"], axis=0, new_axis=1)],
                      [helper.make_value_info("x", helper.make_sequence_type_proto(number))],
                      [value("y", FLOAT, ["N"])])


def cache(batch=False):
    """present = past followed by x along axis 0, 1 in a batch; total is its sum."""
    rows = ["B"] if batch else []
    return serialized(
        [helper.make_node("Concat", ["past", "x"], ["present"], axis=len(rows)),
         helper.make_node("ReduceSum", ["present"], ["total"], keepdims=0)],
        [value("past", FLOAT, rows + ["P", 2]), value("x", FLOAT, rows + ["S", 2])],
        [value("present", FLOAT, rows + ["T", 2]), value("total", FLOAT, [])])


def slow_to_open(boxes=10**6):
    """Constants whose every pair is compared at load: half an hour."""
    def filled(name, shape):
        dims = numpy_helper.from_array(np.array(shape, np.int64), f"{name} shape")
        return helper.make_node("ConstantOfShape", [f"{name} shape"], [name]), dims

    made = [filled("boxes", [1, boxes, 4]), filled("scores", [1, 1, boxes])]
    return serialized(
        [*(node for node, _ in made),
         helper.make_node("NonMaxSuppression", ["boxes", "scores", "most"], ["kept"]),
         helper.make_node("Add", ["kept", "x"], ["y"])],
        [value("x", TensorProto.INT64, [1])], [value("y", TensorProto.INT64, None)],
        [*(shape for _, shape in made),
         numpy_helper.from_array(np.array(boxes, np.int64), "most")])


def endless(turns=10**9):
    """A loop that nobody waits for the end of; its body is one addition."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["c_in"], ["c_out"]),
         helper.make_node("Add", ["v_in", "step"], ["v_out"])], "body",
        [value("i", TensorProto.INT64, []), value("c_in", TensorProto.BOOL, []),
         value("v_in", FLOAT, [4])],
        [value("c_out", TensorProto.BOOL, []), value("v_out", FLOAT, [4])])
    return serialized(
        [helper.make_node("Loop", ["turns", "", "x"], ["y"], body=body)],
        [value("x", FLOAT, [4]), value("step", FLOAT, [4])], [value("y", FLOAT, [4])],
        [numpy_helper.from_array(np.array(turns, np.int64), "turns")])
