"""Operators of ai.onnx.ml against ONNX Runtime: random ensembles of trees, support vectors, linear
models, maps; LabelEncoder against a dict. Usage: check_ml.py ATTNRUN [SEED]"""

import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 5
random = np.random.default_rng(SEED)
ROWS, FEATURES = 7, 4
POSTS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]
ELEMENTS = {
    "f4": TensorProto.FLOAT,
    "f8": TensorProto.DOUBLE,
    "i8": TensorProto.INT64,
    "i4": TensorProto.INT32,
    "i2": TensorProto.INT16,
}


def tree(number, depth=3):
    """Nodes of one random tree as columns, and the ids of its leaves."""
    nodes, leaves, waiting, next_id = [], [], [(0, depth)], 1
    while waiting:
        node, left = waiting.pop()
        branch = left > 0 and (node == 0 or random.random() < 0.8)
        if branch:
            yes, no, next_id = next_id, next_id + 1, next_id + 2
            waiting += [(yes, left - 1), (no, left - 1)]
        else:
            yes = no = 0
            leaves.append(node)
        mode = random.choice(["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"])
        nodes.append(
            (
                number,
                node,
                int(random.integers(FEATURES)),
                yes,
                no,
                mode if branch else "LEAF",
                float(np.float32(random.standard_normal())) if branch else 0.0,
                int(random.integers(2)),
            )
        )
    return nodes, leaves


def ensemble(n_trees, n_targets, positive=False):
    """Attributes of nodes and votes. A leaf votes for each target, for some more than once."""
    nodes, votes = [], []
    for number in range(n_trees):
        more, leaves = tree(number)
        nodes += more
        for leaf in leaves:
            targets = list(range(n_targets)) + list(random.integers(n_targets, size=2))
            for target in targets[: len(targets) - int(random.integers(3))]:
                weight = float(np.float32(random.standard_normal()))
                votes.append(
                    (number, leaf, int(target), abs(weight) / n_trees if positive else weight)
                )
    names = [
        "treeids",
        "nodeids",
        "featureids",
        "truenodeids",
        "falsenodeids",
        "modes",
        "values",
        "missing_value_tracks_true",
    ]
    return (
        {"nodes_" + name: list(column) for name, column in zip(names, zip(*nodes))},
        [list(column) for column in zip(*votes)],
    )


def features(dtype="f4", rows=ROWS):
    x = 2 * random.standard_normal((rows, FEATURES))
    if dtype[0] == "f" and random.random() < 0.3:
        x[0, 1] = np.nan
    return x.astype(dtype)


def regressor_cases():
    for aggregate in ["SUM", "AVERAGE", "MIN", "MAX"]:
        for n_targets in (1, 3):
            for post in ("NONE", "LOGISTIC", "SOFTMAX"):
                nodes, votes = ensemble(int(random.integers(1, 5)), n_targets)
                base = [[], [0.5] * n_targets][int(random.integers(2))]
                attributes = dict(
                    nodes,
                    target_treeids=votes[0],
                    target_nodeids=votes[1],
                    target_ids=votes[2],
                    target_weights=votes[3],
                    n_targets=n_targets,
                    aggregate_function=aggregate,
                    post_transform=post,
                )
                if base:
                    attributes["base_values"] = base
                yield (
                    "TreeEnsembleRegressor",
                    {"x": features(str(random.choice(["f4", "f8"])))},
                    {"y": "f4"},
                    attributes,
                )


def tree_classifier_cases():
    for labels in (2, 3):
        for positive in (False, True):
            for classes in (3,) if labels == 3 else (1,):  # two: ONNX Runtime's labels are 0, 1
                for post in POSTS[:3]:
                    nodes, votes = ensemble(3, classes, positive)
                    if classes == 1 and random.random() < 0.5:
                        votes[2] = [1] * len(votes[2])
                    attributes = dict(
                        nodes,
                        class_treeids=votes[0],
                        class_nodeids=votes[1],
                        class_ids=votes[2],
                        class_weights=votes[3],
                        post_transform=post,
                    )
                    names = [f"c{k}" for k in range(labels)]
                    strings = random.random() < 0.5
                    if strings:
                        attributes["classlabels_strings"] = names
                    else:
                        attributes["classlabels_int64s"] = [3 * k + 1 for k in range(labels)]
                    yield (
                        "TreeEnsembleClassifier",
                        {"x": features()},
                        {"label": "str" if strings else "i8", "scores": "f4"},
                        attributes,
                    )


