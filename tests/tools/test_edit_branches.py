#!/usr/bin/env python3
"""attnrun optimize and extract: what subgraphs give, and what comes out of them.

usage: test_edit_branches.py ROOT ATTNRUN
"""
import itertools
import sys
import unittest
from pathlib import Path

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parent))
import cli_models  # noqa: E402
from edit_case import F, I64, SEED, EditCase, node, run, value  # noqa: E402

MANY = 400


class Branches(EditCase):
    def test_functions_of_a_branch_that_is_known(self):
        """Its nodes call the same functions when they come out of it."""
        opsets = [helper.make_opsetid("", 18)]
        calls = (("FourierMix", "second"), ("FourierMix__0a1b2c3d", ""))
        bodies = [helper.make_function("attnrun", name, ["X"], ["Y"],
                                       [node(op, ["X", "X"], ["Y"])], opsets, overload=overload)
                  for op, (name, overload) in zip(("Add", "Mul", "Sub"),
                                                  (*calls, ("FourierMix", "")), strict=True)]
        for name, overload in calls:
            yes = helper.make_graph([node(name, ["x"], ["t"], domain="attnrun",
                                          overload=overload)], "yes", [], [value("t")])
            no = helper.make_graph([node("Neg", ["x"], ["e"])], "no", [], [value("e")])
            graph = helper.make_graph(
                [node("If", ["known"], ["y"], then_branch=yes, else_branch=no)], "g",
                [value("x", F, [1, 8, 4])], [value("y", F, [1, 8, 4])],
                [numpy_helper.from_array(numpy.array(True), "known")])
            path = self.dir / "model.onnx"
            onnx.save(helper.make_model(graph, functions=bodies, ir_version=10, opset_imports=[
                *opsets, helper.make_opsetid("attnrun", 1)]), path)
            made = self.edited("optimize", path).graph.node
            self.assertEqual([(n.op_type, n.overload) for n in made], [(name, overload)])
            self.same(path, {"x": self.draw.normal(size=(1, 8, 4)).astype("f")})

    def test_what_branches_do_not_compute(self):
        """Outputs behind the first one that are a value around the branch, or an output before:
        attnrun takes them, and writes them as other runtimes want them."""
        def branch(name, op):
            return helper.make_graph([node(op, ["x"], [name])], name, [],
                                     [value(name), value("x"), value(name)])

        path = Path(cli_models.save(
            self.dir / "m.onnx",
            [node("If", ["c"], ["p", "q", "r"], then_branch=branch("t", "Neg"),
                  else_branch=branch("e", "Exp")), node("Sum", ["p", "q", "r"], ["y"])],
            [("x", F, [2]), ("c", TensorProto.BOOL, [])], [("y", F, [2])]))
        self.edited("optimize", path)
        x = self.draw.normal(size=2).astype("f")
        for c, y in ((True, -x), (False, numpy.exp(x) * 2 + x)):
            made = run(self.dir / "out.onnx", {"x": x, "c": numpy.array(c)})
            numpy.testing.assert_allclose(made[0], y, 1e-6, err_msg=f"seed {SEED}")

    def test_names_in_functions_that_the_file_has(self):
        """What a function computes gets a name that no other value has, before or behind it."""
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("d", 1)]
        body = helper.make_function("d", "More", ["a"], ["b"],
                                    [node("Exp", ["a"], ["t"]), node("Add", ["t", "a"], ["b"])],
                                    opsets[:1])
        calls = [node("More", ["x"], ["p"], domain="d", name="n"),
                 node("More", ["p"], ["q"], domain="d", name="n")]
        names = ["n/t", *(f"n/t~{k}" for k in range(1, 6))]
        others = [node(op, ["x"], [name]) for op, name in
                  zip(("Abs", "Neg", "Sin", "Cos", "Tanh", "Exp"), names, strict=True)]
        for nodes in (calls + others, others + calls):
            path = self.dir / "m.onnx"
            graph = helper.make_graph([*nodes, node("Sum", ["q", *names], ["y"])], "g",
                                      [value("x", F, [2])], [value("y", F, [2])])
            onnx.save(helper.make_model(graph, functions=[body], ir_version=9,
                                        opset_imports=opsets), path)
            made = self.edited("optimize", path).graph.node
            self.assertEqual(len({n.output[0] for n in made}), len(made))

    def test_outputs_of_branches(self):
        """Each is given by a node, whose name no other value has: neither one of the branch nor one
        around it that the branch reads."""
        five = numpy.float32([5, 6])
        other = helper.make_graph([node("Abs", ["x"], ["e"]), node("Neg", ["x"], ["f"])], "else",
                                  [], [value("e"), value("f")])
        for taken in ("five_output_1_0", "%1.1", "%1.2", "%1.3"):
            for around, within, second in (
                    ([], [node("Relu", ["x"], [taken])], taken),
                    ([node("Exp", ["x"], [taken])], [node("Neg", [taken], ["n"])], "n")):
                then = helper.make_graph(within, "then", [], [value("five"), value(second)],
                                         [numpy_helper.from_array(five, "five")])
                path = cli_models.save(
                    self.dir / "m.onnx",
                    [*around, node("If", ["c"], ["y", "z"], then_branch=then, else_branch=other)],
                    [("x", F, [2]), ("c", TensorProto.BOOL, [])],
                    [("y", F, [2]), ("z", F, [2])])
                for command in (["optimize", path], ["extract", path, "--outputs", "y,z"]):
                    self.edited(*command)
                    for c in (True, False):
                        self.same(path, {"x": numpy.float32([1, -2]), "c": numpy.array(c)})

    def test_a_name_that_many_branches_hide(self):
        """Each gets another one, in time that is linear in their number: an idle machine takes
        0.1 s."""
        def branch(name):
            return helper.make_graph([node("Relu", ["x"], ["t"]), node("Abs", ["t"], [name])],
                                     name, [], [value(name)])

        ifs = [node("If", ["c"], [f"z{k}"], then_branch=branch(f"a{k}"),
                    else_branch=branch(f"b{k}")) for k in range(MANY)]
        path = cli_models.save(
            self.dir / "m.onnx",
            [*ifs, node("Sum", [f"z{k}" for k in range(MANY)], ["s"]), node("Exp", ["s"], ["t"]),
             node("Log", ["t"], ["y"])],
            [("x", F, [2]), ("c", TensorProto.BOOL, [])], [("y", F, [2])])
        made = self.edited("optimize", path, "--timeout", "5s").graph
        names = [n.output[0] for i in made.node if i.op_type == "If" for a in i.attribute
                 for n in a.g.node]
        self.assertEqual(len(set(names)), 4 * MANY)
        self.assertIn("t_1", names)
        self.assertNotIn("t", names)
        self.same(path, {"x": numpy.float32([1e-3, -2e-3]), "c": numpy.array(True)})

    def test_many_functions_and_nodes(self):
        """Which function is called is found in time that is linear in both: 2 s where the machine
        is idle."""
        n = 75 * MANY
        names = ["x", *(f"v{k}" for k in range(1, n)), "y"]
        opsets = [helper.make_opsetid("", 18)]
        path = self.dir / "m.onnx"
        onnx.save(helper.make_model(
            helper.make_graph([node("Sin", [a], [b]) for a, b in itertools.pairwise(names)], "g",
                              [value("x", F, [2])], [value("y", F, [2])]),
            functions=[helper.make_function("", "Sio", [], [], [], opsets, overload=str(k))
                       for k in range(n)], ir_version=10, opset_imports=opsets), path)
        self.attnrun("optimize", path, "-o", "out.onnx", "--timeout", "20s")
        made = onnx.load(self.dir / "out.onnx")
        self.assertEqual((len(made.graph.node), len(made.functions)), (n, 0))

    def test_loops_without_numbers(self):
        """A file names both in their places, though neither is given."""
        body = helper.make_graph(
            [node("Less", ["i", "trips"], ["again"]), node("Neg", ["x"], ["u"])], "body",
            [value("i", I64, ()), value("go", TensorProto.BOOL, ())],
            [value("again", TensorProto.BOOL, ()), value("u")])
        for numbers in (["", ""], ["trips", ""]):
            path = cli_models.save(
                self.dir / "m.onnx", [node("Loop", numbers, ["y"], body=body)],
                [("x", F, [2])], [("y", F, ["N", 2])], [("trips", numpy.int64(3))])
            for command in (["optimize", path], ["extract", path, "--outputs", "y"]):
                self.edited(*command)
                self.same(path, {"x": self.draw.normal(size=2).astype("f")})

    def test_a_loop_within_a_scan(self):
        """ONNX Runtime wants the ranks that the body of a Scan declares."""
        inner = helper.make_graph(
            [node("Add", ["v", "r"], ["more"]), node("Add", ["w", "w"], ["twice"]),
             node("Identity", ["go"], ["again"])],
            "inner", [value("i", I64, ()), value("go", TensorProto.BOOL, ()), value("v"),
                      value("w")],
            [value("again", TensorProto.BOOL, ()), value("more"), value("twice")])
        rows = helper.make_graph(
            [node("ReduceSum", ["r"], ["n"], keepdims=0),
             node("Loop", ["trips", "", "r", "n"], ["s", "t"], body=inner)],
            "rows", [value("r", F, [2])], [value("s", F, [2]), value("t", F, [])])
        path = cli_models.save(
            self.dir / "m.onnx", [node("Scan", ["x"], ["y", "z"], body=rows, num_scan_inputs=1)],
            [("x", F, ["N", 2])], [("y", F, ["N", 2]), ("z", F, ["N"])],
            [("trips", numpy.int64(3))])
        for command in (["optimize", path], ["extract", path, "--outputs", "y,z"]):
            self.edited(*command)
            self.same(path, {"x": self.draw.normal(size=(3, 2)).astype("f")})

    def test_sequences_of_opset_13(self):
        """No Identity takes them there."""
        def seq(name):
            return helper.make_tensor_sequence_value_info(name, F, None)

        yes = helper.make_graph([node("SequenceConstruct", ["x", "x"], ["t"])], "yes", [],
                                [seq("t")])
        no = helper.make_graph([node("SequenceConstruct", ["x"], ["e"])], "no", [], [seq("e")])
        body = helper.make_graph(
            [node("SequenceInsert", ["v", "x"], ["more"]), node("Identity", ["go"], ["again"])],
            "body", [value("i", I64, ()), value("go", TensorProto.BOOL, ()), seq("v"), seq("w")],
            [value("again", TensorProto.BOOL, ()), seq("more"), seq("w")])
        graph = helper.make_graph(
            [node("If", ["known"], ["s"], then_branch=yes, else_branch=no),
             node("Loop", ["trips", "", "s", "s"], ["longer", "kept"], body=body),
             node("ConcatFromSequence", ["longer"], ["y"], axis=0),
             node("ConcatFromSequence", ["kept"], ["z"], axis=0)], "g",
            [value("x", F, [2])], [value("y", F, [10]), value("z", F, [4]), seq("s")],
            [numpy_helper.from_array(numpy.array(True), "known"),
             numpy_helper.from_array(numpy.int64(3), "trips")])
        path = self.dir / "m.onnx"
        onnx.save(helper.make_model(graph, ir_version=7, opset_imports=[
            helper.make_opsetid("", 13)]), path)
        for command in (["optimize", path], ["extract", path, "--outputs", "y,z,s"]):
            made = self.edited(*command)
            self.assertEqual(made.opset_import[0].version, 13)
            self.same(path, {"x": self.draw.normal(size=2).astype("f")})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
