"""models.py - the cases of the benchmark: models, inputs, work, and what is to be reached.

usage: models.py CASE WORK PACKAGE [ATTNRUN]

Makes the files of one case, where they are missing. ATTNRUN, the command, checks files with
its own operators.

MiniLM has its real weights (build/minilm, PACKAGE for PyTorch) where they are there, and else
random ones, as BERT and GPT-2 do: no time here depends on values.
"""
import dataclasses
import os
import sys
import typing

import decoder
import networks


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    file: str
    feed: typing.Callable          # -> inputs by name
    quick: bool
    least: float                   # of the ratio
    aim: tuple                     # ("peak" or "read" or "ratio", share or ratio)
    flops: float                   # of the matrix products; a multiply-add is two
    read_bytes: int = 0            # weights and caches that one run reads; 0: not the limit
    output_bytes: int = 0          # attention alone: memory of runs beside these is extra
    state: str = ""                # outputs that attnrun keeps as inputs; peers take inputs
    precision: str = "f32"         # of products; peers that cannot lower it stay in f32
    multiplies: str = "fp32"       # the numbers of attnrun's products: fp32, bf16 or int8
    peers: tuple = ()              # those that run such a file in this way; (): all
    least_read: float = 0          # of the read bandwidth, with read_bytes
    twin: str = ""                 # the case of the same model in f32 …
    least_twin: float = 0          # … and its time over this one's
    aim_twin: float = 0
    network: str = ""              # the name in networks.py
    ragged: str = "off"            # attnrun leaves padding out; peers compute it
    own_file: str = ""             # with operators of domain attnrun; peers run `file`


# ---- work ----

def encoder_flops(batch, seq, layers, hidden):
    """A BERT encoder with a feed-forward of 4 * hidden."""
    return 2 * batch * seq * layers * (12 * hidden**2 + 2 * seq * hidden)


GPT2_LAYERS, GPT2_HIDDEN, GPT2_WORDS = 12, 768, 50257


def gpt2_flops(seq, past):
    """Each token sees the past, the tokens before it and itself; logits of the last one."""
    seen = seq * past + seq * (seq + 1) / 2
    return (2 * GPT2_LAYERS * (12 * seq * GPT2_HIDDEN**2 + 2 * seen * GPT2_HIDDEN)
            + 2 * GPT2_HIDDEN * GPT2_WORDS)


def gpt2_bytes(past, element=4):
    """Weights but for the embeddings' rows that no token names; keys and values."""
    layer = 12 * GPT2_HIDDEN**2 + 13 * GPT2_HIDDEN
    cache = 2 * GPT2_LAYERS * past * GPT2_HIDDEN
    return element * (GPT2_LAYERS * layer + GPT2_WORDS * GPT2_HIDDEN + cache)


def attention_flops(n):
    return 4 * 8 * 64 * n * n


# ---- inputs ----

def tokens(batch, seq):
    import numpy as np

    return {"input_ids": np.arange(batch * seq, dtype=np.int64).reshape(batch, seq) % 1000,
            "attention_mask": np.ones((batch, seq), np.int64)}


# Tokens of the first 32 sentences of the GNU General Public License 3, as MiniLM's tokenizer
# counts them.
SENTENCES = (12, 47, 23, 25, 39, 35, 12, 18, 72, 25, 30, 37, 19, 15, 16, 33,
             27, 38, 29, 19, 28, 21, 38, 13, 46, 24, 15, 17, 24, 17, 26, 36)


def sentences():
    """A batch padded to the longest of them."""
    import numpy as np

    feed = tokens(len(SENTENCES), max(SENTENCES))
    mask = np.arange(max(SENTENCES)) < np.array(SENTENCES)[:, None]
    return {"input_ids": feed["input_ids"] * mask, "attention_mask": mask.astype(np.int64)}


def cached(seq, past):
    import numpy as np

    feed = {"input_ids": np.arange(seq, dtype=np.int64).reshape(1, seq),
            "attention_mask": np.ones((1, past + seq), np.int64)}
    rng = np.random.default_rng(0)
    for i in range(2 * GPT2_LAYERS):
        feed[f"past_{'kv'[i % 2]}{i // 2}"] = rng.standard_normal(
            (1, 12, past, 64), dtype=np.float32)
    return feed


def qkv(n):
    import numpy as np

    rng = np.random.default_rng(0)
    return {name: rng.standard_normal((1, 8, n, 64), dtype=np.float32) for name in "qkv"}


def image(side):
    import numpy as np

    return {"pixel_values": np.random.default_rng(0).standard_normal(
        (1, 3, side, side), np.float32)}


