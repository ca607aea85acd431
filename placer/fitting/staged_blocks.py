"""Blocks of a stage of a network for images, of families of which each has layers of its own kind.

Grouped and split convolutions, pooled and windowed attention, unfused norms, gates, sums of
resized maps.
"""

from __future__ import annotations

from collections.abc import Callable

from placer.fitting.attention_blocks import (
    attended,
    linear_attention,
    over_channels,
    over_tokens,
    windows,
)
from placer.fitting.convolution_blocks import (
    bottleneck,
    branched_sum,
    cross_stage,
    densely,
    eight_groups,
    ghost,
    grouped,
    in_scales,
    inverted,
    partial,
    residual,
    several_each,
    unequal,
)
from placer.fitting.mixer_blocks import (
    focal,
    gated,
    layers_first,
    layers_last,
    pooled,
    split_attention,
    star,
)
from placer.fitting.net import Act, Net
from placer.fitting.resized_blocks import sizes_summed, transposed

BLOCKS: tuple[Callable[[Net, str, Act], str], ...] = (
    residual, bottleneck, grouped, eight_groups, several_each, inverted, ghost, partial,
    branched_sum, in_scales, densely, unequal, cross_stage, layers_last, layers_first,
    pooled, star, gated, focal, split_attention, attended, windows, linear_attention,
    over_channels, over_tokens, sizes_summed, transposed, residual,
)  # fmt: skip
