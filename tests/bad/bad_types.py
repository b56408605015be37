"""bad_types.py - sequences and optionals whose contents are of other types than declared, and
results of which nothing says a type.

Q sequences and optionals read by an operator that trusts its row: the loop of another type,
or none at all, would run over memory that is not there.
"""
from onnx import ValueInfoProto, numpy_helper

from bad_case import (FLOAT, INT64, Case, TensorProto, as_list, field, graph_of, helper,
                      model_case, model_of, np, os, save, value)

STRINGS = np.array(["a", "b"], object)


def sequence_type(dtype=FLOAT):
    return helper.make_sequence_type_proto(helper.make_tensor_type_proto(dtype, None))


def optional_type(dtype=FLOAT):
    return helper.make_optional_type_proto(helper.make_tensor_type_proto(dtype, None))


def put(folder, name, message):
    with open(os.path.join(folder, name), "wb") as file:
        file.write(message)


def sequence(*arrays):
    """A SequenceProto: tensor_values are field 3."""
    return b"".join(field(3, numpy_helper.from_array(np.asarray(a)).SerializeToString())
                    for a in arrays)


def optional(array):
    """An OptionalProto: elem_type 1 (tensor), tensor_value is field 3."""
    tensor = numpy_helper.from_array(np.asarray(array)).SerializeToString()
    return b"\x10\x01" + field(3, tensor)


def case(name, what, exits, says, content, nodes, declared=None, out=FLOAT):
    """s: what is given; i int64 0; x float[3]; w float[1,1,1,1]; c bool[3]."""
    def write(folder):
        graph = graph_of(
            nodes, [helper.make_value_info("s", declared or sequence_type())],
            [value("y", out)],
            {"i": np.int64(0), "x": np.ones(3, np.float32),
             "w": np.ones((1, 1, 1, 1), np.float32), "c": np.ones(3, bool)})
        save(model_of(graph, 20), folder)
        put(folder, "s.pb", content)
        return ["run", "model.onnx", "-i", "s=s.pb"]
    return Case(f"Q_{name}", what, as_list(exits), says, write)


def at(op, *inputs, **attributes):
    """y = op of element 0, which is called t."""
    return [helper.make_node("SequenceAt", ["s", "i"], ["t"]),
            helper.make_node(op, list(inputs), ["y"], **attributes)]


def mapped(op, *inputs):
    body = helper.make_graph([helper.make_node(op, list(inputs), ["r"])], "body",
                             [value("e")], [value("r")])
    return [helper.make_node("SequenceMap", ["s"], ["m"], body=body),
            helper.make_node("ConcatFromSequence", ["m"], ["y"], axis=0)]


def inserted(name, at, exits, says):
    """SequenceInsert at a position of any number of elements."""
    place = numpy_helper.from_array(np.array(at, np.int64))
    nodes = [helper.make_node("Constant", [], ["at"], value=place),
             helper.make_node("SequenceInsert", ["s", "x", "at"], ["t"]), INSERT[1]]
    return case(f"insert_{name}", f"SequenceInsert at {at}", exits, says, sequence(F32), nodes)


CONCAT = [helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0)]
INSERT = [helper.make_node("SequenceInsert", ["s", "x"], ["t"]),
          helper.make_node("ConcatFromSequence", ["t"], ["y"], axis=0)]
GET = [helper.make_node("OptionalGetElement", ["s"], ["t"]),
       helper.make_node("Add", ["t", "x"], ["y"])]
F32, U8, F64 = np.ones(3, np.float32), np.ones(3, np.uint8), np.ones(3)

def loop_of_nothing(_folder):
    """In a branch: the body of a loop that does not run fails before its types are known."""
    def untyped(*names):
        return [ValueInfoProto(name=name) for name in names]
    body = graph_of([helper.make_node("ReduceL2", ["x"], ["w"], axes=[9]),
                     helper.make_node("Identity", ["c"], ["d"]),
                     helper.make_node("Identity", ["v"], ["s"])],
                    untyped("i", "c", "v"), untyped("d", "w", "s"))
    loop = helper.make_node("Loop", ["n", "", "x"], ["last", "all"], body=body)
    branches = [graph_of([node], [], untyped("all")) for node in
                (loop, helper.make_node("Relu", ["x"], ["all"]))]
    node = helper.make_node("If", ["b"], ["y"], then_branch=branches[0],
                            else_branch=branches[1])
    return model_of(graph_of([node], [value("b", TensorProto.BOOL, []), value("x", FLOAT, [2, 3])],
                             untyped("y"), {"n": np.int64(0)}), 11)


