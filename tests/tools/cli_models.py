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


def gelu(path):
    """GELU as its formula."""
    nodes = [helper.make_node("Div", ["x", "root"], ["a"]), helper.make_node("Erf", ["a"], ["b"]),
             helper.make_node("Add", ["b", "one"], ["c"]),
             helper.make_node("Mul", ["x", "c"], ["d"]),
             helper.make_node("Mul", ["d", "half"], ["y"])]
    return save(path, nodes, [("x", TensorProto.FLOAT, ["N", 4])],
                [("y", TensorProto.FLOAT, ["N", 4])],
                [("root", numpy.float32(2 ** 0.5)), ("one", numpy.float32(1)),
                 ("half", numpy.float32(0.5))])


def two_layers(path):
    """x -> hidden -> y, two products over the last axis."""
    weight = numpy.random.default_rng(0).normal(size=(8, 8)).astype("f")
    return save(path, [helper.make_node("MatMul", ["x", "first"], ["product"]),
                       helper.make_node("Tanh", ["product"], ["hidden"]),
                       helper.make_node("MatMul", ["hidden", "second"], ["y"])],
                [("x", TensorProto.FLOAT, ["batch", "seq", 8])],
                [("y", TensorProto.FLOAT, ["batch", "seq", 8])],
                [("first", weight), ("second", weight.T)])


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


def many_samples(path):
    """RoiAlign of 1,024 bins of 1.7e7 samples, all on the image."""
    return save(path, [helper.make_node("RoiAlign", ["x", "roi", "image"], ["y"],
                                        output_height=32, output_width=32, sampling_ratio=4096)],
                [("x", TensorProto.FLOAT, [1, 1, 8, 8])], [("y", TensorProto.FLOAT, None)],
                [("roi", numpy.array([[0, 0, 7, 7]], "f")),
                 ("image", numpy.zeros(1, numpy.int64))])


def large_matrix(path, op_type, **attributes):
    """An operator on 4,000 x 4,000 numbers, no singular matrix, that takes many seconds."""
    return save(path, [helper.make_node("ConstantOfShape", ["shape"], ["zeros"]),
                       helper.make_node("EyeLike", ["zeros"], ["m"]),
                       helper.make_node("Add", ["m", "x"], ["v"]),
                       helper.make_node(op_type, ["v"], ["y"], **attributes)],
                [("x", TensorProto.FLOAT, [1, 4000])], [("y", TensorProto.FLOAT, None)],
                [("shape", numpy.array([4000, 4000]))])


def swiglu(path):
    return save(path, [helper.make_node("Swiglu", ["a", "b"], ["y"], domain="example",
                                        alpha=2.0)],
                [("a", TensorProto.FLOAT, ["N"]), ("b", TensorProto.FLOAT, ["N"])],
                [("y", TensorProto.FLOAT, ["N"])], domains=["example"])


def nested(path):
    """An If in the body of a Loop: one of its branches is a product with a bias, which fuse, and
    the other one has a weight of the same name."""
    node, value = helper.make_node, helper.make_tensor_value_info
    F, B = TensorProto.FLOAT, TensorProto.BOOL
    half = numpy_helper.from_array(numpy.full((4, 4), 0.5, "f"), "w")
    then = helper.make_graph(
        [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["q"]),
         node("Relu", ["q"], ["t"])], "then graph", [], [value("t", F, None)], [half])
    other = helper.make_graph([node("Mul", ["v", "w"], ["e"])], "", [], [value("e", F, None)],
                              [numpy_helper.from_array(numpy.ones((4, 4), "f"), "w")])
    body = helper.make_graph(
        [node("Less", ["i", "two"], ["early"]),
         node("If", ["early"], ["n"], name="choose", then_branch=then, else_branch=other),
         node("Identity", ["go"], ["again"])], "body",
        [value("i", TensorProto.INT64, ()), value("go", B, ()), value("v", F, None)],
        [value("again", B, ()), value("n", F, None)])
    return save(path, [node("Loop", ["trips", "", "x"], ["y"], name="turns", body=body)],
                [("x", F, [4, 4])], [("y", F, [4, 4])],
                [("b", numpy.ones(4, "f")), ("trips", numpy.int64(3)), ("two", numpy.int64(2))])


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


def detector(path, named=True):
    """A voice detector's bones: a filter of 256 samples, and a state of its LSTM whose batch
    has no name; `named` False: the states' place says nothing either."""
    state = "state" if named else "s"
    rng = numpy.random.default_rng(2)
    nodes = [helper.make_node("Unsqueeze", ["input", "one"], ["wave"]),
             helper.make_node("Conv", ["wave", "filter"], ["seen"], strides=[64]),
             helper.make_node("Transpose", ["seen"], ["steps"], perm=[2, 0, 1]),
             helper.make_node("LSTM", ["steps", "w", "r", "", "", state], ["", "y"],
                              hidden_size=8)]
    return save(path, nodes, [("input", TensorProto.FLOAT, [None, None]),
                              (state, TensorProto.FLOAT, [1, None, 8])],
                [("y", TensorProto.FLOAT, None)],
                [("filter", rng.normal(size=(4, 1, 256)).astype("f")),
                 ("w", rng.normal(size=(1, 32, 4)).astype("f")),
                 ("r", rng.normal(size=(1, 32, 8)).astype("f")), ("one", numpy.array([1]))])


def two_widths(path):
    """Widths that only the weights tell: 80 and 48."""
    rng = numpy.random.default_rng(4)
    return save(path, [helper.make_node("MatMul", ["left", "w80"], ["a"]),
                       helper.make_node("MatMul", ["right", "w48"], ["b"]),
                       helper.make_node("Add", ["a", "b"], ["y"])],
                [("left", TensorProto.FLOAT, ["n0", "n1"]),
                 ("right", TensorProto.FLOAT, ["n2", "n3"])],
                [("y", TensorProto.FLOAT, None)],
                [("w80", rng.normal(size=(80, 8)).astype("f")),
                 ("w48", rng.normal(size=(48, 8)).astype("f"))])


def never(path):
    """No size of x fits: 3 and 5 are to be equal."""
    return save(path, [helper.make_node("Concat", ["x", "x3"], ["a"], axis=0),
                       helper.make_node("Concat", ["x", "x5"], ["b"], axis=0)],
                [("x", TensorProto.FLOAT, ["S", "W"])],
                [("a", TensorProto.FLOAT, None), ("b", TensorProto.FLOAT, None)],
                [("x3", numpy.zeros((1, 3), "f")), ("x5", numpy.zeros((1, 5), "f"))])


def bounds(path):
    """log(high - low) of two numbers that have an order."""
    return save(path, [helper.make_node("Sub", ["high", "low"], ["range"]),
                       helper.make_node("Mul", ["range", "range"], ["square"]),
                       helper.make_node("Neg", ["square"], ["below"]),
                       helper.make_node("Log", ["below"], ["log"]),
                       helper.make_node("Add", ["audio", "log"], ["y"])],
                [("audio", TensorProto.FLOAT, [4]), ("low", TensorProto.FLOAT, []),
                 ("high", TensorProto.FLOAT, [])], [("y", TensorProto.FLOAT, [4])])
