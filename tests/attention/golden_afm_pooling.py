"""Golden cases of AFMPooling: AFMLayer of deepctr-torch, with a unit matrix in place of its
projection to one number."""
import itertools

import torch
from golden import classes_in, random, source_of, write


def main():
    found = classes_in(source_of("deepctr_torch/layers/interaction.py"), "AFMLayer")
    found["itertools"] = itertools
    for name, fields, seed in (("afm_deepctr", 7, 1), ("afm_deepctr_pair", 2, 5)):
        layer = found["AFMLayer"](10, attention_factor=6).eval()
        layer.attention_b.data = random(seed, 6)
        layer.projection_p.data = torch.eye(10)
        e = random(seed + 1, 3, fields, 10)
        y = layer([e[:, i:i + 1] for i in range(fields)])
        write(name, "AFMPooling", {},
              [e, layer.attention_W.data, layer.projection_h.data[:, 0].contiguous(),
               layer.attention_b.data],
              [y, layer.normalized_att_score[..., 0]], "deepctr-torch", "AFMLayer")


with torch.no_grad():
    torch.manual_seed(2)
    main()
