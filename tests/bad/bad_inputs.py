"""bad_inputs.py - what a user gives: inputs, npy, npz and yaml files, options.

F test folders, U inputs, N npy, Z npz, Y yaml, O options. An input that does not fit is
exit code 5, a file that cannot be read 3, a wrong option or configuration 2; a test folder
that fails for any reason 1.
"""
import io
import struct
import warnings
import zipfile

from onnx import numpy_helper

from bad_case import (FLOAT, Case, as_list, graph_of, helper, model_of, np, os, save,
                      value)

FILE = (3, 5)
CONFIG = 2


def add_model(folder, shape=(2, 3), other=None):
    save(model_of(graph_of([helper.make_node("Add", ["x", "z"], ["y"])],
                           [value("x", FLOAT, shape), value("z", FLOAT, other or shape)],
                           [value("y", FLOAT)])), folder)


def input_case(name, what, exits, says, prepare, args, shape=(2, 3), other=None):
    def write(folder):
        add_model(folder, shape, other)
        np.save(f"{folder}/good.npy", np.ones((2, 3), np.float32))
        prepare(folder)
        return ["run", "model.onnx", *args]
    return Case(name, what, as_list(exits), says, write)


def npy_bytes(header, payload=b"\0" * 24, version=1, length=None):
    header = header if isinstance(header, bytes) else header.encode()
    size = len(header) if length is None else length
    form = "<H" if version == 1 else "<I"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack(form, size) + header + payload


def header(descr="<f4", fortran=False, shape="(2, 3)"):
    return f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n"


def put(data, name="x.npy"):
    def prepare(folder):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)
    return prepare


def array(values, name="x.npy"):
    return lambda folder: np.save(os.path.join(folder, name), values)


BOTH = ["-i", "x=x.npy", "-i", "z=good.npy"]


def npy_case(name, what, exits, says, data):
    return input_case(name, what, exits, says, put(data), BOTH)


def nothing(folder):
    del folder


def folder_case(name, what, exits, prepare):
    """A test folder of three values; `prepare` spoils it."""
    def write(folder):
        add_model(folder)
        data = os.path.join(folder, "test_data_set_0")
        os.makedirs(data)
        for label in ("input_0", "input_1", "output_0"):
            array_proto = numpy_helper.from_array(
                np.full((2, 3), 2 if label == "output_0" else 1, np.float32))
            put(array_proto.SerializeToString(), f"{label}.pb")(data)
        prepare(data)
        return ["check", "."]
    return Case(name, what, as_list(exits), "", write)


def remove(name):
    return lambda folder: os.remove(os.path.join(folder, name))


def cut(name):
    return lambda folder: os.truncate(os.path.join(folder, name), 9)


FOLDERS = [
    folder_case("F00_good", "control: a test folder that passes", 0, nothing),
    folder_case("F01_input_missing", "input_1.pb is missing", 1, remove("input_1.pb")),
    folder_case("F02_output_missing", "output_0.pb is missing", 1, remove("output_0.pb")),
    folder_case("F03_input_cut", "input_0.pb is cut", 1, cut("input_0.pb")),
    folder_case("F04_input_empty", "input_0.pb is empty", 1, put(b"", "input_0.pb")),
    folder_case("F05_too_many", "input_2.pb of a model with two", 1,
                put(b"", "input_2.pb")),
    folder_case("F06_differs", "another result", 1, put(numpy_helper.from_array(
        np.ones((2, 3), np.float32)).SerializeToString(), "output_0.pb")),
    folder_case("F07_shape", "another shape", 1, put(numpy_helper.from_array(
        np.full((3, 2), 2, np.float32)).SerializeToString(), "output_0.pb")),
    folder_case("F08_dtype", "another type", 1, put(numpy_helper.from_array(
        np.full((2, 3), 2.0)).SerializeToString(), "output_0.pb")),
]