def stacked_nibbles(folder):
    body = graph_of([helper.make_node("Cast", ["x"], ["s"], to=TensorProto.UINT4),
                     helper.make_node("Identity", ["c"], ["k"])],
                    [value("i", INT64, []), value("c", TensorProto.BOOL, [])],
                    [value("k", TensorProto.BOOL, []), value("s", TensorProto.UINT4)])
    loop = helper.make_node("Loop", ["m", ""], ["y"], body=body)
    return model_of(graph_of([loop], [], [value("y", TensorProto.UINT4)],
                             {"m": np.int64(2), "x": np.ones(3, np.float32)}), 21)


def optional_of_other(kind):
    """An empty Optional whose attribute says a type that no optional may have."""
    node = helper.make_node("Optional", [], ["o"], type=kind)
    has = helper.make_node("OptionalHasElement", ["o"], ["y"])
    return lambda _folder: model_of(graph_of([node, has], [], [value("y", TensorProto.BOOL, [])]),
                                    18)


CASES = [
    model_case("Q_optional_map", "an optional map", 5, "attribute type is not",
               optional_of_other(helper.make_map_type_proto(INT64, helper.make_tensor_type_proto(
                   FLOAT, None)))),
    model_case("Q_optional_optional", "an optional optional", 5, "attribute type is not",
               optional_of_other(optional_type())),
    model_case("Q_optional_tensor", "control: an optional tensor", 0, "",
               optional_of_other(helper.make_tensor_type_proto(FLOAT, None))),
    model_case("Q_loop_of_nothing", "no iteration, no type", 5, "no element type", loop_of_nothing,
               ("-i", "b=ones", "-i", "x=ones")),
    case("good", "control: floats", 0, "", sequence(F32), at("Add", "t", "x")),
    case("empty", "control: an empty sequence", 0, "", b"",
         [helper.make_node("SequenceLength", ["s"], ["y"])], out=INT64),
    case("at_add", "u8 to Add of floats", 5, "u8", sequence(U8), at("Add", "t", "x")),
    case("at_tanh", "u8 to Tanh: no loop", 5, "u8", sequence(U8), at("Tanh", "t")),
    case("at_where", "u8 to Where", 5, "u8", sequence(U8), at("Where", "c", "t", "x")),
    case("at_pad", "u8 to Pad", 5, "u8", sequence(U8), at("Pad", "t", "i")),
    case("at_clip", "f64 to Clip", 5, "f64", sequence(F64), at("Clip", "t")),
    case("at_sum", "f64 to Sum", 5, "f64", sequence(F64), at("Sum", "t", "x")),
    case("at_matmul", "u8 to MatMul", 5, "u8", sequence(U8), at("MatMul", "t", "x")),
    case("at_conv", "u8 to Conv", 5, "u8", sequence(np.ones((1, 1, 4, 4), np.uint8)),
         at("Conv", "t", "w")),
    case("at_string", "text to Relu", 5, "string", sequence(STRINGS), at("Relu", "t")),
    case("at_number", "numbers to StringConcat", 5, "u8", sequence(U8),
         at("StringConcat", "t", "t"), sequence_type(TensorProto.STRING),
         TensorProto.STRING),
    case("mixed", "floats, then f64", 5, "f64", sequence(F32, F64), CONCAT),
    case("mixed_long", "floats, then many bytes", 5, "u8",
         sequence(F32, np.ones(100000, np.uint8)), CONCAT),
    case("insert", "floats into a sequence of u8", 5, "u8", sequence(U8), INSERT),
    inserted("two", [0, 1], 5, "one element"),
    inserted("none", [], 5, "one element"),
    inserted("end", [1], 0, ""),
    inserted("behind", [2], 7, "expected -1 to 1"),
    case("map", "SequenceMap over u8", 5, "u8", sequence(U8), mapped("Exp", "e")),
    case("map_two", "SequenceMap with a constant", 5, "f64", sequence(F64),
         mapped("Add", "e", "x")),
    case("optional_good", "control: an optional of floats", 0, "", optional(F32), GET,
         optional_type()),
    case("optional_u8", "an optional of u8", 5, "u8", optional(U8), GET, optional_type()),
    model_case("Q_loop_nibbles", "a Loop that stacks elements of 4 bits", 4, "whole bytes",
               stacked_nibbles),
]
