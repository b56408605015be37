"""Models by name, with inputs, masks and caches of their own: of transformers (a class and a
configuration, or a local folder), of timm and of torchvision.

In: what --hf, --timm or --torchvision say, sizes by name. Out: a module in eval mode, example
arguments by name and the axes that are free. Nothing is downloaded; weights that are not in
the folder are random (--seed). Sizes: batch; seq, of a text; target, of a decoder's text;
past, of its cache; samples or frames, of sound.
"""
import inspect
import json
import re
import traceback
from pathlib import Path

import torch

from .errors import (FileError, UnsupportedError, UsageError, first_line, innermost, nearest)
from .stand_in import import_without

# No multiple of a block or chunk: a model that pads then shows the export how.
SIZES = {"batch": 2, "seq": 61, "target": 23, "past": 11, "samples": 4001,
         "frames": 61}
PARTS = ("whole", "encoder", "decoder")
MODEL = re.compile(r"^(?!Auto|PreTrained)\w+(Model|For[A-Z]\w+|Head\w*|Encoder|Decoder)$")


def _raised_in(error, name):
    """The package whose code raised the error, but for torch, which others call."""
    modules = [frame.f_globals.get("__name__", "").split(".")[0]
               for frame, _ in traceback.walk_tb(error.__traceback__)]
    return next((m for m in reversed(modules)
                 if m not in ("", "importlib", "torch", __package__)), name)


def _package(name, without=()):
    """The module of a package; `without` names those that it can do without here."""
    try:
        return import_without(name, without)
    except (ImportError, RuntimeError, OSError) as error:  # a build for another torch, too
        cause = innermost(error)
        lacking = getattr(cause, "name", None) or _raised_in(cause, name)
        needs = f", which '{name}' imports," if lacking.split(".")[0] != name else ""
        fault = "is missing" if isinstance(cause, ModuleNotFoundError) else "does not load"
        raise UsageError(f"the Python package '{lacking}'{needs} {fault} "
                         f"({first_line(error)}): install one made for torch "
                         f"{torch.__version__}, or, if there is none, export the model to ONNX "
                         "in another environment and convert that file with --fuse") from error


class _Draw:
    """Example inputs of the sizes given, and the names of their free axes."""

    def __init__(self, sizes, seed):
        self.sizes = {**SIZES, **sizes}
        self.generator = torch.Generator().manual_seed(seed)
        self.arguments, self.dynamic = {}, {}

    def shape(self, dims):
        return [sum(self.sizes[word] for word in dim.split("+")) if isinstance(dim, str)
                else dim for dim in dims]

    def add(self, name, tensor, dims):
        self.arguments[name] = tensor
        self.name_axes(name, dims)

    def name_axes(self, name, dims):
        self.dynamic[name] = {axis: dim for axis, dim in enumerate(dims)
                              if isinstance(dim, str)}

    def floats(self, dims, dtype=torch.float32):
        return torch.randn(self.shape(dims), generator=self.generator).to(dtype)

    def ids(self, name, dims, rows):
        """Numbers of tokens; the first few are often special ones."""
        low = 10 if rows > 20 else 0
        self.add(name, torch.randint(low, rows, self.shape(dims), generator=self.generator),
                 dims)

    def mask(self, name, dims, side="right"):
        """Ones; the second text of the batch is shorter."""
        mask = torch.ones(self.shape(dims), dtype=torch.long)
        short = mask.shape[-1] // 8
        if mask.shape[0] > 1 and short:
            mask[1, ..., slice(-short, None) if side == "right" else slice(short)] = 0
        self.add(name, mask, dims)


# ---- transformers ----

def _configured(path):
    try:
        with open(path, encoding="utf-8") as file:
            given = json.load(file)
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise FileError(f"cannot read {path}: it is not JSON") from error
    if not isinstance(given, dict):
        raise FileError(f"{path} is no configuration: expected an object of settings, as "
                        "config.json of a model is")
    return given