def in_bf16(case, least=1.03, ratio=1.15, aim_twin=1.8):
    """The same with products of bf16, which are OpenVINO's default where the CPU has them."""
    return dataclasses.replace(case, name=f"{case.name}, bf16", precision="bf16",
                               multiplies="bf16", least=least, aim=("ratio", ratio), twin=case.name,
                               least_twin=1.5, aim_twin=aim_twin)


def llama_decode(bits, block=32):
    """One token of a Llama with 0.5 billion weights, its caches kept as states."""
    return Case(f"Llama 0.5B decode, int{bits}, 512 cached", f"llama_{bits}",
                lambda: decoder.feed(512), False, 1.2, ("read", 0.85), decoder.flops(512),
                read_bytes=decoder.weight_bytes(bits, block), state="past_*=present_*",
                peers=("onnxruntime",), least_read=0.75)


def of_network(title, network, ratio=1.2, int8=False):
    return Case(f"{title}, int8" if int8 else title, f"{network}_int8" if int8 else network,
                lambda: networks.image(network), False, 1.0 if int8 else 1.03, ("ratio", ratio),
                networks.FLOPS[network], multiplies="int8" if int8 else "fp32",
                peers=("onnxruntime", "openvino"), network=network)


def with_own_operators(title, network, least):
    """Attnrun's operators against the plain export of the same modules."""
    return dataclasses.replace(of_network(title, network, least), least=least,
                               own_file=f"{network}_own")


PEAK = ("peak", 0.92)
CASES = [
    Case("MiniLM 1x16", "minilm", lambda: tokens(1, 16), True, 1.3, ("ratio", 1.7),
         encoder_flops(1, 16, 6, 384)),
    Case("MiniLM 1x128", "minilm", lambda: tokens(1, 128), True, 1.03, PEAK,
         encoder_flops(1, 128, 6, 384)),
    Case("MiniLM 1x512", "minilm", lambda: tokens(1, 512), True, 1.03, PEAK,
         encoder_flops(1, 512, 6, 384)),
    Case("MiniLM 8x128", "minilm", lambda: tokens(8, 128), False, 1.03, PEAK,
         encoder_flops(8, 128, 6, 384)),
    Case("MiniLM, 32 sentences of 12 to 72 tokens", "minilm", sentences, False, 1.5,
         ("ratio", 2.5), sum(encoder_flops(1, n, 6, 384) for n in SENTENCES),
         peers=("onnxruntime",), ragged="on"),
    Case("BERT-base 1x128", "bert", lambda: tokens(1, 128), False, 1.03, PEAK,
         encoder_flops(1, 128, 12, 768)),
    Case("BERT-base 1x384", "bert", lambda: tokens(1, 384), False, 1.03, PEAK,
         encoder_flops(1, 384, 12, 768)),
    Case("ViT-B/16 224", "vit", lambda: image(224), False, 1.03, PEAK,
         encoder_flops(1, 197, 12, 768) + 2 * 196 * 768**2),
    Case("GPT-2 prefill 1x256", "gpt2", lambda: cached(256, 0), False, 1.05, PEAK,
         gpt2_flops(256, 0)),
    Case("GPT-2 decode, 512 cached", "gpt2", lambda: cached(1, 512), False, 1.2,
         ("read", 0.85), gpt2_flops(1, 512), read_bytes=gpt2_bytes(512)),
    Case("GPT-2 decode, 512 in states", "gpt2", lambda: cached(1, 512), False, 1.2,
         ("read", 0.85), gpt2_flops(1, 512), read_bytes=gpt2_bytes(512),
         state="past_*=present_*"),
    Case("attention 8x64, n=1024", "attention", lambda: qkv(1024), True, 1.05,
         ("peak", 0.90), attention_flops(1024), output_bytes=4 * 8 * 64 * 1024),
    Case("attention 8x64, n=4096", "attention", lambda: qkv(4096), True, 1.05,
         ("peak", 0.90), attention_flops(4096), output_bytes=4 * 8 * 64 * 4096),
    Case("causal attention, n=4096", "causal", lambda: qkv(4096), False, 1.05,
         ("peak", 0.90), attention_flops(4096) / 2, output_bytes=4 * 8 * 64 * 4096),
]
NETWORKS = [
    of_network("ResNet-50", "resnet50", 1.15), of_network("ResNet-18", "resnet18", 1.15),
    of_network("MobileNetV2", "mobilenetv2"), of_network("EfficientNet-B0", "efficientnet"),
    of_network("MobileNetV3-large", "mobilenetv3"),
    of_network("ConvNeXt-T", "convnext"), of_network("RegNet-Y", "regnet"),
    of_network("DeepLabV3+ with MobileNetV2", "deeplab"),
    of_network("SE-ResNet-50", "seresnet50", 1.15),
    of_network("ResNet-50 with CBAM", "cbamresnet50", 1.15),
    of_network("U-Net, 256x256", "unet"), of_network("YOLO of the v8 shape, 640x640", "yolo"),
    of_network("PP-OCR detector, 640x640", "ocrdet"),
    of_network("PP-OCR recogniser, 48x320", "ocrrec"),
    with_own_operators("HaloNet-26", "halonet", 3), with_own_operators("RedNet-26", "rednet", 10),
    with_own_operators("SKNet-50, 32 groups", "sknet32", 3),
    with_own_operators("SKNet-50, 1 group", "sknet1", 1.05),
    of_network("ResNet-50", "resnet50", int8=True),
    of_network("MobileNetV2", "mobilenetv2", int8=True),
    of_network("EfficientNet-B0", "efficientnet", int8=True),
]
CASES += NETWORKS
CASES += [in_bf16(case) for case in CASES
          if case.file in ("minilm", "bert", "vit", "resnet50", "convnext")
          and case.ragged == "off"]
