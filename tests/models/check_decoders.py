#!/usr/bin/env python3
"""Language models of onnxruntime_genai's model builder in attnrun, prompt and single tokens.

usage: check_decoders.py FOLDER DECODE [NAME...]

Makes each model of decoders.py below FOLDER and runs it greedily on two prompts
  - with the past as inputs and outputs, and as states, which must agree in every bit;
  - with the prompt in chunks of five tokens;
  - with one of both prompts shorter, behind it padding that its mask leaves out,
    where the layers keep nothing but keys and values.
The fp32 file gives the tokens of transformers on the same weights, step by step computed
without a cache, and logits within 2e-5 of the largest. The other files are compared with
ONNX Runtime, by the same tokens: fp16 within 1e-2, weights of 4 and 8 bits within 2e-5, or
4e-2 where QMoE computes with activations of bytes there. accuracy_level 4 may be as far from
accuracy_level 1 as ONNX Runtime is.

DECODE (tools/examples/decode.c) prints the greedy tokens of the fp32 and int4 files, ends where
the model does, and draws each of the likeliest tokens as often as its probability says.
"""
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

import attnrun
import decoders

SEED, PROMPT, STEPS = 3, 11, 10
DTYPES = {1: np.float32, 10: np.float16}
# The builder makes a root mean square norm of OLMo's layer norm, and leaves windows, sinks and
# layers without rotation out where it cannot use GroupQueryAttention, as in f16: there is no
# reference but ONNX Runtime for such files.
NOT_TRANSFORMERS = {"olmo"}


class File:
    def __init__(self, folder):
        self.path = str(folder / "model.onnx")
        self.head = decoders.decoder_config(folder)["head_size"]
        graph = onnx.load(self.path, load_external_data=False).graph
        constants = {x.name for x in graph.initializer}
        self.inputs = [x for x in graph.input if x.name not in constants]
        self.past = {x.name: x.name.replace("past_key_values", "past").replace("past", "present")
                     for x in self.inputs if x.name.startswith("past")}
        self.slides = any(a.name == "sliding_window_cache" for n in graph.node
                          for a in n.attribute)
        self.mixture = any(n.op_type == "QMoE" for n in graph.node)
        self.only_keys = all(name.endswith((".key", ".value")) for name in self.past)

    def empty(self, value, batch):
        sizes = {"batch_size": batch, "kv_cache_dim": self.head,
                 "past_sliding_length": decoders.WINDOW if self.slides else 0}
        tensor = value.type.tensor_type
        dims = [d.dim_value or sizes.get(d.dim_param, 0) for d in tensor.shape.dim]
        return np.zeros(dims, DTYPES[tensor.elem_type])

    def feed(self, ids, mask, past):
        batch, n = ids.shape
        fed = {}
        for value in self.inputs:
            if value.name == "input_ids":
                fed[value.name] = ids
            elif value.name == "attention_mask":
                fed[value.name] = mask
            elif value.name == "position_ids":
                total = mask.shape[1]
                dims = [d.dim_value for d in value.type.tensor_type.shape.dim]
                shape = (3, batch, n) if len(dims) == 3 else (batch, n)
                fed[value.name] = np.ascontiguousarray(
                    np.broadcast_to(np.arange(total - n, total), shape))
            elif past is None:
                fed[value.name] = self.empty(value, batch)
            elif value.name in past:
                fed[value.name] = past[value.name]
        return fed


def split(ids, chunk):
    return [ids[:, i:i + chunk] for i in range(0, ids.shape[1], chunk)]


def plain(run, file, ids, tokens=None, chunk=PROMPT):
    """Logits of each step; the next token is the greedy one, or that of `tokens`."""
    past, total, made, pieces = None, 0, [], split(ids, chunk)
    while len(made) < STEPS:
        piece = pieces.pop(0)
        total += piece.shape[1]
        mask = np.ones((ids.shape[0], total), np.int64)
        out = run(file.feed(piece, mask, past))
        past = {name: out[present] for name, present in file.past.items()}
        if not pieces:
            logits = np.asarray(out["logits"][:, -1], np.float32)
            pieces.append(logits.argmax(-1)[:, None] if tokens is None
                          else tokens[len(made)])
            made.append(logits)
    return made


