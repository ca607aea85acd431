"""An engine's layers after fusion, actual or predicted, in one form for all engines."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

# quantize, dequantize, requantize and reformat layers convert tensors and compute nothing else.
Kind = Literal["compute", "quantize", "dequantize", "requantize", "reformat", "no-op"]


@dataclass(frozen=True)
class Port:
    """A tensor as a layer reads or writes it; what an engine does not say is empty.

    ``dtype``: ONNX name of the element type, e.g. ``int8``, ``float16``, ``float``.
    ``format``: memory format in the engine's words.
    ``tensor``: the engine's name of the tensor.
    """

    dtype: str
    format: str = ""
    tensor: str = ""


@dataclass(frozen=True)
class Layer:
    """One layer of a plan.

    ``nodes``: names of the float model's nodes that it covers (Q/DQ nodes left out).
    ``activation``: what the engine says was fused without naming a node, e.g. ``RELU``.
    ``kernel``: the implementation in the engine's words, e.g. ``brgconv_avx512_I8``.
    ``time_us``: time in microseconds, measured unless the plan says that it is an estimate.
    """

    name: str
    op: str
    nodes: tuple[str, ...]
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    kind: Kind = "compute"
    activation: str = ""
    kernel: str = ""
    time_us: float | None = None

    @property
    def input_types(self) -> tuple[str, ...]:
        """Element types read."""
        return tuple(port.dtype for port in self.inputs)

    @property
    def output_types(self) -> tuple[str, ...]:
        """Element types written."""
        return tuple(port.dtype for port in self.outputs)


@dataclass(frozen=True)
class Plan:
    """The layers in execution order.

    ``source``: who says so, e.g. ``TensorRT 8 inspector`` or ``fusion-model``.
    ``estimated`` is set unless an engine reported the layers. ``estimated_times``: it did, and the
    times of the layers are estimates nevertheless. ``removed``: names of the float
    model's nodes that the engine does without, as far as it is known.
    """

    layers: tuple[Layer, ...]
    source: str = ""
    estimated: bool = False
    removed: tuple[str, ...] = ()
    estimated_times: bool = False

    def of_kind(self, *kinds: Kind) -> tuple[Layer, ...]:
        """The layers of these kinds, in order."""
        return tuple(layer for layer in self.layers if layer.kind in kinds)

    def time_share(self, ops: Collection[str]) -> float | None:
        """The share of the layers of operators ``ops`` in the time of all; None without times."""
        total = total_us(self.layers)
        if not total:  # OpenVINO tells whole microseconds, which small layers do not fill.
            return None
        return total_us(layer for layer in self.layers if layer.op in ops) / total


def total_us(layers: Iterable[Layer]) -> float:
    """Sum of the layers' times in microseconds; a layer without a time counts as 0."""
    return sum(layer.time_us or 0.0 for layer in layers)