INPUTS = [
    input_case("U00_good", "control: both inputs fit", 0, "", nothing,
               ["-i", "x=good.npy", "-i", "z=good.npy"]),
    input_case("U01_wrong_dtype", "float64 fed to float32", 5, "'x'.*f64|f64.*'x'|x",
               array(np.ones((2, 3))), BOTH),
    input_case("U02_wrong_rank", "[6] fed to [2,3]", 5, "x",
               array(np.ones(6, np.float32)), BOTH),
    input_case("U04_wrong_dim", "[2,4] fed to [2,3]", 5, "x",
               array(np.ones((2, 4), np.float32)), BOTH),
    input_case("U05_short_dim", "[1,3] fed to [2,3]", 5, "x",
               array(np.ones((1, 3), np.float32)), BOTH),
    input_case("U06_missing", "only one of two inputs given", 5, "'z'", nothing,
               ["-i", "x=good.npy"]),
    input_case("U07_unknown", "an input the model does not have", (2, 5), "w", nothing,
               ["-i", "x=good.npy", "-i", "z=good.npy", "-i", "w=good.npy"]),
    input_case("U08_no_file", "the input file does not exist", 3, "gone.npy", nothing,
               ["-i", "x=gone.npy", "-i", "z=good.npy"]),
    input_case("U09_symbol", "one symbol bound to two values", 5,
               "SHAPE: 'N' is 4 in input 0 'x' .dim 0., but 2 in input 1 'z' .dim 0.",
               array(np.ones((4, 3), np.float32)), BOTH, shape=("N", 3)),
    input_case("U17_symbol_of_one", "one of the two sizes would broadcast", 5,
               "'N' is 1 in input 0 'x' .dim 0., but 2 in input 1 'z' .dim 0.",
               array(np.ones((1, 3), np.float32)), BOTH, shape=("N", 3)),
    input_case("U17_symbol_of_one_ok", "it does where names are of one input each", 0, "",
               array(np.ones((1, 3), np.float32)), [*BOTH, "--separate-dims"],
               shape=("N", 3)),
    input_case("U18_symbol_within", "one symbol twice in an input", 5,
               "'S' is 2 in input 0 'x' .dim 0., but 3 in input 0 'x' .dim 1.", nothing,
               ["-i", "x=good.npy", "-i", "z=good.npy"],
               shape=("S", "S"), other=(2, 3)),
    input_case("U19_expression_ok", "an expression of a symbol that does not come true", 0, "",
               array(np.ones((1, 3), np.float32)), BOTH, shape=("N", 3),
               other=("N + 5", 3)),
    input_case("U11_empty_dyn", "an empty tensor where the shape is free", 0, "",
               array(np.ones((0, 3), np.float32)),
               ["-i", "x=x.npy", "-i", "z=x.npy"], shape=("N", 3)),
    input_case("U12_shape_static", "--shape against a fixed shape", (2, 5), "x", nothing,
               ["--shape", "x=7x7"]),
    input_case("U13_set_unknown", "--set of a symbol the model does not have", (2, 5), "Q",
               nothing, ["--set", "Q=5"]),
    input_case("U14_set_huge", "--set N=2^60", (2, 5, 6), "N|memory", nothing,
               ["--set", f"N={2**60}"], shape=("N", 3)),
    input_case("U15_set_negative", "--set N=-1", (2, 5), "N|-1", nothing,
               ["--set", "N=-1"], shape=("N", 3)),
]

NPY = [
    npy_case("N01_empty", "an empty file", FILE, "x.npy", b""),
    npy_case("N02_magic", "another magic", FILE, "x.npy", b"\x93NUMPX" + b"\0" * 90),
    npy_case("N03_version_9", "version 9", (3, 4, 5), "x.npy",
             npy_bytes(header(), version=1).replace(b"NUMPY\x01", b"NUMPY\x09")),
    npy_case("N06_hlen_past_eof", "header length 65535", FILE, "x.npy",
             npy_bytes(header(), length=65535)),
    npy_case("N07_hlen_4g", "v2 header length 2^32-16", FILE, "x.npy",
             npy_bytes(header(), version=2, length=2**32 - 16)),
    npy_case("N09_payload_short", "20 of 24 bytes", FILE, "x.npy",
             npy_bytes(header(), b"\0" * 20)),
    npy_case("N11_shape_wrap", "shape (2^32, 2^32)", (3, 5, 6), "x.npy",
             npy_bytes(header(shape="(4294967296, 4294967296)"))),
    npy_case("N12_shape_neg", "shape (-2, -3)", FILE, "x.npy",
             npy_bytes(header(shape="(-2, -3)"))),
    npy_case("N13_shape_text", "shape (two, 3)", FILE, "x.npy",
             npy_bytes(header(shape="(two, 3)"))),
    npy_case("N16_rank_10k", "rank 10000", (3, 4, 5, 6), "x.npy",
             npy_bytes(header(shape="(" + "1, " * 10000 + ")"), version=2)),
    npy_case("N17_object", "descr |O (pickle)", (3, 4, 5), "x.npy",
             npy_bytes(header("|O"))),
    npy_case("N19_big_endian", "descr >f4", (0, 3, 4, 5), "x.npy",
             npy_bytes(header(">f4"))),
    npy_case("N21_descr_f999", "descr <f999999999999", (3, 4, 5), "x.npy",
             npy_bytes(header("<f999999999999"))),
    npy_case("N22_fortran", "fortran_order True", (0, 3, 4, 5), "x.npy",
             npy_bytes(header(fortran=True))),
    npy_case("N23_texts_of_nothing", "2^40 texts of no bytes, column-major", 6, "0 bytes",
             npy_bytes("{'descr': '|S0', 'fortran_order': True, "
                       "'shape': (1048576, 1048576), }", b"")),
    npy_case("N25_deep_parens", "60000 open parentheses", FILE, "x.npy",
             npy_bytes(header(shape="(" * 60000), version=2)),
    npy_case("N26_no_shape", "a header without a shape", FILE, "x.npy",
             npy_bytes("{'descr': '<f4', 'fortran_order': False}\n")),
]


