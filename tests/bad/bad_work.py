"""bad_work.py - small files and empty inputs that ask for much work."""
from bad_case import INT64, node_case, np


def f32(*shape):
    return np.ones(shape, np.float32)


CASES = [
    node_case("W01_nms_classes_ok", "NonMaxSuppression of 2^40 classes and no box", 0, "",
              "NonMaxSuppression", {"b": f32(1, 0, 4), "s": f32(1, 2**40, 0)},
              {"m": np.array(1)}, out=(INT64,)),
]