# Files of ONNX Runtime's tools. Weights of 4 bits are those of f32 accuracy (accuracy_level
# unset), where OpenVINO takes activations of bytes.
CASES += [
    Case("MiniLM 1x128, dynamic int8", "minilm_dynamic", lambda: tokens(1, 128), True, 1.15,
         ("ratio", 1.3), encoder_flops(1, 128, 6, 384), multiplies="int8",
         peers=("onnxruntime", "openvino")),
    Case("BERT-base 1x128, dynamic int8", "bert_dynamic", lambda: tokens(1, 128), False, 1.15,
         ("ratio", 1.3), encoder_flops(1, 128, 12, 768), multiplies="int8",
         peers=("onnxruntime", "openvino")),
    Case("MiniLM 1x128, int4 weights", "minilm_int4", lambda: tokens(1, 128), True, 1.2,
         ("ratio", 1.4), encoder_flops(1, 128, 6, 384), peers=("onnxruntime",)),
    Case("MiniLM 1x128, int4 weights, auto", "minilm_int4", lambda: tokens(1, 128), True, 1.0,
         ("ratio", 1.15), encoder_flops(1, 128, 6, 384), precision="auto",
         multiplies="int8", peers=("openvino",)),
    llama_decode(4), llama_decode(8),
]
CASES += [dataclasses.replace(next(c for c in CASES if c.name == name), name=f"{name}, f16 file",
                              file=f"{file}_f16", quick=False, least=1.0, aim=("ratio", 1.2),
                              read_bytes=gpt2_bytes(512, 2) if file == "gpt2" else 0,
                              twin=name, least_twin=1.0, aim_twin=aim,
                              peers=("onnxruntime", "openvino"))
          for name, file, aim in (("MiniLM 1x16", "minilm", 1.05), ("MiniLM 1x128", "minilm", 1.0),
                                  ("GPT-2 decode, 512 cached", "gpt2", 1.5))]
CASES += [in_bf16(case, 1.05, 1.2, 1 / 0.6) for case in CASES
          if case.name == "attention 8x64, n=4096"]


def case_paths(case, work, package):
    """The model's ONNX file, its folder for PyTorch ("" where it needs none), the inputs."""
    plain = "".join(c if c.isalnum() else "_" for c in case.name)
    model, folder = f"{work}/models/{case.file}.onnx", ""
    if case.file == "minilm":
        real = f"{work}/../minilm/model.onnx"
        model, folder = real if os.path.exists(real) else model, package
    elif case.file in ("bert", "gpt2", "vit"):
        folder = f"{work}/models/{case.file}"
    return model, folder, f"{work}/models/{plain}.npz"


def own_paths(case, work, package):
    """The same for attnrun."""
    model, folder, inputs = case_paths(case, work, package)
    return f"{work}/models/{case.own_file}.onnx" if case.own_file else model, folder, inputs


# ---- making ----

def export_bert(folder, path):
    import torch
    from transformers import BertModel

    model = BertModel.from_pretrained(folder, add_pooling_layer=False).eval()
    ids = torch.zeros(1, 16, dtype=torch.int64)

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask):
            return self.model(input_ids, attention_mask=attention_mask).last_hidden_state

    export(Wrapped().eval(), (ids, torch.ones_like(ids)), path,
           ["input_ids", "attention_mask"], ["last_hidden_state"],
           ({0: "batch", 1: "seq"}, {0: "batch", 1: "seq"}))


def export_vit(folder, path):
    import torch
    from transformers import ViTModel

    model = ViTModel.from_pretrained(folder, add_pooling_layer=False).eval()

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, pixel_values):
            return self.model(pixel_values).last_hidden_state

    export(Wrapped().eval(), (torch.zeros(1, 3, 224, 224),), path, ["pixel_values"],
           ["last_hidden_state"], ({},))


