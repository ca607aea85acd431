"""An engine's layers after fusion, actual or predicted, in one form for all engines."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Layer:
    """One layer of a plan.

    ``nodes``: names of the float model's nodes that it covers (Q/DQ nodes left out).
    ``inputs`` and ``outputs``: tensor types as ONNX names, e.g. ``uint8``, ``float``.
    ``time_us``: measured (or, in an estimated plan, estimated) time in microseconds.
    """

    name: str
    op: str
    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    time_us: float | None = None


@dataclass(frozen=True)
class Plan:
    """The layers in execution order; ``estimated`` is set unless an engine reported them."""

    layers: tuple[Layer, ...]
    estimated: bool = False