def kernel():
    name = str(random.choice(["LINEAR", "POLY", "RBF", "SIGMOID"]))
    return {"kernel_type": name, "kernel_params": [0.3, 0.5, float(random.choice([2, 3, 1]))]}


def floats(*shape):
    return random.standard_normal(shape).astype("f4").ravel().tolist()


def svm_regressor_cases():
    for one_class in (0, 1):
        for vectors in (0, 1, 6):
            yield (
                "SVMRegressor",
                {"x": features()},
                {"y": "f4"},
                dict(
                    kernel(),
                    n_supports=vectors,
                    one_class=one_class,
                    rho=floats(1),
                    coefficients=floats(vectors or FEATURES),
                    support_vectors=floats(vectors, FEATURES),
                ),
            )


def svm_classifier_cases():
    for classes in (2, 3, 5):
        for likely in (False, True):
            # SOFTMAX_ZERO jumps at 1e-7, which is where probabilities are cut.
            for post in POSTS[: 3 if likely else 4]:
                counts = random.integers(1, 5, classes)
                pairs = classes * (classes - 1) // 2
                attributes = dict(
                    kernel(),
                    post_transform=post,
                    rho=floats(pairs),
                    vectors_per_class=counts.tolist(),
                    support_vectors=floats(counts.sum(), FEATURES),
                    coefficients=floats(classes - 1, counts.sum()),
                )
                if likely:
                    attributes.update(
                        prob_a=[-abs(a) - 0.2 for a in floats(pairs)], prob_b=floats(pairs)
                    )
                strings = random.random() < 0.5
                names = (
                    {"classlabels_strings": [f"c{k}" for k in range(classes)]}
                    if strings
                    else {"classlabels_ints": [5 - k for k in range(classes)]}
                )
                x = np.nan_to_num(features(str(random.choice(["f4", "f8", "i8", "i4"])), 12))
                if likely and x.dtype.kind == "f":
                    x[3, 1] = np.nan  # all classes become equally likely
                yield (
                    "SVMClassifier",
                    {"x": x},
                    {"label": "str" if strings else "i8", "scores": "f4"},
                    dict(attributes, **names),
                )
        yield (
            "SVMClassifier",
            {"x": np.nan_to_num(features())},
            {"label": "i8", "scores": "f4"},
            dict(
                kernel(),
                rho=floats(1),
                coefficients=floats(classes, FEATURES),
                classlabels_ints=[5 - k for k in range(classes)],
            ),
        )


def scaler_cases():
    for dtype in ("f4", "f8", "i4", "i8"):
        x = (7 * random.standard_normal((40, FEATURES))).astype(dtype)
        yield (
            "Scaler",
            {"x": x},
            {"y": "f4"},
            {"offset": floats(FEATURES), "scale": floats(FEATURES)},
        )


def vectorizer_cases():
    for shapes in (((5, 3), (5, 2)), ((4,), (2,)), ((2, 3, 4), (2, 1)), ((1, 1, 4), (1, 2, 3, 2))):
        xs = {
            f"x{k}": random.standard_normal(shape).astype("f4") for k, shape in enumerate(shapes)
        }
        for more in (0, 3):  # columns that are filled up with zeros
            sizes = [int(np.prod(shape[len(shape) > 1:])) + more for shape in shapes]
            yield "FeatureVectorizer", xs, {"y": "f4"}, {"inputdimensions": sizes}


def label(strings, n):
    return (
        {"classlabels_strings": [f"k{i}" for i in range(n)]}
        if strings
        else {"classlabels_int64s": [7 - 3 * i for i in range(n)]}
    )


def map_cases():
    for strings in (False, True):
        for shape in ((5, 3), (1, 1), (4,), (0, 2)):
            x = random.standard_normal(shape).astype("f4")
            yield "ZipMap", {"x": x}, {"z": "maps" + "is"[strings]}, label(strings, shape[-1])
    # Of maps ONNX Runtime's Python interface takes those to floats that are not empty.
    yield (
        "DictVectorizer",
        {"x": {"b": 1.5, "a": -2.25, "zz": 4.0}},
        {"y": "f4"},
        {"string_vocabulary": ["a", "none", "b", "a"]},
    )
    many = {int(k): float(k) / 4 for k in random.permutation(300)}
    for entries in ({9: 0.5, -3: 1.0, 4: 2.5}, many):
        yield "DictVectorizer", {"x": entries}, {"y": "f4"}, {
            "int64_vocabulary": [4, 1, 9, -3, 299]
        }
    for entries in ({5: 1.25, 0: -3.75, 2: 1e6, 90: 1.0}, many):
        for target, kind in (("TO_FLOAT", "f4"), ("TO_STRING", "str"), ("TO_INT64", "i8")):
            for form in ({"map_form": "DENSE"}, {"map_form": "SPARSE", "max_map": 7}):
                yield "CastMap", {"x": entries}, {"y": kind}, dict(form, cast_to=target)


