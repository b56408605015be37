#!/usr/bin/env python3
"""attnrun optimize and extract: the new model is smaller, holds only nodes of the old one, and
gives the same in ONNX Runtime.

usage: test_edit.py ROOT ATTNRUN
"""
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parent))
import cli_models  # noqa: E402
from edit_case import ATTNRUN, F, I64, SEED, EditCase, node, run, value  # noqa: E402


def convolution(path):
    """Conv and BatchNormalization, one Sqrt twice, an Identity, and a node without a reader."""
    draw = numpy.random.default_rng(SEED)
    return cli_models.save(
        path,
        [node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
         node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"], name="norm"),
         node("Relu", ["n"], ["r"]), node("Identity", ["r"], ["i"]),
         node("Sqrt", ["i"], ["a"]), node("Sqrt", ["i"], ["a2"]), node("Add", ["a", "a2"], ["y"]),
         node("Exp", ["x"], ["unread"])],
        [("x", F, ["N", 3, "H", "W"])], [("y", F, ["N", 4, "H", "W"])],
        [("w", draw.normal(size=(4, 3, 3, 3)).astype("f")),
         *((n, draw.uniform(0.5, 2, size=4).astype("f")) for n in "sbmv")], opset=20)


def shapes(path):
    """A Reshape to sizes that Shape, Gather and Concat make, and gelu, which fuses here."""
    draw = numpy.random.default_rng(SEED)
    return cli_models.save(
        path,
        [node("Shape", ["x"], ["shape"]), node("Gather", ["shape", "one"], ["length"]),
         node("Concat", ["minus", "length", "rest"], ["to"], axis=0),
         node("MatMul", ["x", "w"], ["p"], name="product"), node("Gelu", ["p"], ["g"]),
         node("Reshape", ["g", "to"], ["y"], name="last")],
        [("x", F, ["B", "S", 6])], [("y", F, None)],
        [("w", draw.normal(size=(6, 8)).astype("f")), ("one", numpy.array([1])),
         ("minus", numpy.array([-1])), ("rest", numpy.array([2, 4]))], opset=20)


def quantized(path):
    """A weight in bytes with a scale, and one that a transposition gives."""
    draw = numpy.random.default_rng(SEED)
    return cli_models.save(
        path,
        [node("DequantizeLinear", ["q", "scale"], ["w"]), node("MatMul", ["x", "w"], ["p"]),
         node("Transpose", ["t"], ["u"]), node("MatMul", ["p", "u"], ["y"])],
        [("x", F, ["N", 64])], [("y", F, ["N", 32])],
        [("q", draw.integers(-128, 128, size=(64, 96)).astype("i1")),
         ("scale", numpy.float32(0.02)), ("t", draw.normal(size=(32, 96)).astype("f"))])


def branches(path):
    """A Loop with an If that reads what lies around both; and an If whose condition is known."""
    then = helper.make_graph([node("MatMul", ["v", "w"], ["t"])], "then", [], [value("t")])
    other = helper.make_graph([node("Identity", ["x"], ["e"])], "else", [], [value("e")])
    body = helper.make_graph(
        [node("Less", ["i", "two"], ["early"]),
         node("If", ["early"], ["n"], then_branch=then, else_branch=other),
         node("Identity", ["go"], ["again"])], "body",
        [value("i", I64, ()), value("go", TensorProto.BOOL, ()), value("v")],
        [value("again", TensorProto.BOOL, ()), value("n")])
    yes = helper.make_graph([node("Relu", ["l"], ["z"])], "yes", [], [value("z")])
    no = helper.make_graph([node("Abs", ["l"], ["z2"])], "no", [], [value("z2")])
    return cli_models.save(
        path, [node("Loop", ["trips", "", "x"], ["l"], body=body),
               node("If", ["known"], ["y"], then_branch=yes, else_branch=no)],
        [("x", F, [4, 4])], [("y", F, [4, 4])],
        [("w", numpy.random.default_rng(SEED).normal(size=(4, 4)).astype("f")),
         ("trips", numpy.int64(3)), ("two", numpy.int64(2)), ("known", numpy.array(True))])


