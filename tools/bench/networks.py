"""networks.py - the convolution networks of the benchmark, from transformers' configurations;
those that are not there are written in modules.py, and PP-OCR's come from a package.

Weights are random, and scaled so that the results of each convolution are about 1: with those
of the initialisation the activations of deep networks are denormal numbers, which cost time of
their own. int8: ONNX Runtime's static quantisation (QDQ, u8 activations, i8 weights, one scale
a channel), calibrated with two random images, so that all engines read the same file.
"""
import importlib.util
import os
import shutil
import sys

SIZE = 224
# Operations of the convolutions and products at 224 x 224, counted from the files.
FLOPS = {"resnet50": 8.18e9, "resnet18": 3.63e9, "mobilenetv2": 0.60e9, "efficientnet": 0.77e9,
         "convnext": 8.91e9, "regnet": 8.0e9, "deeplab": 0.9e9, "seresnet50": 8.19e9,
         "cbamresnet50": 8.2e9, "unet": 96.3e9, "yolo": 8.74e9, "mobilenetv3": 0.43e9,
         "ocrdet": 4.63e9, "ocrrec": 1.41e9, "halonet": 5.14e9, "rednet": 3.37e9,
         "sknet32": 8.93e9, "sknet1": 11.88e9}
# Of images; of the others SIZE x SIZE.
SIZES = {"unet": (256, 256), "yolo": (640, 640), "ocrdet": (640, 640), "ocrrec": (48, 320)}
# Files of the package rapidocr_onnxruntime, with their real weights.
FILES = {"ocrdet": "ch_PP-OCRv4_det_infer.onnx", "ocrrec": "ch_PP-OCRv4_rec_infer.onnx"}

# How the converter replaces modules of modules.py by operators of domain attnrun.
OWN = {
    "halonet": "modules.Halo=attnrun::HaloAttention(x, self.q.weight[:, :, 0, 0], "
               "*self.kv.weight[:, :, 0, 0].chunk(2), self.height, self.width, "
               "num_heads=self.heads, block_size=self.block, halo_size=self.halo, "
               "padding='attend', rel_scaled=0)",
    "rednet": "modules.Involution=attnrun::Involution(x, self.reduce.weight[:, :, 0, 0], "
              "self.reduce.bias, self.span.weight[:, :, 0, 0], self.span.bias, "
              "kernel_size=self.kernel, groups=self.groups, stride=self.stride)",
    "sknet32": "modules.Select=attnrun::SKSelect(self.few.weight[:, :, 0, 0], self.few.bias, "
               "self.many.weight[:, :, 0, 0].unflatten(0, (2, -1)), "
               "self.many.bias.unflatten(0, (2, -1)), None, first, second, activation='relu')"}
OWN["sknet1"] = OWN["sknet32"]


def image(name):
    import numpy as np

    shape = (1, 3, *SIZES.get(name, (SIZE, SIZE)))
    return {"x": np.random.default_rng(0).standard_normal(shape, dtype=np.float32)}


