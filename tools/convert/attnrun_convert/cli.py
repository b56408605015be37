"""attnrun convert, attnrun-convert, python3 -m attnrun_convert: the command line.

Exit codes: 0 ok, 1 results differ, 2 usage, 3 a file cannot be read or written, 4 not
supported, 70 the exporter failed.
"""
import argparse
import importlib
import importlib.util
import sys
from pathlib import Path

from .errors import ConvertError, FileError, UsageError

USAGE = """\
From PyTorch to an ONNX file whose attention is operators of attnrun, each with a body for
other runtimes. Ends with a proof: the file against the source at three sizes.

SOURCE is one of
  pkg.module:factory   factory() gives a torch.nn.Module, or (module, example arguments);
  file.py:factory      its code is run
  model.pt2            a saved torch.export program
  model.onnx           a file in which decomposed attention is replaced (--fuse)
or --hf, --timm, --torchvision in its place.
"""
NEEDED = "torch, onnx, onnxscript, onnx-ir and numpy"


def parser():
    p = argparse.ArgumentParser(
        prog="attnrun convert", description=USAGE,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("source", metavar="SOURCE", nargs="?")
    p.add_argument("--hf", metavar="CLASS:PATH",
                   help="a model of transformers with inputs of its own: a class and its "
                        "config.json, or a local folder (then CLASS: may be left out)")
    p.add_argument("--part", choices=("whole", "encoder", "decoder"), default="whole",
                   help="of --hf: the encoder; or steps of the decoder, whose cache is inputs "
                        "past_… and outputs present_…")
    p.add_argument("--timm", metavar="NAME", help="a model of timm")
    p.add_argument("--torchvision", metavar="NAME", help="a model of torchvision")
    p.add_argument("--known", action="store_true",
                   help="list the classes that are known, and what becomes of them")
    p.add_argument("--dtype", choices=("float32", "float16", "bfloat16"),
                   help="convert a module in this type: weights, inputs and results")
    p.add_argument("-o", "--output", metavar="FILE", help="the file to write (model.onnx)",
                   default="model.onnx")
    p.add_argument("--example", metavar="SPEC", action="append", default=[],
                   help="an input: ids=int64[1,S], x=float32[B,16,H,W]=zeros, x=@x.npy")
    p.add_argument("--size", metavar="NAME=N", action="append", default=[],
                   help="size of a name in the example (2 on axis 0, else 64), also of an "
                        ".onnx file")
    p.add_argument("--fix", metavar="NAMES", help="sizes by name that are not free, after all, "
                   "but those of the example: seq,past")
    p.add_argument("--dynamic", metavar="SPEC", action="append", default=[],
                   help="free axes of an input with a fixed example: x:0=batch,1=seq")
    p.add_argument("--opset", type=int, metavar="N", help="of ai.onnx (25)")
    p.add_argument("--moduleop", metavar="SPEC", action="append", default=[],
                   help="a class of your own: pkg.Class=attnrun::Op(q, k, v, attr=value)")
    p.add_argument("--no-swap", action="store_true", help="leave known modules as they are")
    p.add_argument("--fuse", action="store_true", help="replace decomposed attention")
    p.add_argument("--plain", metavar="FILE", help="also a copy without functions")
    p.add_argument("--vectors", metavar="DIR", help="also a test folder for attnrun check")
    p.add_argument("--report", metavar="FILE", help="also what was done, as JSON")
    p.add_argument("--output-names", metavar="A,B", help="names of the results")
    p.add_argument("--external-data", choices=("auto", "yes", "no"), default="auto",
                   help="weights in FILE.data (auto: over 1 GiB)")
    p.add_argument("--check", metavar="WITH", default="attnrun,onnxruntime",
                   help="runtimes of the proof, those that are here; none for no proof")
    p.add_argument("--at", metavar="SIZES", action="append", default=[],
                   help="sizes of the proof beside the example's: --at batch=3,seq=71")
    p.add_argument("--rtol", type=float, metavar="X", help="relative tolerance (1e-3)")
    p.add_argument("--atol", type=float, metavar="X", help="absolute tolerance (1e-4)")
    p.add_argument("--seed", type=int, default=0, metavar="N", help="of made-up inputs (0)")
    p.add_argument("--attnrun", metavar="PATH", help="the attnrun of the proof")
    p.add_argument("--allow-random", action="store_true",
                   help="let the graph make random numbers")
    p.add_argument("--keep-metadata", action="store_true",
                   help="keep the exporter's module paths and stack traces")
    p.add_argument("--explain", action="store_true",
                   help="say what would be replaced, write nothing")
    p.add_argument("-q", "--quiet", action="store_true")
    p.add_argument("-v", "--verbose", action="store_true", help="show where a fault is")
    return p


def _pairs(text, option):
    """{name: whole number} of a=1,b=2"""
    found = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals or not value.strip().isdigit():
            raise UsageError(f"{option} '{text}' is not of the form name=number,…")
        found[name.strip()] = int(value)
    return found


def _sizes(args):
    sizes = {}
    for text in args.size:
        sizes.update(_pairs(text, "--size"))
    return sizes


def _axes(lines):
    """{input: {axis: name}} of x:0=batch,1=seq"""
    found = {}
    for line in lines:
        name, colon, rest = line.partition(":")
        axes = dict(part.partition("=")[::2] for part in rest.split(","))
        if not colon or not all(a.lstrip("-").isdigit() and w for a, w in axes.items()):
            raise UsageError(f"--dynamic '{line}' is not of the form input:axis=name,…")
        found.setdefault(name, {}).update({int(a): w for a, w in axes.items()})
    return found


def options_of(args):
    external = {"auto": None, "yes": True, "no": False}[args.external_data]
    check = () if args.check == "none" else tuple(filter(None, args.check.split(",")))
    given = {"output": args.output, "plain": args.plain, "vectors": args.vectors,
             "report": args.report, "external_data": external, "check": check,
             "attnrun": args.attnrun, "seed": args.seed, "swap": not args.no_swap,
             "sizes": _sizes(args), "moduleop": tuple(args.moduleop), "fuse": args.fuse,
             "quiet": args.quiet,
             "allow_random": args.allow_random, "keep_metadata": args.keep_metadata,
             "trials": [_pairs(text, "--at") for text in args.at] or None}
    if args.output_names:
        given["output_names"] = args.output_names.split(",")
    for name in ("opset", "rtol", "atol"):
        if getattr(args, name) is not None:
            given[name] = getattr(args, name)
    return given


def _import(place):
    """The module of the factory, from a file or by name."""
    try:
        if place.endswith(".py"):
            path = Path(place).resolve()
            if not path.is_file():
                raise FileError(f"cannot read {place}: there is no such file")
            sys.path.insert(0, str(path.parent))
            spec = importlib.util.spec_from_file_location(path.stem, path)
            module = importlib.util.module_from_spec(spec)
            sys.modules.setdefault(path.stem, module)
            spec.loader.exec_module(module)
            return module
        sys.path.insert(0, "")
        return importlib.import_module(place)
    except FileError:
        raise
    except Exception as error:
        raise UsageError(f"cannot import {place}: {type(error).__name__}: {error}") from error


def from_factory(source):
    """(module, example arguments or None)"""
    place, _, name = source.rpartition(":")
    factory = getattr(_import(place), name, None)
    if not callable(factory):
        raise UsageError(f"{place} has no function '{name}'")
    try:
        made = factory()
    except Exception as error:
        from .capture import sentence
        raise UsageError(f"{source}() fails: {sentence(error)}") from error
    return made if isinstance(made, tuple) else (made, None)


def _program(path):
    import torch

    from . import capture
    if not Path(path).is_file():
        raise FileError(f"cannot read {path}: there is no such file")
    try:
        with capture.quiet():
            return torch.export.load(path)
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0]
        raise FileError(f"cannot read {path} as a torch.export program: {reason}; if it "
                        "holds operators of a library of yours, import that first (convert "
                        "from Python)") from error


