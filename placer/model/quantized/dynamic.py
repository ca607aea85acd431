"""Integer products whose scales are multiplied in behind them: MatMulInteger and ConvInteger.

ONNX Runtime's dynamic quantization writes DynamicQuantizeLinear -> MatMulInteger -> Cast ->
Mul(scale of the input * scale of the weight). The operators themselves know no scales, so the
float product can only be written where they are multiplied in. Before version 1.7 it also quantized
biases at run time, by Div(bias, scale of the input * scale of the weight) -> Floor -> Cast, and
added them to the integers before these were cast. Others write a DequantizeLinear in the place of
Cast and Mul, and where the scale of the input is a constant, a bias of int32 is one, too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from onnx import NodeProto

FLOAT_OPS = {"MatMulInteger": "MatMul", "ConvInteger": "Conv"}


@dataclass(frozen=True, eq=False)
class Factor:
    """A product of scales: names of those computed at run time, and the value of the others."""

    symbols: tuple[str, ...]
    value: np.ndarray

    def times(self, other: Factor) -> Factor:
        """Product of both."""
        return Factor(tuple(sorted(self.symbols + other.symbols)), self.value * other.value)

    def over(self, other: Factor) -> Factor | None:
        """What is left of this without ``other``; None if ``other`` is no part of it."""
        mine, theirs = Counter(self.symbols), Counter(other.symbols)
        sizes = {self.value.size, other.value.size} - {1}
        if theirs - mine or len(sizes) > 1:
            return None
        return Factor(tuple(sorted((mine - theirs).elements())), self.value / other.value)


@dataclass(frozen=True, eq=False)
class Bias:
    """Integers that stand for the float tensor ``tensor``, rounded to multiples of ``scale``.

    Without ``scale`` they are the constant ``tensor`` itself, in steps of what the product has.
    """

    tensor: str
    scale: Factor | None

    def has_scale(self, scale: Factor) -> bool:
        """Whether ``scale``, of a shape that broadcasts to the product's, is this bias's scale."""
        if self.scale is None:
            return not scale.symbols
        if self.scale.symbols != scale.symbols:
            return False
        try:
            return bool(np.allclose(self.scale.value, scale.value, rtol=1e-6, atol=0))
        except ValueError:  # Their shapes do not broadcast.
            return False


@dataclass(frozen=True, eq=False)
class Product:
    """The int32 result of ``node``, a MatMulInteger or ConvInteger, and of what is added to it."""

    node: NodeProto
    bias: Bias | None = None


def known(value: np.ndarray) -> Factor:
    """A factor without names."""
    return Factor((), np.asarray(value, np.float64))