def _class_of(name, given):
    transformers = _package("transformers")
    if not name:
        names = given.get("architectures") or []
        if len(names) != 1:
            raise UsageError("the config.json of the folder names no architecture: say "
                             "--hf CLASS:FOLDER")
        name = names[0]
    kind = getattr(transformers, name, None)
    if not (isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)):
        models = [other for other in dir(transformers) if MODEL.search(other)]
        near = nearest(name, models)
        if name.startswith("Auto"):
            near = ": say the class that 'architectures' of its config.json names"
        raise UsageError(f"transformers {transformers.__version__} has no model class "
                         f"'{name}'{near}")
    if kind.config_class is None or name.endswith("PreTrainedModel"):
        raise UsageError(f"transformers.{name} is the base of several models: say the class "
                         "of one of them")
    return kind


def _demand(config):
    """What a configuration asks for that no file can hold."""
    if config.model_type == "yoso" and not config.use_expectation:
        raise UnsupportedError("YOSO samples its hashes only in a kernel for CUDA: set "
                               "use_expectation to true in its configuration, which computes "
                               "what the samples have on average")
    if config.model_type == "nystromformer" and \
            config.num_landmarks != config.segment_means_seq_len:
        raise UnsupportedError("Nystromformer adds its mask of all pairs of tokens to scores of "
                               "its landmarks, and fails: set num_landmarks equal to "
                               "segment_means_seq_len, which is attention to all tokens")


def _made(kind, path, given, seed, say):
    """The module with the weights of a folder, or random ones."""
    holds = path.is_dir() and (any(path.glob("*.safetensors")) or any(path.glob("*.bin")))
    try:
        if holds:
            return kind.from_pretrained(path, local_files_only=True)
        config = kind.config_class.from_dict(given)
        torch.manual_seed(seed)
        model = kind(config)
    except Exception as error:
        from .capture import sentence
        raise UsageError(f"transformers.{kind.__name__} cannot be made of {path}: "
                         f"{sentence(error)}") from error
    say(f"{path} holds no weights: those of the model are random (seed {seed})")
    _settle(model, say)
    return model


def _settle(model, say):
    """What a Reformer chooses at its first long text, by its longest one."""
    layers = [m for m in model.modules() if hasattr(m, "_set_num_buckets")
              and m.num_buckets is None]
    for layer in layers:
        layer._set_num_buckets(model.config.max_position_embeddings)
    if layers:
        say(f"its configuration has no num_buckets: {model.config.num_buckets}, as its own code "
            f"has them for {model.config.max_position_embeddings} tokens")


def _long_enough(config, sizes, say):
    """Sizes at which BigBird is sparse: at its first short text it becomes full for good."""
    if getattr(config, "attention_type", "") != "block_sparse" or "seq" in sizes:
        return sizes
    full = (5 + 2 * config.num_random_blocks) * config.block_size
    if SIZES["seq"] > full or full + 5 > config.max_position_embeddings:
        return sizes
    say(f"the model attends to all tokens of a text of at most {full}: the example has {full + 5}")
    return {**sizes, "seq": full + 5}


def _vocabulary(config):
    for owner in (config, getattr(config, "text_config", None)):
        size = getattr(owner, "vocab_size", None)
        if isinstance(size, int):
            return size
    if config.model_type == "canine":  # hashes characters
        return 1 << 16
    raise UnsupportedError("the configuration has no vocab_size: give the inputs with --example")


def _setting(config, *names, otherwise=None):
    """The first of these settings that the configuration has, or one inside it."""
    inner = [getattr(config, part, None) for part in ("vision_config", "encoder_config",
                                                      "audio_config")]
    for name in names:
        for owner in (config, *inner):
            value = getattr(owner, name, None)
            if value is not None:
                return value
    return otherwise


