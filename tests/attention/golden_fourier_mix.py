"""Golden cases of FourierMix: transformers' FNetBasicFourierTransform, in double."""
from transformers.models.fnet.configuration_fnet import FNetConfig
from transformers.models.fnet.modeling_fnet import FNetBasicFourierTransform

from golden import random, write


def upstream(x):
    layer = FNetBasicFourierTransform(FNetConfig(use_tpu_fourier_optimizations=False))
    return layer.double().eval()(x.double())[0]


for case, shape in (("fourier_mix_primes", (2, 13, 37)), ("fourier_mix_even", (1, 24, 64))):
    x = random(1, *shape)
    write(case, "FourierMix", {}, [x], [upstream(x)], "transformers",
          "FNetBasicFourierTransform, float64", (1e-5, 2e-5))
