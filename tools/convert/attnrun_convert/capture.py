"""From a module and example arguments to an onnx_ir model with body-less operators.

Sizes that may differ are given by name, {input: {axis: "batch"}}; a size that the model
fixes although a name was given is an error, never a silent constant.
"""
import contextlib
import inspect
import io
import logging
import math
import re
import sysconfig
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy
import onnx_ir
import onnxscript.optimizer
import torch
from torch.export.graph_signature import InputKind, TensorArgument
from torch.utils import _pytree

from . import experts, recurrent
from .call import recording
from .cases import size_of
from .errors import CaptureError, UnsupportedError, UsageError, first_line, innermost
from .fields import array_of

EXPORTER = ("/onnxscript/", "/onnx_ir/", "/onnx/", "/numpy/")  # packages beside torch


def refuse_training(module):
    """Modules in training mode compute something else than what a file can hold."""
    for name, inner in module.named_modules():
        if inner.training:
            raise UnsupportedError(
                f"{name or 'the model'} ({type(inner).__name__}) is in training mode, where "
                "dropout and batch statistics are active; call .eval() on the model first")


def bound(module, args, kwargs=None):
    """{parameter of forward: value} of the arguments given, in the order of the call. Tensors are
    copies: PyTorch exports one that is given twice as one input, and one that is a weight of the
    module as that weight; and a module may write into its arguments."""
    args = (args,) if isinstance(args, torch.Tensor) else args
    if isinstance(args, dict):
        args, kwargs = (), {**args, **(kwargs or {})}
    try:
        given = inspect.signature(module.forward).bind(*args, **(kwargs or {}))
    except TypeError as error:
        names = ", ".join(inspect.signature(module.forward).parameters)
        raise UsageError(f"the arguments do not fit {type(module).__name__}.forward({names}): "
                         f"{error}") from error
    given.arguments.update(_pytree.tree_map_only(
        torch.Tensor, lambda x: x.detach().clone(), dict(given.arguments)))
    return given


@dataclass
class Arguments:
    """Arguments of a program, as inspect.BoundArguments has those of a module."""
    args: tuple
    kwargs: dict


def program_inputs(program):
    """Names of the user's inputs of an ExportedProgram, tensors only."""
    return [spec.arg.name for spec in program.graph_signature.input_specs
            if spec.kind == InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument)]


def program_axes(program, names):
    """{input: {axis: name}} of what is symbolic: batch for axis 0, else n1, n2, …"""
    words, axes = {}, {}
    values = {node.name: node.meta.get("val") for node in program.graph.nodes
              if node.op == "placeholder"}
    for name in names:
        for axis, size in enumerate(values[name].shape):
            if isinstance(size, torch.SymInt):
                symbol = str(size.node.expr)
                free = "batch" if axis == 0 and "batch" not in words.values() else \
                    f"n{1 + sum(word != 'batch' for word in words.values())}"
                axes.setdefault(name, {})[axis] = words.setdefault(symbol, free)
    return axes


def flat_names(arguments):
    """Names of the tensors in `arguments`: the parameter's own, or with a key or number where
    one parameter holds several."""
    names = []
    for name, value in arguments.items():
        leaves = [path for path, x in _pytree.tree_flatten_with_path(value)[0]
                  if isinstance(x, torch.Tensor)]
        named = [len(path) == 1 and isinstance(getattr(path[0], "key", None), str)
                 for path in leaves]
        names += ([name] if len(leaves) == 1 and not named[0] else
                  [f"{name}_{path[0].key if named[i] else i}"
                   for i, path in enumerate(leaves)])
    return names


def axis_names(dynamic, names):
    """{input: {axis: name}} of what the user gave: names may be Dim objects, axes a list."""
    clean = {}
    for name, axes in (dynamic or {}).items():
        if name not in names:
            raise UsageError(f"dynamic axes are given for '{name}', but the inputs are "
                             f"{', '.join(names)}")
        axes = axes or {}
        if not isinstance(axes, dict):
            axes = {axis: f"{name}_{axis}" for axis in axes}
        clean[name] = {int(axis): getattr(word, "__name__", str(word))
                       for axis, word in axes.items() if word is not None}
    return clean


