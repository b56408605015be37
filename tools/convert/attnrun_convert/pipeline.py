"""convert: a module, its example arguments and names of sizes in; an ONNX file out, checked
against the module before it gets its name."""
import os
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

import onnx
import onnx_ir

from . import progress, provenance, rules, vectors, verify
from .errors import ConvertError, FileError, UnsupportedError, UsageError

OPSET = 25  # the newest that the exporter writes and both runtimes run
INLINE_LIMIT = 1 << 30  # weights over this many bytes go to a file of their own
RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
          "Bernoulli", "Multinomial"}


@dataclass
class Options:
    """What convert() takes by keyword, and the command line by --name."""
    output: str = "model.onnx"
    opset: int = OPSET
    output_names: list = None  # by default the keys or numbers of the results
    external_data: bool = None  # None: weights over 1 GiB go to OUTPUT.data
    plain: str = None  # a second file, in which functions are inlined
    vectors: str = None  # a test folder for `attnrun check`
    report: str = None  # a JSON file
    check: tuple = ("attnrun", "onnxruntime")  # what of this is here; () for no check
    attnrun: str = None  # the executable; None: the one in PATH
    trials: list = None  # sizes to check at, [{"seq": 71}, …]
    sizes: dict = None  # of an .onnx file's first case, {"seq": 512}
    rtol: float = verify.RTOL
    atol: float = None  # None: verify.ATOL, relative to the size of an output of small numbers
    seed: int = 0
    swap: bool = True  # replace known modules
    moduleop: tuple = ()  # "pkg.Class=attnrun::Op(…)", see moduleop.py
    fuse: bool = False  # decomposed attention, too; bands of Attention always, see fuse.py
    allow_random: bool = False  # leave random numbers in the graph
    keep_metadata: bool = False  # of the exporter: module paths, stack traces
    quiet: bool = False

    def say(self, *lines):
        if lines and not self.quiet:
            progress.clear()
            print(*lines, sep="\n", flush=True)


def options_of(given):
    known = {f.name for f in fields(Options)}
    unknown = sorted(set(given) - known)
    if unknown:
        raise UsageError(f"convert has no option {', '.join(unknown)}; "
                         f"known are {', '.join(sorted(known))}")
    options = Options(**given)
    if isinstance(options.check, str):
        options.check = (options.check,)
    parent = Path(options.output).absolute().parent
    if not parent.is_dir():
        raise FileError(f"cannot write {options.output}: there is no folder {parent}")
    return options


def convert(module, args=(), kwargs=None, *, dynamic=None, **given):
    """Writes options.output and returns its path.

    module        in eval mode, or a torch.export.ExportedProgram (no args needed)
    args, kwargs  example arguments of forward (args: a tuple, a tensor, or a dict by name)
    dynamic       {"ids": {0: "batch", 1: "seq"}}: sizes that may differ
    and what Options names.
    """
    from . import torch_source  # torch is not needed for an ONNX file
    options = options_of(given)
    with progress.step("capturing the module", options.quiet):
        source = torch_source.of(module, args, kwargs, dynamic, options)
    return write(source, options)


def write(source, options):
    """`source`: model(), cases(), replaced, dynamic, versions, names of outputs."""
    engines = verify.available(options.check, options.attnrun)
    missing = [name for name in options.check if name not in engines]
    if missing:
        options.say(f"not here, so not checked with: {', '.join(missing)}")
    try:
        with progress.step("exporting", options.quiet):
            model = source.model()
        refuse_random(model, options)
        _demand_opset(model, options)
        _sign(model, source, options)
        return finish(model, source, options, engines)
    finally:
        source.close()


