"""Small models for the tests of the command line, made with the onnx package."""
import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper


def save(path, nodes, inputs, outputs, weights=(), opset=18, domains=(), ir=9):
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(*i) for i in inputs],
        [helper.make_tensor_value_info(*o) for o in outputs],
        [numpy_helper.from_array(numpy.asarray(w), n) for n, w in weights])
    opsets = [helper.make_opsetid("", opset)] + [helper.make_opsetid(d, 1) for d in domains]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=ir,
                              producer_name="test", producer_version="1")
    onnx.save(model, path)
    return str(path)


def matmul(path):
    return save(path, [helper.make_node("MatMul", ["a", "b"], ["y"], name="product")],
                [("a", TensorProto.FLOAT, ["M", "K"]), ("b", TensorProto.FLOAT, ["K", "N"])],
                [("y", TensorProto.FLOAT, ["M", "N"])])


def relu(path, shape=(2, 3)):
    return save(path, [helper.make_node("Relu", ["x"], ["y"])],
                [("x", TensorProto.FLOAT, list(shape))],
                [("y", TensorProto.FLOAT, list(shape))])


def embedding(path, rows=37):
    """ids -> table rows, masked, mean over the sequence; positions at most 64."""
    table = numpy.random.default_rng(0).normal(size=(rows, 8)).astype("f")
    places = numpy.random.default_rng(1).normal(size=(64, 8)).astype("f")
    nodes = [
        helper.make_node("Cast", ["ids"], ["ids32"], to=TensorProto.INT32),
        helper.make_node("Gather", ["table", "ids32"], ["words"]),
        helper.make_node("Shape", ["ids"], ["length"], start=1, end=2),
        helper.make_node("Squeeze", ["length"], ["length0"]),
        helper.make_node("Range", ["zero", "length0", "one"], ["range"]),
        helper.make_node("Gather", ["places", "range"], ["where"]),
        helper.make_node("Add", ["words", "where"], ["both"]),
        helper.make_node("Cast", ["attention_mask"], ["maskf"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["maskf", "last"], ["mask3"]),
        helper.make_node("Mul", ["both", "mask3"], ["y"]),
    ]
    return save(path, nodes,
                [("ids", TensorProto.INT64, ["B", "S"]),
                 ("attention_mask", TensorProto.INT64, ["B", "S"])],
                [("y", TensorProto.FLOAT, ["B", "S", 8])],
                [("table", table), ("places", places), ("zero", numpy.int64(0)),
                 ("one", numpy.int64(1)), ("last", numpy.array([-1]))])


def endless(path):
    """A Loop of 2^62 turns."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["again"]),
         helper.make_node("Sin", ["v"], ["w"])], "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []),
         helper.make_tensor_value_info("go", TensorProto.BOOL, []),
         helper.make_tensor_value_info("v", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("again", TensorProto.BOOL, []),
         helper.make_tensor_value_info("w", TensorProto.FLOAT, [4])])
    return save(path, [helper.make_node("Loop", ["n", "yes", "x"], ["y"], body=body)],
                [("x", TensorProto.FLOAT, [4])], [("y", TensorProto.FLOAT, [4])],
                [("n", numpy.int64(1 << 62)), ("yes", numpy.bool_(True))])


def swiglu(path):
    return save(path, [helper.make_node("Swiglu", ["a", "b"], ["y"], domain="example",
                                        alpha=2.0)],
                [("a", TensorProto.FLOAT, ["N"]), ("b", TensorProto.FLOAT, ["N"])],
                [("y", TensorProto.FLOAT, ["N"])], domains=["example"])


def missing(path):
    return save(path, [helper.make_node("Nowhere", ["x"], ["h"], domain="a.b"),
                       helper.make_node("Unheard", ["h"], ["y"], domain="a.b")],
                [("x", TensorProto.FLOAT, [2])], [("y", TensorProto.FLOAT, [2])],
                domains=["a.b"])


def divide(path):
    return save(path, [helper.make_node("Div", ["x", "zero"], ["y"])],
                [("x", TensorProto.FLOAT, [2])], [("y", TensorProto.FLOAT, [2])],
                [("zero", numpy.zeros(2, "f"))])


def with_cache(path):
    return save(path, [helper.make_node("Concat", ["past_k", "k"], ["present_k"], axis=2),
                       helper.make_node("Concat", ["past_v", "v"], ["present_v"], axis=2)],
                [(n, TensorProto.FLOAT, ["B", 2, d, 4])
                 for n, d in (("past_k", "P"), ("past_v", "P"), ("k", "N"), ("v", "N"))],
                [(n, TensorProto.FLOAT, None) for n in ("present_k", "present_v")])


def with_past(path):
    """A mask over the past and the sequence, as models with a cache have it."""
    return save(path, [helper.make_node("Identity", ["ids"], ["y"]),
                       helper.make_node("Identity", ["attention_mask"], ["m"]),
                       helper.make_node("Identity", ["past_k"], ["k"])],
                [("ids", TensorProto.INT64, ["B", "S"]),
                 ("attention_mask", TensorProto.INT64, ["B", "T2"]),
                 ("past_k", TensorProto.FLOAT, ["B", 2, "P", 4])],
                [("y", TensorProto.INT64, ["B", "S"]), ("m", TensorProto.INT64, ["B", "T2"]),
                 ("k", TensorProto.FLOAT, ["B", 2, "P", 4])])
