"""Networks of timm without the rest of it, which asks for torchvision. All that factories
take is imported here, while there are stand-ins for what timm's __init__ and torchvision
hold; the exporter must not see the latter."""
import sys

from . import _parts as parts

VISION = dict(torchvision="", torchvision__ops="", torchvision__ops__misc="FrozenBatchNorm2d")
parts.stub(**VISION)
parts.without_init("timm", "timm.models", "timm.data")
sys.modules["timm"].__version__ = "without its __init__"
from timm.data import constants  # noqa: E402

vars(sys.modules["timm.data"]).update(
    {name: value for name, value in vars(constants).items() if name.isupper()})
from timm.layers.cbam import CbamModule  # noqa: E402, F401
from timm.layers.halo_attn import HaloAttn  # noqa: E402, F401
from timm.layers.selective_kernel import SelectiveKernel  # noqa: E402, F401
from timm.layers.squeeze_excite import SEModule  # noqa: E402, F401
from timm.models.byobnet import ByoBlockCfg, ByobNet, ByoModelCfg  # noqa: E402, F401
from timm.models.resnet import Bottleneck, ResNet  # noqa: E402, F401
from timm.models.sknet import SelectiveKernelBottleneck  # noqa: E402, F401

for name in VISION:
    del sys.modules[name.replace("__", ".")]