def make_model(name):
    import modules
    import torch
    import transformers as t

    if name in ("seresnet50", "cbamresnet50"):
        gate = modules.Excite if name == "seresnet50" else modules.Cbam
        model = t.ResNetForImageClassification(t.ResNetConfig(num_labels=1000))
        return modules.with_gates(model, t.models.resnet.modeling_resnet, gate)
    own = {"unet": modules.UNet, "yolo": modules.Yolo, "mobilenetv3": modules.MobileNetV3,
           "halonet": modules.halonet, "rednet": modules.rednet,
           "sknet32": lambda: modules.sknet(32), "sknet1": lambda: modules.sknet(1)}
    if name in own:
        return own[name]()
    if name == "resnet50":
        return t.ResNetForImageClassification(t.ResNetConfig(num_labels=1000))
    if name == "resnet18":
        return t.ResNetForImageClassification(t.ResNetConfig(
            num_labels=1000, layer_type="basic", depths=[2, 2, 2, 2],
            hidden_sizes=[64, 128, 256, 512]))
    if name == "mobilenetv2":
        return t.MobileNetV2ForImageClassification(t.MobileNetV2Config(num_labels=1000))
    if name == "efficientnet":
        model = t.EfficientNetForImageClassification(t.EfficientNetConfig(
            num_labels=1000, width_coefficient=1.0, depth_coefficient=1.0, image_size=SIZE,
            hidden_dim=1280))
        # The same mean: the module's own window of 1280 x 1280 is refused by OpenVINO.
        model.efficientnet.pooler = torch.nn.AdaptiveAvgPool2d(1)
        return model
    if name == "convnext":
        return t.ConvNextForImageClassification(t.ConvNextConfig(num_labels=1000))
    if name == "regnet":  # groups of channels and squeeze-excite
        return t.RegNetForImageClassification(t.RegNetConfig(num_labels=1000))
    return t.MobileNetV2ForSemanticSegmentation(t.MobileNetV2Config(num_labels=21))


def scale_weights(model, x):
    """Each convolution's weights so that its results have the mean square 1."""
    import torch

    def hook(conv, _inputs, y):
        size = y.square().mean().sqrt().clamp_min(1e-20)
        conv.weight.data /= size
        if conv.bias is not None:
            conv.bias.data /= size
        return y / size

    hooks = [m.register_forward_hook(hook) for m in model.modules()
             if isinstance(m, torch.nn.Conv2d)]
    with torch.no_grad():
        model(x)
    for one in hooks:
        one.remove()


def packaged(name):
    """The path of a file of FILES; ModuleNotFoundError where its package is missing."""
    spec = importlib.util.find_spec("rapidocr_onnxruntime")
    if spec is None:
        raise ModuleNotFoundError("rapidocr_onnxruntime is not installed")
    return os.path.join(spec.submodule_search_locations[0], "models", FILES[name])


def made(name):
    """(a module of one tensor, its inputs); the same each time."""
    import torch

    torch.manual_seed(0)
    model = make_model(name).eval()
    x = torch.from_numpy(image(name)["x"])
    scale_weights(model, x)

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x):
            y = self.model(x)
            return y if isinstance(y, torch.Tensor) else y.logits

    return Wrapped().eval(), (x,)


def write(name, path, export):
    """`export`: that of models.py."""
    if name in FILES:
        shutil.copyfile(packaged(name), path)
    else:
        export(*made(name), path, ["x"], ["y"], None)


def write_own(name, path, plain, attnrun=None):
    """The network with operators of domain attnrun, which the converter compares with the
    module in ONNX Runtime, and in `attnrun` where that is given; then with the file `plain`."""
    sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../convert"))
    import attnrun_convert
    import numpy as np
    import onnxruntime

    module, inputs = made(name)
    attnrun_convert.convert(
        module, inputs, output=path, output_names=["y"], moduleop=(OWN[name],), quiet=True,
        check=("attnrun", "onnxruntime") if attnrun else "onnxruntime", attnrun=attnrun)
    wanted, found = (onnxruntime.InferenceSession(
        file, providers=["CPUExecutionProvider"]).run(None, image(name))[0]
        for file in (plain, path))
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


def write_int8(source, path):
    import numpy as np
    from onnxruntime.quantization import (CalibrationDataReader, QuantFormat, QuantType,
                                          quantize_static)
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Images(CalibrationDataReader):
        def __init__(self):
            rng = np.random.default_rng(1)
            self.left = [rng.standard_normal((1, 3, SIZE, SIZE), dtype=np.float32)
                         for _ in range(2)]

        def get_next(self):
            return {"x": self.left.pop()} if self.left else None

    prepared = path + ".prepared"
    quant_pre_process(source, prepared, skip_symbolic_shape=True)
    quantize_static(prepared, path, Images(), quant_format=QuantFormat.QDQ, per_channel=True,
                    activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
    os.remove(prepared)