def with_states(model, file, ids, lengths=None):
    """As plain(), the past in states; `lengths`: how much of each prompt there is."""
    context = model.context()
    for name, present in file.past.items():
        context.add_state(name, present)
    batch, lengths = ids.shape[0], lengths or [ids.shape[1]] * ids.shape[0]
    lengths, total, made, piece = np.array(lengths), ids.shape[1], [], ids
    while len(made) < STEPS:
        mask = (np.arange(total) < lengths[:, None]).astype(np.int64)
        out = context.run(file.feed(piece, mask, {} if made else None))
        last = lengths - 1 if not made else np.zeros(batch, int)
        made.append(np.asarray(out["logits"][np.arange(batch), last], np.float32))
        piece = made[-1].argmax(-1)[:, None]
        lengths, total = lengths + 1, max(lengths) + 1
    return made


def transformers_logits(folder, ids):
    import torch
    import transformers
    transformers.utils.logging.disable_progress_bar()
    config = transformers.AutoConfig.from_pretrained(folder)
    network = getattr(transformers, config.architectures[0]).from_pretrained(
        folder, attn_implementation="eager").eval()
    made = []
    with torch.no_grad():
        all_ids = torch.tensor(ids)
        for _ in range(STEPS):
            logits = network(input_ids=all_ids).logits[:, -1]
            all_ids = torch.cat([all_ids, logits.argmax(-1)[:, None]], 1)
            made.append(logits.numpy())
    return made


def onnxruntime_run(file):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.enable_mem_reuse = False  # it reuses memory of the shapes of another run
    session = onnxruntime.InferenceSession(file.path, options, ["CPUExecutionProvider"])
    names = [x.name for x in session.get_outputs()]
    return lambda fed: dict(zip(names, session.run(names, fed)))


class Check:
    def __init__(self):
        self.passed, self.wrong = 0, []

    def at_most(self, what, difference, bound):
        if difference <= bound:
            self.passed += 1
        else:
            self.wrong.append(f"{what}: {difference:.3g}, at most {bound:.3g} (seed {SEED})")


def difference(a, b):
    return max(float(np.abs(x - y).max()) for x, y in zip(a, b, strict=True))


def tokens_of(logits):
    return [x.argmax(-1)[:, None] for x in logits]


def check_ways(check, what, model, file, ids, ours, scale):
    """The other ways to run what plain() ran."""
    check.at_most(f"{what}, states", difference(ours, with_states(model, file, ids)), 0)
    chunks = plain(lambda fed: model(**fed), file, ids, tokens_of(ours), chunk=5)
    check.at_most(f"{what}, chunks", difference(ours, chunks), 2e-5 * scale)
    if not file.only_keys or file.slides:
        return
    cut = PROMPT - 4
    together = with_states(model, file, ids, [PROMPT, cut])
    for i, length in enumerate([PROMPT, cut]):
        alone = with_states(model, file, ids[i:i + 1, :length])
        check.at_most(f"{what}, prompt {i} of different lengths",
                      difference([x[i:i + 1] for x in together], alone), 2e-5 * scale)


def decoded(decode, folder, ids, *options):
    done = subprocess.run([decode, str(folder), *map(str, options)], text=True,
                          input=" ".join(map(str, ids)), capture_output=True, check=True)
    if "tokens/s" not in done.stderr:
        raise RuntimeError(f"no speed in {done.stderr!r}")
    return [int(line) for line in done.stdout.split()]


def until_end(tokens, end=2):
    return tokens[:tokens.index(end)] if end in tokens else tokens


def check_example(check, what, decode, folder, ids, ours):
    for row in range(2):
        wanted = until_end([int(x[row, 0]) for x in tokens_of(ours)])
        got = decoded(decode, folder, ids[row], "--tokens", STEPS, "--chunk", 4)
        check.at_most(f"{what}, decode gives {got}, not {wanted}", int(got != wanted), 0)