def npz(*entries, **options):
    out = io.BytesIO()
    warnings.simplefilter("ignore")  # some archives hold one name twice
    with zipfile.ZipFile(out, "w", options.get("method", zipfile.ZIP_DEFLATED)) as file:
        for name, data in entries:
            file.writestr(name, data)
    return out.getvalue()


def good_npy():
    out = io.BytesIO()
    np.save(out, np.ones((2, 3), np.float32))
    return out.getvalue()


def patched(data, old, new):
    assert old in data
    return data.replace(old, new)


def npz_case(name, what, exits, says, data):
    return input_case(name, what, exits, says, put(data, "in.npz"), ["-i", "in.npz"])


TWO = (("x.npy", good_npy()), ("z.npy", good_npy()))


def central(data, offset, form, number):
    """Overwrite a field of the first entry of the central directory."""
    at = data.index(b"PK\x01\x02") + offset
    packed = struct.pack(form, number)
    return data[:at] + packed + data[at + len(packed):]


def flipped():
    data = bytearray(npz(*TWO, method=zipfile.ZIP_STORED))
    data[data.index(b"\x93NUMPY") + 130] ^= 255
    return bytes(data)


NPZ = [
    npz_case("Z00_good", "control: both inputs in one npz", 0, "", npz(*TWO)),
    npz_case("Z00_stored", "control: stored entries", 0, "",
             npz(*TWO, method=zipfile.ZIP_STORED)),
    npz_case("Z01_not_zip", "noise", FILE, "in.npz", b"PK\x03\x04" + b"\1" * 100),
    npz_case("Z04_dup_entry", "x.npy twice", (0, 3, 5), "in.npz",
             npz(*TWO, TWO[0])),
    npz_case("Z05_slip", "an entry ../../x.npy", (0, 2, 3, 5), "in.npz|x",
             npz(*TWO, ("../../slip.npy", good_npy()))),
    npz_case("Z08_trunc", "the central directory is cut", FILE, "in.npz", npz(*TWO)[:-30]),
    npz_case("Z09_crc", "a byte of the payload is flipped", FILE, "in.npz", flipped()),
    npz_case("Z10_size_field", "the directory says 4 GB", (3, 5, 6), "in.npz",
             central(npz(*TWO), 24, "<I", 2**32 - 2)),
    npz_case("Z11_offset_field", "the entry lies past the file", FILE, "in.npz",
             central(npz(*TWO), 42, "<I", 2**31)),
    npz_case("Z12_method", "compression method 99", (3, 4, 5), "in.npz",
             central(npz(*TWO), 10, "<H", 99)),
    npz_case("Z14_many", "20000 entries", (0, 3, 5, 6), "in.npz",
             npz(*((f"e{k}.npy", b"") for k in range(20000)))),
]


def yaml_case(name, what, exits, says, text):
    data = text if isinstance(text, bytes) else text.encode()
    return input_case(name, what, exits, says, put(data, "run.yaml"),
                      ["--config", "run.yaml"])


def laughs():
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{k}: &a{k} [" + ", ".join([f"*a{k - 1}"] * 10) + "]" for k in range(1, 9)]
    return "\n".join(lines) + "\n"


