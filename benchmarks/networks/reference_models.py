"""The float models behind published TensorRT engines, rebuilt from layer names and shapes.

Weights are zeros: plans and estimates do not depend on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Builder:
    """Collects nodes by name; every method returns the name of its output tensor."""

    def __init__(self, dtype: int = TensorProto.FLOAT) -> None:
        self._dtype = dtype
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, *shape: int) -> str:
        """Add a graph input."""
        self._inputs.append(helper.make_tensor_value_info(name, self._dtype, shape))
        return name

    def constant(self, values: np.ndarray) -> str:
        """Add an initializer."""
        name = f"w{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(values, name))
        return name

    def zeros(self, *shape: int) -> str:
        """Add a weight of zeros in the model's float type."""
        return self.constant(np.zeros(shape, helper.tensor_dtype_to_np_dtype(self._dtype)))

    def add(self, op: str, name: str, *inputs: str, **attributes: Any) -> str:
        """Append a node; its output is called after it."""
        self._nodes.append(helper.make_node(op, inputs, [f"{name}:0"], name, **attributes))
        return f"{name}:0"

    def conv(
        self, name: str, x: str, shape: tuple[int, int, int], stride: int = 1, relu: str = ""
    ) -> str:
        """Conv with bias and same padding; ``shape``: inputs, outputs, kernel size."""
        inputs, outputs, kernel = shape
        weight, bias = self.zeros(outputs, inputs, kernel, kernel), self.zeros(outputs)
        pads, strides = [kernel // 2] * 4, [stride] * 2
        y = self.add("Conv", name, x, weight, bias, strides=strides, pads=pads)
        return self.add("Relu", relu, y) if relu else y

    def pool(self, name: str, x: str, pad: int = 1) -> str:
        """The MaxPool of a ResNet's stem."""
        return self.add("MaxPool", name, x, kernel_shape=[3, 3], strides=[2, 2], pads=[pad] * 4)

    def integers(self, *values: int) -> str:
        """Add an initializer of int64."""
        return self.constant(np.array(values, np.int64))

    def model(self, *outputs: str) -> onnx.ModelProto:
        """The finished model."""
        graph = helper.make_graph(
            self._nodes,
            "net",
            self._inputs,
            [helper.make_tensor_value_info(o, self._dtype, None) for o in outputs],
            self._weights,
        )
        opsets = [helper.make_opsetid("", 17)]
        proto = helper.make_model(graph, opset_imports=opsets, ir_version=9)
        return onnx.shape_inference.infer_shapes(proto)


def resnet18_cifar() -> onnx.ModelProto:
    """ResNet18 with the classifier as 1x1 Conv, 1x3x32x32, ten classes, eager-mode node names."""
    net = Builder()
    x = net.conv("/conv1/Conv", net.input("image", 1, 3, 32, 32), (3, 64, 7), 2, "/relu/Relu")
    x, channels = net.pool("/maxpool/MaxPool", x), 64
    for stage in range(1, 5):
        width = 32 << stage
        for block in range(2):
            at = f"/layer{stage}/layer{stage}.{block}"
            stride = 2 if stage > 1 and not block else 1
            main = net.conv(f"{at}/conv1/Conv", x, (channels, width, 3), stride, f"{at}/relu1/Relu")
            main = net.conv(f"{at}/conv2/Conv", main, (width, width, 3))
            if channels != width:
                name = f"{at}/downsample/downsample.0/Conv"
                x = net.conv(name, x, (channels, width, 1), stride)
            x = net.add("Relu", f"{at}/relu2/Relu", net.add("Add", f"{at}/Add", x, main))
            channels = width
    x = net.conv(
        "/fc/Conv", net.add("GlobalAveragePool", "/avgpool/GlobalAveragePool", x), (512, 10, 1)
    )
    return net.model(net.add("Flatten", "/Flatten", x))


def resnet50_tf() -> onnx.ModelProto:
    """Keras ResNet50 v1 as tf2onnx writes it: NHWC input, Transpose first, Pad before MaxPool.

    Node order and the Add's inputs are Keras's; within a block the shortcut comes last.
    """
    net = Builder()
    image = net.input("input_1", 32, 224, 224, 3)
    x = net.add("Transpose", "resnet50/conv1_conv/Conv2D__6", image, perm=[0, 3, 1, 2])
    x = net.conv("Conv__435", x, (3, 64, 7), 2, "resnet50/conv1_relu/Relu")
    return _keras_stages(net, x, "")


def resnet50_tf_qat() -> onnx.ModelProto:
    """The Keras ResNet50 after TensorFlow's quantization toolkit: NHWC Pad, then Transpose.

    Pairs keep the Pad from becoming part of the first Conv, so it stays a node.
    """
    net = Builder()
    image = net.input("input_1", 32, 224, 224, 3)
    x = net.add("Pad", "resnet50/conv1_pad/Pad", image, net.integers(0, 2, 2, 0, 0, 4, 4, 0))
    x = net.add("Transpose", "resnet50/quant_conv1_conv/BiasAdd__1121", x, perm=[0, 3, 1, 2])
    weight, bias = net.zeros(64, 3, 7, 7), net.zeros(64)
    conv1 = "resnet50/quant_conv1_conv/BiasAdd"
    x = net.add("Conv", conv1, x, weight, bias, strides=[2, 2])
    x = net.add("Relu", "resnet50/conv1_relu/Relu", x)
    return _keras_stages(net, x, "quant_")


def _keras_stages(net: Builder, x: str, quant: str) -> onnx.ModelProto:
    """All of a Keras ResNet50 behind its first Relu; ``quant`` starts the layers' names."""
    pads = net.integers(0, 0, 1, 1, 0, 0, 1, 1)
    x = net.add("Pad", "resnet50/pool1_pad/Pad", x, pads)
    x, channels = net.pool("resnet50/pool1_pool/MaxPool", x, 0), 64
    for stage, blocks in ((2, 3), (3, 4), (4, 6), (5, 3)):
        width = 16 << stage
        for block in range(1, blocks + 1):
            at = f"conv{stage}_block{block}"
            stride = 2 if stage > 2 and block == 1 else 1
            names = [f"resnet50/{quant}{at}_{i}_conv/Conv2D" for i in range(4)]
            relus = [f"resnet50/{at}_{name}/Relu" for name in ("1_relu", "2_relu", "out")]
            main = net.conv(names[1], x, (channels, width, 1), stride, relus[0])
            main = net.conv(names[2], main, (width, width, 3), 1, relus[1])
            main = net.conv(names[3], main, (width, 4 * width, 1))
            if block == 1:
                x = net.conv(names[0], x, (channels, 4 * width, 1), stride)
            x = net.add("Add", f"resnet50/{quant}{at}_add/add", x, main)
            x = net.add("Relu", relus[2], x)
            channels = 4 * width
    x = net.add("GlobalAveragePool", f"resnet50/{quant}avg_pool/Mean", x)
    x = net.add("Squeeze", f"resnet50/{quant}avg_pool/Mean_Squeeze__461", x, net.integers(2, 3))
    x = net.add("MatMul", f"resnet50/{quant}predictions/MatMul", x, net.zeros(2048, 1000))
    x = net.add("Add", f"resnet50/{quant}predictions/BiasAdd", x, net.zeros(1000))
    return net.model(net.add("Softmax", f"resnet50/{quant}predictions/Softmax", x, axis=-1))


def bevfusion_camera() -> onnx.ModelProto:
    """BEVFusion's camera network: depth encoder, ResNet50, FPN neck with linear Resizes, heads."""
    net = Builder(TensorProto.FLOAT16)
    image, depth = net.input("img", 1, 6, 3, 256, 704), net.input("depth", 1, 6, 1, 256, 704)
    x = net.add("Reshape", "Reshape_25", image, net.integers(6, 3, 256, 704))
    levels = _numbered_resnet50(net, x)
    up = _twice(net, "Resize_724", levels[2])
    x = net.add("Concat", "Concat_737", levels[1], up, axis=1)
    x = net.conv("Conv_747", x, (3072, 256, 1), 1, "Relu_748")
    x = net.conv("Conv_758", x, (256, 256, 3), 1, "Relu_759")
    up = _twice(net, "Resize_766", x)
    x = net.add("Concat", "Concat_779", levels[0], up, axis=1)
    x = net.conv("Conv_789", x, (768, 256, 1), 1, "Relu_790")
    x = net.conv("Conv_800", x, (256, 256, 3), 1, "Relu_801")
    y = net.add("Reshape", "Reshape_822", depth, net.integers(6, 1, 256, 704))
    y = net.conv("Conv_834", y, (1, 8, 1), 1, "Relu_835")
    y = net.conv("Conv_845", y, (8, 32, 5), 4, "Relu_846")
    y = net.conv("Conv_856", y, (32, 64, 5), 2, "Relu_857")
    x = net.add("Concat", "Concat_858", y, x, axis=1)
    x = net.conv("Conv_868", x, (320, 256, 3), 1, "Relu_869")
    x = net.conv("Conv_879", x, (256, 256, 3), 1, "Relu_880")
    x = net.conv("Conv_890", x, (256, 198, 1))
    axis = net.integers(1)
    weights = net.add("Slice", "Slice_895", x, net.integers(0), net.integers(118), axis)
    weights = net.add("Softmax", "Softmax_896", weights, axis=1)
    feature = net.add("Slice", "Slice_901", x, net.integers(118), net.integers(198), axis)
    return net.model(weights, net.add("Transpose", "Transpose_902", feature, perm=[0, 2, 3, 1]))


def _twice(net: Builder, name: str, x: str) -> str:
    scales = net.constant(np.array([1, 1, 2, 2], np.float32))
    return net.add("Resize", name, x, "", scales, mode="linear")


# Numbers of the nodes conv1, conv2, conv3, downsample, Add and Relu of each block.
_BLOCKS: Sequence[tuple[int, ...]] = (
    (47, 58, 69, 79, 86), (97, 108, 119, 0, 126), (137, 148, 159, 0, 166),
    (177, 188, 199, 209, 216), (227, 238, 249, 0, 256), (267, 278, 289, 0, 296),
    (307, 318, 329, 0, 336),
    (347, 358, 369, 379, 386), (397, 408, 419, 0, 426), (437, 448, 459, 0, 466),
    (477, 488, 499, 0, 506), (517, 528, 539, 0, 546), (557, 568, 579, 0, 586),
    (597, 608, 619, 629, 636), (647, 658, 669, 0, 676), (687, 698, 709, 0, 716),
)  # fmt: skip


def _numbered_resnet50(net: Builder, x: str) -> list[str]:
    """ResNet50 with PyTorch's numbered names; outputs of the last three stages."""
    x = net.pool("MaxPool_37", net.conv("Conv_35", x, (3, 64, 7), 2, "Relu_36"))
    channels, stage, levels = 64, 0, []
    for first, second, third, down, add in _BLOCKS:
        stage += bool(down)
        width = 32 << stage
        stride = 2 if down and stage > 1 else 1
        if down and stage > 2:
            levels.append(x)
        main = net.conv(f"Conv_{first}", x, (channels, width, 1), 1, f"Relu_{first + 1}")
        main = net.conv(f"Conv_{second}", main, (width, width, 3), stride, f"Relu_{second + 1}")
        main = net.conv(f"Conv_{third}", main, (width, 4 * width, 1))
        if down:
            x = net.conv(f"Conv_{down}", x, (channels, 4 * width, 1), stride)
        x = net.add("Relu", f"Relu_{add + 1}", net.add("Add", f"Add_{add}", main, x))
        channels = 4 * width
    return [*levels, x]


def bevfusion_fuser() -> onnx.ModelProto:
    """BEVFusion's fuser: Concat of two inputs, two stages, a ConvTranspose with BatchNorm."""
    net = Builder(TensorProto.FLOAT16)
    camera, lidar = net.input("camera", 1, 80, 180, 180), net.input("lidar", 1, 256, 180, 180)
    x = net.add("Concat", "Concat_0", camera, lidar, axis=1)
    x = net.conv("Conv_10", x, (336, 256, 3), 1, "Relu_11")
    channels = 256
    for number in range(21, 77, 11):
        x = net.conv(f"Conv_{number}", x, (channels, 128, 3), 1, f"Relu_{number + 1}")
        channels = 128
    y = x
    for number in range(87, 143, 11):
        stride = 2 if number == 87 else 1
        y = net.conv(f"Conv_{number}", y, (channels, 256, 3), stride, f"Relu_{number + 1}")
        channels = 256
    x = net.conv("Conv_144", x, (128, 256, 1), 1, "Relu_145")
    y = net.add("ConvTranspose", "ConvTranspose_155", y, net.zeros(256, 256, 2, 2), strides=[2, 2])
    statistics = [net.zeros(256) for _ in range(4)]
    y = net.add(
        "Relu", "Relu_157", net.add("BatchNormalization", "BatchNormalization_156", y, *statistics)
    )
    return net.model(net.add("Concat", "Concat_158", x, y, axis=1))
