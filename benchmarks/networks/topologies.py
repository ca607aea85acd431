"""Well-known networks with random weights, for benchmarks where no trained model is at hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx

from placer.fitting.builder import NetworkBuilder


class Net(NetworkBuilder):
    """Collects nodes and weights; every method returns the name of its output tensor.

    ``gain`` multiplies all weights; ``spread`` is the standard deviation of the logarithm of each
    output channel's own factor, which trained networks have and plain random ones lack.
    """

    def __init__(
        self, shape: tuple[int, ...], seed: int = 0, gain: float = 1.0, spread: float = 0.0
    ) -> None:
        super().__init__("image", shape, seed)
        self._gain, self._spread = gain, spread

    def weight(self, *shape: int) -> str:
        """Append a random weight, scaled so that activations keep their magnitude."""
        fan_in = int(np.prod(shape[1:])) or 1
        values = self._gain * self.rng.standard_normal(shape) / np.sqrt(fan_in)
        if self._spread:
            factors = np.exp(self._spread * self.rng.standard_normal(shape[0]))
            values *= factors.reshape(-1, *[1] * (len(shape) - 1))
        return self.constant(values.astype(np.float32))

    def conv(
        self, x: str, inputs: int, outputs: int, kernel: int, stride: int = 1, group: int = 1
    ) -> str:
        """Convolution with bias and same padding."""
        return self.same_conv(
            x, self.weight(outputs, inputs // group, kernel, kernel), stride, group
        )

    def relu(self, x: str) -> str:
        """Relu."""
        return self.add("Relu", x)

    def silu(self, x: str) -> str:
        """x * sigmoid(x), as PyTorch exports it."""
        return self.add("Mul", x, self.add("Sigmoid", x))

    def relu6(self, x: str) -> str:
        """Clip to [0, 6]."""
        limits = [self.constant(np.array(v, np.float32)) for v in (0, 6)]
        return self.add("Clip", x, *limits)

    def split(self, x: str, *sizes: int) -> tuple[str, ...]:
        """Parts of ``sizes`` channels."""
        return self.add_many("Split", (x, self.constant(np.array(sizes))), len(sizes), axis=1)

    def model(self, *outputs: str) -> onnx.ModelProto:
        """The finished and checked model."""
        proto = super().model(*outputs)
        onnx.checker.check_model(proto, full_check=True)
        return proto


def classifier(net: Net, x: str, channels: int, classes: int = 100) -> onnx.ModelProto:
    """Global average pool, flatten, fully connected."""
    flat = net.add("Flatten", net.add("GlobalAveragePool", x))
    weight, bias = net.weight(classes, channels), net.weight(classes)
    return net.model(net.add("Gemm", flat, weight, bias, transB=1))


def resnet(
    size: int, blocks: tuple[int, ...], bottleneck: bool, batch: int = 1, classes: int = 100
) -> onnx.ModelProto:
    """ResNet (He et al. 2015): basic blocks as in 18, bottlenecks as in 50."""
    net = Net((batch, 3, size, size))
    x = net.relu(net.conv(net.input, 3, 64, 7, 2))
    x = net.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for stage, count in enumerate(blocks):
        width = 64 << stage
        outputs = 4 * width if bottleneck else width
        for block in range(count):
            stride = 2 if stage and not block else 1
            if bottleneck:
                main = net.relu(net.conv(x, channels, width, 1))
                main = net.relu(net.conv(main, width, width, 3, stride))
                main = net.conv(main, width, outputs, 1)
            else:
                main = net.relu(net.conv(x, channels, width, 3, stride))
                main = net.conv(main, width, width, 3)
            changes = stride != 1 or channels != outputs
            shortcut = net.conv(x, channels, outputs, 1, stride) if changes else x
            x = net.relu(net.add("Add", main, shortcut))
            channels = outputs
    return classifier(net, x, channels, classes)


def mobilenet_v2(size: int, classes: int = 100) -> onnx.ModelProto:
    """MobileNetV2 (Sandler et al. 2018), width 1."""
    net = Net((1, 3, size, size))
    x, channels = net.relu6(net.conv(net.input, 3, 32, 3, 2)), 32
    stages = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    for expansion, outputs, count, first_stride in stages:
        for block in range(count):
            stride = 1 if block else first_stride
            wide = channels * expansion
            y = net.relu6(net.conv(x, channels, wide, 1)) if expansion > 1 else x
            y = net.relu6(net.conv(y, wide, wide, 3, stride, group=wide))
            y = net.conv(y, wide, outputs, 1)
            x = net.add("Add", x, y) if stride == 1 and channels == outputs else y
            channels = outputs
    return classifier(net, net.relu6(net.conv(x, channels, 1280, 1)), 1280, classes)


def efficientnet(width: float, depth: float, size: int) -> onnx.ModelProto:
    """EfficientNet (Tan and Le 2019), batch norms folded; B7: 2.0, 3.1 and 600."""
    # Expansion, outputs, blocks, kernel and stride of each stage of B0.
    stages = [(1, 16, 1, 3, 1), (6, 24, 2, 3, 2), (6, 40, 2, 5, 2), (6, 80, 3, 3, 2)]
    stages += [(6, 112, 3, 5, 1), (6, 192, 4, 5, 2), (6, 320, 1, 3, 1)]
    net, channels = Net((1, 3, size, size)), _scaled(32, width)
    x = net.silu(net.conv(net.input, 3, channels, 3, 2))
    for expansion, outputs, blocks, kernel, stride in stages:
        for block in range(math.ceil(blocks * depth)):
            own = 1 if block else stride
            y = _mbconv(net, x, channels, expansion, _scaled(outputs, width), kernel, own)
            keeps = own == 1 and channels == _scaled(outputs, width)
            x, channels = net.add("Add", y, x) if keeps else y, _scaled(outputs, width)
    head = _scaled(1280, width)
    return classifier(net, net.silu(net.conv(x, channels, head, 1)), head, 1000)


def _mbconv(
    net: Net, x: str, inputs: int, expansion: int, outputs: int, kernel: int, stride: int
) -> str:
    """Inverted bottleneck with squeeze and excitation."""
    wide = inputs * expansion
    y = net.silu(net.conv(x, inputs, wide, 1)) if expansion > 1 else x
    y = net.silu(net.conv(y, wide, wide, kernel, stride, group=wide))
    squeezed = net.silu(net.conv(net.add("GlobalAveragePool", y), wide, inputs // 4, 1))
    scale = net.add("Sigmoid", net.conv(squeezed, inputs // 4, wide, 1))
    return net.conv(net.add("Mul", y, scale), wide, outputs, 1)


def _scaled(channels: int, width: float) -> int:
    """Channels times ``width``, a multiple of 8 that is at most a tenth less."""
    wanted = channels * width
    found = max(8, int(wanted + 4) // 8 * 8)
    return found if found >= 0.9 * wanted else found + 8


def unet(size: int) -> onnx.ModelProto:
    """U-Net (Ronneberger et al. 2015) of three levels: ConvTranspose, then Concat."""
    net = Net((1, 3, size, size))
    skips, x, channels = [], net.input, 3
    for width in (16, 32, 64):
        x = net.relu(net.conv(net.relu(net.conv(x, channels, width, 3)), width, width, 3))
        skips.append((x, width))
        x = net.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
        channels = width
    x, channels = net.relu(net.conv(x, 64, 128, 3)), 128
    for skip, width in reversed(skips):
        up = net.add("ConvTranspose", x, net.weight(channels, width, 2, 2), strides=[2, 2])
        x = net.add("Concat", net.relu(up), skip, axis=1)
        x = net.relu(net.conv(x, 2 * width, width, 3))
        channels = width
    return net.model(net.add("Sigmoid", net.conv(x, channels, 1, 1)))


def c2f(size: int) -> onnx.ModelProto:
    """A YOLOv8-like net: SiLU, C2f blocks with Split and Concat, SPPF, nearest Resize, heads."""
    net = Net((1, 3, size, size))

    def block(x: str, inputs: int, outputs: int, repeats: int) -> str:
        half = outputs // 2
        y = net.silu(net.conv(x, inputs, outputs, 1))
        parts = list(net.split(y, half, half))
        for _ in range(repeats):
            inner = net.silu(net.conv(net.silu(net.conv(parts[-1], half, half, 3)), half, half, 3))
            parts.append(net.add("Add", parts[-1], inner))
        joined = net.add("Concat", *parts, axis=1)
        return net.silu(net.conv(joined, half * len(parts), outputs, 1))

    x = net.silu(net.conv(net.input, 3, 16, 3, 2))
    early = block(net.silu(net.conv(x, 16, 32, 3, 2)), 32, 32, 1)
    late = block(net.silu(net.conv(early, 32, 64, 3, 2)), 64, 64, 2)
    pools = [net.silu(net.conv(late, 64, 32, 1))]
    for _ in range(3):
        pools.append(net.add("MaxPool", pools[-1], kernel_shape=[5, 5], pads=[2] * 4))
    deep = net.silu(net.conv(net.add("Concat", *pools, axis=1), 128, 64, 1))
    scales = net.constant(np.array([1, 1, 2, 2], np.float32))
    up = net.add("Resize", deep, "", scales, mode="nearest")
    neck = block(net.add("Concat", up, early, axis=1), 96, 32, 1)
    boxes = net.conv(net.silu(net.conv(neck, 32, 32, 3)), 32, 16, 1)
    scores = net.add("Sigmoid", net.conv(net.silu(net.conv(neck, 32, 32, 3)), 32, 8, 1))
    return net.model(net.add("Concat", boxes, scores, axis=1))


def yolov8n(size: int, classes: int = 80) -> onnx.ModelProto:
    """YOLOv8n (Ultralytics 2023) with its decoded boxes, batch norms folded."""
    net = Net((1, 3, size, size))
    early, middle, late = _yolov8_backbone(net)
    up = _upsample(net, late)
    neck = _c2f_block(net, net.add("Concat", up, middle, axis=1), 384, 128, 1, residual=False)
    up = _upsample(net, neck)
    near = _c2f_block(net, net.add("Concat", up, early, axis=1), 192, 64, 1, residual=False)
    down = net.silu(net.conv(near, 64, 64, 3, 2))
    mid = _c2f_block(net, net.add("Concat", down, neck, axis=1), 192, 128, 1, residual=False)
    down = net.silu(net.conv(mid, 128, 128, 3, 2))
    far = _c2f_block(net, net.add("Concat", down, late, axis=1), 384, 256, 1, residual=False)
    heads = [
        _yolov8_head(net, x, channels, classes)
        for x, channels in ((near, 64), (mid, 128), (far, 256))
    ]
    boxes, scores = (net.add("Concat", *parts, axis=2) for parts in zip(*heads, strict=True))
    return net.model(_yolov8_decoded(net, boxes, net.add("Sigmoid", scores), size))


def _yolov8_backbone(net: Net) -> tuple[str, str, str]:
    """Features at strides of 8, 16 and 32."""
    x = net.silu(net.conv(net.silu(net.conv(net.input, 3, 16, 3, 2)), 16, 32, 3, 2))
    x = net.silu(net.conv(_c2f_block(net, x, 32, 32, 1), 32, 64, 3, 2))
    early = _c2f_block(net, x, 64, 64, 2)
    middle = _c2f_block(net, net.silu(net.conv(early, 64, 128, 3, 2)), 128, 128, 2)
    late = _c2f_block(net, net.silu(net.conv(middle, 128, 256, 3, 2)), 256, 256, 1)
    pools = [net.silu(net.conv(late, 256, 128, 1))]
    for _ in range(3):
        pools.append(net.add("MaxPool", pools[-1], kernel_shape=[5, 5], pads=[2] * 4))
    return early, middle, net.silu(net.conv(net.add("Concat", *pools, axis=1), 512, 256, 1))


def _c2f_block(
    net: Net, x: str, inputs: int, outputs: int, repeats: int, residual: bool = True
) -> str:
    half = outputs // 2
    y = net.silu(net.conv(x, inputs, outputs, 1))
    parts = list(net.split(y, half, half))
    for _ in range(repeats):
        inner = net.silu(net.conv(net.silu(net.conv(parts[-1], half, half, 3)), half, half, 3))
        parts.append(net.add("Add", parts[-1], inner) if residual else inner)
    joined = net.add("Concat", *parts, axis=1)
    return net.silu(net.conv(joined, half * len(parts), outputs, 1))


def _upsample(net: Net, x: str) -> str:
    scales = net.constant(np.array([1, 1, 2, 2], np.float32))
    return net.add("Resize", x, "", scales, mode="nearest")


def _yolov8_head(net: Net, x: str, channels: int, classes: int) -> tuple[str, str]:
    """Distributions of the box's sides and scores of the classes, flat."""
    boxes = net.silu(net.conv(net.silu(net.conv(x, channels, 64, 3)), 64, 64, 3))
    scores = net.silu(net.conv(net.silu(net.conv(x, channels, classes, 3)), classes, classes, 3))
    parts = ((net.conv(boxes, 64, 64, 1), 64), (net.conv(scores, classes, classes, 1), classes))
    shapes = [net.constant(np.array([1, width, -1], np.int64)) for _, width in parts]
    flat = [net.add("Reshape", y, shape) for (y, _), shape in zip(parts, shapes, strict=True)]
    return flat[0], flat[1]


