"""Golden cases of com.microsoft SparseAttention by ONNX Runtime's CPU kernel: a prompt, a
step with a past, packed operands with rotary positions."""
import importlib.metadata
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

HEADS, KV_HEADS, CAPACITY, BLOCK = 2, 1, 48, 16
random = np.random.default_rng(5)


def normal(*shape):
    return random.standard_normal(shape).astype("f4")


def run(model, feeds):
    engine = onnxruntime.InferenceSession(model.SerializeToString(),
                                          providers=["CPUExecutionProvider"])
    binding = engine.io_binding()
    kept = []
    for name, value in feeds.items():  # present must lie where past does
        held = onnxruntime.OrtValue.ortvalue_from_numpy(value.copy())
        kept.append(held)
        binding.bind_ortvalue_input(name, held)
        if name.startswith("past_"):
            binding.bind_ortvalue_output(name.replace("past", "present"), held)
    binding.bind_output("output")
    engine.run_with_iobinding(binding)
    return [value.numpy().copy() for value in binding.get_outputs()]


def case(name, tokens, lengths, total, packed=False, dim=16, **attributes):
    batch = len(lengths)
    width = (HEADS + (2 * KV_HEADS if packed else 0)) * dim
    feeds = {"query": normal(batch, tokens, width)}
    if not packed:
        feeds["key"], feeds["value"] = (normal(batch, tokens, KV_HEADS * dim) for _ in "kv")
    for past in ("past_key", "past_value"):
        feeds[past] = normal(batch, KV_HEADS, CAPACITY, dim)
    feeds["block_row_indices"] = np.array([[0, 1, 3, 5], [0, 1, 2, 5]], "i4")
    feeds["block_col_indices"] = np.array([[0, 0, 1, 0, 2], [0, 1, 0, 1, 2]], "i4")
    feeds["total_sequence_length"] = np.array([total], "i4")
    feeds["key_total_sequence_lengths"] = np.array(lengths, "i4")
    if attributes.get("do_rotary"):
        angles = normal(CAPACITY, dim // 2)
        feeds["cos_cache"], feeds["sin_cache"] = np.cos(angles), np.sin(angles)
    inputs = list(feeds)
    if packed:
        inputs[1:1] = ["", ""]
    outputs = ["present_key", "present_value", "output"]
    node = helper.make_node("SparseAttention", inputs, [outputs[2], *outputs[:2]],
                            domain="com.microsoft", num_heads=HEADS, kv_num_heads=KV_HEADS,
                            sparse_block_size=BLOCK, **attributes)

    def values(names, found):
        return [helper.make_tensor_value_info(
            n, helper.np_dtype_to_tensor_dtype(found[n].dtype), found[n].shape) for n in names]

    got = {n: np.zeros((batch, KV_HEADS, CAPACITY, dim), "f4") for n in outputs[:2]}
    got["output"] = np.zeros((batch, tokens, HEADS * dim), "f4")
    graph = helper.make_graph([node], name, values(feeds, feeds), values(outputs, got))
    model = helper.make_model(graph, ir_version=8, opset_imports=[
        helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)])
    folder = Path(__file__).parent / "golden" / name
    (folder / "test_data_set_0").mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "model.onnx")
    for word, arrays in (("input", feeds.values()), ("output", run(model, feeds))):
        for i, array in enumerate(arrays):
            (folder / "test_data_set_0" / f"{word}_{i}.pb").write_bytes(
                numpy_helper.from_array(np.asarray(array)).SerializeToString())
    (folder / "tol.txt").write_text("1e-05 1e-06\n")
    version = importlib.metadata.version("onnxruntime")
    (folder / "meta.txt").write_text("op: com.microsoft SparseAttention\n"
                                     f"expected from: onnxruntime {version} (CPU)\n")


case("ms_sparse_prompt", 35, [35], 35, dim=8)
case("ms_sparse_step", 1, [41], 41, scale=0.3)
case("ms_sparse_rotary", 3, [40], 40, packed=True, do_rotary=1)
