"""attnrun ops --used: the list has the rows of a file's nodes, as onnx's own schemas number them,
with what rewriting makes and where rows end; it is the same each time, and more models make it
longer.

usage: test_ops_used.py ATTNRUN
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx
from onnx import TensorProto, helper

import cli_models

ATTNRUN = sys.argv[1]


def used(*models):
    done = subprocess.run([ATTNRUN, "ops", "--used", *models], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r'OP\(op_\w+\)|END\("[\w.]*", "\w+", \d+\)|PASS\(\w+\)', line)
               for line in lines), lines
    return lines


def snake(name):
    """Softmax -> softmax, LayerNormalization -> layer_normalization."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def next_version(op_type, since):
    later = [s.since_version for s in onnx.defs.get_all_schemas_with_history()
             if s.domain == "" and s.name == op_type and s.since_version > since]
    return min(later, default=0)


def check_rows(model, lines):
    """Every node has its row, and the row ends where the schema does."""
    opset = onnx.load(model).opset_import[0].version
    for node in onnx.load(model).graph.node:
        since = onnx.defs.get_schema(node.op_type, opset).since_version
        rows = [line for line in lines
                if line.startswith(f"OP(op_{snake(node.op_type)}_")]
        numbers = [int(re.findall(r"_(\d+)\)", row)[0]) for row in rows]
        # A row may serve several versions, so its number is the same or an earlier one.
        assert any(n <= since for n in numbers), (node.op_type, since, rows)
        ends = [int(line.split(", ")[2].rstrip(")")) for line in lines
                if line.startswith(f'END("", "{node.op_type}",')]
        after = next_version(node.op_type, since)
        assert all(e > min(numbers) for e in ends), (node.op_type, ends)
        # No row ends at a version before the schema of the node does.
        assert not any(since >= e > max(n for n in numbers if n <= since) for e in ends), ends
        assert after == 0 or not any(since < e < after for e in ends), (node.op_type, ends, after)


with tempfile.TemporaryDirectory() as made:
    folder = Path(made)
    soft = cli_models.save(folder / "soft.onnx", [helper.make_node("Softmax", ["x"], ["y"])],
                           [("x", TensorProto.FLOAT, ["N", 3])],
                           [("y", TensorProto.FLOAT, ["N", 3])], opset=11)
    lines = used(soft)
    assert lines == used(soft)
    check_rows(soft, lines)
    assert 'END("", "Softmax", 13)' in lines, lines
    gelu = cli_models.gelu(folder / "gelu.onnx")
    both = used(gelu)
    check_rows(gelu, both)
    assert "PASS(gelu)" in both and any(r.startswith("OP(op_gelu_") for r in both), both
    assert set(used(soft, gelu)) >= set(both) | {line for line in lines if "OP(" in line}
    packed = folder / "gelu.attnpack"
    subprocess.run([ATTNRUN, "pack", gelu, "-o", packed, "-q"], check=True)
    of_packed = used(packed)
    assert any(r.startswith("OP(op_gelu_") for r in of_packed) and "OP(op_erf_9)" not in of_packed
    assert not any(line.startswith("PASS") for line in of_packed), of_packed
    for words in ([], [folder / "nowhere.onnx"]):
        failed = subprocess.run([ATTNRUN, "ops", "--used", *words], capture_output=True, text=True)
        assert failed.returncode in (2, 3) and failed.stdout == "", failed
print("ok")
