"""Models that rewrite passes change, or nearly so, as a corpus of fuzz_graphs --forms: the graphs
of tests/ops/check_near_misses.py, and the forms of tests/ops/forms_*.py by both exporters. Each is
a folder with a model.onnx; what is there already is kept. A MODULE is near_misses, forms_windows,
forms_features, or another one; without any it is all of them, which takes some minutes.
Usage: forms.py FOLDER [MODULE...]"""
import importlib
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "ops")]
import check_near_misses  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from exported import export_module  # noqa: E402
from recognise import EXPORTERS  # noqa: E402

SEED, LARGEST = 29, 1 << 18  # fuzz_graphs leaves out larger files
# Elu (x - 7) + 1 has few digits in f32, but for the fused operator, which computes it as one
# function; farther from 0 none are left to be compared. Those of forms_features have other numbers.
INEXACT = {"linear_attention"}


def small_file(path, make):
    """Whether there is a file now, which is small enough to be changed quickly."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        make(path)
        if path.stat().st_size > LARGEST:
            path.unlink()
    return path.exists()


def near_misses(folder):
    numbers = np.random.default_rng(SEED)
    for name, (shape, right, misses) in check_near_misses.ROWS.items():
        if name in INEXACT:
            continue
        texts = [*(right if isinstance(right, tuple) else (right,)), *misses]
        for k, text in enumerate(texts):
            yield small_file(folder / f"{name}_{k}" / "model.onnx",
                             lambda path: check_near_misses.write(path, shape, text, numbers))


def exported(folder, forms):
    for name, (module, inputs, shape, axis, lengths, exporters, _) in forms.FORMS.items():
        torch.manual_seed(SEED)
        for parameter in module.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        axes = {each: {axis: "n"} if lengths else {} for each in inputs}
        for exporter in exporters:
            yield small_file(
                folder / f"{name}_{exporter}" / "model.onnx",
                lambda path: export_module(
                    module.eval(), tuple(map(torch.randn, [shape] * len(axes))), str(path),
                    EXPORTERS[exporter], axes, ["y"]))


def main():
    folder, *names = sys.argv[1:]
    names = names or ["near_misses", *sorted(p.stem for p in TESTS.glob("ops/forms_*.py"))]
    for name in names:
        below = Path(folder) / name
        made = list(near_misses(below) if name == "near_misses"
                    else exported(below, importlib.import_module(name)))
        print(f"{name}: {sum(made)} of {len(made)} files", flush=True)


if __name__ == "__main__":
    main()
