"""bad_limits.py - each limit of attnrun_limits and of inputs, at n - 1, n and n + 1.

A model that has exactly n of what a limit counts is refused (exit code 6, and the sentence
names the limit) where the limit is n - 1, and runs where it is n or n + 1. The limit comes from
a flag, and from a configuration file.
"""
import io
import zipfile

from bad_case import (Case, FLOAT, INT64, TensorProto, graph_of, helper, model_of, np, os, relu,
                      save, simple, value)

node = helper.make_node
BOOL = TensorProto.BOOL
ONES = [1, 1]


def chain(count):
    names = ["x"] + [f"v{k}" for k in range(count - 1)] + ["y"]
    return [node("Relu", [names[k]], [names[k + 1]]) for k in range(count)]


def nested_if(depth):
    """If within If, `depth` subgraphs deep."""
    inner = graph_of([node("Relu", ["x"], ["o0"])], [], [value("o0")])
    for level in range(1, depth):
        made = node("If", ["c"], [f"o{level}"], then_branch=inner, else_branch=inner)
        inner = graph_of([made], [], [value(f"o{level}")])
    model = simple([node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)])
    model.graph.input.append(value("c", BOOL, []))
    return model


def functions(count, calls):
    """Function k calls function k - 1 `calls` times; the first one is a Relu."""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("f", 1)]
    made = [helper.make_function("f", "f0", ["a"], ["b"], [node("Relu", ["a"], ["b"])], opsets)]
    for k in range(1, count):
        names = ["a"] + [f"t{i}" for i in range(calls - 1)] + ["b"]
        body = [node(f"f{k - 1}", [names[i]], [names[i + 1]], domain="f") for i in range(calls)]
        made.append(helper.make_function("f", f"f{k}", ["a"], ["b"], body, opsets))
    return simple([node(f"f{count - 1}", ["x"], ["y"], domain="f")], functions=made,
                  domains=["f"])


def external(folder, files):
    """`files` constants of 8 bytes, each in a file of its own."""
    names = [f"c{k}" for k in range(files)]
    model = simple([node("Sum", ["x", *names], ["y"])])
    for name in names:
        with open(os.path.join(folder, f"{name}.bin"), "wb") as file:
            file.write(b"\0" * 8)
        tensor = model.graph.initializer.add(name=name, data_type=FLOAT, dims=[2])
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=f"{name}.bin")
    return model


def loop(stacked):
    """M turns; with `stacked` each gives 4096 floats."""
    body = [node("Identity", ["c"], ["c1"]), node("Relu", ["big"], ["s"])]
    graph = graph_of(body, [value("i", INT64, []), value("c", BOOL, [])],
                     [value("c1", BOOL, []), value("s", FLOAT, [None])],
                     {"big": np.ones(4096, np.float32)} if stacked else
                     {"big": np.ones(2, np.float32)})
    return model_of(graph_of([node("Loop", ["m", ""], ["y"], body=graph)],
                             [value("m", INT64, [])], [value("y", FLOAT, None)]))


def shaped(nodes, name="s", rank=1):
    return model_of(graph_of(nodes, [value(name, INT64, [1] if rank else [])],
                             [value("y", FLOAT, None)]))


def sparse():
    model = simple([node("Add", ["x", "c"], ["y"])], shape=(4096,))
    values = helper.make_tensor("c", FLOAT, [1], [1.0])
    indices = helper.make_tensor("i", INT64, [1], [7])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4096]))
    return model


def expanded(count):
    """Nodes and calls that the last of `count` doubling functions adds, less 32 a node."""
    return 5 * 2 ** (count - 1) - 3 - 32 * (2 * count)


def texts():
    model = relu()
    model.producer_name = "p" * 40
    return model


def named():
    return simple([node("Relu", ["x"], ["y"], name="n" * 30)])


def properties():
    model = relu()
    for k in range(5):
        model.metadata_props.add(key=f"k{k}", value="v")
    return model


def constant(shape):
    made = np.ones(shape, np.float32)
    return simple([node("Add", ["x", "c"], ["y"])], shape=shape, consts={"c": made})


