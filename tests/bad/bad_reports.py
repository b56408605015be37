"""bad_reports.py - files and values with which other runtimes and readers were brought down.

V operators, VW wire format, VN npy, VZ npz, VY yaml. Each stands for faults that were reported of
ONNX Runtime, onnx, OpenVINO, TensorFlow Lite, TVM, ncnn, MNN, llama.cpp, safetensors, protobuf,
minizip, miniz, NumPy's readers or libyaml since 2021: an index, a count or a size that the file
states and the program took for granted. The classes are those of bad_values.py.
"""
import struct

from bad_case import (FLOAT, INT64, TensorProto, field, graph_of, helper, model_case, node_case,
                      np, relu, simple, value, varint)
from bad_inputs import TWO, header, npy_bytes, npy_case, npz, npz_case, patched, yaml_case

ML, MS = "ai.onnx.ml", "com.microsoft"
MIN, MAX = -2**63, 2**63 - 1
NAN, INF = float("nan"), float("inf")


def f32(*shape):
    return np.ones(shape, np.float32)


def i32(*values):
    return np.array(values, np.int32)


def i64(*values):
    return np.array(values, np.int64)


def u8(*shape):
    return np.zeros(shape, np.uint8)


X = np.arange(6, dtype=np.float32).reshape(2, 3)
IMAGE = f32(1, 4, 8, 8)


def ml(name, what, exits, says, op, out=(FLOAT,), x=X, **attributes):
    return node_case(name, what, exits, says, op, {"x": x}, out=out, domain=ML, **attributes)


def encoder(folder):
    model = simple([helper.make_node("LabelEncoder", ["x"], ["y"], domain=ML,
                                     keys_floats=[1.0, 2.0], values_floats=[5.0])], (2,))
    model.opset_import.append(helper.make_opsetid(ML, 2))
    return model


# ---- tables of machine learning whose lists do not fit each other ----

def svm(name, what, says, **others):
    lists = {"kernel_type": "RBF", "kernel_params": [0.5, 0.0, 3.0], "classlabels_ints": [0, 1],
             "coefficients": [1.0, -1.0], "support_vectors": [1.0] * 6,
             "vectors_per_class": [1, 1], "rho": [0.1], **others}
    lists = {k: v for k, v in lists.items() if v is not None}
    return ml(f"V_svm_{name}", what, 5 if says else 0, says, "SVMClassifier", (INT64, FLOAT),
              **lists)


def feature(name, index, says, x=X):
    return node_case(f"V_feature_{name}", f"ArrayFeatureExtractor index {index}", 7, says,
                     "ArrayFeatureExtractor", {"x": x, "i": i64(index)}, domain=ML)