def _convert_factory(args, given):
    from . import examples, pipeline, torch_source
    module, example, dynamic = _module(args)
    torch_source.refuse_no_module(module)
    arguments, axes, ids = examples.parse(args.example, _sizes(args), args.seed)
    if not arguments and example is None:
        raise UsageError("there are no example inputs: say --example name=dtype[dims] for "
                         "each, or let the factory give (module, arguments)")
    if arguments:
        examples.fill_ids(module, arguments, ids, args.seed)
        example, dynamic = arguments, axes
    for name, more in _axes(args.dynamic).items():
        dynamic.setdefault(name, {}).update(more)
    if args.fix:
        dynamic = _fixed(example, dynamic, args.fix.split(","))
    if args.dtype:
        example = torch_source.in_type(module, example, args.dtype)
    if args.explain:
        return _explain(module, example, given)
    return pipeline.convert(module, example, dynamic=dynamic, **given)


def _module(args):
    """(module, example arguments or None, names of its axes)"""
    from . import by_name

    def say(line):
        if not args.quiet:
            print(line, flush=True)
    if args.part != "whole" and not args.hf:
        raise UsageError("--part speaks of a model of --hf")
    if args.hf:
        return by_name.of_transformers(args.hf, args.part, _sizes(args), args.seed, say)
    if args.timm:
        return by_name.of_timm(args.timm, _sizes(args), args.seed, say)
    if args.torchvision:
        return by_name.of_torchvision(args.torchvision, _sizes(args), args.seed, say)
    return *from_factory(args.source), {}


