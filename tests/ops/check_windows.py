"""Attention in blocks beside their neighbours, exported by both exporters of PyTorch: see
forms_windows.py. With --full all forms, else one of each kind.
Usage: check_windows.py ATTNRUN [--full] [SEED]"""
import sys
import tempfile
from pathlib import Path

from forms_windows import CHUNKED, FORMS, LOCAL
from recognise import EXPORTERS, check_form

SHORT = {"stock_exact": "d", "blocks_joined": "d", "band": "s", "causal_band": "s",
         "too_wide": "s", "read_twice": "s", "small_fill": "d"}


def main():
    full, seeds = "--full" in sys.argv, [int(word) for word in sys.argv[2:] if word.isdigit()]
    failures, n = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for name, (module, shape, lengths, exporters, operator) in FORMS.items():
            for exporter in exporters if full else SHORT.get(name, ""):
                n += 1
                failures += check_form(sys.argv[1], Path(folder), name, module, ("q", "k", "v"),
                                       shape, {2: "n"} if lengths else {}, lengths,
                                       EXPORTERS[exporter], (LOCAL, CHUNKED, "FusedAttention"),
                                       operator, (seeds + [29])[0])
    print("\n".join(failures + [f"{n} models, {len(failures)} failures"]))
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
