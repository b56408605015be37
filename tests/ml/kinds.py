"""What the cases share: fitted models with the types of their inputs and options."""

import dataclasses
import warnings

import numpy as np
from skl2onnx.common import data_types as types

warnings.filterwarnings("ignore")
FORMS = {"f4": types.FloatTensorType, "f8": types.DoubleTensorType, "i8": types.Int64TensorType}


ONLY = []  # texts of which one must be in a name; nothing else is fitted then


def wanted(name):
    return not ONLY or any(text in name for text in ONLY)


@dataclasses.dataclass
class Case:
    name: str
    model: object
    x: object  # what it is run with: an array, a list of texts, a table
    initial: list = None  # types of the inputs; None: one input "X" of the array
    options: dict = None
    opset: object = None
    convert: object = None  # another converter: model -> ModelProto
    expected: object = None  # the output where ONNX Runtime's is not the right one


def tensor(x, dtype):
    return [("X", FORMS[dtype]([None, np.shape(x)[1]]))]


def each(name, make, x, y, forms=("f4", "f8"), options=({},)):
    """The model for each element type and set of options."""
    if not wanted(name):
        return
    model = make.fit(x, y) if y is not None else make.fit(x)
    for dtype in forms:
        for chosen in options:
            label = "-".join([name, dtype] + [f"{k}_{v}" for k, v in chosen.items()])
            given = {id(model): chosen} if chosen else None
            yield Case(label, model, np.asarray(x).astype(dtype), tensor(x, dtype), given)


ZIPMAPS = ({}, {"zipmap": False}, {"zipmap": "columns"})
PLAIN = ({"zipmap": False},)
RAW = ({"zipmap": False}, {"zipmap": False, "raw_scores": True}, {"nocl": True})
PATHS = ({"zipmap": False, "decision_path": True}, {"zipmap": False, "decision_leaf": True})