TABLES = [
    feature("neg", -1, "holds|is -1"), feature("min", MIN, "-9223372036854775808"),
    feature("end", 3, "is 3, expected 0 to 2"), feature("none", 0, "is 0", f32(2, 0)),
    svm("ok", "control: two classes", ""),
    svm("negative", "vectors_per_class 3 and -1", "holds -1", vectors_per_class=[3, -1]),
    svm("wraps", "vectors_per_class whose sum wraps to 2", "vectors_per_class",
        vectors_per_class=[MAX, MAX, 4], classlabels_ints=[0, 1, 2]),
    svm("labels", "three labels, vectors of two classes", "expected 3",
        classlabels_ints=[0, 1, 2]),
    svm("coefficients", "one coefficient for two vectors", "coefficients", coefficients=[1.0]),
    svm("vectors", "five numbers for two vectors of three", "support_vectors",
        support_vectors=[1.0] * 5),
    svm("rho", "no rho", "rho", rho=None),
    svm("probabilities", "nine prob_a for one pair", "prob_a", prob_a=[1.0] * 9, prob_b=[1.0]),
    ml("V_svr_many", "SVMRegressor of 2^62 supports", 5, "coefficients", "SVMRegressor",
       n_supports=2**62, coefficients=[1.0] * 2, support_vectors=[1.0] * 6, rho=[0.0]),
    ml("V_svr_neg", "SVMRegressor of -2 supports", 5, "n_supports", "SVMRegressor",
       n_supports=-2, coefficients=[1.0] * 2, support_vectors=[1.0] * 6, rho=[0.0]),
    ml("V_linear_coefficients", "LinearClassifier with 5 of 6 coefficients", 5, "coefficients",
       "LinearClassifier", (INT64, FLOAT), coefficients=[1.0] * 5, intercepts=[0.0] * 2,
       classlabels_ints=[0, 1]),
    ml("V_linear_targets", "LinearRegressor of 2^61 targets", 6, "dim 1", "LinearRegressor",
       targets=2**61, coefficients=[1.0] * 6),
    ml("V_imputer", "Imputer with 2 values for 3 features", 5, "imputed", "Imputer",
       imputed_value_floats=[1.0, 2.0]),
    node_case("V_imputer_nothing", "Imputer without an input", 3, "missing", "Imputer", {},
              domain=ML),
    ml("V_scaler", "Scaler with 2 offsets for 3 features", 5, "offset", "Scaler",
       offset=[1.0, 2.0], scale=[1.0]),
    ml("V_vectorizer", "FeatureVectorizer of 2^62 features", 6, "dim 1", "FeatureVectorizer",
       inputdimensions=[2**62]),
    model_case("V_encoder", "LabelEncoder of 2 keys and 1 value", 5, "2 keys", encoder),
]

# ---- sizes, counts and indexes of other operators ----


def col2im(name, exits, says, x, image, block=(2, 2), **attributes):
    return node_case(f"V_col2im_{name}", f"Col2Im of {image} by {block}", exits, says, "Col2Im",
                     {"x": f32(*x), "a": i64(*image), "b": i64(*block)}, **attributes)


def embed(name, says, ids, place, positions=2):
    return node_case(
        f"V_embed_{name}", f"EmbedLayerNormalization of word {ids}, position {place}", 7, says,
        "EmbedLayerNormalization",
        {"i": i32([ids, 0]), "s": i32([0, 0])},
        {"w": f32(3, 4), "p": f32(positions, 4), "g": f32(2, 4), "a": f32(4), "b": f32(4),
         "m": i32([1, 1]), "q": i32([0, place])}, out=(FLOAT, TensorProto.INT32), domain=MS)


def blocks(name, exits, says, scale, zero=None, **attributes):
    consts = {"s": f32(*scale), **({"z": u8(*zero)} if zero else {})}
    return node_case(f"V_dequantize_{name}", f"DequantizeLinear {attributes}", exits, says,
                     "DequantizeLinear", {"x": u8(2, 3)}, consts, opset=21, **attributes)


def region(name, exits, says, box, **attributes):
    return node_case(f"V_roi_{name}", f"RoiAlign of {box}", exits, says, "RoiAlign",
                     {"x": f32(1, 1, 8, 8), "r": np.array([box], np.float32), "b": i64(0)},
                     order=["x", "r", "b"], **attributes)


def tiny(name, scale, **attributes):
    return node_case(f"V_resize_{name}_ok", f"Resize by {scale} of a size that is not known", 0, "",
                     "Resize", {"x": IMAGE}, {"s": np.array([1, 1, 1, scale], np.float32)},
                     order=["x", "", "s"], **attributes)


