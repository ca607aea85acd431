"""Sequences, tokens and pixels with their channels last, in networks shorter than a millisecond.

What ``networks`` and ``short_networks`` lack: one-dimensional, dilated and large depthwise
convolutions, recurrent layers, norms and linear layers of pixels, other norms and gates of tokens.
"""

from __future__ import annotations

import numpy as np
import onnx

from placer.fitting.net import Act, Net, attention, gelu, linear, normed, relu, silu, sized_conv

# --- sequences ------------------------------------------------------------------------------


def sequence(seed: int) -> onnx.ModelProto:
    """One-dimensional convolutions over time, some behind a recurrent layer."""
    rng = np.random.default_rng(seed)
    steps, channels = int(rng.choice([64, 128, 256])), int(rng.choice([16, 32, 64]))
    net = Net((1, int(rng.choice([1, 16, 40])), steps), seed)
    act: Act = (relu, gelu, silu)[int(rng.integers(3))]
    x = act(
        net, sized_conv(net, "input", channels, (int(rng.choice([3, 7])),), int(rng.choice([1, 2])))
    )
    block = (_gated_steps, _residual_steps, _depthwise_steps)[seed % 3]
    for number in range(int(rng.integers(2, 5))):
        x = block(net, x, act, 2**number)
    if seed % 2:
        x = _recurrent(net, x, str(rng.choice(["GRU", "LSTM"])))
        return net.model(linear(net, x, net.shape[-1], 16))
    return net.model(sized_conv(net, x, 16, (1,)))


def _gated_steps(net: Net, x: str, _act: Act, dilation: int) -> str:
    """Tanh times Sigmoid of dilated convolutions (van den Oord et al. 2016)."""
    channels = net.shape[1]
    filtered = net.add("Tanh", sized_conv(net, x, channels, (3,), dilation=dilation))
    gate = net.add("Sigmoid", sized_conv(net, x, channels, (3,), dilation=dilation))
    return net.add("Add", sized_conv(net, net.add("Mul", filtered, gate), channels, (1,)), x)


def _residual_steps(net: Net, x: str, act: Act, dilation: int) -> str:
    """Two dilated convolutions and what they add to (Bai et al. 2018)."""
    channels = net.shape[1]
    y = act(net, sized_conv(net, x, channels, (3,), dilation=dilation))
    y = act(net, sized_conv(net, y, channels, (3,), dilation=dilation))
    return act(net, net.add("Add", y, x))


def _depthwise_steps(net: Net, x: str, act: Act, _dilation: int) -> str:
    """A norm, a wide depthwise convolution and two of a step (Gulati et al. 2020)."""
    channels = net.shape[1]
    y = net.transpose(normed(net, net.transpose(x, 0, 2, 1)), 0, 2, 1)
    y = sized_conv(net, y, channels, (15,), group=channels)
    y = act(net, sized_conv(net, y, 2 * channels, (1,)))
    return net.add("Add", sized_conv(net, y, channels, (1,)), x)


def _recurrent(net: Net, x: str, op: str) -> str:
    channels, gates = net.shape[1], {"GRU": 3, "LSTM": 4}[op]
    hidden = int(net.rng.choice([16, 32, 64]))
    y = net.transpose(x, 2, 0, 1)
    weights = (
        net.constant(net.rng.normal(0, 0.1, (1, gates * hidden, inputs)).astype(np.float32))
        for inputs in (channels, hidden)
    )
    steps = net.shape[0]
    y = net.add_many(op, (y, *weights), 2, hidden_size=hidden)[0]
    net.shape = (steps, 1, 1, hidden)
    return net.reshape(y, steps, 1, hidden)


# --- channels last --------------------------------------------------------------------------


def channels_last(seed: int) -> onnx.ModelProto:
    """Large depthwise convolutions, norms and linear layers by pixel (Liu et al. 2022)."""
    rng = np.random.default_rng(seed)
    size, width = int(rng.choice([32, 48, 64])), int(rng.choice([16, 32, 48]))
    net = Net((1, 3, size, size), seed)
    x = net.same_conv("input", net.weight(width, 3, 4, 4), 4)
    net.shape = (1, width, size // 4 + 1, size // 4 + 1)
    for number in range(int(rng.integers(2, 5))):
        if number == 2:
            x = sized_conv(net, x, 2 * net.shape[1], (3, 3), 2)
        x = _mixed_pixels(net, x)
    channels = net.shape[1]
    flat = net.add("Flatten", net.add("GlobalAveragePool", x))
    return net.model(net.add("Gemm", flat, net.weight(channels, 10)))


def _mixed_pixels(net: Net, x: str) -> str:
    channels = net.shape[1]
    y = sized_conv(net, x, channels, (7, 7), group=channels)
    y = normed(net, net.transpose(y, 0, 2, 3, 1))
    y = gelu(net, linear(net, y, channels, 4 * channels))
    y = linear(net, y, 4 * channels, channels)
    if net.rng.random() < 0.5:
        y = net.add("Mul", y, net.constant(np.full(channels, 0.1, np.float32)))
    return net.add("Add", net.transpose(y, 0, 3, 1, 2), x)


# --- few tokens -----------------------------------------------------------------------------


def few_tokens(seed: int) -> onnx.ModelProto:
    """A small transformer: norms by root mean square, gated linear layers, mixed tokens, ..."""
    rng = np.random.default_rng(seed)
    count, width = int(rng.choice([16, 32, 64])), int(rng.choice([32, 64, 96]))
    net = Net((1, count, width), seed)
    norm = (normed, _root_mean_square)[seed % 2]
    x = "input"
    for _ in range(int(rng.integers(1, 4))):
        mix = (_mixed_tokens, attention)[int(rng.integers(4)) > 0]
        x = net.add("Add", mix(net, norm(net, x), int(rng.choice([2, 4]))), x)
        layer = (_gated_linear, _two_linear)[(seed // 2) % 2]
        x = net.add("Add", layer(net, norm(net, x), width), x)
    return net.model(linear(net, norm(net, x), width, 16))


def _root_mean_square(net: Net, x: str) -> str:
    """Zhang & Sennrich 2019."""
    mean = net.add("ReduceMean", net.add("Pow", x, net.scalar(2)), axes=[-1])
    root = net.add("Sqrt", net.add("Add", mean, net.scalar(1e-5)))
    gain = net.constant(np.full(net.shape[-1], 1, np.float32))
    return net.add("Mul", net.add("Div", x, root), gain)


def _mixed_tokens(net: Net, x: str, _heads: int) -> str:
    """Linear layers over the tokens (Tolstikhin et al. 2021)."""
    _, count, _ = net.shape
    y = gelu(net, linear(net, net.transpose(x, 0, 2, 1), count, 2 * count))
    y = linear(net, y, 2 * count, count)
    return net.transpose(y, 0, 2, 1)


def _gated_linear(net: Net, x: str, width: int) -> str:
    """Shazeer 2020."""
    gate = silu(net, linear(net, x, width, 2 * width))
    return linear(net, net.add("Mul", gate, linear(net, x, width, 2 * width)), 2 * width, width)


def _two_linear(net: Net, x: str, width: int) -> str:
    return linear(net, gelu(net, linear(net, x, width, 3 * width)), 3 * width, width)