def linear_cases():
    for targets in (1, 3):
        # ONNX Runtime leaves out the other transforms of one target.
        for post in POSTS if targets > 1 else ("NONE", "PROBIT"):
            yield (
                "LinearRegressor",
                {"x": np.nan_to_num(features())},
                {"y": "f4"},
                {
                    "targets": targets,
                    "post_transform": post,
                    "coefficients": floats(targets, FEATURES),
                    "intercepts": floats(targets) if post != "NONE" else [],
                },
            )
    for classes in (2, 3, 4):
        for post in POSTS[:4]:
            strings = random.random() < 0.5
            names = (
                {"classlabels_strings": [f"c{k}" for k in range(classes)]}
                if strings
                else {"classlabels_ints": [5 - k for k in range(classes)]}
            )
            yield (
                "LinearClassifier",
                {"x": np.nan_to_num(features(str(random.choice(["f4", "f8", "i8", "i4"])), 12))},
                {"label": "str" if strings else "i8", "scores": "f4"},
                dict(
                    names,
                    post_transform=post,
                    coefficients=floats(classes, FEATURES),
                    intercepts=floats(classes),
                ),
            )


def large_cases():
    """Scores that LOGISTIC makes equal to 1: the label is that of the largest one before it."""
    outputs = {"label": "i8", "scores": "f4"}
    for post in ("NONE", "LOGISTIC"):
        yield (
            "LinearClassifier",
            {"x": np.nan_to_num(features("f4", 12))},
            outputs,
            {
                "classlabels_ints": [4, 2, 9],
                "post_transform": post,
                "coefficients": floats(3, FEATURES),
                "intercepts": [80.0, 80.5, 80.25],
            },
        )
        nodes, votes = ensemble(3, 3)
        attributes = dict(
            nodes,
            class_treeids=votes[0],
            class_nodeids=votes[1],
            class_ids=votes[2],
            class_weights=[20 + weight for weight in votes[3]],
            classlabels_int64s=[4, 2, 9],
            post_transform=post,
        )
        yield "TreeEnsembleClassifier", {"x": features("f4", 12)}, outputs, attributes


# Attributes of lists, and a key that is none of the others.
ENCODED = {
    "strings": (lambda k: f"key {k}", "none", "default_string"),
    "int64s": (lambda k: 7 * k - 20, 10**15, "default_int64"),
    "floats": (lambda k: k / 4 - 3, -1e30, "default_float"),
}


def encoder_cases():
    """Few keys are searched in order, and many by a table."""
    for keys in ENCODED:
        for values in ENCODED:
            for n in (3, 8, 40):
                key, other, _ = ENCODED[keys]
                value, _, default = ENCODED[values]
                x = [key(k) for k in random.permutation(n)] + [other, key(0)]
                if keys == "floats":
                    x += [np.nan, -0.0, 0.0]
                table = {key(k): value(n - k) for k in range(n)}
                unknown = {"strings": "??", "int64s": -77, "floats": 0.5}[values]
                yield (
                    "LabelEncoder",
                    {"x": np.array(x, {"strings": object, "int64s": "i8", "floats": "f4"}[keys])},
                    {"y": {"strings": "str", "int64s": "i8", "floats": "f4"}[values]},
                    {
                        f"keys_{keys}": list(table),
                        f"values_{values}": list(table.values()),
                        default: unknown,
                    },
                    [np.array([table.get(k, unknown) for k in x],
                              {"strings": object, "int64s": "i8", "floats": "f4"}[values])],
                )


