"""Attention under masks that nodes make, as both exporters of PyTorch write it: compared with
ONNX Runtime over lengths around blocks and windows, with and without fusion; and what is
fused: no mask of all pairs is left, near misses stay as they are.
Usage: check_masks.py ATTNRUN [SEED [MODELS]]: MODELS is a folder where exported models stay."""
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from torch.nn import functional as F

from exported import attnrun, differ, export_module, operators, run

HEADS, DIM, ROOM = 3, 8, 512  # the batch is 2
LENGTHS = (1, 7, 64, 65, 200, 333)
LOWEST = torch.finfo(torch.float32).min


def grid(n):
    i = torch.arange(n)
    return i[:, None], i[None]


def band(n, left, right):
    i, j = grid(n)
    return (j - i <= right) & (i - j <= left)


CONSTANTS = {"behind": band(ROOM, 40, 0), "triangle": band(ROOM, ROOM, 0)[None, None],
             "added": torch.zeros(ROOM, ROOM).masked_fill(~band(ROOM, 30, 30), float("-inf")),
             "blocks": grid(ROOM)[0] // 64 == grid(ROOM)[1] // 64}


def sdpa(mask):
    return lambda q, k, v, c, pad: F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask(q.shape[2], c, pad))


def by_hand(scores):
    def attend(q, k, v, c, pad):
        s = q @ k.transpose(-1, -2) * DIM ** -0.5
        return scores(s, q.shape[2], c, pad).softmax(-1) @ v
    return attend


def keys_of(pad):
    return pad[:, None, None, :]


