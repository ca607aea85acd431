"""Blocks of a stage that go to maps of half the size and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from placer.fitting.convolution_blocks import residual
from placer.fitting.net import Act, Net, sized_conv
from placer.fitting.stage_pieces import dense_or_point


def sizes_summed(net: Net, x: str, act: Act) -> str:
    """Maps of half the size resized and added, as in pyramids (Wang et al. 2019)."""
    whole = net.shape
    channels = whole[1]
    y = act(net, sized_conv(net, x, channels, (3, 3), 2, group=channels))
    y = act(net, dense_or_point(net, y, channels))
    mode = str(net.rng.choice(["nearest", "linear", "linear", "cubic"]))
    how: dict[str, Any] = {}
    if mode == "nearest":
        how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    elif mode == "cubic":
        how = {"cubic_coeff_a": -0.75}
    sizes = net.constant(np.array(whole, np.int64))
    y = net.add("Resize", y, "", "", sizes, mode=mode, **how)
    net.shape = whole
    return act(net, net.add("Add", y, x))


def transposed(net: Net, x: str, act: Act) -> str:
    """To half the size and back by a transposed convolution of each channel or all."""
    whole = net.shape
    _, channels, size, _ = whole
    if size % 2:
        return residual(net, x, act)
    y = act(net, sized_conv(net, x, channels, (3, 3), 2, group=channels))
    kernel, group = ((2, 1), (3, channels))[int(net.rng.integers(2))]
    pads = {"pads": [1, 1, 1, 1], "output_padding": [1, 1]} if kernel == 3 else {}
    y = net.add("ConvTranspose", y, net.weight(channels, channels // group, kernel, kernel),
                kernel_shape=[kernel] * 2, strides=[2, 2], group=group, **pads)  # fmt: skip
    net.shape = whole
    return net.add("Add", y, x)