def _shapes_of(arguments, dynamic):
    """The tree that torch.export wants; an unnamed axis is static."""
    names = iter(flat_names(arguments))

    def leaf(value):
        if not isinstance(value, torch.Tensor):
            return None
        name = next(names)
        for axis in dynamic.get(name, {}):
            if not -value.dim() <= axis < value.dim():
                raise UsageError(f"input '{name}' has {value.dim()} axes, a name is given "
                                 f"for axis {axis}")
        return {axis % value.dim(): torch.export.Dim.DYNAMIC
                for axis in dynamic.get(name, {})} or None
    return _pytree.tree_map(leaf, arguments)


def _signature_tree(given, dynamic):
    """Dynamic shapes by parameter; *args are a tuple in it. None where all are fixed: PyTorch
    takes no tree of tensors in **kwargs."""
    return _shapes_of(dict(given.arguments), dynamic) if dynamic else None


@contextlib.contextmanager
def quiet():
    """Without what the exporter prints, warns and logs: its failures end in one sentence.
    What it wrote before a fault of the process itself is lost, too."""
    disabled = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), \
                contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def _installed(path):
    return "site-packages" in path or "dist-packages" in path


def sentence(error):
    """The first line of the innermost cause, and the line of the user's code that met it."""
    cause = innermost(error)
    where = place(error) or _place_of_node(error)
    return (f"{type(cause).__name__}: {first_line(error)}"
            + (f" (at {where})" if where else ""))


def place(error):
    """file:line of the last frame that is neither Python's, torch's nor the converter's; the
    user's own before one of an installed package."""
    frames, seen = [], set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        frames += traceback.extract_tb(error.__traceback__)
        error = error.__cause__ or error.__context__
    return _place_of(frames)


def at_code(what):
    """" (at file:line)" of a module's forward, or of a function; "" where it is not known."""
    code = getattr(getattr(what, "forward", what), "__code__", None)
    return f" (at {code.co_filename}:{code.co_firstlineno})" if code else ""


FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


def _place_of_node(error):
    """file:line of the model's code that made the node of a graph at which the exporter failed;
    "" where no node is known."""
    while error is not None:
        here = error.__traceback__
        while here is not None:
            node = here.tb_frame.f_locals.get("node")
            trace = node.meta.get("stack_trace") if isinstance(node, torch.fx.Node) else None
            if trace:
                return _place_of([traceback.FrameSummary(file, int(line), name)
                                  for file, line, name in FRAME.findall(trace)])
            here = here.tb_next
        error = error.__cause__ or error.__context__
    return ""


def _place_of(frames):
    here = str(Path(__file__).parent)
    inner = str(Path(torch.__file__).parent)
    library = sysconfig.get_paths()["stdlib"]
    found = [f for f in frames if Path(f.filename).is_file()
             and not f.filename.startswith((here, inner))
             and (not f.filename.startswith(library) or _installed(f.filename))
             and not (_installed(f.filename) and any(part in f.filename for part in EXPORTER))]
    own = [f for f in found if not _installed(f.filename)]
    last = (own or found or [None])[-1]
    return f"{last.filename}:{last.lineno}" if last is not None else ""


SPECIALISED = re.compile(r"L\['(\w+)'\](?:\[[^\]]*\])*\.size\(\)\[(\d+)\] as dynamic but your "
                         r"code specialized it to be a constant \((\d+)\)")
OF_EXAMPLE = re.compile(r"0/1 specialized due to hint of (\d+) for dimension "
                        r"inputs\['(\w+)'\](?:\[[^\]]*\])*\.shape\[(\d+)\]")