def _yolov8_decoded(net: Net, boxes: str, scores: str, size: int) -> str:
    """Boxes in pixels beside the scores: expected distances from each cell, times its stride."""
    cells = [(size // stride) ** 2 for stride in (8, 16, 32)]
    count = sum(cells)
    shape = net.constant(np.array([1, 4, 16, count], np.int64))
    bins = net.add("Transpose", net.add("Reshape", boxes, shape), perm=[0, 2, 1, 3])
    steps = net.constant(np.arange(16, dtype=np.float32).reshape(1, 16, 1, 1))
    mean = net.add("Conv", net.add("Softmax", bins, axis=1), steps)
    sides = net.add("Reshape", mean, net.constant(np.array([1, 4, count], np.int64)))
    parts = net.split(sides, 2, 2)
    centres = net.constant(np.random.default_rng(0).random((1, 2, count)).astype(np.float32))
    first, last = net.add("Sub", centres, parts[0]), net.add("Add", parts[1], centres)
    two = net.constant(np.array(2, np.float32))
    middle = net.add("Div", net.add("Add", first, last), two)
    joined = net.add("Concat", middle, net.add("Sub", last, first), axis=1)
    strides = np.repeat(np.array([8, 16, 32], np.float32), cells)
    return net.add("Concat", net.add("Mul", joined, net.constant(strides)), scores, axis=1)


def yolox(size: int, width: int = 16, classes: int = 80) -> onnx.ModelProto:
    """A YOLOX-like detector (Ge et al. 2021): CSP blocks, SPP, PAFPN, decoupled heads, SiLU.

    One output (1, anchors, 5 + classes) joins boxes, objectness and scores of three strides.
    """
    net = Net((1, 3, size, size), gain=1.1, spread=0.5)
    x = net.silu(net.conv(net.input, 3, width, 3, 2))
    features, channels = [], width
    for repeats in (1, 3, 3, 1):
        x = net.silu(net.conv(x, channels, 2 * channels, 3, 2))
        channels *= 2
        x = _csp_block(net, x, channels, channels, repeats)
        features.append(x)
    early, middle, late = features[1:]
    pools = [net.silu(net.conv(late, channels, channels // 2, 1))]
    for kernel in (5, 9, 13):
        pads = [kernel // 2] * 4
        pools.append(net.add("MaxPool", pools[0], kernel_shape=[kernel] * 2, pads=pads))
    late = net.silu(net.conv(net.add("Concat", *pools, axis=1), 2 * channels, channels, 1))
    deep, mid, near = channels, channels // 2, channels // 4
    top = net.silu(net.conv(late, deep, mid, 1))
    joined = net.add("Concat", _upsample(net, top), middle, axis=1)
    neck = net.silu(net.conv(_csp_block(net, joined, deep, mid, 1), mid, near, 1))
    joined = net.add("Concat", _upsample(net, neck), early, axis=1)
    small = _csp_block(net, joined, mid, near, 1)
    down = net.silu(net.conv(small, near, near, 3, 2))
    medium = _csp_block(net, net.add("Concat", down, neck, axis=1), mid, mid, 1)
    down = net.silu(net.conv(medium, mid, mid, 3, 2))
    large = _csp_block(net, net.add("Concat", down, top, axis=1), deep, deep, 1)
    heads = [
        _yolox_head(net, x, inputs, near, classes)
        for x, inputs in ((small, near), (medium, mid), (large, deep))
    ]
    joined = net.add("Concat", *heads, axis=2)
    return net.model(net.add("Transpose", joined, perm=[0, 2, 1]))


def _csp_block(net: Net, x: str, inputs: int, outputs: int, repeats: int) -> str:
    half = outputs // 2
    main, side = (net.silu(net.conv(x, inputs, half, 1)) for _ in range(2))
    for _ in range(repeats):
        inner = net.silu(net.conv(net.silu(net.conv(main, half, half, 1)), half, half, 3))
        main = net.add("Add", inner, main)
    return net.silu(net.conv(net.add("Concat", main, side, axis=1), outputs, outputs, 1))


def _yolox_head(net: Net, x: str, inputs: int, width: int, classes: int) -> str:
    """Boxes, objectness and scores of one stride, shape (1, 5 + classes, cells)."""
    stem = net.silu(net.conv(x, inputs, width, 1))
    scores, boxes = stem, stem
    for _ in range(2):
        scores = net.silu(net.conv(scores, width, width, 3))
        boxes = net.silu(net.conv(boxes, width, width, 3))
    parts = (
        net.conv(boxes, width, 4, 1),
        net.add("Sigmoid", net.conv(boxes, width, 1, 1)),
        net.add("Sigmoid", net.conv(scores, width, classes, 1)),
    )
    shape = net.constant(np.array([1, 5 + classes, -1], np.int64))
    return net.add("Reshape", net.add("Concat", *parts, axis=1), shape)


def vit(tokens: int, width: int, heads: int, blocks: int = 1) -> onnx.ModelProto:
    """Transformer blocks (Dosovitskiy et al. 2020): attention and MLP, each after LayerNorm."""
    net = Net((1, tokens, width))
    x = net.input
    for _ in range(blocks):
        x = _attention(net, x, tokens, width, heads)
        x = _mlp(net, x, width)
    return net.model(x)


def _norm(net: Net, x: str, width: int) -> str:
    ones, zeros = np.ones(width, np.float32), np.zeros(width, np.float32)
    return net.add("LayerNormalization", x, net.constant(ones), net.constant(zeros))


def linear(net: Net, x: str, inputs: int, outputs: int) -> str:
    """A product with a weight, and a bias behind it."""
    return net.add("Add", net.add("MatMul", x, net.weight(inputs, outputs)), net.weight(outputs))


def _attention(net: Net, x: str, tokens: int, width: int, heads: int) -> str:
    """``x`` plus attention over it."""

    def split(y: str, perm: list[int]) -> str:
        shape = net.constant(np.array([1, tokens, heads, width // heads], np.int64))
        return net.add("Transpose", net.add("Reshape", y, shape), perm=perm)

    normed = _norm(net, x, width)
    q, k, v = (linear(net, normed, width, width) for _ in range(3))
    scores = net.add("MatMul", split(q, [0, 2, 1, 3]), split(k, [0, 2, 3, 1]))
    scale = net.constant(np.array((width // heads) ** -0.5, np.float32))
    weights = net.add("Softmax", net.add("Mul", scores, scale), axis=-1)
    mixed = net.add(
        "Transpose", net.add("MatMul", weights, split(v, [0, 2, 1, 3])), perm=[0, 2, 1, 3]
    )
    flat = net.add("Reshape", mixed, net.constant(np.array([1, tokens, width], np.int64)))
    return net.add("Add", x, linear(net, flat, width, width))


def _mlp(net: Net, x: str, width: int) -> str:
    """``x`` plus two linear layers over it with a Gelu between them, exported with Erf."""
    hidden = linear(net, _norm(net, x, width), width, 4 * width)
    root = net.constant(np.array(np.sqrt(2), np.float32))
    one, half = (net.constant(np.array(v, np.float32)) for v in (1, 0.5))
    error = net.add("Add", net.add("Erf", net.add("Div", hidden, root)), one)
    gelu = net.add("Mul", net.add("Mul", hidden, error), half)
    return net.add("Add", x, linear(net, gelu, 4 * width, width))


TOPOLOGIES: dict[str, Callable[[], onnx.ModelProto]] = {
    "resnet18": lambda: resnet(64, (2, 2, 2, 2), bottleneck=False),
    "resnet50": lambda: resnet(64, (3, 4, 6, 3), bottleneck=True),
    "mobilenet_v2": lambda: mobilenet_v2(64),
    "unet": lambda: unet(64),
    "c2f": lambda: c2f(64),
    "vit_block": lambda: vit(64, 128, 4),
}