YAML = [
    yaml_case("Y00_good", "control: threads and seed", 0, "", "threads: 1\nseed: 3\n"),
    yaml_case("Y01_syntax", "an open bracket", (2, 3), "run.yaml", "threads: [1\n"),
    yaml_case("Y02_flow_nest", "60000 nested brackets", (2, 3, 6), "run.yaml",
              "a: " + "[" * 60000),
    yaml_case("Y04_laughs", "an alias bomb", (2, 3, 6), "run.yaml", laughs()),
    yaml_case("Y05_self_alias", "a: &a [*a]", (2, 3, 6), "run.yaml", "a: &a [*a]\n"),
    yaml_case("Y07_dup_key", "threads twice", CONFIG, "threads|run.yaml",
              "threads: 1\nthreads: 2\n"),
    yaml_case("Y08_unknown_key", "a key nobody knows", CONFIG, "thread",
              "thraeds: 1\n"),
    yaml_case("Y10_threads_huge", "threads: 1000000", (2, 6), "threads|1000000",
              "threads: 1000000\n"),
    yaml_case("Y12_int_overflow", "threads beyond 64 bits", CONFIG, "threads",
              "threads: 99999999999999999999\n"),
    yaml_case("Y13_text", "threads: many", CONFIG, "threads", "threads: many\n"),
    yaml_case("Y16_bad_utf8", "invalid UTF-8", (2, 3), "run.yaml", b"threads: \xff\xfe\n"),
    yaml_case("Y20_tag", "a tag of another language", (2, 3), "run.yaml|tag|threads",
              "threads: !!python/object/apply:os.system [ls]\n"),
    yaml_case("Y21_nul", "a NUL in a value", CONFIG, "a NUL byte", 'isa: "base\\0x"\n'),
    yaml_case("Y22_nul_in_pair", "a NUL in a pair", CONFIG, "a NUL byte",
              'set: { B: "2\\0 3" }\n'),
    yaml_case("Y23_list_root", "a list instead of a map", (2, 3), "run.yaml", "- 1\n- 2\n"),
    yaml_case("Y24_plugin", "a shared library, which only the command line may name", CONFIG,
              "plugin|command line only", "plugin: ./model.onnx\n"),
]


def option_case(name, what, exits, says, args):
    def write(folder):
        add_model(folder)
        os.makedirs(os.path.join(folder, "empty"))
        return args
    return Case(name, what, as_list(exits), says, write)


OPTIONS = [
    option_case("O01_no_model", "a model that does not exist", 3, "gone.onnx",
                ["run", "gone.onnx"]),
    option_case("O02_unknown_option", "an unknown option", 2, "--thread",
                ["run", "model.onnx", "--threds", "2"]),
    option_case("O03_unknown_command", "an unknown command", (2, 3), "rum",
                ["rum", "model.onnx"]),
    option_case("O04_value_missing", "--threads without a value", 2, "threads",
                ["run", "model.onnx", "--threads"]),
    option_case("O05_threads_text", "--threads x", 2, "threads",
                ["run", "model.onnx", "--threads", "x"]),
    option_case("O06_threads_neg", "--threads -3", 2, "threads",
                ["run", "model.onnx", "--threads", "-3"]),
    option_case("O07_isa", "--isa mmx", (2, 4), "mmx",
                ["run", "model.onnx", "--isa", "mmx"]),
    option_case("O08_output_folder", "-o into a folder that does not exist", 3,
                "nowhere", ["run", "model.onnx", "-o", "nowhere/deep/out.npz"]),
    option_case("O09_check_nothing", "check of a folder without cases", 2, "",
                ["check", "empty"]),
    option_case("O10_two_models", "run of two models", 2, "",
                ["run", "model.onnx", "model.onnx"]),
    option_case("O11_folder", "W30: the model is a folder", 3, "directory|folder|'?\\.'?",
                ["run", "."]),
    option_case("O12_plugin", "--plugin of a file that is no library", (2, 3), "model.onnx",
                ["run", "model.onnx", "--plugin", "./model.onnx"]),
    option_case("O13_max_memory", "--max-memory 1K", (5, 6), "memory|bytes",
                ["run", "model.onnx", "--max-memory", "1K"]),
]

CASES = FOLDERS + INPUTS + NPY + NPZ + YAML + OPTIONS
