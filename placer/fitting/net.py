"""What generated networks are written with: convolutions, linear layers, activations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from placer.fitting.builder import NetworkBuilder


class Net(NetworkBuilder):
    """Nodes and weights of a network in the making; ``shape``: of the last tensor."""

    def __init__(self, shape: tuple[int, ...], seed: int) -> None:
        super().__init__("input", shape, seed)
        self.shape = shape

    def weight(self, *shape: int) -> str:
        """Random weights (He et al. 2015): activations neither grow nor vanish."""
        inputs = int(np.prod(shape[1:])) if len(shape) > 2 else shape[0]
        values = self.rng.normal(0, np.sqrt(2 / max(inputs, 1)), shape)
        return self.constant(values.astype(np.float32))

    def conv(
        self, x: str, outputs: int, kernel: int, stride: int = 1, depthwise: bool = False
    ) -> str:
        """Convolution with bias; the size stays but for the stride."""
        channels, size = self.shape[1], self.shape[2]
        group = channels if depthwise else 1
        out = -(-size // stride)
        self.shape = (1, outputs, out, out)
        return self.same_conv(x, self.weight(outputs, channels // group, kernel, kernel),
                              stride=stride, group=group)  # fmt: skip

    def reshape(self, x: str, *shape: int) -> str:
        """``x`` with another shape."""
        self.shape = shape
        return self.add("Reshape", x, self.constant(np.array(shape, np.int64)))

    def transpose(self, x: str, *perm: int) -> str:
        """``x`` with its axes in another order."""
        self.shape = tuple(self.shape[axis] for axis in perm)
        return self.add("Transpose", x, perm=list(perm))

    def scalar(self, value: float) -> str:
        """A constant without axes."""
        return self.constant(np.array(value, np.float32))


def sized_conv(
    net: Net, x: str, outputs: int, kernel: tuple[int, ...], stride: int = 1, group: int = 1,
    dilation: int = 1,
) -> str:  # fmt: skip
    """Convolution of one or two dimensions with bias; the size stays but for the stride."""
    _, channels, *sizes = net.shape
    y = net.same_conv(x, net.weight(outputs, channels // group, *kernel), stride, group, dilation)
    net.shape = (1, outputs, *(-(-size // stride) for size in sizes))
    return y


# --- activations ----------------------------------------------------------------------------


def silu(net: Net, x: str) -> str:
    """SiLU, as a Sigmoid and a Mul."""
    return net.add("Mul", x, net.add("Sigmoid", x))


def relu6(net: Net, x: str) -> str:
    """ReLU6, as a Clip."""
    low, high = (net.constant(np.array(v, np.float32)) for v in (0, 6))
    return net.add("Clip", x, low, high)


def gelu(net: Net, x: str) -> str:
    """The GELU by its error function, as five nodes."""
    root, one, half = (net.constant(np.array(v, np.float32)) for v in (2**0.5, 1, 0.5))
    erf = net.add("Add", net.add("Erf", net.add("Div", x, root)), one)
    return net.add("Mul", net.add("Mul", x, erf), half)


def hard_swish(net: Net, x: str) -> str:
    """Hard swish."""
    return net.add("HardSwish", x)


def leaky(net: Net, x: str) -> str:
    """A leaky ReLU."""
    return net.add("LeakyRelu", x, alpha=0.1)


def relu(net: Net, x: str) -> str:
    """A ReLU."""
    return net.add("Relu", x)


ACTIVATIONS: tuple[Callable[[Net, str], str], ...] = (
    relu, relu, relu, silu, silu, relu6, hard_swish, leaky,
)  # fmt: skip

Act = Callable[[Net, str], str]


def excited(net: Net, x: str) -> str:
    """Squeeze and excitation (Hu et al. 2018)."""
    whole = net.shape
    few = max(8, whole[1] // 4)
    gate = net.add("GlobalAveragePool", x)
    net.shape = (1, whole[1], 1, 1)
    gate = net.conv(relu(net, net.conv(gate, few, 1)), whole[1], 1)
    op = str(net.rng.choice(["Sigmoid", "HardSigmoid"]))
    net.shape = whole
    return net.add("Mul", x, net.add(op, gate))


# --- linear layers --------------------------------------------------------------------------


def normed(net: Net, x: str) -> str:
    """A LayerNormalization over the last axis."""
    gain, shift = (net.constant(np.full(net.shape[-1], v, np.float32)) for v in (1, 0))
    return net.add("LayerNormalization", x, gain, shift)


def linear(net: Net, x: str, inputs: int, outputs: int) -> str:
    """A product with weights (inputs, outputs), and a bias."""
    bias = net.constant(net.rng.normal(0, 0.1, outputs).astype(np.float32))
    return net.add("Add", net.add("MatMul", x, net.weight(inputs, outputs)), bias)


def attention(net: Net, x: str, heads: int) -> str:
    """Attention with ``heads`` heads (Vaswani et al. 2017) of ``x``, shape (1, tokens, width)."""
    _, count, width = net.shape
    split = net.constant(np.array([1, count, heads, width // heads], np.int64))
    joined = net.constant(np.array([1, count, width], np.int64))
    scale = net.scalar((width // heads) ** -0.5)
    q, k, v = (
        net.add("Transpose", net.add("Reshape", linear(net, x, width, width), split), perm=perm)
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    )
    weights = net.add("Softmax", net.add("Mul", net.add("MatMul", q, k), scale), axis=-1)
    mixed = net.add("Transpose", net.add("MatMul", weights, v), perm=[0, 2, 1, 3])
    return linear(net, net.add("Reshape", mixed, joined), width, width)