def tensor_encoder_cases():
    """Of version 4, whose keys and values may be tensors, with NaN among the keys."""
    kinds = [("f8", "f8"), ("i8", "i4"), ("i4", "f8"), ("i2", "i2"), ("f4", "i2"), ("i2", "f4")]
    for kind, other in kinds:
        for n in (4, 30):
            for given in (False, True):
                keys = (np.arange(n) * 3 - 7).astype(kind)
                values = random.permutation(n).astype(other)
                if kind[0] == "f":
                    keys[1] = np.nan
                x = np.concatenate([random.permutation(keys), [100, 101]]).astype(kind)
                unknown = 9 if given else {"f4": -0.0, "f8": -0.0}.get(other, -1)
                found = [next((v for k, v in zip(keys, values) if k == a or k != k and a != a),
                              unknown) for a in x]
                attributes = {"keys_tensor": numpy_helper.from_array(keys),
                              "values_tensor": numpy_helper.from_array(values), "ml_opset": 4}
                if given:
                    attributes["default_tensor"] = numpy_helper.from_array(
                        np.array([unknown], other))
                yield "LabelEncoder", {"x": x}, {"y": other}, attributes, [np.array(found, other)]


def map_type(key, value):
    tensor = onnx.helper.make_tensor_type_proto(value, [])
    return helper.make_map_type_proto(key, tensor)


def type_of(value):
    """The TypeProto of an input."""
    if not isinstance(value, dict):
        return helper.make_tensor_type_proto(
            numpy_helper.from_array(value).data_type, value.shape
        )
    text = isinstance(next(iter(value)), str)
    return map_type(TensorProto.STRING if text else TensorProto.INT64, TensorProto.FLOAT)


def type_named(kind):
    """The TypeProto of an output."""
    if kind.startswith("maps"):
        return helper.make_sequence_type_proto(
            map_type(
                TensorProto.STRING if kind[-1] == "s" else TensorProto.INT64, TensorProto.FLOAT
            )
        )
    return helper.make_tensor_type_proto(
        TensorProto.STRING if kind == "str" else ELEMENTS[kind], None
    )


def to_pb(value):
    """Maps as onnx's helper writes them: it takes no strings as keys."""
    if isinstance(value, dict):
        made = onnx.MapProto(key_type=TensorProto.INT64)
        for key, entry in value.items():
            if isinstance(key, str):
                made.key_type = TensorProto.STRING
                made.string_keys.append(key.encode())
            else:
                made.keys.append(key)
            made.values.tensor_values.append(numpy_helper.from_array(np.asarray(entry)))
        return made
    if isinstance(value, list):
        return onnx.SequenceProto(
            elem_type=onnx.SequenceProto.MAP, map_values=[to_pb(entry) for entry in value]
        )
    return numpy_helper.from_array(np.asarray(value))


def write(folder, number, op, inputs, outputs, attributes, values=None):
    """One test folder whose expected outputs are `values`, or ONNX Runtime's."""
    attributes = {name: value for name, value in attributes.items() if value != []}
    version = attributes.pop("ml_opset", 3)
    graph = helper.make_graph(
        [helper.make_node(op, list(inputs), list(outputs), domain="ai.onnx.ml", **attributes)],
        "case",
        [helper.make_value_info(name, type_of(x)) for name, x in inputs.items()],
        [helper.make_value_info(name, type_named(kind)) for name, kind in outputs.items()],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", version)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 9
    if values is None:
        runtime = onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        values = runtime.run(None, inputs)
    case = os.path.join(folder, f"{number:03}_{op}")
    data = os.path.join(case, "test_data_set_0")
    os.makedirs(data)
    onnx.save(model, os.path.join(case, "model.onnx"))
    for kind, arrays in (("input", inputs.values()), ("output", values)):
        for i, x in enumerate(arrays):
            with open(os.path.join(data, f"{kind}_{i}.pb"), "wb") as file:
                file.write(to_pb(x).SerializeToString())
    with open(os.path.join(case, "tol.txt"), "w") as file:
        file.write("0 0\n" if op == "Scaler" else "1e-5 1e-6\n")  # trees follow on scalers


def main():
    with tempfile.TemporaryDirectory() as folder:
        n = 0
        for cases in (
            regressor_cases,
            tree_classifier_cases,
            svm_regressor_cases,
            svm_classifier_cases,
            scaler_cases,
            vectorizer_cases,
            map_cases,
            linear_cases,
            large_cases,
            encoder_cases,
            tensor_encoder_cases,
        ):
            for case in cases():
                write(folder, n, *case)
                n += 1
        run = subprocess.run(
            [sys.argv[1], "check", folder], capture_output=True, text=True, timeout=600
        )
        print(f"seed {SEED}, {folder}:", (run.stdout + run.stderr)[-6000:])
        sys.exit(run.returncode)


if __name__ == "__main__":
    main()
