"""Names of functions: Op__ and the first digits of the SHA-1 of the body's bytes, so that
equal bodies are one function and nobody has to know of overloads."""
import hashlib

import onnx

DOMAIN = "attnrun"


def name_of(name, body):
    """Op__xxxxxxxx of a body; what its name is now does not matter."""
    plain = onnx.FunctionProto()
    plain.CopyFrom(body)
    plain.name = name
    digest = hashlib.sha1(plain.SerializeToString(deterministic=True)).hexdigest()
    return f"{name}__{digest[:8]}"