def finish(model, source, options, engines):
    output = Path(options.output)
    with scratch(output) as folder:
        with progress.step("writing and checking the file", options.quiet):
            made = save(model, folder / output.name, options.external_data)
        names = [value.name for value in model.graph.outputs]
        with progress.step("comparing with the module", options.quiet):
            cases = source.cases() if engines or options.vectors else []
            rows = verify.compare(made, cases, names, engines, options.rtol, options.atol,
                                  options.attnrun, options.say)
        verify.demand(rows, options.rtol, options.atol)
        if rows:
            provenance.add_result(made, rows, options.rtol, options.atol)
        if options.plain:
            write_plain(made, Path(options.plain))
        if options.vectors:
            vectors.write(options.vectors, made, cases, options.rtol, options.atol if options.atol
                          is not None else max((row.atol for row in rows), default=verify.ATOL))
        if options.report:
            provenance.write_report(options.report, output, model, source, rows)
        move(made, output)
    return output


def refuse_random(model, options):
    """An operator that makes random numbers gives another result each time."""
    if options.allow_random:
        return
    for node in model.graph.all_nodes():
        if node.domain in ("", "ai.onnx") and node.op_type in RANDOM:
            raise UnsupportedError(
                f"the exported model makes random numbers (node '{node.name}', "
                f"{node.op_type}), so its results are never the same; take them as an input "
                "or fix them as a buffer, or use --allow-random")


def _demand_opset(model, options):
    """The exporter writes another opset where it does not know the one that it is asked for."""
    written = model.graph.opset_imports.get("", 0)
    if options.opset not in (OPSET, written):
        raise UsageError(f"--opset {options.opset}: the file would have opset "
                         f"{written}; leave --opset out, or give another")


def _sign(model, source, options):
    model.producer_name = "attnrun_convert"
    if not options.keep_metadata:
        strip(model)
    model.metadata_props.update(
        provenance.of_model(source.replaced, source.dynamic, source.versions))


def strip(model):
    """Module paths and stack traces are two thirds of a small file, and name local paths."""
    model.graph.metadata_props.clear()
    for node in model.graph.all_nodes():
        node.metadata_props.clear()
        node.doc_string = None
        for value in node.outputs:
            value.metadata_props.clear()
    for value in (*model.graph.inputs, *model.graph.initializers.values()):
        value.metadata_props.clear()


@contextmanager
def scratch(output):
    """A folder beside the target, on the same file system."""
    try:
        folder = tempfile.TemporaryDirectory(dir=output.absolute().parent, prefix=".attnrun-")
    except OSError as error:
        raise FileError(f"cannot write {output}: {error.strerror or error}") from error
    with folder as name:
        yield Path(name)


def save(model, path, external_data=None):
    """Writes and checks; big tensors on pages of their own, so that they can be mapped."""
    size = sum(v.const_value.nbytes for v in model.graph.initializers.values())
    if external_data is None:
        external_data = size > INLINE_LIMIT
    if not external_data:
        onnx_ir.external_data.load_to_model(model)
    try:
        onnx_ir.save(model, path, external_data=path.name + ".data" if external_data else None,
                     size_threshold_bytes=1024, alignment=4096, align_threshold=65536)
        onnx.checker.check_model(str(path), full_check=True)
        keep_to_rules(path)
    except OSError as error:
        raise FileError(f"cannot write {path.name}: {error.strerror or error}") from error
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ConvertError("the file that was made from this model is not valid: "
                           f"{error}") from error
    return path


def keep_to_rules(path):
    broken = rules.broken(onnx.load(path, load_external_data=False))
    if broken:
        raise ConvertError(f"the file that was made from this model is not valid: {broken[0]}")


def move(made, output):
    """Gives a finished file its name; the weights first."""
    try:
        for name in vectors.external_files(made):
            os.replace(made.parent / name, output.absolute().parent / name)
        os.replace(made, output)
    except OSError as error:
        raise FileError(f"cannot write {output}: {error.strerror or error}") from error


def write_plain(made, output):
    """A copy without functions, for runtimes that do not expand them."""
    from onnx_ir.passes.common import InlinePass, RemoveUnusedOpsetsPass
    model = onnx_ir.load(made)
    InlinePass()(model)
    RemoveUnusedOpsetsPass()(model)
    with scratch(output) as folder:
        external = bool(vectors.external_files(made)) or None
        move(save(model, folder / output.name, external), output)