SUM = [node("Sum", ["x"] * 5, ["y"])]
MODELS = [  # limit, how many it has, the model, more arguments
    ("external_bytes", 16, lambda f: external(f, 2), []),
    ("external_files", 2, lambda f: external(f, 2), []),
    ("message_depth", 7, lambda f: relu(), []),
    ("subgraph_depth", 3, lambda f: nested_if(3), ["-i", "c=true", "-i", "x=[1,2]"]),
    ("function_depth", 4, lambda f: functions(4, 1), []),
    ("nodes", 4, lambda f: simple(chain(4)), []),
    ("expanded_nodes", expanded(9), lambda f: functions(9, 2), []),
    ("tensors", 2, lambda f: simple([node("Sum", ["x", "a", "b"], ["y"])], consts={
        "a": np.ones(2, np.float32), "b": np.ones(2, np.float32)}), []),
    ("items", 5, lambda f: properties(), []),
    ("operands", 5, lambda f: simple(SUM), []),
    ("attributes", 3, lambda f: simple([node("LRN", ["x"], ["y"], size=3, alpha=1.0, beta=0.5)],
                                       shape=(1, 3, 2, 2)), []),
    ("attribute_items", 3, lambda f: simple([node("Transpose", ["x"], ["y"], perm=[2, 0, 1])],
                                            shape=(2, 3, 4)), []),
    ("string_bytes", 40, lambda f: texts(), []),
    ("name_bytes", 30, lambda f: named(), []),
    ("rank", 3, lambda f: constant((1, 2, 3)), []),
    ("dim", 5, lambda f: constant((5, 2)), []),
    ("elements", 10, lambda f: constant((5, 2)), []),
    ("made_bytes", 16384, lambda f: shaped([node("ConstantOfShape", ["s"], ["y"])]),
     ["-i", "s=[4096]"]),
    ("loop_iterations", 5, lambda f: loop(False), ["-i", "m=5"]),
]


def size_of(limit, folder):
    """The bytes of the model file, for the limit on those."""
    return os.path.getsize(os.path.join(folder, "model.onnx")) if limit == "file_bytes" else 0


def write_config(folder, limit, number):
    with open(os.path.join(folder, "run.yaml"), "w", encoding="utf-8") as file:
        file.write(f"limit: {{ {limit}: {number} }}\n")
    return ["--config", "run.yaml"]


def limit_case(limit, count, build, extra, more, config):
    """`more`: -1, 0 or 1."""
    def write(folder):
        save(build(folder), folder)
        number = (count or size_of(limit, folder)) + more
        how = write_config(folder, limit, number) if config else ["--limit", f"{limit}={number}"]
        return ["run", "model.onnx", "-q", *extra, *how]
    way = "file" if config else "flag"
    word = {-1: "over", 0: "at", 1: "below"}[more]
    return Case(f"L_{limit}_{way}_{word}", f"limit {limit} of {more:+d}", [6 if more < 0 else 0],
                f"limit '{limit}'" if more < 0 else "", write)


def npz_bytes(entries, zeros=16):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in entries:
            array = io.BytesIO()
            np.save(array, np.zeros(zeros, np.float32))
            archive.writestr(f"{name}.npy", array.getvalue())
    return packed.getvalue()