@contextlib.contextmanager
def watched():
    """{number: file:line}: where the model's code made a free size that number."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv
    original, found = getattr(ShapeEnv, "_set_replacement", None), {}

    def noting(self, symbol, target, *args, **kwargs):
        if getattr(target, "is_number", False) and str(target) not in found:
            frames = traceback.extract_stack()
            inside = [i for i, f in enumerate(frames)
                      if (f.filename, f.name) == (__file__, "exported")]
            found[str(target)] = _place_of(frames[inside[-1] + 1 if inside else 0:])
        return original(self, symbol, target, *args, **kwargs)
    if original is not None:
        ShapeEnv._set_replacement = noting
    try:
        yield found
    finally:
        if original is not None:
            ShapeEnv._set_replacement = original


def _fixed_sizes(error, dynamic, places):
    """A sentence where the model's code, or the example, fixes sizes that should be free; else
    ""."""
    names, said = {}, str(innermost(error))
    small = [(size, dynamic.get(name, {}).get(int(axis), f"axis {axis} of {name}"))
             for size, name, axis in OF_EXAMPLE.findall(said)]
    if small:
        what = " and ".join(f"the free size '{word}' is {size}" for size, word in small)
        return f"in the example {what}, which PyTorch takes for a fixed size: give an example " \
               "with 2 or more there"
    for name, axis, size in SPECIALISED.findall(said):
        word = dynamic.get(name, {}).get(int(axis), f"axis {axis} of {name}")
        names[word] = (size, places.get(size, ""))
    if not names:
        return ""
    what = ", ".join(f"'{word}' the number {size}" + (f" (at {place})" if place else "")
                     for word, (size, place) in names.items())
    return (f"its code makes the free size {what}: leave that size without a name, so that it "
            "is fixed (--fix), or use it as a tensor's size there")


def _from_data(error):
    """A sentence where the model's code leaves the graph with what a tensor holds; else ""."""
    cause, where = innermost(error), place(error)
    at = f" (at {where})" if where else ""
    if "DataDependent" in type(cause).__name__:
        advice = ("compute both results and choose with torch.where, or use settings and sizes of "
                  "tensors instead")
        if _installed(where):
            advice = ("that code is of an installed package, so convert a part of the model that "
                      "does without it, from a factory")
        return (f"its code makes a decision or a size from numbers that a tensor holds{at}, as an "
                "'if', an assert, a loop, int() or .item() does, which an exported graph cannot: "
                f"{advice}")
    if ".numpy() is not supported" in str(cause):
        return (f"its code takes a tensor out of PyTorch as a NumPy array{at}, which an exported "
                "graph cannot: use operations of torch there")
    return ""


def _without_operator(error):
    """A sentence where the exporter has no ONNX for an operation of torch; else ""."""
    found = re.search(r"No ONNX function found for <OpOverload\(op='([\w.:]+)'",
                      str(innermost(error)))
    if not found:
        return ""
    where, name = place(error) or _place_of_node(error), found[1].replace("::", ".")
    at = f" (at {where})" if where else ""
    return (f"its code calls {name}{at}, for which PyTorch's exporter has no ONNX: "
            + ("compute the same from other operations of torch"
               if name.startswith("aten.") else
               "compute the same from operations of torch, or, if attnrun has that operator, "
               "with attnrun_convert.call"))


def exported(module, given, dynamic):
    """The ExportedProgram of one call; `given`: bound arguments."""
    places = {}
    try:
        with quiet(), torch.no_grad(), recurrent.as_nodes(module), experts.as_nodes(module), \
                watched() as places:
            return torch.export.export(module, given.args, given.kwargs, strict=False,
                                       dynamic_shapes=_signature_tree(given, dynamic))
    except (UsageError, UnsupportedError):
        raise
    except Exception as error:
        reason = _fixed_sizes(error, dynamic, places) or _from_data(error) or sentence(error)
        raise CaptureError(f"{type(module).__name__} cannot be exported: {reason}") from error


def _copy_before_reshapes(program):
    """A copy between a transposition and what reshapes it, which becomes nothing in ONNX. The
    exporter takes attention apart only after it has made a view of its result's layout, and
    the parts have another layout, which a view with free sizes does not survive (T5)."""
    aten = torch.ops.aten
    graph = program.graph_module.graph
    for node in list(graph.nodes):
        if node.target in (aten.view.default, aten.reshape.default) and getattr(
                node.args[0], "target", None) in (aten.transpose.int, aten.permute.default):
            with graph.inserting_before(node):
                copy = graph.call_function(aten.clone.default, (node.args[0],),
                                           {"memory_format": torch.contiguous_format})
            copy.meta = dict(node.args[0].meta)
            node.replace_input_with(node.args[0], copy)
    program.graph_module.recompile()


