"""attnrun convert, attnrun-convert, python3 -m attnrun_convert: the command line.

Exit codes: 0 ok, 1 results differ, 2 usage, 3 a file cannot be read or written, 4 not
supported, 70 the exporter failed.
"""
import argparse
import importlib
import importlib.util
import sys
from pathlib import Path

from .errors import ConvertError, FileError, UsageError, demand_known, nearest

USAGE = """\
Exports a PyTorch module to an ONNX file. Attention modules that the converter
recognises become operators of attnrun. Each of them carries a body in plain
ONNX for other runtimes. At the end, the converter runs the file and its source
at three sizes and compares the results.

SOURCE is one of these:
  pkg.module:factory   factory() returns a torch.nn.Module, or a module and its
                       example arguments
  file.py:factory      the same; the file is run
  model.pt2            a saved torch.export program
  model.onnx           an ONNX file in which decomposed attention is replaced
                       (needs --fuse)
The options --hf, --timm and --torchvision take the place of SOURCE.
"""
NEEDED = "torch, onnx, onnxscript, onnx-ir and numpy"


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise UsageError(f"{message} (see --help)")


def parser():
    p = Parser(
        prog="attnrun convert", description=USAGE,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("source", metavar="SOURCE", nargs="?")
    p.add_argument("--hf", metavar="CLASS:PATH",
                   help="convert a model of Hugging Face transformers, with example inputs made "
                        "for it: a class and its config.json, or a local folder (where CLASS: "
                        "is optional)")
    p.add_argument("--part", choices=("whole", "encoder", "decoder"), default="whole",
                   help="the part of the --hf model to convert: all of it, the encoder, or one "
                        "step of the decoder. The decoder's cache becomes inputs past_… and "
                        "outputs present_…")
    p.add_argument("--timm", metavar="NAME", help="convert a model of timm")
    p.add_argument("--torchvision", metavar="NAME", help="convert a model of torchvision")
    p.add_argument("--known", action="store_true",
                   help="list the classes that the converter recognises, and the operators "
                        "that they become")
    p.add_argument("--dtype", choices=("float32", "float16", "bfloat16"),
                   help="convert the module in this type: its weights, inputs and results")
    p.add_argument("-o", "--output", metavar="FILE", help="the file to write (default: model.onnx)",
                   default="model.onnx")
    p.add_argument("--example", metavar="SPEC", action="append", default=[],
                   help="an example input: ids=int64[1,S], x=float32[B,16,H,W]=zeros, x=@x.npy. "
                        "Letters are free sizes. Repeat the option for each input")
    p.add_argument("--size", metavar="NAME=N", action="append", default=[],
                   help="the size of a free dimension in the example, or in an .onnx file "
                        "(default: 2 on axis 0, else 64)")
    p.add_argument("--fix", metavar="NAMES", help="dimensions that keep the sizes of the example: "
                   "seq,past")
    p.add_argument("--dynamic", metavar="SPEC", action="append", default=[],
                   help="the free axes of an input, with their names: x:0=batch,1=seq")
    p.add_argument("--opset", type=int, metavar="N", help="the opset of ai.onnx (default: 25)")
    p.add_argument("--moduleop", metavar="SPEC", action="append", default=[],
                   help="the operator that a class of your own becomes: "
                        "pkg.Class=attnrun::Op(q, k, v, attr=value)")
    p.add_argument("--no-swap", action="store_true", help="keep recognised modules as they are")
    p.add_argument("--fuse", action="store_true", help="replace decomposed attention by operators")
    p.add_argument("--plain", metavar="FILE", help="also write a copy without functions")
    p.add_argument("--vectors", metavar="DIR", help="also write a folder of inputs and outputs for "
                        "attnrun check")
    p.add_argument("--report", metavar="FILE", help="also write what was done, as JSON")
    p.add_argument("--output-names", metavar="A,B", help="the names of the outputs")
    p.add_argument("--external-data", choices=("auto", "yes", "no"), default="auto",
                   help="write the weights to FILE.data (auto: if they exceed 1 GiB)")
    p.add_argument("--check", metavar="WITH", default="attnrun,onnxruntime",
                   help="the runtimes that check the file, where they are installed (default: "
                        "attnrun,onnxruntime); none skips the check")
    p.add_argument("--at", metavar="SIZES", action="append", default=[],
                   help="sizes of the check besides those of the example: batch=3,seq=71")
    p.add_argument("--rtol", type=float, metavar="X",
                   help="the relative tolerance of the check (default: 1e-3)")
    p.add_argument("--atol", type=float, metavar="X",
                   help="the absolute tolerance of the check (default: 1e-4, or 1e-4 of the "
                        "largest number of an output whose numbers are all below one)")
    p.add_argument("--seed", type=int, default=0, metavar="N",
                   help="the seed of generated inputs (default: 0)")
    p.add_argument("--attnrun", metavar="PATH", help="the attnrun executable that checks the file")
    p.add_argument("--allow-random", action="store_true",
                   help="accept a graph that generates random numbers")
    p.add_argument("--keep-metadata", action="store_true",
                   help="keep the module paths and stack traces that the exporter writes")
    p.add_argument("--explain", action="store_true",
                   help="show what would be replaced, and write nothing")
    p.add_argument("-q", "--quiet", action="store_true", help="print errors only")
    p.add_argument("-v", "--verbose", action="store_true",
                   help="print the traceback of an internal error")
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
        from .capture import sentence
        raise UsageError(f"cannot import {place}: {sentence(error)}") from error


def from_factory(source):
    """(module, example arguments or None)"""
    import torch

    from .capture import at_code, sentence
    place, _, name = source.rpartition(":")
    module = _import(place)
    factory = getattr(module, name, None)
    if not callable(factory):
        functions = [other for other, what in vars(module).items() if callable(what)]
        raise UsageError(f"{place} has no function '{name}'{nearest(name, functions)}")
    try:
        made = factory()
    except Exception as error:
        raise UsageError(f"{source}() fails: {sentence(error)}") from error
    module, example = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(module, (torch.nn.Module, torch.export.ExportedProgram)):
        raise UsageError(f"{source}() gives a {type(module).__name__}, expected a "
                         f"torch.nn.Module, or one and its example arguments{at_code(factory)}")
    return module, example


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
        raise UsageError("there are no example inputs: give --example name=dtype[dims] for "
                         "each input, or let the factory return (module, arguments)")
    if arguments:
        examples.fill_ids(module, arguments, ids, args.seed)
        example, dynamic = arguments, axes
    for name, more in _axes(args.dynamic).items():
        dynamic.setdefault(name, {}).update(more)
    demand_known("--size", _sizes(args), _words(dynamic))
    if args.fix:
        dynamic = _fixed(example, dynamic, args.fix.split(","))
    if args.dtype:
        example = torch_source.in_type(module, example, args.dtype)
    if args.explain:
        return _explain(module, example, given)
    return pipeline.convert(module, example, dynamic=dynamic, **given)


def _words(dynamic):
    """Names of sizes; "past+seq" has two."""
    return {part for axes in dynamic.values() for word in axes.values()
            for part in word.split("+")}


def _module(args):
    """(module, example arguments or None, names of its axes)"""
    from . import by_name

    def say(line):
        if not args.quiet:
            print(line, flush=True)
    if args.part != "whole" and not args.hf:
        raise UsageError("--part needs a model of --hf")
    if args.hf:
        return by_name.of_transformers(args.hf, args.part, _sizes(args), args.seed, say,
                                       not args.example)
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
    demand_known("--fix", words, sizes)
    return cases.with_fixed(dynamic, {word: sizes[word] for word in words})


def _known():
    """The classes that adapters know, and the operators that they become."""
    from . import registry
    rows = sorted((name, kind.operator) for kind in registry.load() for name in kind.names)
    width = max(len(name) for name, _ in rows)
    print(*(f"{name:{width}}  {operator}" for name, operator in rows), sep="\n")
    print("\nA name without a package stands for every class of that name. The name alone decides "
          "nothing: a module is replaced if its structure fits and a numerical check passes. The "
          "converter also searches the exported graph of any other class for banded attention and "
          "for the gates of CBAM. attnrun itself recognises linear attention, SqueezeExcite and "
          "other forms when it loads the file.")


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
        raise UsageError("the source is missing: give SOURCE, --hf, --timm or --torchvision "
                         "(see --help)" if not sources else
                         f"there is more than one source: {', '.join(sources)}")
    if not args.source:
        return _wrote(_convert_factory(args, given), args)
    if args.source.endswith(".onnx"):
        if not args.fuse:
            raise UsageError(f"{args.source} is an ONNX file: --fuse replaces "
                             "decomposed attention in it")
        from . import onnx_source
        path = onnx_source.convert(args.source, given)
    elif args.source.endswith(".pt2"):
        from . import pipeline
        path = pipeline.convert(_program(args.source), dynamic=_axes(args.dynamic), **given)
    elif ":" in args.source:
        path = _convert_factory(args, given)
    else:
        raise UsageError(f"'{args.source}' is not of the form pkg.module:factory, file.py:factory, "
                         "model.pt2, model.onnx")
    return _wrote(path, args)


def _wrote(path, args):
    if path is not None and not args.quiet:
        print(f"wrote {path}")


def main(argv=None):
    args = None
    try:
        args = parser().parse_args(argv)
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
        if args is not None and args.verbose:
            raise
        print(f"attnrun convert: a fault of the converter: {type(error).__name__}: {error} "
              "(--verbose shows where)", file=sys.stderr)
        return 70
