"""From PyTorch to ONNX files with operators of domain attnrun.

refs/    one torch function per operator: what it computes, in words that export
bodies   a model-local function (FunctionProto) out of such a function
"""