def ratio_of(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entry = archive.infolist()[0]
    return entry.file_size // (entry.compress_size + 2) + 1


def header_of(array):
    packed = io.BytesIO()
    np.save(packed, array)
    return int.from_bytes(packed.getvalue()[8:10], "little")


INPUTS = [  # limit, how many there are, the file, its bytes, shape of x
    ("npz_entries", 3, "in.npz", npz_bytes(["x", "a", "b"]), 16),
    ("npz_ratio", ratio_of(npz_bytes(["x"], 8192)), "in.npz", npz_bytes(["x"], 8192), 8192),
    ("npy_header_bytes", header_of(np.zeros(16, np.float32)), "x.npy", None, 16),
]


def input_limit(limit, count, name, data, length, more):
    def write(folder):
        save(simple([node("Relu", ["x"], ["y"])], shape=(length,)), folder)
        path = os.path.join(folder, name)
        if data is None:
            np.save(path, np.zeros(length, np.float32))
        else:
            with open(path, "wb") as file:
                file.write(data)
        key = ":x" if name.endswith(".npz") else ""
        return ["run", "model.onnx", "-q", "-i", f"x={name}{key}", "--limit",
                f"{limit}={count + more}"]
    word = {-1: "over", 0: "at", 1: "below"}[more]
    return Case(f"L_{limit}_{word}", f"limit {limit} of {more:+d}", [6 if more < 0 else 0],
                f"limit '{limit}'" if more < 0 else "", write)


def usage(name, what, args, says, text=None, exits=2):
    def write(folder):
        save(relu(), folder)
        if text is not None:
            with open(os.path.join(folder, "run.yaml"), "w", encoding="utf-8") as file:
                file.write(text)
        return ["run", "model.onnx", *args]
    return Case(name, what, [exits], says, write)


def absurd(name, what, says, build, extra):
    """Refused by its default limit, before memory is touched."""
    def write(folder):
        save(build(folder), folder)
        return ["run", "model.onnx", *extra]
    return Case(name, what, [6], says, write)


MADE = r"limit 'made_bytes'"
CASES = [limit_case(*row, more, config) for row in MODELS
         for more, config in ((-1, False), (0, False), (1, False), (-1, True), (0, True))]
CASES += [limit_case("file_bytes", 0, lambda f: relu(), [], more, False) for more in (-1, 0, 1)]
CASES += [input_limit(*row, more) for row in INPUTS for more in (-1, 0, 1)]
CASES += [
    absurd("L_sparse", "a sparse tensor of 16384 bytes", MADE, lambda f: sparse(),
           ["--limit", "made_bytes=16383"]),
    usage("L_unknown", "an unknown limit", ["--limit", "nods=3"], "nods.*nodes"),
    usage("L_zero", "a limit of 0", ["--limit", "nodes=0"], "nodes.*expected 1"),
    usage("L_rank_9", "a rank that tensors do not have", ["--limit", "rank=9"], "rank.*1 to 8"),
    usage("L_no_number", "a limit without a number", ["--limit", "nodes"], "nodes=1000"),
    usage("L_file_raises", "a configuration that raises a limit", ["--config", "run.yaml"],
          "configuration file can only lower a limit", "limit: { nodes: 2000000 }\n"),
    absurd("L_range", "Range of 2^33 numbers from an input", MADE,
           lambda f: shaped([node("Constant", [], ["a"], value_int=0),
                             node("Constant", [], ["b"], value_int=1),
                             node("Range", ["a", "s", "b"], ["r"]),
                             node("Cast", ["r"], ["y"], to=FLOAT)], rank=0),
           ["-i", "s=8589934592"]),
    absurd("L_random", "RandomUniform of 2 GiB", MADE,
           lambda f: simple([node("RandomUniform", [], ["r"], shape=[536870912]),
                             node("ReduceSum", ["r"], ["t"], keepdims=0),
                             node("Add", ["x", "t"], ["y"])]), []),
    absurd("L_multinomial", "Multinomial of 10^9 samples", MADE,
           lambda f: simple([node("Multinomial", ["x"], ["i"], sample_size=1000000000),
                             node("Cast", ["i"], ["y"], to=FLOAT)], shape=(1, 2)), []),
    absurd("L_mel", "MelWeightMatrix of 30000 by 30000", MADE,
           lambda f: shaped([node("Constant", [], ["a"], value_int=30000),
                             node("Constant", [], ["r"], value_int=8000),
                             node("Constant", [], ["l"], value_float=0.0),
                             node("Constant", [], ["h"], value_float=4000.0),
                             node("MelWeightMatrix", ["a", "s", "r", "l", "h"], ["y"])], rank=0),
           ["-i", "s=60000"]),
    absurd("L_loop_stack", "a Loop that stacks 2 GiB", MADE, lambda f: loop(True),
           ["-i", "m=131072"]),
]
