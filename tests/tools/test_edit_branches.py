#!/usr/bin/env python3
"""attnrun optimize and extract: what subgraphs give, and what comes out of them.

usage: test_edit_branches.py ROOT ATTNRUN
"""
import sys
import unittest
from pathlib import Path

import numpy
import onnx
from onnx import helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parent))
from edit_case import F, EditCase, node, value  # noqa: E402


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


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
