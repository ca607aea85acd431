"""Torchvision's AlexNet, MobileNetV2 and ResNet18 in FP16, as PyTorch exports them with names.

Weights are zeros, as in ``reference_models``.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from benchmarks.networks.reference_models import Builder

# Expansion, outputs, blocks and stride of each stage of MobileNetV2.
_MOBILENET_V2 = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
    (6, 320, 1, 1),
)  # fmt: skip


class _Exported(Builder):
    def __init__(self) -> None:
        super().__init__(TensorProto.FLOAT16)
        self.image = self.input("input", 1, 3, 224, 224)

    def gemm(self, name: str, x: str, inputs: int, outputs: int, relu: str = "") -> str:
        """Fully connected layer with bias."""
        weight, bias = self.zeros(outputs, inputs), self.zeros(outputs)
        y = self.add("Gemm", name, x, weight, bias, transB=1)
        return self.add("Relu", relu, y) if relu else y

    def conv_clip(
        self, name: str, x: str, shape: tuple[int, int, int], stride: int = 1, group: int = 1
    ) -> str:
        """``name``.0 is the Conv, ``name``.2 its ReLU6; ``shape``: inputs, outputs, kernel size."""
        inputs, outputs, kernel = shape
        weight, bias = self.zeros(outputs, inputs // group, kernel, kernel), self.zeros(outputs)
        pads, strides = [kernel // 2] * 4, [stride] * 2
        y = self.add(
            "Conv", f"{name}.0/Conv", x, weight, bias, strides=strides, pads=pads, group=group
        )
        limits = [self.constant(np.array(limit, np.float16)) for limit in (0, 6)]
        return self.add("Clip", f"{name}.2/Clip", y, *limits)


def alexnet() -> onnx.ModelProto:
    """AlexNet of torchvision, 1x3x224x224; its adaptive pool averages single elements."""
    net, at = _Exported(), "/features/features"
    first = net.zeros(64, 3, 11, 11), net.zeros(64)
    x = net.add("Conv", f"{at}.0/Conv", net.image, *first, strides=[4, 4], pads=[2] * 4)
    x = net.pool(f"{at}.2/MaxPool", net.add("Relu", f"{at}.1/Relu", x), 0)
    x = net.conv(f"{at}.3/Conv", x, (64, 192, 5), 1, f"{at}.4/Relu")
    x = net.pool(f"{at}.5/MaxPool", x, 0)
    x = net.conv(f"{at}.6/Conv", x, (192, 384, 3), 1, f"{at}.7/Relu")
    x = net.conv(f"{at}.8/Conv", x, (384, 256, 3), 1, f"{at}.9/Relu")
    x = net.conv(f"{at}.10/Conv", x, (256, 256, 3), 1, f"{at}.11/Relu")
    x = net.pool(f"{at}.12/MaxPool", x, 0)
    x = net.add("AveragePool", "/avgpool/AveragePool", x, kernel_shape=[1, 1], strides=[1, 1])
    x, at = net.add("Flatten", "/Flatten", x), "/classifier/classifier"
    x = net.gemm(f"{at}.1/Gemm", x, 9216, 4096, f"{at}.2/Relu")
    x = net.gemm(f"{at}.4/Gemm", x, 4096, 4096, f"{at}.5/Relu")
    return net.model(net.gemm(f"{at}.6/Gemm", x, 4096, 1000))


def mobilenet_v2() -> onnx.ModelProto:
    """MobileNetV2 of torchvision, 1x3x224x224."""
    net = _Exported()
    x, channels = net.conv_clip("/features/features.0/features.0", net.image, (3, 32, 3), 2), 32
    index = 0
    for expansion, outputs, count, first_stride in _MOBILENET_V2:
        for block in range(count):
            index += 1
            at = f"/features/features.{index}"
            stride, wide = 1 if block else first_stride, channels * expansion
            y, part = x, 0
            if expansion > 1:
                y, part = net.conv_clip(f"{at}/conv/conv.0/conv.0", y, (channels, wide, 1)), 1
            name = f"{at}/conv/conv.{part}/conv.{part}"
            y = net.conv_clip(name, y, (wide, wide, 3), stride, wide)
            y = net.conv(f"{at}/conv/conv.{part + 1}/Conv", y, (wide, outputs, 1))
            keeps = stride == 1 and channels == outputs
            x, channels = net.add("Add", f"{at}/Add", x, y) if keeps else y, outputs
    x = net.conv_clip("/features/features.18/features.18", x, (channels, 1280, 1))
    x = net.add("Flatten", "/Flatten", net.add("GlobalAveragePool", "/GlobalAveragePool", x))
    return net.model(net.gemm("/classifier/classifier.1/Gemm", x, 1280, 1000))


def resnet18() -> onnx.ModelProto:
    """ResNet18 of torchvision, 1x3x224x224."""
    net = _Exported()
    x = net.conv("/conv1/Conv", net.image, (3, 64, 7), 2, "/relu/Relu")
    x, channels = net.pool("/maxpool/MaxPool", x), 64
    for stage in range(1, 5):
        width = 32 << stage
        for block in range(2):
            at = f"/layer{stage}/layer{stage}.{block}"
            stride = 2 if stage > 1 and not block else 1
            y = net.conv(f"{at}/conv1/Conv", x, (channels, width, 3), stride, f"{at}/relu/Relu")
            y = net.conv(f"{at}/conv2/Conv", y, (width, width, 3))
            if channels != width:
                name = f"{at}/downsample/downsample.0/Conv"
                x = net.conv(name, x, (channels, width, 1), stride)
            x = net.add("Relu", f"{at}/relu_1/Relu", net.add("Add", f"{at}/Add", y, x))
            channels = width
    x = net.add(
        "Flatten", "/Flatten", net.add("GlobalAveragePool", "/avgpool/GlobalAveragePool", x)
    )
    return net.model(net.gemm("/fc/Gemm", x, 512, 1000))