def _one_head_for_all(program):
    """Keys of one head for all heads of queries, which eager attention broadcasts (Falcon): the
    exporter takes them with enable_gqa alone."""
    for node in program.graph_module.graph.nodes:
        if node.target is not torch.ops.aten.scaled_dot_product_attention.default \
                or len(node.args) < 3:
            continue
        q, k, v = (x.meta["val"].shape for x in node.args[:3])
        if len(q) == len(k) == len(v) == 4 and k[1] == v[1] == 1 and q[1] != 1:
            node.kwargs = {**node.kwargs, "enable_gqa": True}


def _floats_before_subtractions(program):
    """1.0 - mask, of whole numbers: the exporter finds no operator for a float less an integer
    (XLNet), but for a float less a float."""
    aten = torch.ops.aten
    graph = program.graph_module.graph
    for node in list(graph.nodes):
        if node.target is not aten.rsub.Scalar:
            continue
        given, dtype = node.args[0].meta["val"], node.meta["val"].dtype
        if dtype.is_floating_point and not given.dtype.is_floating_point:
            with graph.inserting_before(node):
                cast = graph.call_function(aten._to_copy.default, (node.args[0],),
                                           {"dtype": dtype})
            cast.meta = {**node.args[0].meta, "val": given.to(dtype)}
            node.replace_input_with(node.args[0], cast)
    program.graph_module.recompile()


def _scales_of(program):
    """{scale as a float32: scale} of what is interpolated."""
    nodes = [node for node in program.graph.nodes if "upsample" in str(node.target)]
    return {float(numpy.float32(x)): x for node in nodes for argument in node.args
            if isinstance(argument, (list, tuple)) for x in argument if isinstance(x, float)}


def _sizes_from_corner_to_corner(model, exact):
    """Gives Resize sizes in place of scales that are fractions. From corner to corner, PyTorch
    divides by the length of the result, ONNX by the length before it is rounded down. PyTorch
    computes that length in double, and a file has the scale as float32; `exact`: _scales_of()."""
    for node in list(model.graph.all_nodes()):
        mode = node.attributes.get("coordinate_transformation_mode")
        scales = array_of(node.inputs[2]) if node.op_type == "Resize" else None
        if scales is None or mode is None or mode.as_string() != "align_corners" \
                or (scales == scales.round()).all():
            continue
        shape = onnx_ir.node("Shape", [node.inputs[0]])
        floats = onnx_ir.node("Cast", [shape.outputs[0]], {"to": onnx_ir.DataType.DOUBLE.value})
        scales = numpy.array([exact.get(x, x) for x in scales.tolist()], numpy.float64)
        factors = onnx_ir.node("Constant", [], {"value": onnx_ir.tensor(scales)})
        scaled = onnx_ir.node("Mul", [floats.outputs[0], factors.outputs[0]])
        sizes = onnx_ir.node("Cast", [scaled.outputs[0]], {"to": onnx_ir.DataType.INT64.value})
        node.prepend([shape, floats, factors, scaled, sizes])
        node.resize_inputs(4)
        node.replace_input_with(2, None)
        node.replace_input_with(3, sizes.outputs[0])


def translated(program, opset, input_names, output_names):
    """The onnx_ir model of an ExportedProgram, optimised without inlining."""
    _copy_before_reshapes(program)
    _floats_before_subtractions(program)
    _one_head_for_all(program)
    scales = _scales_of(program)
    try:
        with quiet():
            made = torch.onnx.export(program, dynamo=True, verbose=False, optimize=False,
                                     opset_version=opset, input_names=input_names).model
            if output_names:
                name_outputs(made, output_names)
            _sizes_from_corner_to_corner(made, scales)
            onnxscript.optimizer.optimize_ir(made, inline=False)
    except Exception as error:
        raise CaptureError(f"the exported program cannot be written as ONNX: "
                           f"{_without_operator(error) or sentence(error)}") from error
    return made


