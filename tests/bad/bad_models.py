"""bad_models.py - models that break the format or the rules of a graph.

W wire format, M graph, T tensors, X external data. Malformed is exit code 3, beyond a
limit 6, not supported 4, shapes and attributes 5 (see attnrun_status in attnrun.h).
"""
from bad_case import (FLOAT, INT64, TensorProto, field, graph_of, helper, loaded,
                      model_case, model_of, np, os, relu, save, simple, value, varint)

MODEL = (3, 5)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, **attributes)


def raw(data):
    return lambda folder: data


def good_bytes():
    return relu().SerializeToString()


def header():
    """ModelProto without a graph: ir_version and the opset."""
    return b"\x08\x0a" + field(8, b"\x10\x12")


def nest(payload, depth, *numbers):
    for _ in range(depth):
        for number in numbers:
            payload = field(number, payload)
    return payload


WIRE = [
    model_case("W01_empty", "zero-byte file", 3, "empty|graph|bytes", raw(b"")),
    model_case("W03_noise", "4096 random bytes", 3, "model.onnx",
               raw(np.random.default_rng(1).bytes(4096))),
    model_case("W04_trunc_half", "a good model cut in half", 3, "model.onnx",
               lambda f: good_bytes()[: len(good_bytes()) // 2]),
    model_case("W05_trunc_1", "a good model without its last byte", 3, "model.onnx",
               lambda f: good_bytes()[:-1]),
    model_case("W06_len_2g", "graph length says 2^31-1", 3, "model.onnx",
               raw(header() + varint(7 << 3 | 2) + varint(2**31 - 1) + b"abc")),
    model_case("W07_len_2_63", "graph length says 2^63-1", 3, "model.onnx",
               raw(header() + varint(7 << 3 | 2) + varint(2**63 - 1) + b"abc")),
    model_case("W08_varint_11", "a length of 11 bytes", 3, "model.onnx",
               raw(header() + b"\x3a" + b"\xff" * 10 + b"\x01")),
    model_case("W09_field_0", "field number 0", 3, "model.onnx",
               raw(good_bytes() + b"\x02\x01a")),
    model_case("W10_group_open", "a group that is never closed", 3, "model.onnx",
               raw(good_bytes() + b"\xa3\x06")),
    model_case("W12_graph_varint", "the graph sent as a varint", 3, "model.onnx",
               raw(header() + b"\x38\x05")),
    model_case("W14_merge_20k", "20000 graph fields", (3, 6), "model.onnx",
               raw(header() + field(7, b"") * 20000)),
    model_case("W15_type_nest", "a sequence type nested 30000 deep", (3, 6), "model.onnx",
               lambda f: header() + field(7, field(11, field(1, b"x") + field(
                   2, nest(b"", 30000, 1, 4))))),
    model_case("W16_graph_nest", "graph attributes nested 20000 deep", (3, 6),
               "model.onnx", lambda f: header() + field(7, nest(b"", 20000, 6, 5, 1))),
    model_case("W17_empty_nodes", "200000 empty nodes", (3, 6), "node|model.onnx",
               raw(header() + field(7, field(1, b"") * 200000))),
    model_case("W18_empty_attrs", "one node with 200000 empty attributes", (3, 5, 6),
               "attribute|node|model.onnx",
               raw(header() + field(7, field(1, field(5, b"") * 200000)))),
    model_case("W19_unknown_fields", "1000 unknown fields", 0, "",
               lambda f: good_bytes() + field(1000, b"abc") * 1000),
    model_case("W25_nul_in_name", "a tensor name with a zero byte", (0, 3), "name",
               lambda f: simple([node("Relu", ["x"], ["a\0b"]), node("Abs", ["x"], ["a\0c"]),
                                 node("Add", ["a\0b", "a\0c"], ["y"])])),
    model_case("W28_ir_999", "ir_version 999", 4, "999",
               lambda f: simple([node("Relu", ["x"], ["y"])], ir_version=999)),
]


def loop_of_three():
    return [node("Add", ["x", "c"], ["a"]), node("Relu", ["a"], ["b"]),
            node("Relu", ["b"], ["c"]), node("Relu", ["c"], ["y"])]


def bad_attribute(**fields):
    attribute = helper.make_attribute("value", 1)
    attribute.Clear()
    for name, content in fields.items():
        setattr(attribute, name, content)
    made = node("Constant", [], ["y"])
    made.attribute.append(attribute)
    return simple([made])


def if_without_branch(folder):
    made = node("If", ["c"], ["y"])
    for name in ("then_branch", "else_branch"):
        made.attribute.add(name=name, type=5)
    return simple([made], consts={"c": np.array(True)})


def branch(count, source="x"):
    return graph_of([node("Relu", [source], [f"o{k}"]) for k in range(count)], [],
                    [value(f"o{k}") for k in range(count)])


def if_model(then, otherwise, after=(), fed=False):
    """`fed`: the condition is an input, so that no branch is dropped at load."""
    made = node("If", ["c"], ["y"], then_branch=then, else_branch=otherwise)
    model = simple([made, *after], consts={} if fed else {"c": np.array(True)})
    if fed:
        model.graph.input.append(value("c", TensorProto.BOOL, []))
    return model


def if_half_folded(folder):
    """Of one branch, inference folds the first node and cannot infer the second."""
    weights = [helper.make_tensor("w", FLOAT, [4, 3], [1.0] * 12)]
    broken = helper.make_graph([node("ReduceSum", ["w"], ["s"]),
                                node("MatMul", ["w", "w"], ["o0"])], "broken", [],
                               [value("o0")], weights)
    return if_model(branch(1), broken, fed=True)


def if_of_two(folder):
    made = node("If", ["c"], ["y", "z"], then_branch=branch(1), else_branch=branch(1))
    model = simple([made])
    model.graph.input.append(value("c", TensorProto.BOOL, []))
    model.graph.output.append(value("z"))
    return model


def nested_if(depth):
    """Written on the wire: the protobuf package itself stops at a depth of 100."""
    other = branch(1).SerializeToString()
    inner = other
    for k in range(depth):
        name = f"n{k}".encode()
        branches = b"".join(
            field(5, field(1, label) + field(6, graph) + b"\xa0\x01\x05")
            for label, graph in ((b"then_branch", inner), (b"else_branch", other)))
        made = field(1, b"c") + field(2, name) + field(4, b"If") + branches
        inner = field(1, made) + field(2, b"g") + field(
            12, value(name.decode()).SerializeToString())
    ends = field(5, loaded(np.array(True)).SerializeToString()) + field(
        11, value("x", FLOAT, [2]).SerializeToString())
    return header() + field(7, inner + ends)


def function(name, nodes, inputs=("a",), outputs=("b",)):
    return helper.make_function(
        "own", name, list(inputs), list(outputs), nodes,
        [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)])


def own(name, source, target):
    return node(name, [source], [target], domain="own")


def calls(functions, first):
    return simple([own(first, "x", "y")], domains=["own"], functions=functions)


def laughs(folder):
    functions = [function("F0", [node("Relu", ["a"], ["b"])])]
    for k in range(1, 31):
        functions.append(function(f"F{k}", [own(f"F{k - 1}", "a", "m"),
                                            own(f"F{k - 1}", "m", "b")]))
    return calls(functions, "F30")


def deep_functions(folder):
    functions = [function("F0", [node("Relu", ["a"], ["b"])])]
    functions += [function(f"F{k}", [own(f"F{k - 1}", "a", "b")]) for k in range(1, 3000)]
    return calls(functions, "F2999")


def recursion_in_if(folder):
    inner = graph_of([own("F", "a", "i")], [], [value("i")])
    made = node("If", ["c"], ["b"], then_branch=inner, else_branch=inner)
    return calls([function("F", [node("Constant", [], ["c"], value_int=1), made])], "F")


def chain(folder):
    names = ["x"] + [f"t{k}" for k in range(19999)] + ["y"]
    return simple([node("Identity", [a], [b]) for a, b in zip(names, names[1:])])


def index_sum(folder):
    """Scores are gathered by a sum of 60000 terms, which a pass follows."""
    names = ["i"] + [f"t{k}" for k in range(60000)]
    nodes = [node("Cast", ["x"], ["i"], to=INT64)]
    nodes += [node("Mul", ["i", "zero"], ["t0"])]
    nodes += [node("Add", [a, "t0"], [b]) for a, b in zip(names[1:], names[2:])]
    nodes += [node("Gather", ["scores", names[-1]], ["s"], axis=3),
              node("Softmax", ["s"], ["y"], axis=-1)]
    return simple(nodes, consts={"zero": np.zeros(1, np.int64),
                                 "scores": np.ones((1, 16, 2, 8), np.float32)})


def fold_bomb(folder):
    nodes = [node("Concat", [f"c{k}", f"c{k}"], [f"c{k + 1}"], axis=0) for k in range(40)]
    nodes.append(node("ReduceMax", ["c40"], ["m"]))
    nodes.append(node("Add", ["x", "m"], ["y"]))
    return simple(nodes, consts={"c0": np.ones(1, np.float32)})


def inputs_twice(folder):
    graph = graph_of([node("Relu", ["x"], ["y"])],
                     [value("x", FLOAT, [2]), value("x", INT64, [9])], [value("y")])
    return model_of(graph)


def two_initializers(folder):
    graph = graph_of([node("Add", ["x", "c"], ["y"])], [value("x", FLOAT, [1])],
                     [value("y")])
    graph.initializer.extend([loaded(np.ones(1, np.float32)),
                              loaded(np.ones(100, np.float32))])
    return model_of(graph)


def input_type(elem_type, shape, op="Relu"):
    graph = graph_of([node(op, ["x"], ["y"])], [value("x", elem_type, shape)],
                     [value("y")])
    return model_of(graph)


def no_type(folder):
    model = relu()
    model.graph.input[0].ClearField("type")
    return model


def no_opset(folder):
    model = relu()
    model.ClearField("opset_import")
    return model


def wrong_value_info(folder):
    model = simple([node("Relu", ["x"], ["t"]), node("Relu", ["t"], ["y"])])
    model.graph.value_info.append(value("t", INT64, [1000000]))
    return model


def reference_outside(folder):
    made = node("Softmax", ["x"], ["y"])
    made.attribute.add(name="axis", ref_attr_name="k", type=2)
    return simple([made])


GRAPH = [
    model_case("M02_no_opset", "no opset_import", (0, 3), "opset", no_opset),
    model_case("M03_opset_9999", "opset 9999", 4, "9999",
               lambda f: simple([node("Relu", ["x"], ["y"])], opset=9999)),
    model_case("M05_unknown_domain", "a domain nobody registered", 4, "nowhere",
               lambda f: simple([node("Relu", ["x"], ["y"], domain="nowhere")],
                                domains=["nowhere"])),
    model_case("M06_unknown_op", "an operator that does not exist", 4, "Relo",
               lambda f: simple([node("Relo", ["x"], ["y"])])),
    model_case("M07_no_op_type", "a node without op_type", (3, 4), "op_type|operator|node",
               lambda f: simple([node("", ["x"], ["y"])])),
    model_case("M11_dangling_input", "a name nobody makes", MODEL, "ghost",
               lambda f: simple([node("Add", ["x", "ghost"], ["y"])])),
    model_case("M12_too_few_inputs", "Add with one input", MODEL, "Add",
               lambda f: simple([node("Add", ["x"], ["y"])])),
    model_case("M13_too_many_inputs", "Relu with three inputs", MODEL, "Relu",
               lambda f: simple([node("Relu", ["x", "x", "x"], ["y"])])),
    model_case("M14_too_many_outputs", "Relu with three outputs", MODEL, "Relu",
               lambda f: simple([node("Relu", ["x"], ["y", "z", "w"])])),
    model_case("M15_required_input_empty", "Add('', x)", MODEL, "Add",
               lambda f: simple([node("Add", ["", "x"], ["y"])])),
    model_case("M16_self_cycle", "a node that reads its own output", MODEL, "y",
               lambda f: simple([node("Add", ["x", "y"], ["y"])])),
    model_case("M17_cycle_3", "a cycle of three nodes", MODEL, "cycle|order|'c'",
               lambda f: simple(loop_of_three())),
    model_case("M18_unsorted", "not in topological order", (0, 3, 5), "order|'t'",
               lambda f: simple([node("Relu", ["t"], ["y"]), node("Relu", ["x"], ["t"])])),
    model_case("M19_dup_output_name", "two nodes write one name", MODEL, "'y'|twice",
               lambda f: simple([node("Relu", ["x"], ["y"]), node("Abs", ["x"], ["y"])])),
    model_case("M20_output_is_input", "a node writes a graph input", MODEL, "'x'",
               lambda f: simple([node("Abs", ["x"], ["x"]), node("Relu", ["x"], ["y"])])),
    model_case("M21_output_is_initializer", "a node writes an initializer", MODEL, "'c'",
               lambda f: simple([node("Abs", ["x"], ["c"]), node("Relu", ["c"], ["y"])],
                                consts={"c": np.ones(2, np.float32)})),
    model_case("M22_dup_graph_input", "two graph inputs of one name", MODEL, "'x'",
               inputs_twice),
    model_case("M23_dup_initializer", "two initializers of one name", MODEL, "'c'",
               two_initializers),
    model_case("M24_output_unmade", "a graph output nobody makes", MODEL, "'y'",
               lambda f: simple([node("Relu", ["x"], ["t"])])),
    model_case("M28_attr_wrong_type", "Softmax axis is a string", MODEL, "axis",
               lambda f: simple([node("Softmax", ["x"], ["y"], axis="one")])),
    model_case("M29_attr_tensor_missing", "Constant of type TENSOR without a tensor", MODEL,
               "Constant|value", lambda f: bad_attribute(name="value", type=4)),
    model_case("M30_attr_graph_missing", "If without graphs", MODEL, "If|branch",
               if_without_branch),
    model_case("M31_attr_type_99", "attribute type 99", MODEL, "99|value|Constant",
               lambda f: attribute_type_99()),
    model_case("M33_ref_attr_outside", "ref_attr_name outside a function", MODEL,
               "axis|ref_attr|attribute", reference_outside),
    model_case("M36_input_no_type", "a graph input without a type", MODEL, "'x'", no_type),
    model_case("M37_elem_type_99", "graph input of element type 99", (3, 4, 5), "99|'x'",
               lambda f: input_type(99, [2])),
    model_case("M39_value_info_lies", "value_info of another type", (0, 3, 5), "'t'",
               wrong_value_info),
    model_case("M40_negative_dim", "graph input declared [-3]", (3, 5), "-3|'x'",
               lambda f: input_type(FLOAT, [-3])),
    model_case("M41_huge_declared_dim", "graph input declared [2^62, 2^62]", (3, 5, 6),
               "'x'", lambda f: input_type(FLOAT, [2**62, 2**62])),
    model_case("M42_if_branch_outputs", "branches give one and two values", (0, 3, 5), "If",
               lambda f: if_model(branch(1), branch(2), fed=True)),
    model_case("M44_if_half_folded", "a branch fails after a node of it was folded", 5, "MatMul",
               if_half_folded),
    model_case("M43_if_too_few", "an If of two values, branches give one", MODEL, "If",
               if_of_two),
    model_case("M45_outer_name_missing", "a branch reads a name the graph lacks", MODEL,
               "ghost", lambda f: if_model(branch(1, "ghost"), branch(1))),
    model_case("M46_outer_name_later", "a branch reads what the If gives", MODEL,
               "later|cycle", lambda f: if_model(branch(1, "later"), branch(1), after=[
                   node("Relu", ["y"], ["later"])])),
    model_case("M47_outer_name_behind", "a branch reads what a node behind the If gives, "
               "as in files of onnxruntime's quantisers", 0, "",
               lambda f: if_model(branch(1, "later"), branch(1), fed=True, after=[
                   node("Exp", ["x"], ["later"])])),
    model_case("M49_if_nested_8", "If nested 8 deep", 0, "", lambda f: nested_if(8)),
    model_case("M51_if_nested_200", "If nested 200 deep", (3, 6), "nest|deep|depth",
               lambda f: nested_if(200)),
    model_case("M53_fn_self_call", "a function that calls itself", MODEL,
               "recurs|itself|cycle|'?F'?",
               lambda f: calls([function("F", [own("F", "a", "b")])], "F")),
    model_case("M55_fn_recursion_in_if", "a function calls itself in a branch", MODEL,
               "recurs|itself|cycle|'?F'?", recursion_in_if),
    model_case("M56_fn_laughs", "30 functions, 2^30 nodes", (3, 6), "function|nodes|limit",
               laughs),
    model_case("M61_chain_20k", "20000 nodes in a row", 0, "", chain),
    model_case("M62_index_sum", "indices that are a sum 60000 deep", 0, "", index_sum),
    model_case("M69_fn_deep_3000", "3000 functions, each calls the next", (0, 3, 6),
               "function|nest|deep|depth", deep_functions),
    model_case("M70_fold_bomb", "Concat(c, c) 40 times", 6, "memory|bytes|limit",
               fold_bomb, extra=["--max-memory", "256M"]),
]


def attribute_type_99():
    made = node("Constant", [], ["y"], value_int=1)
    model = simple([made])
    data = model.SerializeToString()
    old = made.attribute[0].SerializeToString()
    tagged = old.replace(b"\xa0\x01\x02", b"\xa0\x01\x63")
    assert old != tagged and len(old) == len(tagged)
    return data.replace(old, tagged)


def tensor(dims, dtype=FLOAT, **fields):
    made = TensorProto(name="c", data_type=dtype, dims=dims)
    for name, content in fields.items():
        if isinstance(content, (list, tuple)):
            getattr(made, name).extend(content)
        else:
            setattr(made, name, content)
    return made


def with_tensor(made, op="Add", dtype=FLOAT):
    graph = graph_of([node(op, ["x", "c"], ["y"])], [value("x", dtype, [2])],
                     [value("y", dtype)], {"c": made})
    return model_of(graph)


def sparse(dims, indices):
    model = simple([node("Add", ["x", "c"], ["y"])], shape=(4,))
    values = loaded(np.ones(len(indices), np.float32))
    model.graph.sparse_initializer.add(
        values=values, indices=loaded(np.array(indices, np.int64), "i"), dims=dims)
    return model


def tensor_case(name, what, exits, says, made, **options):
    return model_case(name, what, exits, says, lambda f: with_tensor(made, **options))


TENSORS = [
    tensor_case("T01_raw_short", "4 bytes for float[2]", 3, "'c'",
                tensor([2], raw_data=b"\0" * 4)),
    tensor_case("T02_raw_long", "4096 bytes for float[2]", 3, "'c'",
                tensor([2], raw_data=b"\0" * 4096)),
    tensor_case("T05_float_data_short", "float_data has 1 of 2", 3, "'c'",
                tensor([2], float_data=[1.0])),
    tensor_case("T06_two_kinds", "raw_data and float_data", (0, 3), "'c'",
                tensor([2], float_data=[1.0, 2.0], raw_data=b"\0" * 8)),
    tensor_case("T09_dims_overflow", "dims [2^32, 2^32]", (3, 6), "'c'",
                tensor([2**32, 2**32])),
    tensor_case("T11_dims_wrap_small", "odd dims whose product wraps to 4", (3, 6), "'c'",
                tensor([0x5555555555555557 - 2, 12], raw_data=b"\0" * 16)),
    tensor_case("T12_bytes_wrap", "dims [2^62]: the bytes wrap to 0", (3, 6), "'c'",
                tensor([2**62])),
    tensor_case("T13_dim_neg", "dims [-1]", 3, "'c'", tensor([-1])),
    tensor_case("T14_dim_neg_pair", "dims [-2, -1]", 3, "'c'",
                tensor([-2, -1], raw_data=b"\0" * 8)),
    tensor_case("T16_dim_4tb", "dims [2^40] without data", (3, 6), "'c'", tensor([2**40])),
    tensor_case("T18_rank_100k", "rank 100000", (3, 4, 6), "'c'",
                tensor([1] * 100000, raw_data=b"\0" * 4)),
    tensor_case("T19_zero_times_huge", "dims [0, 2^62, 2^62]", (0, 3, 5, 6), "'c'|Add",
                tensor([0, 2**62, 2**62])),
    model_case("T20_empty", "dims [0]: a valid empty tensor", 0, "",
               lambda f: simple([node("Concat", ["x", "c"], ["y"], axis=0)],
                                consts={"c": np.zeros(0, np.float32)})),
    tensor_case("T21_empty_with_data", "dims [0] and 8 bytes", 3, "'c'",
                tensor([0], raw_data=b"\0" * 8)),
    tensor_case("T23_dtype_99", "data_type 99", (3, 4), "'c'",
                tensor([2], 99, raw_data=b"\0" * 8)),
    tensor_case("T25_string_raw", "STRING with raw_data", 3, "'c'",
                tensor([2], TensorProto.STRING, raw_data=b"\0" * 8)),
    tensor_case("T32_int4_odd", "INT4[3] with 1 byte", 3, "'c'",
                tensor([3], TensorProto.INT4, raw_data=b"\0")),
    model_case("T35_sparse_oob", "sparse index 99 in dims [4]", (3, 7), "99|'c'",
               lambda f: sparse([4], [99])),
    model_case("T36_sparse_negative", "sparse index -1", (3, 7), "-1|'c'",
               lambda f: sparse([4], [-1])),
    model_case("T38_sparse_wrap", "sparse dims [2^32, 2^32]", (3, 6), "'c'",
               lambda f: sparse([2**32, 2**32], [0])),
]


def external(folder, entries, dims=(16,), data=b"\0" * 64):
    with open(os.path.join(folder, "w.bin"), "wb") as file:
        file.write(data)
    made = TensorProto(name="c", data_type=FLOAT, dims=dims,
                       data_location=TensorProto.EXTERNAL)
    for key, text in entries:
        made.external_data.add(key=key, value=text)
    return simple([node("Add", ["x", "c"], ["y"])], shape=(16,), consts={"c": made})


def outside(folder):
    """A readable file beside the case's folder, whatever that is called."""
    path = os.path.join(os.path.dirname(folder), "secret.bin")
    with open(path, "wb") as file:
        file.write(b"\0" * 64)
    return path


def at(*pairs, **options):
    return lambda folder: external(folder, pairs, **options)


def linked(make):
    def build(folder):
        make(folder)
        return external(folder, [("location", "link.bin")])
    return build


def through_folder(folder):
    outside(folder)
    os.symlink(os.path.dirname(folder), os.path.join(folder, "sub"))
    return external(folder, [("location", "sub/secret.bin")])


def escape(location):
    def build(folder):
        outside(folder)
        os.makedirs(os.path.join(folder, "sub"))
        return external(folder, [("location", location)])
    return build


def absolute(folder):
    return external(folder, [("location", outside(folder))])


PLACE = "location|path|outside|file"
EXTERNAL = [
    model_case("X01_good", "control: w.bin beside the model", 0, "",
               at(("location", "w.bin"))),
    model_case("X02_good_slice", "control: offset and length", 0, "",
               at(("location", "w.bin"), ("offset", "4"), ("length", "64"),
                  data=b"\0" * 68)),
    model_case("X03_absolute", "an absolute path", 3, PLACE, absolute),
    model_case("X04_dotdot", "../secret.bin", 3, PLACE, escape("../secret.bin")),
    model_case("X05_sub_dotdot", "sub/../../secret.bin", 3, PLACE,
               escape("sub/../../secret.bin")),
    model_case("X06_symlink_file", "a link to a file outside", 3, PLACE,
               linked(lambda f: os.symlink(outside(f), os.path.join(f, "link.bin")))),
    model_case("X07_symlink_dir", "a folder that is a link outside", 3, PLACE,
               through_folder),
    model_case("X09_missing", "no such file", 3, "gone.bin", at(("location", "gone.bin"))),
    model_case("X10_no_location", "no location", 3, PLACE, at(("offset", "0"))),
    model_case("X12_directory", "location '.'", 3, PLACE, at(("location", "."))),
    model_case("X13_offset_eof", "offset past the end", 3, "w.bin|'c'",
               at(("location", "w.bin"), ("offset", "4096"))),
    model_case("X14_too_short", "the file holds half of the tensor", 3, "w.bin|'c'",
               at(("location", "w.bin"), data=b"\0" * 32)),
    model_case("X16_offset_neg", "offset -64", 3, "offset",
               at(("location", "w.bin"), ("offset", "-64"))),
    model_case("X18_offset_text", "offset abc", 3, "offset",
               at(("location", "w.bin"), ("offset", "abc"))),
    model_case("X20_sum_wraps", "offset 2^64-64 and length 64", 3, "offset",
               at(("location", "w.bin"), ("offset", str(2**64 - 64)), ("length", "64"))),
    model_case("X22_length_mismatch", "length 32 for 64 bytes", 3, "length|32|'c'",
               at(("location", "w.bin"), ("length", "32"))),
    model_case("X24_location_twice", "two locations, the second escapes", 3, PLACE,
               at(("location", "w.bin"), ("location", "../secret.bin"))),
    model_case("X26_mem_addr_tag", "another runtime's in-memory marker", 3, PLACE,
               at(("location", "*/_ORT_MEM_ADDR_/*"), ("offset", "4096"))),
    model_case("X29_huge_dims", "float[2^40] in a file of 64 bytes", (3, 6), "w.bin|'c'",
               at(("location", "w.bin"), dims=(2**40,))),
    model_case("X31_dev_zero_link", "a link to /dev/zero", 3, PLACE,
               linked(lambda f: os.symlink("/dev/zero", os.path.join(f, "link.bin")))),
    model_case("X32_fifo", "a FIFO nobody writes", 3, PLACE,
               linked(lambda f: os.mkfifo(os.path.join(f, "link.bin")))),
]

CASES = WIRE + GRAPH + TENSORS + EXTERNAL
__all__ = ["CASES", "save"]