SIZES = [
    col2im("huge", 6, "2\\^46", (1, 4, 4), (2**40, 2**40)),
    col2im("channels", 5, "multiple of 4", (1, 5, 4), (3, 3)),
    col2im("negative", 5, "-3", (1, 4, 4), (-3, -3)),
    col2im("places", 5, "expected 4", (1, 4, 5), (3, 3)),
    col2im("block", 5, "expected 1 to 2147483647", (1, 4, 4), (3, 3), (2**31, 1)),
    col2im("dilation", 5, "dilations", (1, 4, 4), (3, 3), dilations=[2**62, 1]),
    tiny("tiny", 1e-30), tiny("denormal", 1e-45, mode="linear", antialias=1),
    node_case("V_crop_size", "CropAndResize to -1 by 3", 5, "crop_size", "CropAndResize",
              {"x": IMAGE, "r": f32(1, 4), "i": i32(0), "s": i32(-1, 3)}, domain=MS),
    node_case("V_lrn_size", "LRN over 2^62 channels", 5, "kernel_shape|size", "LRN", {"x": IMAGE},
              size=2**62),
    node_case("V_skip_gamma", "SkipLayerNormalization with a matrix of gammas", 5, "rank 1",
              "SkipLayerNormalization", {"x": f32(2, 3, 4), "k": f32(2, 3, 4), "g": f32(3, 4)},
              domain=MS),
    embed("word", "row -1", -1, 0), embed("place", "row 9", 0, 9),
    node_case("V_nbits_group", "MatMulNBits whose g_idx holds -1", 7, "g_idx", "MatMulNBits",
              {"x": f32(2, 32)}, {"b": u8(4, 1, 16), "s": f32(4, 1), "g": i32(*[-1] * 32)},
              order=["x", "b", "s", "", "g"], domain=MS, K=32, N=4, bits=4, block_size=32),
    node_case("V_gather_blocks", "GatherBlockQuantized index -9", 7, "-9", "GatherBlockQuantized",
              {"i": i64(-9)}, {"d": u8(4, 16), "s": f32(4, 1)}, order=["d", "i", "s"], domain=MS,
              block_size=32, bits=4, quantize_axis=1, gather_axis=0),
    node_case("V_gather_blocks_of_0", "GatherBlockQuantized block_size 0", 5, "block_size",
              "GatherBlockQuantized", {"i": i64(1)}, {"d": u8(4, 16), "s": f32(4, 1)},
              order=["d", "i", "s"], domain=MS, block_size=0, bits=4, quantize_axis=1,
              gather_axis=0),
    blocks("axis", 5, "axis 9", (3,), (3,), axis=9),
    blocks("axis_neg", 5, "axis -9", (3,), (3,), axis=-9),
    blocks("zero_point", 5, "shape of the scale", (2, 2), (2, 1), axis=1, block_size=2),
    blocks("block_neg", 5, "block_size", (2, 2), axis=1, block_size=-2),
    blocks("ok", 0, "", (2, 2), (2, 2), axis=1, block_size=2),
    node_case("V_conv_scalar", "Conv with weights that are a scalar", 5, "rank 4", "Conv",
              {"x": f32(7, 6, 1, 5), "w": np.float32(1)}),
    node_case("V_gemm_scalar", "Gemm-6 with a scalar and transB 823", 5, "transB|rank", "Gemm",
              {"x": f32(2, 1), "w": np.float32(1), "c": f32(2)}, opset=6, broadcast=-436,
              transB=823),
    node_case("V_gathernd_batch_neg", "GatherND batch_dims -1", 5, "batch_dims", "GatherND",
              {"x": f32(2, 3), "i": np.zeros((2, 1), np.int64)}, batch_dims=-1),
    node_case("V_nms_nan", "NonMaxSuppression with thresholds NaN and -inf", 7, "iou_threshold",
              "NonMaxSuppression",
              {"b": np.array([[[0, 0, NAN, 1], [INF, -INF, 1, 1]]], np.float32),
               "s": np.array([[[NAN, 1]]], np.float32)},
              {"m": i64(2**62), "i": np.array([NAN], np.float32),
               "t": np.array([-INF], np.float32)}, out=(INT64,)),
    node_case("V_nms_count_ok", "NonMaxSuppression of INT64_MIN boxes", 0, "",
              "NonMaxSuppression", {"b": f32(1, 2, 4), "s": f32(1, 1, 2)}, {"m": i64(MIN)},
              out=(INT64,)),
    node_case("V_mel_edges", "MelWeightMatrix from NaN to infinity", 7, "edge|bin",
              "MelWeightMatrix", {"x": np.int64(4)},
              {"d": np.int64(8), "r": np.int64(8000), "l": np.float32(NAN),
               "u": np.float32(INF)}),
    node_case("V_dft_length", "DFT of length -3", 7, "-3", "DFT",
              {"x": f32(1, 4, 1), "n": np.int64(-3)}, opset=17),
    node_case("V_stft_step", "STFT with a step of 2^62", 7, "expected 1 to 2\\^47", "STFT",
              {"x": f32(1, 10, 1), "f": np.int64(2**62)}, {"w": f32(4)}, opset=17),
    region("nan", 7, "nan", [NAN, 0, 1, 1]),
    region("samples", 5, "sampling_ratio", [0, 0, 1, 1], sampling_ratio=2**31 - 1),
    region("points", 6, "elements", [0, 0, 1, 1], output_height=2**31 - 1,
           output_width=2**31 - 1),
    region("bins", 5, "expected 1 to 2147483647", [0, 0, 1, 1], output_height=2**31),
    model_case("V_fold_empty_ok", "Transpose of a constant without an element, at load", 0, "",
               lambda f: simple([helper.make_node("Transpose", ["c"], ["t"], perm=[1, 0]),
                                 helper.make_node("Concat", ["x", "t"], ["y"], axis=0)],
                                (2, 3), {"c": f32(3, 0)})),
    model_case("V_fold_div_0", "integers that are divided by 0, at load", (0, 7), "Div|zero|0",
               lambda f: simple([helper.make_node("Div", ["c", "z"], ["d"]),
                                 helper.make_node("Cast", ["d"], ["e"], to=FLOAT),
                                 helper.make_node("Add", ["x", "e"], ["y"])], (2,),
                                {"c": i64(1, 2), "z": i64(0, 1)})),
]

