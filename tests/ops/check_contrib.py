"""com.microsoft operators against ONNX Runtime, which defines them.
Usage: check_contrib.py ATTNRUN"""
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnxruntime.quantization import quantize_dynamic

from cases import check, one_node_model, write_case
from exact_bytes import exact_weights, sums_are_exact

random = np.random.default_rng(3)
BATCH, TOKENS, KEYS, HEADS, KV_HEADS, DIM, PAST = 2, 5, 7, 4, 2, 16, 3
WIDTH, KV_WIDTH = HEADS * DIM, KV_HEADS * DIM


def normal(*shape):
    return random.standard_normal(shape).astype("f4")


def ints(*values):
    return np.array(values, "i4")


def attention_cases():
    def qkv(keys=KEYS):
        return [("q", normal(BATCH, TOKENS, WIDTH)), ("k", normal(BATCH, keys, WIDTH)),
                ("v", normal(BATCH, keys, WIDTH))]

    op, heads = "MultiHeadAttention", {"num_heads": HEADS}
    bias, none = ("b", normal(3 * WIDTH)), ("none", None)
    keep = np.ones((BATCH, KEYS), "i4")
    keep[1, 5:] = 0
    past = [("pk", normal(BATCH, HEADS, PAST, DIM)), ("pv", normal(BATCH, HEADS, PAST, DIM))]
    cross = [("k", normal(BATCH, HEADS, KEYS, DIM)), ("v", normal(BATCH, HEADS, KEYS, DIM))]
    yield op, qkv(), ["y"], heads
    yield op, qkv() + [bias], ["y"], {"scale": 0.2, **heads}
    yield op, qkv() + [none, ("m", keep)], ["y"], heads
    yield op, qkv() + [none, ("m", ints(7, 4))], ["y"], heads
    yield op, qkv() + [none, none, ("s", normal(1, HEADS, TOKENS, KEYS))], ["y"], heads
    yield (op, qkv(TOKENS) + [bias, none, none] + past, ["y", "key", "value"],
           {"unidirectional": 1, **heads})
    yield op, [("q", normal(BATCH, TOKENS, WIDTH))] + cross, ["y"], heads
    yield op, [("q", normal(BATCH, TOKENS, WIDTH))] + cross + [bias], ["y"], heads
    # Masks that leave a query without a key; -10000 costs three digits there.
    weak = {"mask_filter_value": -200.0, **heads}
    for mask in (keep * ints([1], [0]), ints(0, 4), ints(0, 5, 0, 5, 7, 0, 7, 14),
                 random.integers(0, 2, (BATCH, TOKENS, KEYS)).astype("i4")):
        yield op, qkv() + [none, ("m", mask)], ["y"], weak
        yield (op, qkv() + [bias, ("m", mask), ("s", normal(1, 1, TOKENS, KEYS))], ["y"],
               {"mask_filter_value": -2.0, **heads})


