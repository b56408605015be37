"""Mechanisms of attention as modules, exported by both exporters of PyTorch: what they become, and
that they give what ONNX Runtime does. MODULE (forms_windows, forms_features, …) has
  KNOWN     operators that a file of it may become
  BY_TORCH  what they give is what the module gives, not ONNX Runtime
  SHORT     {name: exporter}: what runs without --full
  FORMS     {name: (module, inputs, shape, axis of the lengths, lengths, exporters, operator)};
            without lengths the file has fixed sizes, without an operator it becomes none of KNOWN
Usage: check_forms.py ATTNRUN MODULE [--full] [SEED]"""
import importlib
import sys
import tempfile
from pathlib import Path

from recognise import EXPORTERS, check_form


def main():
    program, forms = sys.argv[1], importlib.import_module(sys.argv[2])
    full, seeds = "--full" in sys.argv, [int(word) for word in sys.argv[3:] if word.isdigit()]
    failures, n = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for name, form in forms.FORMS.items():
            module, inputs, shape, axis, lengths, exporters, operator = form
            for exporter in exporters if full else forms.SHORT.get(name, ""):
                n += 1
                failures += check_form(program, Path(folder), name, module, inputs, shape,
                                       {axis: "n"} if lengths else {}, lengths,
                                       EXPORTERS[exporter], forms.KNOWN, operator,
                                       (seeds + [29])[0], getattr(forms, "BY_TORCH", False))
    print("\n".join(failures + [f"{n} models, {len(failures)} failures"]))
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