def functions(path):
    """A node with a body that this library has an operator for, and one that it has not."""
    opsets = [helper.make_opsetid("", 18)]
    bodies = [
        helper.make_function("attnrun", "FourierMix", ["X"], ["Y"],
                             [node("Mul", ["X", "X"], ["Y"])], opsets),
        helper.make_function("mine", "Twice", ["X"], ["Y"], [node("Add", ["X", "X"], ["Y"])],
                             opsets)]
    graph = helper.make_graph(
        [node("Twice", ["x"], ["t"], domain="mine", name="twice"),
         node("FourierMix", ["t"], ["y"], domain="attnrun", name="mix")], "g",
        [value("x", F, ["B", 8, 4])], [value("y", F, ["B", 8, 4])])
    model = helper.make_model(graph, functions=bodies, ir_version=9, opset_imports=[
        *opsets, helper.make_opsetid("attnrun", 1), helper.make_opsetid("mine", 1)])
    onnx.save(model, path)
    return path


class Edit(EditCase):
    def test_convolution(self):
        path = convolution(self.dir / "m.onnx")
        model = self.edited("optimize", path)
        self.assertEqual([n.op_type for n in model.graph.node], ["Conv", "Relu", "Sqrt", "Add"])
        self.same(path, {"x": self.draw.normal(size=(2, 3, 9, 7)).astype("f")}, 1e-4)

    def test_fixed_dims(self):
        path = shapes(self.dir / "m.onnx")
        x = self.draw.normal(size=(2, 5, 6)).astype("f")
        self.assertEqual(len(self.edited("optimize", path).graph.node), 6)
        self.same(path, {"x": x})
        model = self.edited("optimize", path, "--set", "S=5")
        self.assertEqual([n.op_type for n in model.graph.node], ["MatMul", "Gelu", "Reshape"])
        dims = model.graph.input[0].type.tensor_type.shape.dim
        self.assertEqual([d.dim_param or d.dim_value for d in dims], ["B", 5, 6])
        self.same(path, {"x": x})
        said = self.attnrun("optimize", path, "--set", "T=5", "-o", "out.onnx", code=2).stderr
        self.assertIn("dimension 'T'", said)

    def test_lists_of_attributes_stay(self):
        lists = {"keys_strings": ["a", "", "bc"], "values_floats": [0.5, -1.5, 2.25],
                 "default_float": 7.5}
        numbers = {"keys_floats": [0.5, -1.5, 7.5], "values_int64s": [3, -4, 5]}
        path = cli_models.save(
            self.dir / "m.onnx",
            [node("LabelEncoder", ["x"], ["f"], domain="ai.onnx.ml", **lists),
             node("LabelEncoder", ["f"], ["y"], domain="ai.onnx.ml", **numbers)],
            [("x", TensorProto.STRING, ["N"])], [("y", I64, ["N"])], [], opset=18)
        model = onnx.load(path)
        model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
        onnx.save(model, path)
        for old, new in zip(model.graph.node, self.edited("optimize", path).graph.node,
                            strict=True):
            found = {a.name: helper.get_attribute_value(a) for a in new.attribute}
            self.assertEqual(found, {a.name: helper.get_attribute_value(a)
                                     for a in old.attribute})

    def test_outputs_that_nobody_reads_stay(self):
        """Not each may be left out, whatever this library does without."""
        scores = {"coefficients": [1.0, 2.0, 3.0, 4.0], "intercepts": [0.0, 1.0],
                  "classlabels_ints": [4, 7]}
        path = cli_models.save(
            self.dir / "m.onnx",
            [node("Split", ["x"], ["a", "b", "c"], num_outputs=3),
             node("LinearClassifier", ["b"], ["label", "score"], domain="ai.onnx.ml", **scores),
             node("LSTM", ["s", "w", "r"], ["", "h", "cell"], hidden_size=1),
             node("Relu", ["x"], ["e"]), node("Dropout", ["e"], ["d", "mask"])],
            [("x", F, [6, 2]), ("s", F, [3, 1, 2])],
            [("label", I64, [2]), ("h", F, [1, 1, 1]), ("d", F, [6, 2])],
            [("w", numpy.ones((1, 4, 2), "f")), ("r", numpy.ones((1, 4, 1), "f"))],
            domains=("ai.onnx.ml",))
        feeds = {"x": self.draw.normal(size=(6, 2)).astype("f"),
                 "s": self.draw.normal(size=(3, 1, 2)).astype("f")}
        for command in (["optimize", path], ["extract", path, "--outputs", "label,h,d"]):
            made = self.edited(*command).graph.node
            self.assertEqual([list(n.output) for n in made[:3]],
                             [["a", "b", "c"], ["label", "score"], ["", "h", "cell"]])
            self.assertEqual([n.op_type for n in made[3:]],
                             ["Relu"] if "optimize" in command else ["Relu", "Dropout"])
            self.same(path, feeds)

    def test_a_body_of_an_older_opset(self):
        """Unsqueeze has its axes in an attribute there; the model has only one opset for both."""
        body = helper.make_function("mine", "Lift", ["X"], ["Y"],
                                    [node("Unsqueeze", ["X"], ["Y"], axes=[0])],
                                    [helper.make_opsetid("", 11)])
        graph = helper.make_graph([node("Lift", ["x"], ["y"], domain="mine", name="lift")], "g",
                                  [value("x", F, ["N"])], [value("y", F, [1, "N"])])
        path = self.dir / "m.onnx"
        onnx.save(helper.make_model(graph, functions=[body], ir_version=9, opset_imports=[
            helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)]), path)
        said = self.attnrun("optimize", path, "-o", "out.onnx", code=4).stderr
        self.assertIn("the node is of opset 11 and the model of opset 18, which", said)

    def test_what_a_file_says_of_itself_stays(self):
        path = convolution(self.dir / "m.onnx")
        texts = {"domain": "org.example", "doc_string": "what it does", "producer_name": "trainer",
                 "producer_version": "3"}
        for version in (None, 0, -1, 7):
            model = onnx.load(path)
            for name, text in texts.items():
                setattr(model, name, text)
            model.graph.doc_string = "größer"
            helper.set_model_props(model, {"a": "one", "b": "", "c": "größer"})
            model.ClearField("model_version")
            if version is not None:
                model.model_version = version
            onnx.save(model, path)
            made = self.edited("optimize", path)
            self.assertEqual({name: getattr(made, name) for name in texts}, texts)
            self.assertEqual(made.graph.doc_string, "größer")
            self.assertEqual([(p.key, p.value) for p in made.metadata_props],
                             [("a", "one"), ("b", ""), ("c", "größer")])
            self.assertEqual((made.HasField("model_version"), made.model_version),
                             (version is not None, version or 0))

    def test_names_like_those_that_are_made(self):
        """A file that attnrun wrote has names of its values that no node of the source had."""
        for number in range(12, 18):
            name = f"%0.{number}"
            path = convolution(self.dir / "conv.onnx")
            model = onnx.load(path)
            for at in model.graph.node:
                at.input[:] = [name if n == "x" else n for n in at.input]
            model.graph.input[0].name = name
            onnx.save(model, path)
            self.edited("optimize", path)
            self.same(path, {name: self.draw.normal(size=(1, 3, 4, 4)).astype("f")}, 1e-4)

    def test_weights_stay_quantized(self):
        path = Path(quantized(self.dir / "m.onnx"))
        model = self.edited("optimize", path)
        self.assertEqual([n.op_type for n in model.graph.node],
                         ["DequantizeLinear", "MatMul", "MatMul"])
        self.assertLessEqual((self.dir / "out.onnx").stat().st_size, path.stat().st_size)
        self.same(path, {"x": self.draw.normal(size=(3, 64)).astype("f")})

    def test_subgraphs(self):
        path = branches(self.dir / "m.onnx")
        model = self.edited("optimize", path)
        self.assertEqual([n.op_type for n in model.graph.node], ["Loop", "Relu"])
        self.same(path, {"x": self.draw.normal(size=(4, 4)).astype("f")})

    def test_constants_of_branches_are_written_once(self):
        """Branches that compute the same from a weight around them share the result, and the weight
        goes where nobody reads it any more. Names of branches that would hide it differ."""
        big = self.draw.normal(size=(64, 48)).astype("f")
        inner = self.draw.normal(size=(64, 64)).astype("f")

        def branch(name, last):
            return helper.make_graph(
                [node("Transpose", ["w"], [name + "_t"]), node("MatMul", [name + "_t", "x"],
                                                              [name + "_p"]),
                 node("MatMul", [name + "_p", "own"], [name + "_q"]),
                 node(last, [name + "_q"], [name])], name, [], [value(name)],
                [onnx.numpy_helper.from_array(inner * (2 if last == "Abs" else 1), "own")])

        nested = helper.make_graph(
            [node("If", ["d"], ["n"], then_branch=branch("a", "Relu"),
                  else_branch=branch("b", "Neg"))], "nested", [], [value("n")])
        path = Path(cli_models.save(
            self.dir / "m.onnx",
            [node("If", ["c"], ["y"], then_branch=nested, else_branch=branch("e", "Abs"))],
            [("x", F, [64, 64]), ("c", TensorProto.BOOL, []), ("d", TensorProto.BOOL, [])],
            [("y", F, None)], [("w", big)]))
        model = self.edited("optimize", path)
        self.assertLess((self.dir / "out.onnx").stat().st_size, path.stat().st_size + 1000)
        sizes = sorted(numpy.prod(w.dims) for w in model.graph.initializer)
        self.assertEqual(sizes, [48 * 64, 64 * 64, 64 * 64, 64 * 64])
        x = self.draw.normal(size=(64, 64)).astype("f")
        for c, d in ((True, True), (True, False), (False, False)):
            self.same(path, {"x": x, "c": numpy.array(c), "d": numpy.array(d)}, 1e-4)
        self.edited("optimize", path, "--external") # constants of branches, too

    def test_a_weight_that_two_nodes_read(self):
        """Tied embeddings: the transposed table is not written beside the table."""
        path = Path(cli_models.save(
            self.dir / "m.onnx",
            [node("Gather", ["table", "ids"], ["h"]), node("Transpose", ["table"], ["t"]),
             node("MatMul", ["h", "t"], ["y"])],
            [("ids", I64, ["N"])], [("y", F, None)],
            [("table", self.draw.normal(size=(300, 64)).astype("f"))]))
        model = self.edited("optimize", path)
        self.assertEqual([n.op_type for n in model.graph.node], ["Gather", "Transpose", "MatMul"])
        self.assertLessEqual((self.dir / "out.onnx").stat().st_size, path.stat().st_size + 200)
        self.same(path, {"ids": numpy.array([3, 0, 299])}, 1e-4)

    def test_a_sum_of_opset_6(self):
        """Its vector lies over the rows, so that weights by column cannot take what follows."""
        vectors = [(name, self.draw.uniform(0.5, 2, 4).astype("f")) for name in "bsmv"]
        graph = helper.make_graph(
            [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["t"], broadcast=1, axis=0),
             node("BatchNormalization", ["t", "s", "b", "m", "v"], ["y"], is_test=1)],
            "g", [value("x", F, [4, 4])], [value("y", F, [4, 4])],
            [onnx.numpy_helper.from_array(numpy.ones((4, 4), "f"), "w"),
             *(onnx.numpy_helper.from_array(array, name) for name, array in vectors)])
        path = self.dir / "m.onnx"
        onnx.save(helper.make_model(graph, ir_version=9, opset_imports=[
            helper.make_opsetid("", 6)]), path)
        self.attnrun("optimize", path, "-o", "out.onnx", "-q")
        self.assertEqual([n.op_type for n in onnx.load(self.dir / "out.onnx").graph.node],
                         ["MatMul", "Add", "BatchNormalization"])

    def test_a_branch_that_fails(self):
        """One whose second node does not fit, after the first one was computed."""
        broken = helper.make_graph([node("Neg", ["w"], ["u"]), node("MatMul", ["u", "v3"], ["t"])],
                                   "then", [], [value("t")])
        whole = helper.make_graph([node("Relu", ["x"], ["e"])], "else", [], [value("e")])
        path = cli_models.save(
            self.dir / "m.onnx", [node("If", ["c"], ["y"], then_branch=broken, else_branch=whole)],
            [("x", F, [4, 4]), ("c", TensorProto.BOOL, [])], [("y", F, None)],
            [("w", numpy.ones((4, 4), "f")), ("v3", numpy.ones((3, 3), "f"))])
        self.attnrun("optimize", path, "-o", "out.onnx", "-q")
        self.assertEqual(onnx.load(self.dir / "out.onnx").graph.node[0].op_type, "If")

    def test_function_bodies(self):
        path = functions(self.dir / "m.onnx")
        model = self.edited("optimize", path)
        self.assertEqual([n.op_type for n in model.graph.node], ["Add", "FourierMix"])
        self.same(path, {"x": self.draw.normal(size=(2, 8, 4)).astype("f")})
        model = self.edited("extract", path, "--outputs", "t")
        self.assertEqual(len(model.functions), 0)

    def test_overloads(self):
        """The node, of a branch too, calls the same one of two functions in runtimes without the
        operator."""
        opsets = [helper.make_opsetid("", 18)]
        bodies = [helper.make_function("attnrun", "FourierMix", ["X"], ["Y"],
                                       [node(op, ["X", "X"], ["Y"])], opsets, overload=overload)
                  for op, overload in (("Mul", "first"), ("Add", "second"))]
        call, inner = (node("FourierMix", ["x"], [name], domain="attnrun", overload="second")
                       for name in "yt")
        branch = helper.make_graph([inner], "branch", [], [value("t", F, None)])
        path = self.dir / "model.onnx"
        for given in (call, node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)):
            graph = helper.make_graph(
                [given], "g", [value("x", F, [1, 8, 4])], [value("y", F, [1, 8, 4])],
                [numpy_helper.from_array(numpy.array(True), "c")])
            onnx.save(helper.make_model(graph, functions=bodies, ir_version=10, opset_imports=[
                *opsets, helper.make_opsetid("attnrun", 1)]), path)
            self.edited("optimize", path)
            self.same(path, {"x": self.draw.normal(size=(1, 8, 4)).astype("f")})

    def test_functions_of_a_hash(self):
        """"Op__hash" of the file runs as Op; the new file calls its function by the name it has."""
        twice = helper.make_function("attnrun", "FourierMix__0a1b2c3d", ["X"], ["Y"],
                                     [node("Add", ["X", "X"], ["Y"])],
                                     [helper.make_opsetid("", 18)])
        graph = helper.make_graph(
            [node("Relu", ["x"], ["r"]),
             node("FourierMix__0a1b2c3d", ["r"], ["y"], domain="attnrun")], "g",
            [value("x", F, [2, 8, 4])], [value("y", F, [2, 8, 4])])
        model = helper.make_model(graph, functions=[twice], ir_version=9, opset_imports=[
            helper.make_opsetid("", 18), helper.make_opsetid("attnrun", 1)])
        path = self.dir / "m.onnx"
        onnx.save(model, path)
        for command in (["optimize", path], ["extract", path, "--outputs", "y"]):
            made = self.edited(*command)
            self.assertEqual([n.op_type for n in made.graph.node],
                             ["Relu", "FourierMix__0a1b2c3d"])
            self.assertEqual([f.name for f in made.functions], ["FourierMix__0a1b2c3d"])

    def test_nodes_of_bodies_without_names(self):
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)]
        mine = helper.make_function(
            "mine", "Mine", ["p"], ["q"],
            [node("Add", ["p", "p"], ["s"]), node("Add", ["s", "p"], ["t"]),
             node("Add", ["t", "s"], ["q"], name="last")], opsets[:1])
        graph = helper.make_graph(
            [node("Mine", ["x"], ["u"], domain="mine", name="a"),
             node("Mine", ["u"], ["y"], domain="mine", name="b")], "g",
            [value("x", F, [4])], [value("y", F, [4])])
        path = self.dir / "model.onnx"
        onnx.save(helper.make_model(graph, ir_version=9, opset_imports=opsets,
                                    functions=[mine]), path)
        for command in (["optimize", path], ["extract", path, "--outputs", "y"]):
            made = self.edited(*command)
            names = [n.name for n in made.graph.node if n.name]
            self.assertEqual(sorted(names), ["a/Add", "a/last", "b/Add", "b/last"])
            self.same(path, {"x": self.draw.normal(size=4).astype("f")})

    def test_names_of_bodies(self):
        """A body in a branch makes a name that a value around it has, which the branch reads; and
        a body around it makes one that a value of the branch has."""
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)]
        mine = helper.make_function(
            "mine", "Mine", ["p"], ["q"],
            [node("Add", ["p", "p"], ["t"]), node("Identity", ["t"], ["q"])], opsets[:1])
        call = node("Mine", ["x"], ["u"], name="b", domain="mine")
        branches = ([node("Exp", ["x"], ["b/t"])], [call, node("Sub", ["u", "b/t"], ["y1"])]), (
            [call], [node("Exp", ["x"], ["b/t"]), node("Sub", ["u", "b/t"], ["y1"])])
        for around, within in branches:
            other = [node("Abs", ["x"], ["y2"])]
            graph = helper.make_graph(
                [*around, node("If", ["c"], ["y"],
                               then_branch=helper.make_graph(within, "a", [], [value("y1")]),
                               else_branch=helper.make_graph(other, "b", [], [value("y2")]))],
                "g", [value("x", F, [4]), value("c", TensorProto.BOOL, [])],
                [value("y", F, [4])])
            path = self.dir / "model.onnx"
            onnx.save(helper.make_model(graph, ir_version=9, opset_imports=opsets,
                                        functions=[mine]), path)
            feeds = {"x": self.draw.normal(size=4).astype("f"), "c": numpy.array(True)}
            for command in (["optimize", path], ["extract", path, "--outputs", "y"]):
                self.edited(*command)
                self.same(path, feeds)

    def test_opsets_of_bodies(self):
        """A body imports domains that the model does not: its nodes stand in the model now."""
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
        for body in ([node("Scaler", ["X"], ["Y"], domain="ai.onnx.ml", offset=[1.0],
                           scale=[2.0])], [node("Abs", ["X"], ["Y"])]):
            graph = helper.make_graph([node("Mine", ["x"], ["y"], domain="mine")], "g",
                                      [value("x", F, [2, 3])], [value("y", F, [2, 3])])
            path = self.dir / "model.onnx"
            onnx.save(helper.make_model(
                graph, ir_version=9, opset_imports=[helper.make_opsetid("mine", 1)],
                functions=[helper.make_function("mine", "Mine", ["X"], ["Y"], body, opsets)]),
                path)
            feeds = {"x": self.draw.normal(size=(2, 3)).astype("f")}
            for command in (["optimize", path], ["extract", path, "--outputs", "y"]):
                made = self.edited(*command)
                self.assertTrue({n.domain for n in made.graph.node} <=
                                {opset.domain for opset in made.opset_import})
                self.same(path, feeds)

    def test_a_constant_becomes_an_input(self):
        """A branch, too, reads what the caller gives then, whichever way the constant comes."""
        tensor = numpy_helper.from_array(numpy.float32([1, 2, 3]), "w")
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)]
        constant = helper.make_function("mine", "Mine", [], ["q"],
                                        [node("Constant", [], ["q"], value=tensor)], opsets[:1])
        then = helper.make_graph([node("Mul", ["x", "w"], ["t"])], "a", [], [value("t")])
        other = helper.make_graph([node("Sub", ["x", "w"], ["e"])], "b", [], [value("e")])
        choice = node("If", ["c"], ["i"], then_branch=then, else_branch=other)
        given = [value("x", F, [3]), value("c", TensorProto.BOOL, [])]
        for before, inputs, weights in (([], given, [tensor]),
                                        ([], [*given, value("w", F, [3])], [tensor]),
                                        ([node("Constant", [], ["w"], value=tensor)], given, []),
                                        ([node("Mine", [], ["w"], domain="mine")], given, [])):
            graph = helper.make_graph([*before, choice, node("Add", ["i", "w"], ["y"])], "g",
                                      inputs, [value("y", F, [3])], weights)
            path = self.dir / "model.onnx"
            onnx.save(helper.make_model(graph, ir_version=9, opset_imports=opsets,
                                        functions=[constant]), path)
            made = self.edited("extract", path, "--inputs", "x,c,w", "--outputs", "y")
            self.assertEqual([i.name for i in made.graph.input], ["x", "c", "w"])
            x, w = self.draw.normal(size=(2, 3)).astype("f")
            for c in (True, False):
                feeds = {"x": x, "w": w, "c": numpy.array(c)}
                numpy.testing.assert_allclose(run(self.dir / "out.onnx", feeds)[0],
                                              (x * w if c else x - w) + w, 1e-6)

    def test_one_output_of_a_node_becomes_an_input(self):
        path = cli_models.save(
            self.dir / "model.onnx", [node("Split", ["x"], ["a", "b"], num_outputs=2),
                                      node("Sub", ["a", "b"], ["y"])],
            [("x", F, [4])], [("y", F, [2])])
        made = self.edited("extract", path, "--inputs", "x,a", "--outputs", "y")
        self.assertEqual([i.name for i in made.graph.input], ["x", "a"])
        feeds = {"x": numpy.float32([1, 2, 3, 4]), "a": numpy.float32([10, 20])}
        self.assertEqual(run(self.dir / "out.onnx", feeds)[0].tolist(), [7, 16])

    def test_extract(self):
        path = shapes(self.dir / "m.onnx")
        model = self.edited("extract", path, "--inputs", "p,length", "--outputs", "y")
        self.assertEqual([i.name for i in model.graph.input], ["p", "length"])
        self.assertEqual(sorted(n.op_type for n in model.graph.node), ["Concat", "Gelu", "Reshape"])
        dims = model.graph.input[0].type.tensor_type.shape.dim
        self.assertEqual([d.dim_param or d.dim_value for d in dims], ["B", "S", 8])
        x = self.draw.normal(size=(2, 5, 6)).astype("f")
        w = next(onnx.numpy_helper.to_array(i) for i in onnx.load(path).graph.initializer
                 if i.name == "w")
        got = run(self.dir / "out.onnx", {"p": x @ w, "length": numpy.array([5])})
        numpy.testing.assert_allclose(got[0], run(path, {"x": x})[0], 1e-5, 1e-5)
        model = self.edited("extract", path, "--outputs", "g")
        self.assertEqual([n.op_type for n in model.graph.node], ["MatMul", "Gelu"])
        said = self.attnrun("extract", path, "--inputs", "p", "--outputs", "y", "-o", "no.onnx",
                            code=2).stderr
        self.assertIn("need the input 'x' of the model", said)
        for words in (("--inputs", "p", "--inputs", "length"), ("-c", self.dir / "c.yaml")):
            (self.dir / "c.yaml").write_text("inputs: p,length\n")
            again = self.edited("extract", path, *words, "--outputs", "y")
            self.assertEqual([i.name for i in again.graph.input], ["p", "length"])
        self.assertIn("no value 'pp'", self.attnrun("extract", path, "--outputs", "pp", "-o",
                                                    "no.onnx", code=2).stderr)
        self.assertIn("--inputs and --outputs name",
                      self.attnrun("extract", path, "-o", "no.onnx", code=2).stderr)
        self.assertFalse((self.dir / "no.onnx").exists())

    def test_external(self):
        path = cli_models.save(
            self.dir / "m.onnx",
            [node("MatMul", ["x", "w"], ["a"]), node("Add", ["a", "b"], ["y"])],
            [("x", F, ["N", 128])], [("y", F, None)],
            [("w", self.draw.normal(size=(128, 160)).astype("f")),
             ("b", self.draw.normal(size=160).astype("f"))])
        self.edited("optimize", path, "--external")
        self.assertEqual((self.dir / "out.onnx.data").stat().st_size, 128 * 160 * 4)
        self.assertLess((self.dir / "out.onnx").stat().st_size, 2000)
        self.same(path, {"x": self.draw.normal(size=(3, 128)).astype("f")})
        self.attnrun("optimize", path, "--external", "-o", "-", code=2)
        piped = subprocess.run([ATTNRUN, "optimize", path, "-o", "-"], capture_output=True,
                               check=True, timeout=60).stdout
        self.assertEqual(len(onnx.load_model_from_string(piped).graph.node), 2)

    def test_a_signal_leaves_neither_of_two_files(self):
        path = cli_models.save(
            self.dir / "m.onnx",
            [node("MatMul", [f"a{i}", f"w{i}"], [f"a{i + 1}"]) for i in range(4)],
            [("a0", F, ["N", 2048])], [("a4", F, None)],
            [(f"w{i}", numpy.full((2048, 2048), i, "f")) for i in range(4)])
        for _ in range(10):  # the files are there for a moment only
            write = subprocess.Popen([ATTNRUN, "optimize", path, "--external", "-q", "-o",
                                      self.dir / "out.onnx"], stderr=subprocess.DEVNULL)
            while write.poll() is None and len([*self.dir.glob("*.tmp.*")]) < 2:
                time.sleep(0.001)
            write.send_signal(signal.SIGINT)
            if write.wait(60) != 0:
                break
        else:
            self.skipTest("each file was written before the signal came")
        self.assertEqual(write.returncode, 130)
        self.assertEqual([*self.dir.glob("*.tmp.*")], [])

    def test_external_without_large_constants(self):
        path = cli_models.matmul(self.dir / "small.onnx")
        self.edited("optimize", path, "--external")
        self.assertEqual([p.name for p in self.dir.iterdir() if "out.onnx" in p.name],
                         ["out.onnx"])

    def test_sizes_name_no_other_option(self):
        path = cli_models.matmul(self.dir / "small.onnx")
        for option in ("--set", "--fix"):
            said = self.attnrun("optimize", path, option, "n=1,2", "-o", "no.onnx",
                                code=2).stderr
            self.assertIn(f"{option}: 'n=1,2' is not SYMBOL=N", said)

    def test_subgraphs_call_functions(self):
        """Nodes of a branch count: a function that only one of them calls, and a domain."""
        mix = helper.make_function("attnrun", "FourierMix", ["X"], ["Y"],
                                   [node("Mul", ["X", "X"], ["Y"])],
                                   [helper.make_opsetid("", 18)])
        branches = {
            "then_branch": helper.make_graph(
                [node("FourierMix", ["x"], ["t"], domain="attnrun")], "then", [],
                [value("t", F, None)]),
            "else_branch": helper.make_graph(
                [node("QuickGelu", ["x"], ["e"], domain="com.microsoft")], "else", [],
                [value("e", F, None)])}
        model = helper.make_model(
            helper.make_graph([node("If", ["c"], ["y"], **branches)], "g",
                              [value("x", F, ["N", 4, 4]), value("c", TensorProto.BOOL, [])],
                              [value("y", F, ["N", 4, 4])]),
            functions=[mix], ir_version=9,
            opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("attnrun", 1)])
        path = self.dir / "m.onnx"
        onnx.save(model, path)
        self.attnrun("optimize", path, "-o", "out.onnx", "-q")
        made = onnx.load(self.dir / "out.onnx")
        self.assertEqual([f.name for f in made.functions], ["FourierMix"])
        self.assertIn("com.microsoft", [opset.domain for opset in made.opset_import])

    def test_long_names_of_sizes(self):
        """Two sizes whose names begin alike stay two; names keep their characters."""
        first, second = ("floor((" + "sequence_length + 1" * 5 + f")/{k})" for k in (2, 3))
        path = cli_models.save(self.dir / "m.onnx", [node("Exp", ["a"], ["y"]),
                                                     node("Exp", ["b"], ["z"])],
                               [("a", F, [first, "日 b"]), ("b", F, [second, 4])],
                               [("y", F, None), ("z", F, None)])
        self.attnrun("optimize", path, "-o", "out.onnx", "-q")
        sizes = [[d.dim_param for d in i.type.tensor_type.shape.dim]
                 for i in onnx.load(self.dir / "out.onnx").graph.input]
        self.assertEqual(sizes[0][1], "日 b")
        self.assertTrue(sizes[0][0] != sizes[1][0] or not sizes[0][0], sizes)

    def test_refused(self):
        path = Path(shapes(self.dir / "m.onnx"))
        self.attnrun("pack", path, "-o", "m.attnpack", "-q")
        self.assertIn("is a packed file", self.attnrun("optimize", "m.attnpack", "-o", "o.onnx",
                                                       code=4).stderr)
        self.assertIn("-o FILE is missing", self.attnrun("optimize", path, code=2).stderr)
        before = path.read_bytes()
        self.attnrun("optimize", path, "-o", path, "-q")
        self.assertNotEqual(path.read_bytes(), before)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
