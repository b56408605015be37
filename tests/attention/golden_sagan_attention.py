"""Golden cases of SAGANAttention: heykeetae/Self-Attention-GAN and ajbrock/BigGAN-PyTorch,
read from checkouts; BigGAN's weights are those that its spectral norm leaves.

usage: golden_sagan_attention.py SAGAN_FOLDER BIGGAN_FOLDER
"""
import sys
from pathlib import Path

import torch
from golden import amid, classes_in, random, write


def matrix(conv):
    return conv.weight.flatten(1).float()


def randomize(layer, seed):
    for i, p in enumerate(layer.parameters()):
        p.data.copy_(random(seed + i, *p.shape) * (0.3 if p.dim() > 1 else 0.7))
    return layer.double().eval()


def port(folder):
    source = (folder / "sagan_models.py").read_text()
    layer = randomize(classes_in(source, "Self_Attn")["Self_Attn"](24, "relu"), 1)
    x = random(20, 2, 24, 5, 7)
    write("sagan_port", "SAGANAttention", {},
          [x, matrix(layer.query_conv), layer.query_conv.bias.float(),
           matrix(layer.key_conv), layer.key_conv.bias.float(), matrix(layer.value_conv),
           layer.value_conv.bias.float(), layer.gamma.float()], [layer(x.double())[0]], None,
          "heykeetae/Self-Attention-GAN 8714a54 Self_Attn, in double", (1e-4, 1e-5))
    amid("sagan_port", ("x",))


def biggan(folder):
    source = (folder / "layers.py").read_text()
    found = classes_in(source, "proj", "gram_schmidt", "power_iteration", "SN", "SNConv2d",
                       "Attention")
    found["P"] = torch.nn.Parameter
    layer = randomize(found["Attention"](32), 30)
    for conv in (layer.theta, layer.phi, layer.g, layer.o):
        conv.weight.data.copy_(3 * conv.W_())  # wide enough for scores that differ
    x = random(50, 2, 32, 6, 10)
    effective = [conv.W_().flatten(1).float() for conv in (layer.theta, layer.phi, layer.g,
                                                           layer.o)]
    write("sagan_biggan", "SAGANAttention", {"kv_pool": 2},
          [x, effective[0], None, effective[1], None, effective[2], None,
           layer.gamma.float(), effective[3]], [layer(x.double())], None,
          "ajbrock/BigGAN-PyTorch 9845943 Attention, in double", (1e-4, 1e-5))


with torch.no_grad():
    torch.manual_seed(2)
    port(Path(sys.argv[1]))
    biggan(Path(sys.argv[2]))
