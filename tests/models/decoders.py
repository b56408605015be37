"""Tiny random language models as folders of onnxruntime_genai's model builder 0.18.

make(folder, name) writes folder/hf, what transformers saves, and a folder for each of KINDS, what
the builder makes of it for CPUs: model.onnx, its data, genai_config.json and the tokenizer.
The builder is a folder of scripts beside a library that this does not load.

It reads configurations of an older transformers than the one that saves the weights, so make()
says some of them in the older words too. Where it leaves something out, FAMILIES does without:
the window of Mistral, an epsilon of Phi and Nemotron other than 1e-6.
"""
import contextlib
import importlib.util
import io
import json
import os
import shutil
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from tokenizers import Tokenizer, pre_tokenizers  # noqa: E402
from tokenizers.models import WordLevel  # noqa: E402

VOCABULARY = 96
BASE = {"vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 256, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
WINDOW = 8
MIXED = {"head_dim": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
         "linear_key_head_dim": 16, "linear_value_head_dim": 16, "num_hidden_layers": 4,
         "layer_types": ["full_attention", "linear_attention", "linear_attention",
                         "full_attention"],
         "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                             "partial_rotary_factor": 0.5, "mrope_section": [4, 2, 2],
                             "mrope_interleaved": True}}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
FAMILIES = {
    "llama": ("LlamaConfig", {}),
    "llama3": ("LlamaConfig", {"head_dim": 16, "rope_parameters": {
        "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 64}}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {"head_dim": 16}),
    "qwen3_5": ("Qwen3_5TextConfig", MIXED),
    "qwen3_5_moe": ("Qwen3_5MoeTextConfig",
                    MIXED | EXPERTS | {"shared_expert_intermediate_size": 32}),
    "phi": ("PhiConfig", {"num_attention_heads": 2, "num_key_value_heads": 2,
                          "layer_norm_eps": 1e-6}),
    "phi3": ("Phi3Config", {"original_max_position_embeddings": 256}),
    "phi3_long": ("Phi3Config", {
        "original_max_position_embeddings": 64, "rope_parameters": {
            "rope_type": "longrope", "rope_theta": 10000.0,
            "short_factor": [1 + 0.1 * i for i in range(8)],
            "long_factor": [1.5 + 0.5 * i for i in range(8)]}}),
    "gemma": ("GemmaConfig", {"head_dim": 16}),
    "gemma2": ("Gemma2Config", {"head_dim": 16, "query_pre_attn_scalar": 16,
                                "sliding_window": WINDOW}),
    "gemma3": ("Gemma3TextConfig", {"head_dim": 16, "query_pre_attn_scalar": 16,
                                    "sliding_window": WINDOW, "num_hidden_layers": 6,
                                    "layer_types": ["sliding_attention"] * 5 +
                                    ["full_attention"]}),
    "mistral": ("MistralConfig", {"head_dim": 16, "sliding_window": None}),
    "gpt_oss": ("GptOssConfig", {"head_dim": 16, "num_local_experts": 4,
                                 "num_experts_per_tok": 2, "sliding_window": WINDOW}),
    "granite": ("GraniteConfig", {"embedding_multiplier": 2.0, "logits_scaling": 2.0,
                                  "residual_multiplier": 0.5, "attention_multiplier": 0.2}),
    "olmo": ("OlmoConfig", {}),
    "lfm2": ("Lfm2Config", {"layer_types": ["conv", "full_attention"],
                            "block_auto_adjust_ff_dim": False}),
    "lfm2_moe": ("Lfm2MoeConfig", EXPERTS | {"layer_types": ["conv", "full_attention"],
                                             "num_dense_layers": 1}),
    "nemotron": ("NemotronConfig", {"head_dim": 32, "norm_eps": 1e-6}),
    "smollm3": ("SmolLM3Config", {}),
}
# Folder: precision and options of the builder. int4_bytes asks for activations of bytes.
KINDS = {"fp32": ("fp32", []), "fp16": ("fp16", []), "int4": ("int4", ["accuracy_level=1"]),
         "int8": ("int8", ["accuracy_level=1"]), "int4_bytes": ("int4", ["accuracy_level=4"])}


def network(name):
    """The module, with weights so large that its tokens differ."""
    config_class, options = FAMILIES[name]
    config = getattr(transformers, config_class)(**{**BASE, **options})
    torch.manual_seed(7)
    if name.startswith("qwen3_5"):
        kind = "Qwen3_5Moe" if "moe" in name else "Qwen3_5"
        vision = {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2,
                  "out_hidden_size": 64, "num_position_embeddings": 16}
        whole = getattr(transformers, kind + "Config")(
            text_config=config.to_dict(), vision_config=vision, image_token_id=90,
            video_token_id=91, vision_start_token_id=92, vision_end_token_id=93)
        module = getattr(transformers, kind + "ForConditionalGeneration")(whole)
    else:
        module = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for key, value in module.named_parameters():
            if value.dim() > 1:
                value.normal_(0, 0.5 if "embed" in key else 0.12)
            elif "bias" in key or "sink" in key:
                value.normal_(0, 0.1)
    return module.eval()


def to_mxfp4(weight):
    """(experts, columns, elements) as blocks of 32 elements of 4 bits, their scales, and what
    they mean: GPT-OSS is published so, and the builder reads nothing else for int4."""
    block = weight.reshape(*weight.shape[:-1], -1, 32)
    exponent = torch.floor(torch.log2(block.abs().amax(-1))) - 1
    scale = 2.0 ** exponent[..., None]
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    code = ((block / scale).abs()[..., None] - values).abs().argmin(-1)
    meant = values[code] * torch.where(block < 0, -1.0, 1.0) * scale
    code = (code + 8 * (block < 0)).to(torch.uint8)
    return ((code[..., ::2] | code[..., 1::2] << 4).contiguous(),
            (exponent + 127).to(torch.uint8), meant.reshape(weight.shape))


def save(name, folder):
    module, more = network(name), {}
    for key, value in module.named_parameters():
        if key.endswith(("experts.gate_up_proj", "experts.down_proj")) and name == "gpt_oss":
            blocks, scales, meant = to_mxfp4(value.detach().transpose(1, 2))
            value.data = meant.transpose(1, 2).contiguous()
            more |= {key + "_blocks": blocks, key + "_scales": scales}
    module.save_pretrained(folder)
    if more:
        file = folder / "model.safetensors"
        more |= safetensors.torch.load_file(file)
        safetensors.torch.save_file(more, file, {"format": "pt"})
    special = {"[PAD]": 0, "[BOS]": 1, "[EOS]": 2}
    numbered = special | {f"w{i}": i for i in range(3, VOCABULARY)}
    words = Tokenizer(WordLevel(numbered, unk_token="[PAD]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="[PAD]", bos_token="[BOS]", eos_token="[EOS]",
        pad_token="[PAD]").save_pretrained(folder)


def builder():
    """The builder's module, without the package's library, which asks for its own runtime."""
    package = importlib.util.find_spec("onnxruntime_genai").submodule_search_locations[0]
    path = str(Path(package) / "models")
    if path not in sys.path:
        sys.path.insert(0, path)
    import builder as module
    return module


def in_older_words(config):
    rope = getattr(config, "rope_parameters", None) or {}
    if "full_attention" in rope:
        config.rope_local_base_freq = rope["sliding_attention"]["rope_theta"]
        config.rope_theta = rope["full_attention"]["rope_theta"]
        config.rope_parameters = rope["full_attention"]
    elif rope.get("rope_type") == "longrope":
        rope["type"] = "longrope"


def make(folder, name, kinds=tuple(KINDS)):
    """Writes all of it anew; what the builder says is shown where it fails."""
    folder = Path(folder)
    shutil.rmtree(folder, ignore_errors=True)
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            save(name, folder / "hf")
            for kind in kinds:
                precision, options = KINDS[kind]
                to, cache = str(folder / kind), str(folder / "cache")
                given = ("", str(folder / "hf"), to, precision, "cpu", cache)
                parsed = builder().parse_extra_options(*given, list(options))
                in_older_words(parsed["hf_details"]["hf_config"])
                builder().create_model(*given, **parsed)
    except BaseException:
        print(said.getvalue())
        raise


def decoder_config(folder):
    return json.loads((Path(folder) / "genai_config.json").read_text())["model"]["decoder"]