# ---- the wire format ----


def message(*fields):
    return b"\x08\x0a" + field(8, b"\x10\x12") + b"".join(fields)


def constant(body, nodes=None):
    """x [2] -> y = x + c, where c is a TensorProto of these bytes behind its name."""
    def build(folder):
        graph = graph_of(nodes or [helper.make_node("Add", ["x", "c"], ["y"])],
                         [value("x", FLOAT, [2])], [value("y")]).SerializeToString()
        return message(field(7, graph + field(5, field(8, b"c") + body)))
    return build


def attribute(*fields, op=b"Softmax", name=b"axis"):
    """y = op(x), with an attribute of these fields behind its name."""
    def build(folder):
        made = field(1, b"x") + field(2, b"y") + field(4, op) + field(
            5, field(1, name) + b"".join(fields))
        return message(field(7, field(1, made) + field(2, b"g")
                             + field(11, value("x", FLOAT, [2, 3]).SerializeToString())
                             + field(12, value("y").SerializeToString())))
    return build


def kind(number):
    return b"\xa0\x01" + varint(number)


TWO_FLOATS = b"\x08\x02\x10\x01"  # dims 2, type 1
ONES = struct.pack("<2f", 1, 1)

WIRE = [
    model_case("VW_groups", "100000 groups in each other, in a field that nobody knows", 3,
               "wire type", lambda f: relu().SerializeToString() + b"\xc3\x3e" * 100000),
    model_case("VW_group_end", "the end of a group that never began", 3, "wire type",
               lambda f: relu().SerializeToString() + b"\xc4\x3e"),
    model_case("VW_tag_of_35_bits", "a field number of more than 29 bits", 3, "start of a field",
               lambda f: relu().SerializeToString() + b"\x82\x80\x80\x80\x80\x01\x00"),
    model_case("VW_raw_ok", "control: raw bytes", 0, "", constant(TWO_FLOATS + field(9, ONES))),
    model_case("VW_dims_in_parts_ok", "dims one by one and packed, in two places", 0, "",
               constant(b"\x08\x01" + field(9, ONES) + field(1, b"\x02") + b"\x10\x01")),
    model_case("VW_raw_twice", "raw bytes, and 1200 of them again", 3, "twice|more than one",
               constant(TWO_FLOATS + field(9, ONES * 150) + field(9, ONES * 150))),
    model_case("VW_two_fields", "raw bytes, and numbers", 3, "more than one field",
               constant(TWO_FLOATS + field(9, ONES) + field(4, ONES))),
    model_case("VW_segment", "a tensor of segments", 4, "segment",
               constant(TWO_FLOATS + field(3, b"\x08\x00\x10\x02") + field(9, ONES))),
    model_case("VW_location_7", "data_location 7", 3, "data_location",
               constant(TWO_FLOATS + field(9, ONES) + b"\x70\x07")),
    model_case("VW_location_none", "an external tensor without an entry", 3, "no location",
               constant(TWO_FLOATS + b"\x70\x01")),
    model_case("VW_bulk_field", "a field of the number that the loader gives to bulk data", 0, "",
               constant(TWO_FLOATS + field(9, ONES) + varint(19000 << 3 | 5) + b"\0\0\0\0")),
    model_case("VW_int_in_float", "an attribute of type INT that holds a float alone", 3,
               "axis.*type 2, but holds a value of type 1",
               attribute(b"\x15" + struct.pack("<f", 1), kind(2))),
    model_case("VW_ints_in_int", "an attribute of type INTS that holds one integer", 3,
               "perm.*type 7, but holds a value of type 2",
               attribute(b"\x18\x01", kind(7), op=b"Transpose", name=b"perm")),
    model_case("VW_int_of_0_ok", "an attribute of type INT whose 0 is left out", 0, "",
               attribute(kind(2))),
    model_case("VW_name_of_no_utf8_ok", "a metadata entry that is no UTF-8", 0, "",
               lambda f: relu().SerializeToString() + field(14, field(1, b"\xff\xfe")
                                                            + field(2, b"\x1b[2J"))),
    model_case("VW_training", "a training graph 20000 deep, which nobody reads", 6, "nested",
               lambda f: relu().SerializeToString() + field(20, field(1, deep(20000)))),
]