def check_sampling(check, what, decode, folder, ids, logits, draws=150, top=3):
    """Counts of a first token within 5 standard deviations of their expectation."""
    best = np.argsort(-logits)[:top]
    chances = np.exp((logits[best] - logits[best[0]]).astype("f8") / 2)
    chances /= chances.sum()
    drawn = np.array([decoded(decode, folder, ids, "--tokens", 1, "--temperature", 2,
                              "--top-k", top, "--seed", seed + 1)[0] for seed in range(draws)])
    counts = np.array([(drawn == token).sum() for token in best])
    check.at_most(f"{what}, draws beyond the {top} likeliest", draws - counts.sum(), 0)
    spread = np.sqrt(draws * chances * (1 - chances))
    check.at_most(f"{what}, draws {counts} of {chances}, standard deviations",
                  float((abs(counts - draws * chances) / spread).max()), 5)


def check_wrapper(check, decode, folder):
    """decode.py has the tokenizer's text around the same tokens."""
    script = Path(__file__).parents[2] / "tools" / "examples" / "decode.py"
    words = ["w5", "w9", "w17"]
    done = subprocess.run([sys.executable, str(script), decode, str(folder), " ".join(words),
                           "--tokens", "6"], capture_output=True, text=True, check=True,
                          env=os.environ)
    ids = decoded(decode, folder, [5, 9, 17], "--tokens", 6)
    wanted = " ".join(f"w{token}" for token in ids if token > 2)
    check.at_most(f"decode.py printed {done.stdout!r}, not {wanted!r}",
                  int(done.stdout.strip() != wanted), 0)


def check_family(check, folder, name, decode):
    decoders.make(folder, name)
    ids = np.random.default_rng(SEED).integers(3, decoders.VOCABULARY, (2, PROMPT))
    exact = transformers_logits(folder / "hf", ids)
    scale = max(np.abs(x).max() for x in exact)
    four = None
    for kind in decoders.KINDS:
        what, file = f"{name} {kind}", File(folder / kind)
        model, peer = attnrun.Model(file.path), onnxruntime_run(file)
        ours = plain(lambda fed, model=model: model(**fed), file, ids)
        theirs = plain(peer, file, ids, tokens_of(ours))
        apart = difference(ours, theirs)
        if kind == "fp32" and name not in NOT_TRANSFORMERS:
            check.at_most(f"{what}, transformers", difference(ours, exact), 2e-5 * scale)
            same = all((a == b).all() for a, b in zip(tokens_of(ours), tokens_of(exact)))
            check.at_most(f"{what}, tokens that differ", 0 if same else 1, 0)
        if kind == "int4":
            four = File(folder / kind), attnrun.Model(file.path)
        if kind == "int4_bytes":
            level_1 = plain(lambda fed: four[1](**fed), four[0], ids, tokens_of(ours))
            check.at_most(f"{what}, accuracy_level 1", difference(ours, level_1),
                          1.5 * difference(theirs, level_1) + 2e-5 * scale)
        else:
            bound = {"fp16": 1e-2}.get(kind, 2e-5)
            if kind == "int8" and file.mixture:
                bound = 4e-2
            check.at_most(f"{what}, ONNX Runtime", apart, bound * scale)
        if kind in ("fp32", "int4"):
            check_example(check, what, decode, folder / kind, ids, ours)
        if (name, kind) == ("llama", "fp32"):
            check_sampling(check, what, decode, folder / kind, ids[0], ours[0][0])
            check_wrapper(check, decode, folder / kind)
        if kind != "fp16" or file.slides:
            check_ways(check, what, model, file, ids, ours, scale)


def main():
    folder, decode = Path(sys.argv[1]), sys.argv[2]
    names = sys.argv[3:] or list(decoders.FAMILIES)
    check = Check()
    for name in names:
        started, before = time.monotonic(), len(check.wrong)
        check_family(check, folder / name, name, decode)
        print(f"{name}: {'wrong' if len(check.wrong) > before else 'ok'}, "
              f"{time.monotonic() - started:.1f} s", flush=True)
    for sentence in check.wrong:
        print(f"FAIL {sentence}")
    print(f"{check.passed} passed, {len(check.wrong)} failed")
    return 1 if check.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