def _image_dims(config):
    """Pictures, or a number of them where the model reads films."""
    size = _setting(config, "image_size", "crop_size", otherwise=224)
    if isinstance(size, dict):
        size = (size["height"], size["width"])
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    frames = _setting(config, "num_frames", "frames_per_clip")
    return ("batch", *([frames] if isinstance(frames, int) else ()),
            _setting(config, "num_channels", "in_chans", otherwise=3), height, width)


def _sound_dims(config, name):
    """Samples, or the spectrogram that the configuration asks for."""
    bins = _setting(config, "num_mel_bins", otherwise=80)
    wide = _setting(config, "input_feat_per_channel", "feature_projection_input_dim")
    if name == "input_values":
        length = _setting(config, "max_length")
        picture = config.model_type == "audio-spectrogram-transformer"
        channels = _setting(config, "audio_channels")
        return ("batch", length, bins) if picture else (
            ("batch", channels, "samples") if channels else ("batch", "samples"))
    fixed = _setting(config, "max_source_positions")
    if fixed and not wide:  # of Whisper
        return ("batch", bins, 2 * fixed)
    return ("batch", "frames", wide or bins)


def _is_classifier(model):
    """Whether its decoder reads the text of its encoder, and needs one mark of its end."""
    return type(model).__name__.endswith("ForSequenceClassification")


def _end_once(ids, config):
    """One mark of the end in each text, at its end."""
    end = getattr(config, "eos_token_id", None)
    if isinstance(end, int):
        ids[ids == end] = end - 1 if end else 1
        ids[:, -1] = end


def _reads_text(model):
    """Of Perceiver, whose inputs are anything."""
    return type(model).__name__.endswith(("ForMaskedLM", "ForSequenceClassification")) \
        and hasattr(model.config, "vocab_size")


def _text(model, draw, takes):
    """Ids and their mask; two texts to choose from for each row of a head that chooses."""
    config = model.config
    two = getattr(config, "is_encoder_decoder", False)
    chooses = type(model).__name__.endswith("ForMultipleChoice")
    name, dims = "inputs" if "inputs" in takes else "input_ids", ("batch", "seq")
    dims = ("batch", 2, "seq") if chooses else dims
    draw.ids(name, dims, _vocabulary(config))
    if two and _is_classifier(model):
        _end_once(draw.arguments[name], config)
    if "attention_mask" in takes:
        draw.mask("attention_mask", dims)