def export_gpt2(folder, path):
    """GPT-2 small with its cache as inputs and outputs."""
    import torch
    from transformers import GPT2LMHeadModel
    from transformers.cache_utils import DynamicCache

    model = GPT2LMHeadModel.from_pretrained(folder).eval()
    layers, heads = GPT2_LAYERS, model.config.n_head
    dim = model.config.n_embd // heads

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask, *past):
            cache = DynamicCache()
            for layer in range(layers):
                cache.update(past[2 * layer], past[2 * layer + 1], layer)
            out = self.model(input_ids, attention_mask=attention_mask,
                             past_key_values=cache, use_cache=True, logits_to_keep=1)
            present = []
            for layer in out.past_key_values.layers:
                present += [layer.keys, layer.values]
            return (out.logits, *present)

    past = [torch.zeros(1, heads, 3, dim) for _ in range(2 * layers)]
    ids = torch.zeros(1, 2, dtype=torch.int64)
    names = [f"past_{'kv'[i % 2]}{i // 2}" for i in range(2 * layers)]
    shapes = tuple({0: "batch", 2: "past"} for _ in past)
    export(Wrapped().eval(), (ids, torch.ones(1, 5, dtype=torch.int64), *past), path,
           ["input_ids", "attention_mask", *names],
           ["logits", *[n.replace("past", "present") for n in names]],
           ({0: "batch", 1: "seq"}, {0: "batch", 1: "total"}, shapes))


def export(module, args, path, inputs, outputs, shapes):
    import torch

    with torch.no_grad():
        program = torch.onnx.export(module, args, dynamo=True, opset_version=18,
                                    input_names=inputs, output_names=outputs,
                                    dynamic_shapes=shapes, verbose=False)
    program.save(path, external_data=False)


def write_attention(path, causal):
    """Softmax attention alone, as ai.onnx Attention of opset 23."""
    from onnx import TensorProto, helper, save

    dims = ["B", 8, "N", 64]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, dims) for n in "qkvy"]
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"], is_causal=int(causal))
    graph = helper.make_graph([node], "attention", values[:3], values[3:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
    model.ir_version = 10
    save(model, path)


def save_random(name, folder):
    import torch
    import transformers

    torch.manual_seed(0)
    if name == "bert":
        model = transformers.BertModel(transformers.BertConfig(), add_pooling_layer=False)
    elif name == "vit":
        model = transformers.ViTModel(transformers.ViTConfig(), add_pooling_layer=False)
    else:
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config())
    model.save_pretrained(folder)


def fill_minilm(path):
    sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../minilm"))
    import fill

    fill.write(path, random=True)


def derive(base, kind, path):
    """The file `base` with weights of another kind, by ONNX Runtime's tools."""
    import onnx
    from onnxruntime import quantization

    if kind == "dynamic":
        quantization.quantize_dynamic(base, path)
    elif kind == "int4":
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        quantizer = MatMulNBitsQuantizer(onnx.load(base), block_size=32, is_symmetric=True)
        quantizer.process()
        onnx.save(quantizer.model.model, path)
    elif kind == "int8":
        networks.write_int8(base, path)
    else:
        from onnxruntime.transformers.float16 import convert_float_to_float16

        onnx.save(convert_float_to_float16(onnx.load(base), keep_io_types=True), path)


EXPORTS = {"bert": export_bert, "gpt2": export_gpt2, "vit": export_vit}


def make(case, work, package, attnrun=None):
    import numpy as np

    model, folder, inputs = case_paths(case, work, package)
    os.makedirs(f"{work}/models", exist_ok=True)
    if case.file in EXPORTS and not os.path.exists(f"{folder}/model.safetensors"):
        save_random(case.file, folder)
        if os.path.exists(model):
            os.remove(model)
    if not os.path.exists(model):
        temporary = model + ".tmp"
        base, _, kind = case.file.partition("_")
        if base == "llama":
            decoder.write(temporary, int(kind), 32)
        elif kind:
            plain = next(c for c in CASES if c.file == base)
            make(plain, work, package)
            derive(case_paths(plain, work, package)[0], kind, temporary)
        elif case.file in ("attention", "causal"):
            write_attention(temporary, case.file == "causal")
        elif case.file in EXPORTS:
            EXPORTS[case.file](folder, temporary)
        elif case.network:
            networks.write(case.network, temporary, export)
        else:
            fill_minilm(temporary)
        os.rename(temporary, model)
    own = own_paths(case, work, package)[0]
    if not os.path.exists(own):
        networks.write_own(case.network, own + ".tmp", model, attnrun)
        os.rename(own + ".tmp", own)
    if not os.path.exists(inputs):
        np.savez(inputs[:-4] + ".tmp.npz", **case.feed())
        os.rename(inputs[:-4] + ".tmp.npz", inputs)


if __name__ == "__main__":
    make(next(c for c in CASES if c.name == sys.argv[1]), *sys.argv[2:])