def padded_cases():
    """Samples with padding: it may be left out only where that changes nothing."""
    op, tokens, none = "MultiHeadAttention", 3, ("none", None)
    for past, new in ((0, 300), (290, 40), (1100, 3)):  # the last has its keys split
        total = past + new
        ends = ints(total - 7, 60)
        prefix = (np.arange(total) < ends[:, None]).astype("i4")
        prefix[0, 3] = 0
        for mask in (ends, prefix):
            # Scores beyond the filler, and a bias that takes it back.
            for loud, filler, back in ((1, -10000.0, 0), (3, -20.0, 0), (1000, -10000.0, 0),
                                       (1, -200.0, 200)):
                inputs = [("q", loud * normal(BATCH, new if past else tokens, WIDTH)),
                          ("k", normal(BATCH, new, WIDTH)), ("v", normal(BATCH, new, WIDTH)), none,
                          ("m", mask),
                          ("s", (back * random.integers(0, 2, (1, HEADS, new if past else tokens,
                                                               total))).astype("f4")
                           if back else None)]
                if past:
                    inputs += [("pk", normal(BATCH, HEADS, past, DIM)),
                               ("pv", normal(BATCH, HEADS, past, DIM))]
                yield (op, inputs, ["y", "key", "value"] if past else ["y"],
                       {"num_heads": HEADS, "mask_filter_value": filler,
                        "unidirectional": int(past > 0)})
    # Padding before the keys, too; queries between there see nothing else where causal.
    gaps = np.stack([np.arange(300) >= 20, np.arange(300) % 270 >= 130]).astype("i4")
    for loud, filler in ((1, -10000.0), (3, -20.0), (1000, -10000.0)):
        yield (op, [("q", loud * normal(BATCH, 300, WIDTH)), ("k", normal(BATCH, 300, WIDTH)),
                    ("v", normal(BATCH, 300, WIDTH)), none, ("m", gaps)], ["y"],
               {"num_heads": HEADS, "mask_filter_value": filler, "unidirectional": int(loud == 3)})
    # Values of padding are not read.
    q, k, v = (normal(1, n, WIDTH) for n in (tokens, 300, 300))
    broken = v.copy()
    broken[:, 60:] = np.nan
    for mask in (ints(60), (np.arange(300) < 60).astype("i4")[None]):
        yield (op, [("q", q), ("k", k), ("v", broken), none, ("m", mask)], ["y"],
               {"num_heads": HEADS},
               [("q", q), ("k", k[:, :60].copy()), ("v", v[:, :60].copy())])
    broken[:, :20] = np.nan
    yield (op, [("q", q), ("k", k), ("v", broken), none,
                ("m", (np.arange(300) // 20 % 15 % 3 == 1).astype("i4")[None] *
                 (np.arange(300) < 60))], ["y"], {"num_heads": HEADS},
           [("q", q), ("k", k[:, 20:40].copy()), ("v", v[:, 20:40].copy())])


def merged_case(batch, tokens, mask=None, past=0, bias_heads=0, v_dim=DIM, unidirectional=0,
                outputs=("y",), **attributes):
    wide, v_width, keys = 24, HEADS * v_dim, past + tokens
    if v_dim != DIM:
        attributes["qkv_hidden_sizes"] = [WIDTH, WIDTH, v_width]
    inputs = [("x", normal(batch, tokens, wide)), ("w", 0.3 * normal(wide, 2 * WIDTH + v_width)),
              ("b", normal(2 * WIDTH + v_width)), ("m", mask),
              ("past", normal(2, batch, HEADS, past, DIM) if past else None),
              ("s", normal(min(batch, 1 + bias_heads % 2), bias_heads, tokens, keys)
               if bias_heads else None)]
    return ("Attention", inputs, list(outputs),
            {"num_heads": HEADS, "unidirectional": unidirectional, **attributes})


def merged_masks(batch, tokens, keys):
    yield None
    yield random.integers(0, 2, (batch, keys)).astype("i4")
    yield random.integers(0, 2, (batch, tokens, keys)).astype("i4")
    yield random.integers(1, keys + 1, batch).astype("i4")
    yield np.concatenate([random.integers(keys // 2 + 1, keys + 1, batch),
                          random.integers(0, keys // 2 + 1, batch)]).astype("i4")


def merged_cases():
    for i in range(4):
        batch, tokens, past = (int(random.integers(1, top)) for top in (4, 40, 9))
        # -10000 costs three digits where a query has no key left
        common = {"unidirectional": i % 2, "mask_filter_value": -200.0}
        for mask in merged_masks(batch, tokens, tokens):
            yield merged_case(batch, tokens, mask, **common)
            yield merged_case(batch, tokens, mask, bias_heads=(1, HEADS)[i % 2], **common)
        for mask in merged_masks(batch, tokens, past + tokens):
            yield merged_case(batch, tokens, mask, past, scale=0.2, outputs=("y", "present"),
                              **common)
    yield merged_case(2, 5, v_dim=8)
    yield merged_case(2, 300, ints(200, 300), unidirectional=1, outputs=("y", "present"))
    yield merged_case(1, 1, None, 6, unidirectional=1, outputs=("y", "present"))
    yield merged_case(2, 4, np.eye(4, dtype="i4")[:2], mask_filter_value=-3.0)
    # Padding that counts and that does not; the last sample of each has none to see.
    for past in (0, 290):
        total = past + 40
        between = [[total - 3, 60, 7], [20, 40, 9]]
        at = np.arange(total)[None]
        prefix = ((at < ints(between[0][0], 60, 0)[:, None]) &
                  (at >= ints(20, 40, 0)[:, None])).astype("i4")
        for i, mask in enumerate((ints(*between[0]), ints(*between[0], *between[1]), prefix)):
            for filler in (-200.0, -3.0):
                yield merged_case(3, 40, mask, past, bias_heads=0 if past or i == 0 else HEADS,
                                  outputs=("y", "present"), unidirectional=int(filler == -3.0),
                                  mask_filter_value=filler)


def bytes_of(kind, *shape, spread=128):
    middle = 128 if kind == "u1" else 0
    return np.asarray(random.integers(middle - spread, middle + spread, shape), kind)


def unsigned(inputs):
    """The same for ONNX Runtime, whose kernel takes u8 inputs only."""
    given = dict(inputs)
    zero = given["xz"] if given["xz"] is not None else np.array(0, "i1")
    given.update({name: np.asarray(value.astype("i2") + 128, "u1")
                  for name, value in (("x", given["x"]), ("xz", zero))})
    return list(given.items())


def quantized_case(batch, tokens, mask=None, past=0, kinds=("u1", "i1"), zeros=True,
                   columns=False, heads=HEADS, constants=True, outputs=("y",), **attributes):
    wide, width = int(random.integers(1, 60)), 3 * heads * DIM
    some = (width,) if columns else ()
    inputs = [("x", bytes_of(kinds[0], batch, tokens, wide)),
              ("w", exact_weights(bytes_of(kinds[1], wide, width))), ("b", normal(width)),
              ("xs", np.array(0.01, "f4")),
              ("ws", np.asarray(random.uniform(0.001, 0.008, some), "f4")), ("m", mask),
              ("xz", bytes_of(kinds[0], spread=20) if zeros else None),
              ("wz", bytes_of(kinds[1], *some, spread=20) if zeros else None),
              ("past", normal(2, batch, heads, past, DIM) if past else None)]
    return ("QAttention", inputs, list(outputs), {"num_heads": heads, **attributes},
            unsigned(inputs) if kinds[0] == "i1" else inputs,
            ("w", "ws", "wz") if constants else ())


def quantized_cases():
    for i in range(16):
        batch, tokens, past = (int(random.integers(1, top)) for top in (4, 40, 9))
        common = {"kinds": ("ui"[i % 2] + "1", "ui"[i // 2 % 2] + "1"),
                  "unidirectional": i // 4 % 2, "columns": i // 8 == 1,
                  "constants": i % 3 > 0, "zeros": i % 5 > 0, "mask_filter_value": -200.0,
                  "heads": int(random.integers(1, 6))}
        for mask in merged_masks(batch, tokens, tokens):
            yield quantized_case(batch, tokens, mask, **common)
        for mask in merged_masks(batch, tokens, past + tokens):
            yield quantized_case(batch, tokens, mask, past, scale=0.2,
                                 outputs=("y", "present"), **common)
    yield quantized_case(2, 300, ints(200, 300), unidirectional=1, outputs=("y", "present"))
    yield quantized_case(1, 1, None, 6, outputs=("y", "present"))
    yield quantized_case(2, 4, np.eye(4, dtype="i4")[:2], mask_filter_value=-3.0)


def packed_cases():
    """ONNX Runtime has these on GPUs only: it gets the same operands unpacked."""
    heads = {"num_heads": HEADS}
    packed = normal(BATCH, TOKENS, HEADS, 3, DIM)
    flat = [np.ascontiguousarray(packed[:, :, :, i]).reshape(BATCH, TOKENS, WIDTH)
            for i in range(3)]
    apart = list(zip("qkv", flat))
    yield "MultiHeadAttention", [("q", packed)], ["y"], heads, apart
    pair = np.stack([v.reshape(BATCH, TOKENS, HEADS, DIM) for v in flat[1:]], axis=3)
    yield "MultiHeadAttention", [apart[0], ("k", pair)], ["y"], heads, apart


def group_query_case(batch, tokens, past, last, packed=False, rotary=0, positions=None,
                     bias=None, sink=None, **attributes):
    if packed:
        inputs = [("q", normal(batch, tokens, WIDTH + 2 * KV_WIDTH)), ("k", None), ("v", None)]
    else:
        inputs = [("q", normal(batch, tokens, WIDTH)), ("k", normal(batch, tokens, KV_WIDTH)),
                  ("v", normal(batch, tokens, KV_WIDTH))]
    inputs += [("pk", normal(batch, KV_HEADS, past, DIM)),
               ("pv", normal(batch, KV_HEADS, past, DIM)), ("last", ints(*last)),
               ("total", np.array(past + tokens, "i4"))]
    if rotary:
        angle = normal(16, DIM // 2)
        inputs += [("cos", np.cos(angle)), ("sin", np.sin(angle))]
    else:
        inputs += [("cos", None), ("sin", None)]
    inputs += [("p", positions), ("s", bias), ("sink", sink)]
    return ("GroupQueryAttention", inputs, ["y", "key", "value"],
            {"num_heads": HEADS, "kv_num_heads": KV_HEADS, "do_rotary": rotary, **attributes})


def group_query_cases():
    op, inputs, outputs, attributes = group_query_case(2, 5, 0, [4, 3], rotary=1)
    yield op, inputs, outputs[:1], attributes  # nobody asks how long the cache is
    yield group_query_case(1, 5, 0, [4])
    yield group_query_case(2, 5, 0, [4, 4], rotary=1)
    yield group_query_case(1, 1, 6, [6], rotary=1)
    yield group_query_case(2, 1, 6, [6, 6], packed=True, rotary=1, rotary_interleaved=1)
    yield group_query_case(2, 1, 6, [6, 4], rotary=1)
    yield group_query_case(1, 6, 0, [5], local_window_size=2)
    yield group_query_case(1, 6, 0, [5], softcap=3.0, scale=0.7)
    yield group_query_case(2, 5, 0, [4, 4], smooth_softmax=1)
    yield group_query_case(2, 5, 0, [4, 4], sink=normal(HEADS), smooth_softmax=1)
    yield group_query_case(2, 1, 6, [6, 6], sink=normal(HEADS), local_window_size=3)
    yield group_query_case(1, 300, 0, [299], sink=3 * normal(HEADS), softcap=2.0)
    yield group_query_case(2, 5, 0, [4, 4], bias=normal(1, HEADS, 5, 5))
    yield group_query_case(2, 1, 6, [6, 6], bias=normal(2, 1, 1, 7), sink=normal(HEADS))
    yield group_query_case(1, 5, 0, [4], causal=0)
    where = np.array([[3, 1, 0, 4, 9], [2, 5, 6, 7, 8]], "i8")  # of a prompt the first counts
    yield group_query_case(2, 5, 0, [4, 4], rotary=1, positions=where)
    yield group_query_case(2, 1, 6, [6, 6], rotary=1, positions=where[:, 3:4])


def quantized_caches(given, attributes, bits, kind):
    """The same with caches of small integers, which the new tokens reach the ends of."""
    batch, heads, room, dim = given["pk"].shape
    for name in "kv":
        shape = (1, heads, 1, dim) if kind == "PER_CHANNEL" else (1,)
        given["p" + name] = (bytes_of("i1", batch, heads, room, dim) if bits == 8 else
                             bytes_of("u1", batch, heads, room, dim // 2))
        given[name + "s"] = (random.uniform(2, 3, shape) / 2 ** (bits - 1)).astype("f4")
        attributes[name + "_quant_type"] = kind
    attributes["kv_cache_bit_width"] = bits


def random_group_query():
    """Prompts, later pieces of one (ONNX Runtime has them for one sample) and steps."""
    dim, kv_heads = 16 * int(random.integers(1, 4)), int(random.integers(1, 4))
    heads = kv_heads * int(random.integers(1, 5))
    past = int(random.choice([0, random.integers(1, 300), random.integers(500, 1500)]))
    tokens = int(random.choice([1, random.integers(2, 80)]))
    batch = 1 if past and tokens > 1 else int(random.integers(1, 4))
    # Keys of each sample; one has all of them.
    lens = random.integers(1 if past == 0 else tokens + 1, past + tokens + 1, batch)
    lens[int(random.integers(batch))] = total = past + tokens
    # A cache that grows, or with room for the new ones.
    room = total + int(random.integers(0, 20)) if past and random.integers(2) else past
    q, k = normal(batch, tokens, heads * dim), normal(batch, tokens, kv_heads * dim)
    v = normal(batch, tokens, kv_heads * dim)
    packed, rotary, bias, sink = random.integers(0, 2, 4)
    angle = normal(past + tokens + 5, dim // 2)
    given = {"q": np.concatenate([q, k, v], -1) if packed else q,
             "k": None if packed else k, "v": None if packed else v,
             "pk": normal(batch, kv_heads, room, dim), "pv": normal(batch, kv_heads, room, dim),
             "last": np.asarray(lens - 1, "i4"), "total": np.array(total, "i4"),
             "cos": np.cos(angle) if rotary else None, "sin": np.sin(angle) if rotary else None,
             "p": None, "s": normal(int(random.choice([1, batch])), int(random.choice([1, heads])),
                                    tokens, total) if bias else None,
             "sink": normal(heads) if sink else None}
    attributes = {"num_heads": heads, "kv_num_heads": kv_heads, "do_rotary": int(rotary),
                  "rotary_interleaved": int(random.integers(2)),
                  "smooth_softmax": int(random.integers(2)),
                  "softcap": float(random.choice([0.0, 1.5])),
                  "scale": float(random.choice([0.0, 0.3]))}
    # Of tokens that are padding ONNX Runtime places the window elsewhere.
    if random.integers(2) and (past or min(lens) == total):
        attributes["local_window_size"] = int(random.integers(1, total + 2))
    elif random.integers(3) == 0:
        attributes["causal"] = 0
    return given, lens, attributes


def group_query_models():
    """Yields models with output_qk; ONNX Runtime leaves there what a sample has no key for."""
    op, outputs = "GroupQueryAttention", ["y", "key", "value", "qk"]
    for number in range(120):
        given, lens, attributes = random_group_query()
        if number % 2:
            quantized_caches(given, attributes, (4, 8)[number // 2 % 2],
                             ("PER_TENSOR", "PER_CHANNEL")[number // 4 % 2])
        attributes["qk_output"] = 1 + number // 8 % 2
        model, inputs, values = outputs_of(op, list(given.items()), outputs, attributes)
        for qk, keys in zip(values[3][1], lens):
            qk[:, :, keys:] = 0
        yield op, model, inputs, values


def sliding_models():
    """Caches of a window and some room; what lies behind the tokens they hold, nobody says."""
    op, outputs = "GroupQueryAttention", ["y", "key", "value"]
    for number in range(60):
        given, lens, attributes = random_group_query()
        tokens, total = given["q"].shape[1], int(given["total"])
        batch, kv_heads, _, dim = given["pk"].shape
        if tokens == total:
            lens[:] = total
            given["last"] = np.asarray(lens - 1, "i4")
        window = int(random.integers(1, total + 3))
        room = window + int(random.integers(0, 12))
        attributes.update(local_window_size=window, sliding_window_cache=1, causal=1)
        for name in ("pk", "pv"):
            given[name] = normal(batch, kv_heads, room, dim)
        if number % 3 == 0:
            quantized_caches(given, attributes, 8 if dim % 32 else 4, "PER_CHANNEL")
        model, inputs, values = outputs_of(op, list(given.items()), outputs, attributes)
        several = room - window + 1
        for sample, length in enumerate(lens):
            gone = max(0, -(-(length - room) // several) * several)
            for _, cache in values[1:]:
                cache[sample, :, length - gone:] = 0
        yield op, model, inputs, values


def half_models():
    """Of f16 operands the results are f16, caches of integers are not; with and without a past,
    which says what caches are."""
    op, outputs = "GroupQueryAttention", ["y", "key", "value"]
    for past, bits in ((0, 0), (4, 0), (0, 8), (4, 8)):
        given, attributes = group_query_case(2, 1, past, [past, past], rotary=1)[1::2]
        given = dict(given)
        if bits:
            quantized_caches(given, attributes, bits, "PER_TENSOR")
        halves = {name: value.astype("f2") for name, value in given.items()
                  if value is not None and value.dtype == "f4" and name not in ("ks", "vs")}
        values = outputs_of(op, [(name, halves.get(name, value).astype("f4")
                                  if name in halves else value)
                                 for name, value in given.items()], outputs, attributes)[2]
        given.update(halves)
        if not past:
            given["pk"] = given["pv"] = None
        model, inputs = one_node_model(op, list(given.items()), outputs, domain="com.microsoft",
                                       opset=17, **attributes)
        yield op, model, inputs, [(name, value.astype("f2") if value.dtype == "f4" else value)
                                  for name, value in values]


def decoder_step():
    """One step over a shared buffer, which is what ONNX Runtime has on CPUs."""
    batch, heads, dim, past = (int(random.integers(*top)) for top in
                               ((1, 4), (1, 6), (1, 40), (0, 300)))
    most, width = past + int(random.integers(1, 30)), heads * dim
    attributes = {"num_heads": heads, "past_present_share_buffer": 1, "output_qk": 1,
                  "mask_filter_value": float(random.choice([-200.0, -3.0]))}
    if random.integers(2):
        attributes["scale"] = 0.3
    bias = normal(int(random.choice([1, batch])), int(random.choice([1, heads])), 1, past + 1)
    given = {"q": normal(batch, 1, width), "k": normal(batch, 1, width),
             "v": normal(batch, 1, width),
             "m": random.integers(-1, 3, (batch, past + 1)).astype("i4"), "s": bias,
             "pk": normal(batch, heads, most, dim), "pv": normal(batch, heads, most, dim),
             "past": ints(past), "beams": ints(1), "from": None, "b": normal(3 * width)}
    for name in ("m", "s", "beams", "b"):
        if random.integers(2):
            given[name] = None
    return past, given, attributes


def with_bias(given):
    """The new key and value as the cache keeps them."""
    heads = given["pk"].shape[1]
    biases = [0, 0] if given["b"] is None else np.split(given["b"], 3)[1:]
    return [(given[name] + bias).reshape(len(given["q"]), heads, 1, -1)
            for name, bias in zip("kv", biases)]


def decoder_models(number):
    """Yields the models of other forms with what the shared buffer gives, too."""
    op = "DecoderMaskedMultiHeadAttention"
    past, given, attributes = decoder_step()
    if number == 0:
        given["m"] = given["s"] = None  # how long qk is, only past_sequence_length says
    model, inputs, values = outputs_of(op, list(given.items()), ["y", "key", "value", "qk"],
                                       attributes)
    yield model, inputs, values
    packed = {**given, "q": np.concatenate([given[name] for name in "qkv"], -1), "k": None,
              "v": None}
    grown = {**given, "pk": np.ascontiguousarray(given["pk"][:, :, :past]),
             "pv": np.ascontiguousarray(given["pv"][:, :, :past]), "past": None}
    cut = [(name, np.ascontiguousarray(value[:, :, :past + 1])
            if name in ("key", "value") else value) for name, value in values]
    cross = {**given, "pk": None, "pv": None, "past": None}
    for name, new in zip("kv", with_bias(given)):
        cross[name] = np.concatenate([grown["p" + name], new], 2)
    apart = {**attributes, "past_present_share_buffer": 0}
    for inputs, outputs, attributes, values in (
            (packed, ["y", "key", "value", "qk"], attributes, values),
            (grown, ["y", "key", "value", "qk"], apart, cut),
            (cross, ["y", "", "", "qk"], apart, [values[0], values[3]])):
        model, inputs = one_node_model(op, list(inputs.items()), outputs,
                                       domain="com.microsoft", opset=17, **attributes)
        for i in range(len(model.graph.output) - 1, -1, -1):
            if model.graph.output[i].name == "":
                del model.graph.output[i]
        yield model, inputs, values


def other_cases():
    angle = normal(16, DIM // 2)
    caches = [("cos", np.cos(angle)), ("sin", np.sin(angle))]
    for interleaved in (0, 1):
        yield ("RotaryEmbedding", [("x", normal(BATCH, TOKENS, WIDTH)),
                                   ("p", np.array([2], "i8"))] + caches, ["y"],
               {"interleaved": interleaved})
    ids = np.tile(np.arange(TOKENS, dtype="i8"), (BATCH, 1))
    yield ("RotaryEmbedding", [("x", normal(BATCH, HEADS, TOKENS, DIM)), ("p", ids)] + caches,
           ["y"], {})
    x, vectors = normal(BATCH, TOKENS, 16), [(name, normal(16)) for name in ("g", "b", "bias")]
    yield ("SkipLayerNormalization", [("x", x), ("s", normal(1, TOKENS, 16))] + vectors, ["y"],
           {"epsilon": 1e-5})
    yield ("SkipSimplifiedLayerNormalization", [("x", x), ("s", normal(*x.shape)), vectors[0],
                                                vectors[2]], ["y"], {"epsilon": 1e-5})
    yield "BiasGelu", [("x", normal(3, 40)), ("b", normal(40))], ["y"], {}
    yield "FastGelu", [("x", normal(3, 40)), ("b", normal(40))], ["y"], {}
    yield ("FusedMatMul", [("a", normal(2, 7, 5)), ("b", normal(2, 6, 7))], ["y"],
           {"transA": 1, "transB": 1, "alpha": 0.3})
    yield ("FusedMatMul", [("a", normal(2, 7, 5)), ("b", normal(5, 6))], ["y"],
           {"transBatchA": 0, "transBatchB": 0, "alpha": 2.0})
    yield "Gelu", [("x", normal(3, 40))], ["y"], {}
    yield "QuickGelu", [("x", normal(3, 40))], ["y"], {"alpha": 1.702}


def integer_product_cases():
    def scales(n):
        return np.asarray(0.01 + 0.01 * random.random(n), "f4")

    for i in range(24):
        m, k, n = (int(random.integers(1, top)) for top in (200, 300, 200))
        a_kind, b_kind = (("u1", "i1"), ("u1", "u1"), ("i1", "i1"))[i % 3]
        batch = ((), (3,), (2, 3))[i // 2 % 3]
        columns = (n,) if i % 5 else ()
        b = ("b", exact_weights(bytes_of(b_kind, k, n)))
        b_zero = ("bz", bytes_of(b_kind, *columns)) if i % 4 else ("bz", None)
        bias = ("bias", normal(n)) if i % 7 else ("bias", None)
        yield ("MatMulIntegerToFloat", [
            ("a", bytes_of(a_kind, *batch, m, k)), b, ("as", scales(())),
            ("bs", scales(columns)), ("az", bytes_of(a_kind)) if i % 3 else ("az", None), b_zero,
            bias], ["y"], {}, None, ("b",) * (i % 2))
        yield ("DynamicQuantizeMatMul", [
            ("a", normal(*batch, m, k) + i % 3), b, ("bs", scales(columns)), b_zero, bias], ["y"],
            {}, None, ("b",) * (i % 2))


def fused_gemm_cases():
    operands = [("a", normal(7, 33)), ("b", normal(33, 20))]
    c, alpha = ("c", normal(20)), {"activation_alpha": 0.3}
    for activation, attributes in (
            ("Relu", {}), ("Tanh", {}), ("Sigmoid", {}), ("LeakyRelu", alpha), ("Elu", alpha),
            ("HardSigmoid", {"activation_beta": 0.4, **alpha}), ("Softplus", {}),
            ("Selu", {"activation_gamma": 1.2, **alpha}), ("Softsign", {}),
            ("ThresholdedRelu", alpha)):
        yield ("FusedGemm", operands + [c], ["y"], {"activation": activation, **attributes})
    yield ("FusedGemm", [("a", normal(33, 7)), ("b", normal(20, 33)), ("c", normal(7, 1))], ["y"],
           {"activation": "Relu", "transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0})
    yield "FusedGemm", operands, ["y"], {"activation": "Tanh"}


def embedding_cases():
    def ids(rows, *shape):
        return random.integers(0, rows, shape).astype("i4")

    words, places, kinds = normal(50, 24), normal(30, 24), normal(2, 24)
    vectors = [("gamma", normal(24)), ("beta", normal(24))]
    op, epsilon = "EmbedLayerNormalization", {"epsilon": 1e-5}
    given = [("ids", ids(50, 3, 9)), ("kinds", ids(2, 3, 9)), ("w", words), ("p", places),
             ("k", kinds)] + vectors
    without = [given[0], ("kinds", None), ("w", words), ("p", places), ("k", None)] + vectors
    mask, positions = ("m", ids(2, 3, 9)), ("at", ids(30, 3, 9))
    yield op, given + [mask], ["y", "n"], epsilon
    yield op, given + [mask, positions], ["y", "n", "sum"], epsilon
    yield op, without, ["y", "n"], epsilon
    yield op, without + [("m", None), ("at", ids(30, 1, 9))], ["y", "n", "sum"], epsilon


def outputs_of(op, inputs, outputs, attributes, constants=()):
    model, given = one_node_model(op, inputs, outputs, constants, domain="com.microsoft",
                                  opset=17, **attributes)
    types = {"n": 6}
    if "kv_cache_bit_width" in attributes:
        types["key"] = types["value"] = 3 if attributes["kv_cache_bit_width"] == 8 else 2
    for info in model.graph.output:
        info.type.tensor_type.elem_type = types.get(info.name, 1)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return model, given, list(zip(outputs, session.run(None, dict(given))))


def quantized_models(folder):
    """Two layers of Attention and a sum, quantized by ONNX Runtime's tool."""
    weights = {}
    for layer in "01":
        weights["w" + layer] = 0.2 * normal(WIDTH, 3 * WIDTH)
        weights["b" + layer] = normal(3 * WIDTH)
    x, mask = normal(BATCH, TOKENS, WIDTH), ints(5, 3)
    nodes = []
    for layer, (to, out) in enumerate((("x", "h"), ("h", "y"))):
        nodes += [helper.make_node("Attention", [to, f"w{layer}", f"b{layer}", "m"],
                                   [f"a{layer}"], domain="com.microsoft", num_heads=HEADS),
                  helper.make_node("Add", [to, f"a{layer}"], [out])]
    infos = [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in
             (("x", 1, x.shape), ("m", 6, mask.shape), ("y", 1, x.shape))]
    graph = helper.make_graph(nodes, "layers", infos[:2], infos[2:],
                              [numpy_helper.from_array(*pair[::-1]) for pair in weights.items()])
    model = helper.make_model(graph, ir_version=9, opset_imports=[
        helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)])
    for columns in (False, True):
        quantize_dynamic(model, f"{folder}/quantized.onnx", per_channel=columns,
                         op_types_to_quantize=["Attention"],
                         reduce_range=not sums_are_exact())
        made = onnx.load(f"{folder}/quantized.onnx")
        assert sum(node.op_type == "QAttention" for node in made.graph.node) == 2
        session = onnxruntime.InferenceSession(made.SerializeToString())
        given = {"x": x, "m": mask}
        yield made, list(given.items()), [("y", session.run(None, given)[0])]


def main():
    with tempfile.TemporaryDirectory() as folder:
        number = 0
        for cases in (attention_cases, merged_cases, quantized_cases, packed_cases,
                      group_query_cases, other_cases, integer_product_cases,
                      fused_gemm_cases, embedding_cases, padded_cases):
            for op, inputs, outputs, attributes, *more in cases():
                apart, constants = (*more, *(None, ())[len(more):])
                model, given, values = outputs_of(op, apart or inputs, outputs, attributes,
                                                  constants)
                if apart:
                    model, given = one_node_model(op, inputs, outputs, constants,
                                                  domain="com.microsoft", opset=17, **attributes)
                # Scores of up to 2^14 are multiples of 2^-10: ONNX Runtime is 3e-4 off there, too.
                write_case(f"{folder}/{number:03}_{op}", model, given, values,
                           "1e-3 5e-4" if cases is padded_cases else "1e-3 1e-4")
                number += 1
        for op, model, given, values in (*group_query_models(), *sliding_models(),
                                         *half_models()):
            write_case(f"{folder}/{number:03}_{op}", model, given, values, "1e-3 1e-4")
            number += 1
        with tempfile.TemporaryDirectory() as work:
            for model, given, values in quantized_models(work):
                write_case(f"{folder}/{number:03}_quantized", model, given, values, "1e-3 1e-4")
                number += 1
        for i in range(12):
            for model, given, values in decoder_models(i):
                write_case(f"{folder}/{number:03}_decoder", model, given, values, "1e-3 1e-4")
                number += 1
        check(sys.argv[1], folder)


main()