def name_outputs(model, names):
    """Gives the outputs their names. One that is an input, a weight or another output is a
    copy of it; a weight that is called like an output gets another name."""
    graph, taken = model.graph, set()
    for name in [name for name in names if name in graph.initializers]:
        weight = graph.initializers.pop(name)
        weight.name = f"{name}_weight"
        graph.register_initializer(weight)
    for number, (value, name) in enumerate(zip(list(graph.outputs), names)):
        if value.producer() is None or id(value) in taken:
            copy = onnx_ir.node("Identity", [value], name=f"copy_{name}")
            copy.outputs[0].dtype, copy.outputs[0].shape = value.dtype, value.shape
            graph.append(copy)
            graph.outputs[number] = value = copy.outputs[0]
        taken.add(id(value))
    wanted = set(names)
    for node in graph.all_nodes():
        for value in node.outputs:
            if value.name in wanted:
                value.name = f"{value.name}_inside"
    for value, name in zip(graph.outputs, names):
        value.name = name


def captured(module, given, dynamic, opset, output_names=None):
    """(onnx_ir model, calls of attnrun operators in it, bounds that were assumed, `broken` as of
    guards_of)."""
    names = flat_names(given.arguments)
    with recording() as calls:
        program = exported(module, given, dynamic)
        model = translated(program, opset, names, output_names)
    name_axes(model, dynamic)
    return model, calls, bounds_of(program), guards_of(program, given, dynamic)


def bounds_of(program):
    """Ends of the ranges in which an ExportedProgram holds."""
    ends = [end for bounds in program.range_constraints.values()
            for end in (bounds.lower, bounds.upper)]
    return {int(end) for end in ends if str(end).isdigit() and 2 < int(end) < 1 << 31}


class _Sized:
    """An input of which a guard reads the sizes."""

    def __init__(self, shape):
        self.shape = shape

    def size(self):
        return self.shape


def guards_of(program, given, dynamic):
    """broken({name: size}): numbers of the guards that do not hold at these sizes. A guard is what
    the model's code decided by a size, such as the side of an 'if': the program has the side of the
    example alone."""
    names = flat_names(given.arguments)
    codes = [compile(text, "guard", "eval") for text in getattr(program, "_guards_code", ())]

    def inputs(sizes):
        order = iter(names)

        def sized(x):
            if not isinstance(x, torch.Tensor):
                return x
            shape = list(x.shape)
            for axis, word in dynamic.get(next(order), {}).items():
                shape[axis] = size_of(word, sizes)
            return _Sized(shape)
        return _pytree.tree_map(sized, dict(given.arguments))

    def broken(sizes):
        known, found = {"L": inputs(sizes), "math": math, "torch": torch}, set()
        for number, code in enumerate(codes):
            with contextlib.suppress(Exception):  # of an input that has another form
                if not eval(code, known):
                    found.add(number)
        return found
    return broken


def name_axes(model, dynamic):
    """Gives symbolic sizes the users' names, in all shapes of the model."""
    inputs, words = {value.name: value for value in model.graph.inputs}, {}
    for name, axes in dynamic.items():
        for axis, word in axes.items() if name in inputs else ():
            size = inputs[name].shape[axis]
            if not isinstance(size, onnx_ir.SymbolicDim) or size.value is None:
                raise UnsupportedError(
                    f"axis {axis} ('{word}') of input '{name}' is {size} in the exported "
                    "model, which does not work for other sizes of it; leave it out of the "
                    "dynamic axes or change the model")
            words.setdefault(size.value, word)
    identifiers = re.compile(r"[A-Za-z_]\w*")
    for value in _values(model):
        if value.shape is None or value.shape.is_static():
            continue
        sizes = [identifiers.sub(lambda m: words.get(m[0], m[0]), s.value)
                 if isinstance(s, onnx_ir.SymbolicDim) and s.value is not None else s
                 for s in value.shape]
        value.shape = onnx_ir.Shape(sizes)


def _values(model):
    yield from model.graph.inputs
    for node in model.graph.all_nodes():
        yield from node.outputs
