"""RoiAlign against ONNX Runtime 1.32.0: regions inside, at the borders of, far outside of and much
larger than their image, with samples that the size of a bin or an attribute counts. Where each
sample of the larger ones was computed, one took minutes.
Usage: check_regions.py ATTNRUN [SEED]"""
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime

from cases import check, one_node_model, write_case

SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 5
random = np.random.default_rng(SEED)
SIZES = (0.5, 1.3, 3.4, 8.7, 40.1, 301.3)


def regions():
    """(x1, y1, x2, y2) of all pairs of sizes, around an image of 9 x 7 pixels."""
    made = []
    for width in SIZES:
        for height in SIZES:
            x, y = random.uniform(-1, 1, 2) * (width + 6, height + 8)
            made.append((x, y, x + width, y + height))
    made += [(-500, -500, -480, -479), (100, 2, 140, 5), (-1, -1, 8.5, 10), (3, 3, 3, 3)]
    # Bins of a whole number in f32, and of a little more in f64.
    made += [(0.7, 0.7, 3.7, 2.7), (0.7, 2.7, 6.7, 6.7), (1.4, 0.7, 4.4, 4.7)]
    return np.array(made, np.float32)


def main():
    print(f"seed {SEED}")
    with tempfile.TemporaryDirectory() as folder:
        for number, (mode, shift, ratio) in enumerate(
                (mode, shift, ratio) for mode in ("avg", "max")
                for shift in ("half_pixel", "output_half_pixel") for ratio in (0, 1, 3)):
            rois = regions()
            x = random.standard_normal((2, 2, 9, 7)).astype(np.float32)
            if mode == "max":
                x -= 3  # so that a sample outside, 0, is the largest
            images = random.integers(0, 2, len(rois))
            model, inputs = one_node_model(
                "RoiAlign", [("x", x), ("r", rois), ("b", images)], ["y"], mode=mode,
                coordinate_transformation_mode=shift, sampling_ratio=ratio, output_height=2,
                output_width=3)
            model.graph.output[0].type.tensor_type.elem_type = 1
            session = onnxruntime.InferenceSession(model.SerializeToString())
            y = session.run(None, dict(inputs))
            write_case(str(Path(folder) / f"{number:02}_{mode}_{shift}_{ratio}"), model, inputs,
                       [("y", y[0])], "1e-4 1e-5")
        check(sys.argv[1], folder)


main()
