#!/usr/bin/env python3
"""Make models/gallery.html: what a query sees, in each system that models/*.yaml describe.

usage: gallery.py [--attnrun BINARY] [--draw [MODEL,…]] [--measure [CASE,…]] [--rounds 5]
                  [--figures models/gallery.json] [-o models/gallery.html]

The page is made of the descriptions and of gallery.json alone. --draw runs the operators
and renews the pictures in it, --measure times them and renews time and memory: all, or
those whose names hold one of the words.
"""
import argparse
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import page  # noqa: E402

MODELS = HERE.parents[1] / "models"
EXECUTABLE = HERE.parents[1] / "build" / "release" / "attnrun"


def chosen(names, words):
    words = [word for word in words.split(",") if word]
    return [name for name in dict.fromkeys(names) if not words or
            any(word.lower() in name.lower() for word in words)]


def draw(attnrun, models, stored):
    """Pictures of these models, and the cost that attnrun names of each operator."""
    import picture
    from operators import Runner, costs
    stored["costs"] = costs(attnrun, {name for model in page.described().values()
                                      for name in page.operators(model)})
    patterns, runner = stored.setdefault("patterns", {}), Runner(attnrun)
    for model, found in models.items():
        patterns[model] = [picture.stored(one) for one in found.system.pictures(runner)]
        print(f"{model}: {len(patterns[model])} pictures", flush=True)
    stored["patterns"] = dict(sorted(patterns.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--attnrun", default=str(EXECUTABLE))
    parser.add_argument("-o", dest="out", type=Path, default=MODELS / "gallery.html")
    parser.add_argument("--figures", type=Path, default=MODELS / "gallery.json")
    parser.add_argument("--draw", nargs="?", const="", default=None)
    parser.add_argument("--measure", nargs="?", const="", default=None)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    try:
        models = page.described()
    except LookupError as unknown:
        sys.exit(f"gallery.py: {unknown}")
    stored = json.loads(args.figures.read_text("utf-8")) if args.figures.exists() else {}
    if args.draw is not None:
        draw(args.attnrun, {name: models[name] for name in chosen(models, args.draw)}, stored)
    if args.measure is not None:
        import measure
        if not args.measure:
            stored.pop("measured", None)
        cases = [case for model in models.values() for case in model.system.cases]
        measure.measure(args.attnrun, chosen(cases, args.measure), args.rounds, stored)
    if args.draw is not None or args.measure is not None:
        args.figures.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n",
                                "utf-8")
    try:
        text = page.page(models, stored)
    except KeyError as missing:
        sys.exit(f"gallery.py: {args.figures.name} has no {missing}: see --draw, --measure")
    args.out.write_text(text, "utf-8")
    print(f"{args.out.name}: {len(models)} systems, {args.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