# name: what attends. Each becomes one FusedAttention without a mask of all pairs.
MASKS = {
    "window": sdpa(lambda n, c, pad: (grid(n)[0] - grid(n)[1]).abs() <= 33),
    "behind": sdpa(lambda n, c, pad: band(n, 70, 0)),
    "globals": sdpa(lambda n, c, pad: band(n, 20, 20) | (grid(n)[0] < 3) | (grid(n)[1] < 3)),
    "strided": sdpa(lambda n, c, pad: (grid(n)[1] <= grid(n)[0]) & (
        (grid(n)[0] - grid(n)[1] < 16) | (grid(n)[1] % 32 == 31))),
    "blocks": sdpa(lambda n, c, pad: grid(n)[0] // 48 == grid(n)[1] // 48),
    "triu": sdpa(lambda n, c, pad: torch.triu(torch.full((n, n), float("-inf")), 1)),
    "tril": by_hand(lambda s, n, c, pad: s.masked_fill(
        torch.ones(n, n, dtype=torch.bool).tril(2).logical_not(), float("-inf"))),
    "padded": sdpa(lambda n, c, pad: keys_of(pad) & band(n, 50, 50)),
    "causal_padded": sdpa(lambda n, c, pad: keys_of(pad) & band(n, ROOM, 0)),
    "lowest": by_hand(lambda s, n, c, pad: s + torch.where(
        keys_of(pad) & band(n, ROOM, 0), 0.0, LOWEST)),
    "lowest_twice": by_hand(lambda s, n, c, pad: s + torch.where(
        keys_of(pad), 0.0, LOWEST) + torch.where(band(n, ROOM, 0), 0.0, LOWEST)),
    "filled_lowest": by_hand(lambda s, n, c, pad: s.masked_fill(
        ~(keys_of(pad) & band(n, 9, 0)), LOWEST)),
    "filled_1e4": by_hand(lambda s, n, c, pad: s.masked_fill(
        ~(keys_of(pad) & band(n, 9, 0)), -1e4)),
    "filled_5": by_hand(lambda s, n, c, pad: s.masked_fill(~band(n, 9, 0), -5.0)),
    "past_only": by_hand(lambda s, n, c, pad: s.masked_fill(
        grid(n)[1] >= grid(n)[0], float("-inf"))),  # the first query sees nothing
    "constant": by_hand(lambda s, n, c, pad: torch.where(
        c["behind"][:n, :n], s, torch.tensor(LOWEST))),
    "constant_4d": by_hand(lambda s, n, c, pad: s.masked_fill(
        c["triangle"][:, :, :n, :n] == 0, float("-inf"))),
    "constant_added": by_hand(lambda s, n, c, pad: s + c["added"][:n, :n]),
    "constant_shifted": by_hand(lambda s, n, c, pad: s.masked_fill(
        ~c["behind"][5:5 + n, :n], -1e9)),
    "capped": by_hand(lambda s, n, c, pad: 2 * (s / 2).tanh()),
    "capped_window": by_hand(lambda s, n, c, pad: (2 * (s / 2).tanh()).masked_fill(
        ~band(n, 33, 0), float("-inf"))),
    "capped_padded": by_hand(lambda s, n, c, pad: 2 * (s / 2).tanh() + torch.where(
        keys_of(pad) & band(n, ROOM, 0), 0.0, LOWEST)),
    "capped_sums": by_hand(lambda s, n, c, pad: 2 * (s / 2).tanh() + torch.where(
        keys_of(pad) & band(n, 40, 40), 0.0, -30.0)),
    "slopes": by_hand(lambda s, n, c, pad: s + -0.1 * (grid(n)[0] - grid(n)[1]).abs()
                      + torch.where(band(n, 40, 0), 0.0, float("-inf"))),
}
# A constant that is no band, and a mask that another output reads: they are right, too.
OTHERS = {"constant_blocks": by_hand(lambda s, n, c, pad: torch.where(
    c["blocks"][:n, :n], s, torch.tensor(LOWEST)))}
# Scores that are read elsewhere are not fused.
NEAR_MISSES = {"shown": lambda q, k, v, c, pad: torch.cat(
    [(p := (q @ k.transpose(-1, -2)).masked_fill(~band(q.shape[2], 5, 0), -1e9).softmax(-1))
     @ v, p.sum(-1, keepdim=True)], -1)}


class Attentions(torch.nn.Module):
    def __init__(self, forms):
        super().__init__()
        self.forms = list(forms.values())
        for name, constant in CONSTANTS.items():
            self.register_buffer(name, constant.clone())

    def forward(self, q, k, v, pad):
        constants = dict(self.named_buffers())
        # Scores of its own for each, or one product would be read by all of them.
        return tuple(form(q * (1 + i / 64), k, v, constants, pad)
                     for i, form in enumerate(self.forms))


def inputs_of(n, seed):
    random = np.random.default_rng(seed)
    q, k, v = (random.standard_normal((2, HEADS, n, DIM)).astype("f4") for _ in range(3))
    pad = np.ones((2, n), bool)
    pad[0, n - n // 3:] = False  # behind
    pad[1, :n // 4] = False  # before: queries there see nothing of their own
    return {"q": q, "k": k, "v": v, "pad": pad}


def export(forms, path, dynamo):
    module = Attentions(forms).eval()
    example = tuple(torch.from_numpy(x) for x in inputs_of(48, 0).values())
    export_module(module, example, path, dynamo, {"q": {2: "n"}, "k": {2: "n"}, "v": {2: "n"},
                                                  "pad": {1: "n"}},
                  [f"y_{form}" for form in forms])


def check_values(model, folder, seed):
    failures = []
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    given = [given.name for given in session.get_inputs()]
    for n in LENGTHS:
        inputs = {name: x for name, x in inputs_of(n, seed + n).items() if name in given}
        expected = dict(zip(names, session.run(None, inputs)))
        for options in ((), ("--no-fusion",), ("--isa", "base")):
            found = run(ATTNRUN, model, folder, inputs, *options)
            failures += [f"{model.name} {name}, {n} tokens, seed {seed + n}, {options}: {why}"
                         for name in names if (why := differ(found[name], expected[name]))]
    return failures


def check_too_long(model, folder):
    """Constants that end are an error, as in the file."""
    inputs = inputs_of(ROOM + 1, 0)
    for name, x in inputs.items():
        np.save(folder / f"{name}.npy", x)
    given = [word for name in inputs for word in ("-i", f"{name}={folder / name}.npy")]
    codes = [attnrun(ATTNRUN, "run", model, *given, *options).returncode
             for options in ((), ("--no-fusion",))]
    return [] if codes == [5, 5] else [f"{model.name}: {ROOM + 1} tokens end with {codes}"]


def check_no_tokens(model, folder, names):
    """Outputs without an element; nothing is computed."""
    inputs = {name: x[:, :0] if name == "pad" else x[:, :, :0]
              for name, x in inputs_of(1, 0).items()}
    found = run(ATTNRUN, model, folder, inputs)
    return [f"{model.name} {name}: the shape is {found[name].shape} without tokens"
            for name in names if found[name].shape != (2, HEADS, 0, DIM)]


def check_fused(model, forms):
    found = operators(ATTNRUN, model)
    left = [op for op in found if op in ("Softmax", "Trilu", "Slice", "LessOrEqual", "Not")]
    count = found.get("FusedAttention", 0)
    wrong = [f"{model.name}: {count} of {len(forms)} attentions are fused"] * (
        count != len(forms))
    return wrong + [f"{model.name}: there is still a {op}" for op in left]


def main():
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 17
    failures = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for dynamo in (False, True):
            kind = "dynamo" if dynamo else "script"
            for part, forms in (("masks", MASKS), ("others", OTHERS), ("near", NEAR_MISSES)):
                model = (Path(sys.argv[3]) if len(sys.argv) > 3 else folder) / f"{part}_{kind}.onnx"
                if not model.exists():
                    export(forms, str(model), dynamo)
                failures += check_values(model, folder, seed)
                if part == "masks":
                    failures += check_fused(model, forms)
                    failures += check_too_long(model, folder)
                    failures += check_no_tokens(model, folder, [f"y_{form}" for form in forms])
                if part == "near" and operators(ATTNRUN, model).get("Softmax", 0) != len(forms):
                    failures.append(f"{model.name}: scores that are read were fused")
    for failure in failures:
        print(failure)
    print(f"{len(MASKS) + len(OTHERS) + len(NEAR_MISSES)} forms by two exporters, "
          f"{len(LENGTHS)} lengths, {len(failures)} failures")
    return bool(failures)


if __name__ == "__main__":
    ATTNRUN = sys.argv[1]
    sys.exit(main())