def _inputs(model, draw):
    """The inputs of a whole model, as its forward names them."""
    config, takes = model.config, inspect.signature(model.forward).parameters
    main = model.main_input_name
    needed = {name for name, one in takes.items() if one.default is one.empty
              and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}
    reads = main == "input_ids" or "input_ids" in needed
    if "input_ids" in takes and reads or main == "inputs" and _reads_text(model):
        _text(model, draw, takes)
    for name in ("pixel_values", "pixel_values_videos"):
        sees = name == main or name == "pixel_values" and (
            hasattr(config, "vision_config") or hasattr(config, "image_size"))
        if name in needed or name in takes and sees:
            dims = _image_dims(config)
            draw.add(name, draw.floats(dims), dims)
    for name in ("input_values", "input_features"):
        if name == main and name in takes:
            dims = _sound_dims(config, name)
            draw.add(name, draw.floats(dims), dims)
    if "noise" in takes and hasattr(config, "mask_ratio"):  # which patches are hidden
        dims = ("batch", (config.image_size // config.patch_size) ** 2)
        draw.add("noise", draw.floats(dims), dims)
    if main == "past_values" and hasattr(config, "num_input_channels"):
        dims = ("batch", config.context_length, config.num_input_channels)
        draw.add(main, draw.floats(dims), dims)
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in takes \
            and not _is_classifier(model):
        draw.ids("decoder_input_ids", ("batch", "target"), _vocabulary(config))
    lacks = sorted(needed - set(draw.arguments))
    if lacks or not draw.arguments:
        raise UnsupportedError(f"{type(model).__name__} takes '{(lacks or [main])[0]}', which the "
                               "converter cannot make up: give its inputs with --example")


class _Part(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.config = model.config


class Encoder(_Part):
    """The encoder of a model with two parts: what its decoder reads."""

    def forward(self, input_ids, attention_mask):
        made = self.model.get_encoder()(input_ids=input_ids, attention_mask=attention_mask)
        return {"encoder_hidden_states": made[0]}


def _filled(past, layers):
    """A cache of transformers that holds `past`: {"0_key": …, "0_value": …, …}."""
    from transformers import DynamicCache
    cache = DynamicCache()
    for layer in range(layers):
        cache.update(past[f"{layer}_key"], past[f"{layer}_value"], layer)
    return cache


def _emptied(cache, layers):
    """{"0_key": …, "0_value": …, …} of a cache after a run."""
    found = {}
    for number in range(layers):
        found[f"{number}_key"] = cache.layers[number].keys
        found[f"{number}_value"] = cache.layers[number].values
    return found


class Step(_Part):
    """A causal model with its cache as inputs and outputs; states of attnrun_add_state."""

    def forward(self, input_ids, attention_mask, past):
        cache = _filled(past, len(past) // 2)
        made = self.model(input_ids=input_ids, attention_mask=attention_mask,
                          past_key_values=cache, use_cache=True)
        return {"logits": made.logits, "present": _emptied(cache, len(past) // 2)}


class Decoder(_Part):
    """The decoder of a model with two parts: its own cache as inputs and outputs; the keys
    and values of the encoder's results are computed in each step."""

    def forward(self, decoder_input_ids, encoder_hidden_states, past, attention_mask=None):
        from transformers import DynamicCache, EncoderDecoderCache
        from transformers.modeling_outputs import BaseModelOutput
        own = _filled(past, len(past) // 2)
        seen = {} if attention_mask is None else {"attention_mask": attention_mask}
        made = self.model(
            decoder_input_ids=decoder_input_ids, **seen,
            encoder_outputs=BaseModelOutput(last_hidden_state=encoder_hidden_states),
            past_key_values=EncoderDecoderCache(own, DynamicCache()), use_cache=True)
        return {"logits": made.logits, "present": _emptied(own, len(past) // 2)}


def _first_of(config, *names):
    for name in names:
        value = getattr(config, name, None)
        if isinstance(value, int):
            return value
    raise UnsupportedError(f"the configuration has none of {', '.join(names)}")


def _cache(model, draw, example):
    """Keys and values of `past` tokens, of the shapes that the model's own run of `example`
    gives them."""
    with torch.no_grad():
        made = model(**example, use_cache=True)
    cache = getattr(made, "past_key_values", None)
    cache = getattr(cache, "self_attention_cache", cache)
    layers = getattr(cache, "layers", None)
    if not layers or not all(torch.is_tensor(getattr(x, "keys", None)) and x.keys.dim() == 4
                             for x in layers):
        raise UnsupportedError(f"{type(model).__name__} keeps a state that is not a cache of keys "
                               "and values for each layer; convert it with --part whole")
    past, dynamic = {}, {}
    for number, layer in enumerate(layers):
        for word, x in (("key", layer.keys), ("value", layer.values)):
            shape = ("batch", x.shape[1], "past", x.shape[3])
            past[f"{number}_{word}"] = draw.floats(shape, x.dtype)
            dynamic[f"past_{number}_{word}"] = {0: "batch", 2: "past"}
    draw.arguments["past"] = past
    draw.dynamic.update(dynamic)


def _decoder(model, draw):
    config, rows = model.config, _vocabulary(model.config)
    if not getattr(config, "is_encoder_decoder", False):
        draw.ids("input_ids", ("batch", "seq"), rows)
        draw.mask("attention_mask", ("batch", "past+seq"), "left")
        ids = draw.arguments["input_ids"]
        _cache(model, draw, {"input_ids": ids, "attention_mask": torch.ones_like(ids)})
        return Step(model)
    wide = _first_of(config, "d_model", "hidden_size")
    draw.ids("decoder_input_ids", ("batch", "target"), rows)
    dims = ("batch", "seq", wide)
    read = draw.floats(dims, model.dtype)
    draw.add("encoder_hidden_states", read, dims)
    if model.main_input_name == "input_ids":  # sound and pictures have no padding here
        draw.mask("attention_mask", ("batch", "seq"))
    from transformers.modeling_outputs import BaseModelOutput
    _cache(model, draw, {"encoder_outputs": BaseModelOutput(last_hidden_state=read),
                         "decoder_input_ids": draw.arguments["decoder_input_ids"]})
    return Decoder(model)


def _part_of(model, part, draw):
    if part == "whole":
        _inputs(model, draw)
        return model
    two = getattr(model.config, "is_encoder_decoder", False)
    if part == "encoder":
        if not two:
            raise UsageError(f"{type(model).__name__} has no encoder beside a decoder: leave "
                             "--part out")
        draw.ids("input_ids", ("batch", "seq"), _vocabulary(model.config))
        draw.mask("attention_mask", ("batch", "seq"))
        return Encoder(model)
    if not hasattr(model, "get_output_embeddings") or model.get_output_embeddings() is None:
        raise UsageError(f"{type(model).__name__} gives no logits, so its decoder has no "
                         "steps: say a class for generation (…ForCausalLM, "
                         "…ForConditionalGeneration)")
    return _decoder(model, draw)


def of_transformers(spec, part, sizes, seed, say, inputs=True):
    """(module, arguments, axes) of CLASS:config.json, CLASS:FOLDER or FOLDER; `inputs`: whether
    they are made up here."""
    name, colon, place = spec.partition(":")
    if not colon or Path(spec).exists():
        name, place = "", spec
    path = Path(place)
    if not colon and not path.is_dir():
        raise UsageError(f"--hf '{spec}' is not of the form CLASS:config.json, CLASS:FOLDER or "
                         "FOLDER")
    given = _configured(path / "config.json" if path.is_dir() else path)
    kind = _class_of(name, given)
    model = _made(kind, path, given, seed, say).eval()
    _demand(model.config)
    if getattr(model.config, "use_mems_eval", False):  # XLNet's, cut at a length
        model.config.use_mems_eval = False
        say("the model gives memories of its text, which no input takes here: converted with "
            "config.use_mems_eval=False")
    if part == "whole" and not inputs:
        return model, {}, {}
    draw = _Draw(_long_enough(model.config, sizes, say), seed)
    module = _part_of(model, part, draw).eval()
    return module, draw.arguments, draw.dynamic


# ---- models of images ----

def _image(module, channels, height, width, sizes, seed):
    name = next(iter(inspect.signature(module.forward).parameters))
    draw, dims = _Draw(sizes, seed), ("batch", channels, height, width)
    draw.add(name, draw.floats(dims), dims)
    return module, draw.arguments, draw.dynamic


def of_timm(name, sizes, seed, say):
    timm = _package("timm", without=("torchvision", "PIL"))
    known = timm.list_models()
    if name.partition(".")[0] not in known:  # after the point, whose weights
        raise UsageError(f"timm {timm.__version__} has no model '{name}'{nearest(name, known)}")
    torch.manual_seed(seed)
    module = timm.create_model(name, pretrained=False, exportable=True).eval()
    say(f"the weights of {name} are random (seed {seed}); for other weights, use a factory")
    size = module.default_cfg.get("input_size", (3, 224, 224))
    return _image(module, *size, sizes, seed)


def of_torchvision(name, sizes, seed, say):
    models = _package("torchvision").models
    known = models.list_models(module=models)
    if name not in known:
        raise UsageError(f"torchvision has no model of images '{name}'{nearest(name, known)}")
    torch.manual_seed(seed)
    module = models.get_model(name, weights=None).eval()
    say(f"the weights of {name} are random (seed {seed}); for other weights, use a factory")
    side = 299 if name == "inception_v3" else 224
    return _image(module, 3, side, side, sizes, seed)