def deep(n):
    graph = b""
    for _ in range(n):
        graph = field(1, field(4, b"If") + field(5, field(1, b"g") + field(6, graph)))
    return graph


# ---- inputs ----

NPY = [
    npy_case(f"VN_{name}", what, exits, "x.npy", npy_bytes(text, **more))
    for name, what, exits, text, more in [
        ("descr_empty", "descr ''", (3, 4, 5), header(""), {}),
        ("descr_order", "descr '<'", (3, 4, 5), header("<"), {}),
        ("descr_letters", "descr '<ixy'", (3, 4, 5), header("<ixy"), {}),
        ("descr_digits", "descr '<f4' and 400 zeros", (3, 4, 5), header("<f4" + "0" * 400), {}),
        ("length_signed", "a header length that is -8 as a signed number", (3, 5), header(),
         {"length": 0xfff8}),
        ("length_0", "a header of no bytes", (3, 5), header(), {"length": 0}),
        ("key_twice", "descr twice", (3, 5),
         "{'descr': '<f4', 'descr': '<f8', 'fortran_order': False, 'shape': (2, 3)}\n", {}),
        ("behind", "text behind the dictionary", (3, 5), header().strip() + " + 1\n", {}),
        ("shape_of_2_64", "shape (2^64, 1)", (3, 5, 6), header(shape="(18446744073709551616, 1)"),
         {}),
        ("points", "text of code points above U+10FFFF", (3, 5),
         header("<U1"), {"payload": b"\xff" * 24}),
    ]]


