"""CBAM and SqueezeExcite of domain attnrun between convolutions become BlockedCBAM, no reorder
stands inside, and the result is that of the plain operators (--no-fusion), which
tests/attention/golden_cbam.py compares with upstream code. Several threads give the same bits.
Usage: check_blocked_gates.py ATTNRUN [SEED]"""
import json
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import blocked_networks
from blocked_networks import SEED, between, chance, random, run

CASES = 24
POOLS = (["avg"], ["max"], ["avg", "max"], ["max", "avg"])


def weights(*shape):
    return (random.standard_normal(shape) / np.sqrt(shape[-1])).astype("f4")


def gate_node(channels, kept):
    """The node, its weights by name, and whether it goes to blocks."""
    few, excite = between(1, 9), chance(0.4)
    given = {"w1": weights(few, channels), "b1": weights(few) if chance(0.5) else None,
             "w2": weights(channels, few), "b2": weights(channels) if chance(0.5) else None}
    more = {"activation": ("relu", "silu", "hardswish")[between(0, 2)],
            "gate": ("sigmoid", "hard_sigmoid")[between(0, 1)],
            "post_activation": ("none", "relu")[between(0, 1)]}
    if excite:
        pool = ("avg", "max", "avg_max")[between(0, 2)]
        more["pool"] = pool
    else:
        pool = ""
        if chance(0.7):
            more["pools"] = POOLS[between(0, 3)]
        elif chance(0.3):
            more["pools"], pool = ["avg", "lse"], "lse"
        given["ws"] = weights(1, 2, *[(3, 7, 9)[between(0, 2)]] * 2) if chance(0.8) else None
        given["bs"] = weights(1) if given["ws"] is not None and chance(0.5) else None
        if given["ws"] is not None and not pool and chance(0.2):
            given.update(dict.fromkeys(("w1", "b1", "w2", "b2")))
    names = [name if array is not None else "" for name, array in given.items()]
    node = helper.make_node("SqueezeExcite" if excite else "CBAM",
                            ["a", *names, kept], ["b"], domain="attnrun", **more)
    return node, given, pool not in ("avg_max", "lse")


def counts(folder):
    done = subprocess.run([sys.argv[1], "inspect", "--json", f"{folder}/net.onnx"],
                          capture_output=True, text=True, check=True)
    return {op["op_type"]: op["nodes"] for op in json.loads(done.stdout)["ops"]}


def check(folder, isas):
    channels, batch = between(1, 70), (1, 2, 9)[between(0, 2)]
    kept = ("", "a")[between(0, 1)]
    node, given, blocks = gate_node(channels, kept)
    shape = [batch, between(1, 20), between(1, 40), between(1, 40)]
    given.update(v=weights(channels, shape[1], 3, 3), w=weights(24, channels, 1, 1))
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "v"], ["a"], pads=[1] * 4), node,
         helper.make_node("Conv", ["b", "w"], ["y"])], "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, name) for name, a in given.items() if a is not None])
    onnx.save(helper.make_model(graph, opset_imports=[
        helper.make_opsetid("", 18), helper.make_opsetid("attnrun", 1)], ir_version=9),
        f"{folder}/net.onnx")
    np.save(f"{folder}/x.npy", random.standard_normal(shape, dtype=np.float32))
    wanted, wrong = run(["--no-fusion", "--threads", "1"], folder), []
    for isa in isas:
        got = [run(["--isa", isa, "--threads", n], folder) for n in ("1", "3")]
        if "failed" in wanted or "failed" in got[0] or "failed" in got[1]:
            wrong.append(f"{isa}: {wanted.get('failed')}, {got[0].get('failed')}, "
                         f"{got[1].get('failed')}")
            continue
        apart = np.abs(got[0]["y"] - wanted["y"]).max()
        if not apart <= 2e-5 * max(1.0, np.abs(wanted["y"]).max()):
            wrong.append(f"{isa} differs by {apart}")
        if not np.array_equal(got[0]["y"].view("i4"), got[1]["y"].view("i4")):
            wrong.append(f"{isa}: 3 threads give other bits")
    ops = counts(folder)
    reorders = ops.get("ToBlocked", 0) + ops.get("FromBlocked", 0)
    if "BlockedConv" in ops and blocks and ("BlockedCBAM" not in ops or reorders > 2):
        wrong.append(f"becomes {ops}")
    for why in wrong:
        print(f"seed {SEED}, {shape} to {channels} channels, {helper.printable_node(node)}: {why}")
    return len(wrong), "BlockedCBAM" in ops


def main():
    isas = [isa for isa in blocked_networks.isas() if not isa.endswith(("vnni", "amx", "dot"))]
    failed = blocked = 0
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(CASES):
            wrong, used = check(folder, isas)
            failed, blocked = failed + wrong, blocked + used
    print(f"{CASES} gates, {blocked} in blocks, {failed} failures")
    sys.exit(failed > 0 or blocked < CASES // 3)


main()
