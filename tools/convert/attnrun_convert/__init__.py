"""From PyTorch to ONNX files with operators of domain attnrun.

call     one operator inside a model: numbers when eager, a node when exported
convert  a module to a file whose operators carry bodies (pipeline.py)
refs/    one torch function per operator: what it computes, in words that export
bodies   a model-local function (FunctionProto) out of such a function
"""


def __getattr__(name):
    """`call` and `convert` import torch, which a look at an ONNX file does without."""
    if name == "convert":
        from .pipeline import convert
        return convert
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
