"""The Fourier transform of transformers' FNet."""
from ..call import call
from ..registry import Adapter, need


class FNetBasicFourierTransform(Adapter):
    names = ("transformers.models.fnet.modeling_fnet.FNetBasicFourierTransform",)
    operator = "FourierMix"

    def check(self):
        need(hasattr(self.module, "fourier_transform"), "it has no fourier_transform")

    def forward(self, hidden_states):
        return (call("FourierMix", hidden_states),)
