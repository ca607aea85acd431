"""How exporters other than the one that ``topologies`` follows write blocks of networks.

PyTorch's dynamo exporter and old opsets take norms and activations apart; TensorFlow's keeps
channels last, with a Transpose around each operator that ONNX has for channels first only.
The small pieces are also those of other networks.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from benchmarks.networks.topologies import Net

Build = Callable[[], onnx.ModelProto]


def ints(net: Net, *values: int) -> str:
    """A constant of integers."""
    return net.constant(np.array(values, np.int64))


def scalar(net: Net, value: float) -> str:
    """A constant of one number."""
    return net.constant(np.array(value, np.float32))


def reshape(net: Net, x: str, *shape: int) -> str:
    """``x`` in another shape."""
    return net.add("Reshape", x, ints(net, *shape))


def turn(net: Net, x: str, *perm: int) -> str:
    """``x`` with its dimensions in another order."""
    return net.add("Transpose", x, perm=list(perm))


def cut(net: Net, x: str, start: int, end: int, axis: int, step: int = 1) -> str:
    """A Slice of one dimension."""
    return net.add("Slice", x, *(ints(net, n) for n in (start, end, axis, step)))


def norm(net: Net, x: str, width: int) -> str:
    """LayerNorm over the last dimension."""
    return net.add("LayerNormalization", x, net.weight(width), net.weight(width))


def norm_in_parts(net: Net, x: str, weight: tuple[int, ...], axis: int = -1) -> str:
    """LayerNorm as opsets before 17 have it."""
    centred = net.add("Sub", x, net.add("ReduceMean", x, axes=[axis], keepdims=1))
    squares = net.add("Pow", centred, scalar(net, 2))
    variance = net.add("ReduceMean", squares, axes=[axis], keepdims=1)
    root = net.add("Sqrt", net.add("Add", variance, scalar(net, 1e-5)))
    y = net.add("Mul", net.add("Div", centred, root), net.weight(*weight))
    return net.add("Add", y, net.weight(*weight))


def gelu_in_parts(net: Net, x: str) -> str:
    """GELU as PyTorch exports it: half of the product of the input and the error function."""
    error = net.add("Erf", net.add("Div", x, scalar(net, 2**0.5)))
    return net.add("Mul", net.add("Mul", x, net.add("Add", error, scalar(net, 1))),
                   scalar(net, 0.5))  # fmt: skip


def scaled_attention(
    net: Net, qkv: tuple[str, str, str], deep: int, mask: str | None = None
) -> str:
    """scaled_dot_product_attention as it is exported: queries and keys times the root's root."""
    q, k, v = qkv
    root = deep**-0.25
    q = net.add("Mul", q, scalar(net, root))
    k = net.add("Mul", turn(net, k, 0, 1, 3, 2), scalar(net, root))
    scores = net.add("MatMul", q, k)
    if mask is not None:
        scores = net.add("Add", scores, mask)
    return net.add("MatMul", net.add("Softmax", scores, axis=-1), v)


def keras_conv(
    net: Net, x: str, inputs: int, outputs: int, kernel: int, stride: int = 1, group: int = 1
) -> str:
    """A Conv of "same" padding as TensorFlow pads: the odd row at the end."""
    total = max(kernel - stride, 0)
    before, after = total // 2, total - total // 2
    return net.add(
        "Conv", x, net.weight(outputs, inputs // group, kernel, kernel), net.weight(outputs),
        kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[before] * 2 + [after] * 2,
        group=group,
    )  # fmt: skip


def conv1d(
    net: Net,
    x: str,
    shape: tuple[int, int, int],
    stride: int = 1,
    dilation: int = 1,
    group: int = 1,
) -> str:
    """A 1-D Conv of inputs, outputs and an odd kernel, padded so that the length stays."""
    inputs, outputs, kernel = shape
    return net.add(
        "Conv", x, net.weight(outputs, inputs // group, kernel), net.weight(outputs),
        kernel_shape=[kernel], pads=[dilation * (kernel // 2)] * 2, dilations=[dilation],
        strides=[stride], group=group,
    )  # fmt: skip