def end64(data, at=2**64 - 64):
    """The archive with a zip64 end whose directory lies at `at`."""
    end = data.rindex(b"PK\x05\x06")
    record = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, 2, 2, 128, at)
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, end, 1)
    last = bytearray(data[end:])
    last[10:12] = b"\xff" * 2
    last[16:20] = b"\xff" * 4
    return data[:end] + record + locator + last


def sentinel(data, extra=b""):
    """The first entry of the directory says that its sizes are in a zip64 field, `extra`."""
    at = data.index(b"PK\x01\x02")
    entry = bytearray(data[at:at + 46])
    entry[20:28] = b"\xff" * 8
    entry[30:32] = struct.pack("<H", len(extra))
    name = data[at + 46:at + 46 + entry[28]]
    end = data.rindex(b"PK\x05\x06")
    rest = data[at + 46 + entry[28]:end]
    size = struct.pack("<I", end - at + len(extra))
    return data[:at] + bytes(entry) + name + extra + rest + data[end:end + 12] + size + data[
        end + 16:]


def overlapping(data):
    """Both entries are the first one."""
    second = data.index(b"PK\x01\x02", data.index(b"PK\x01\x02") + 4)
    return data[:second + 42] + b"\0" * 4 + data[second + 46:]


GOOD = npz(*TWO)
NPZ = [
    npz_case("VZ_sentinel", "sizes of 2^32 - 1 without a zip64 field", 3, "zip64", sentinel(GOOD)),
    npz_case("VZ_extra_long", "an extra field that is longer than its entry", 3, "extra field",
             sentinel(GOOD, b"\x01\x00\xff\xff")),
    npz_case("VZ_extra_short", "a zip64 field with one size of two", 3, "zip64",
             sentinel(GOOD, b"\x01\x00\x08\x00" + b"\1" * 8)),
    npz_case("VZ_extra_huge", "a zip64 field with sizes of 2^64 - 1", 3, "outside",
             sentinel(GOOD, b"\x01\x00\x10\x00" + b"\xff" * 16)),
    npz_case("VZ_directory_wraps", "a zip64 directory at 2^64 - 64", 3, "directory", end64(GOOD)),
    npz_case("VZ_overlap", "two entries at one place", 3, "overlap", overlapping(GOOD)),
    npz_case("VZ_local_name", "a local header whose name reaches past the file", 3, "outside",
             GOOD[:26] + b"\xff\xff" + GOOD[28:]),
    npz_case("VZ_encrypted", "an entry that is encrypted", (3, 4), "encrypted",
             patched(GOOD, b"PK\x01\x02\x14\x03\x14\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01")),
    npz_case("VZ_nul", "a name with a NUL", 3, "NUL",
             patched(patched(GOOD, b"x.npy", b"x\0npy"), b"z.npy", b"z.npy")),
    npz_case("VZ_empty_name", "entries without names", (3, 5), "",
             npz((".npy", b""), ("/", b""))),
]

YAML = [
    yaml_case("VY_open_colon", "brackets that end in a colon", (2, 3), "run.yaml", "[[:"),
    yaml_case("VY_two_colons", "colons around a carriage return", (2, 3), "run.yaml", ":\r:"),
    yaml_case("VY_tag_bytes", "a tag of half a character", (2, 3), "run.yaml", b"{!\xdb:"),
    yaml_case("VY_percent", "a directive without an end", (2, 3), "run.yaml",
              "%YAML 999999999999.1"),
    yaml_case("VY_merge", "the merge key of another reader", (2, 3), "<<|run.yaml",
              "<<: {threads: 2}\n"),
    yaml_case("VY_two_documents", "a second document that changes a value", (2, 3), "run.yaml|doc",
              "threads: 1\n---\nthreads: 2\n"),
    yaml_case("VY_octal", "a number that is octal elsewhere", (0, 2), "threads", "threads: 01\n"),
]

CASES = TABLES + SIZES + WIRE + NPY + NPZ + YAML