def _fixed(example, dynamic, words):
    from . import capture, cases
    arguments = example if isinstance(example, dict) else {}
    tensors = dict(zip(capture.flat_names(arguments), cases.tensors_in(arguments)))
    sizes = cases.sizes_of(tensors, dynamic)
    for word in words:
        if word not in sizes:
            raise UsageError(f"--fix names '{word}', but the free sizes are "
                             f"{', '.join(sorted(sizes)) or 'none'}")
    return cases.with_fixed(dynamic, {word: sizes[word] for word in words})


def _known():
    """The classes that adapters know, and the operators that they become."""
    from . import registry
    rows = sorted((name, kind.operator) for kind in registry.load() for name in kind.names)
    width = max(len(name) for name, _ in rows)
    print(*(f"{name:{width}}  {operator}" for name, operator in rows), sep="\n")
    print("\nA name without a package speaks of every class that is called so. What a class is "
          "called decides nothing: structure and a numeric probe do. Of any class, the exported "
          "graph is searched, too: bands of attention and the gates of CBAM. Linear attention, "
          "SqueezeExcite and other forms are recognised when attnrun loads the file.")


def _explain(module, example, given):
    from . import pipeline, torch_source
    options = pipeline.options_of(given)
    plan = torch_source.of(module, example, None, None, options).plan()
    print(*plan.lines(True) or ["no known module"], sep="\n")
    plan.close()


def run(args):
    if args.known:
        return _known()
    given = options_of(args)
    sources = [s for s in (args.source, args.hf, args.timm, args.torchvision) if s]
    if len(sources) != 1:
        raise UsageError("say one SOURCE, or one of --hf, --timm, --torchvision; --help lists "
                         "them" if not sources else
                         f"there is more than one source: {', '.join(sources)}")
    if not args.source:
        return _wrote(_convert_factory(args, given), args)
    if args.source.endswith(".onnx"):
        if not args.fuse:
            raise UsageError(f"{args.source} is an ONNX file: say --fuse to replace "
                             "decomposed attention in it")
        from . import onnx_source
        path = onnx_source.convert(args.source, given)
    elif args.source.endswith(".pt2"):
        from . import pipeline
        path = pipeline.convert(_program(args.source), dynamic=_axes(args.dynamic), **given)
    elif ":" in args.source:
        path = _convert_factory(args, given)
    else:
        raise UsageError(f"'{args.source}' is none of pkg.module:factory, file.py:factory, "
                         "model.pt2, model.onnx")
    return _wrote(path, args)


def _wrote(path, args):
    if path is not None and not args.quiet:
        print(f"wrote {path}")


def main(argv=None):
    args = parser().parse_args(argv)
    try:
        run(args)
        return 0
    except ConvertError as error:
        print(f"attnrun convert: {error}", file=sys.stderr)
        return error.code
    except ModuleNotFoundError as error:
        print(f"attnrun convert: the Python package '{error.name}' is missing; the converter "
              f"needs {NEEDED}: python3 -m pip install torch onnx onnxscript onnx-ir numpy",
              file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001 - the last place that can say it
        if args.verbose:
            raise
        print(f"attnrun convert: a fault of the converter: {type(error).__name__}: {error} "
              "(--verbose shows where)", file=sys.stderr)
        return 70
