"""Mixing of tokens without attention. The modules take x. Some are those of packages (transformers'
FNet: the mixing, a layer, and an encoder of two layers); the others write the same in other
ways. Modules that differ in one point stay as they are. TorchScript's exporter has no Fourier
transforms."""
import torch
from torch import nn
from transformers import FNetConfig
from transformers.models.fnet.modeling_fnet import (FNetBasicFourierTransform, FNetEncoder,
                                                    FNetLayer)

FOURIER = "FourierMix"
KNOWN = (FOURIER,)
BY_TORCH = True  # sums of ONNX Runtime 1.32 lose two digits where a length is no power of 2


SHAPE, MANY = (2, 40, 24), (1, 7, 96)


class Stock(nn.Module):
    def __init__(self, module=FNetBasicFourierTransform):
        super().__init__()
        self.mix = module(FNetConfig(hidden_size=SHAPE[-1], intermediate_size=40,
                                     num_hidden_layers=2))

    def forward(self, x):
        return self.mix(x)[0]


class Mixing(nn.Module):
    def __init__(self, transform):
        super().__init__()
        self.transform = transform

    def forward(self, x):
        return self.transform(x)


fft = torch.fft.fft
SHORT = {"stock": "d", "one_axis": "d", "imaginary": "d"}
FORMS = {
    "stock": (Stock(), "x", SHAPE, 1, MANY, "d", FOURIER),
    "layer": (Stock(FNetLayer), "x", SHAPE, 1, MANY, "d", FOURIER),
    "encoder": (Stock(FNetEncoder), "x", SHAPE, 1, MANY, "d", FOURIER),
    "fftn": (Mixing(lambda x: torch.fft.fftn(x, dim=(1, 2)).real), "x", SHAPE, 1, MANY, "d",
             FOURIER),
    "one_after_the_other": (Mixing(lambda x: fft(fft(x, dim=-1), dim=-2).real), "x", SHAPE, 1,
                            MANY, "d", FOURIER),
    "tokens_first": (Mixing(lambda x: fft(fft(x, dim=1), dim=2).real), "x", SHAPE, 1, MANY, "d",
                     FOURIER),
    "fft2": (Mixing(lambda x: torch.fft.fft2(x).real), "x", SHAPE, 1, (), "d", FOURIER),
    # near misses
    "one_axis": (Mixing(lambda x: fft(x, dim=-1).real), "x", SHAPE, 1, MANY, "d", None),
    "same_axis": (Mixing(lambda x: fft(fft(x, dim=-1), dim=-1).real), "x", SHAPE, 1, MANY, "d",
                  None),
    "imaginary": (Mixing(lambda x: fft(fft(x, dim=-1), dim=-2).imag), "x", SHAPE, 1, MANY, "d",
                  None),
    "inverse": (Mixing(lambda x: torch.fft.ifft(fft(x, dim=-1), dim=-2).real), "x", SHAPE, 1,
                MANY, "d", None),
    "complex": (Mixing(lambda x: torch.fft.fft2(torch.complex(x, x * 0.5)).real), "x", SHAPE, 1,
                (), "d", None),
}
