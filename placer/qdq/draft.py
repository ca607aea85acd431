"""What one insertion adds to a model, before it is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from placer.qdq.fields import Initializers, Nodes
from placer.qdq.parts import PairName, naming
from placer.qdq.weights import QuantizedConstant
from placer.quantization import FLOAT8, Ranges, Scheme, union
from placer.quantization.numerics import Quantization, activation_quantization, quantized_dtype


class ScaleNames(NamedTuple):
    """A group of activations: its tensors, its scale by the initializer's name, and their values.

    ``dtype``: of the scale. ``integer``: type of the quantized values. ``scheme``: what follows
    from the range.
    """

    tensors: tuple[str, ...]
    scale: str
    quantization: Quantization
    dtype: np.dtype[Any]
    integer: np.dtype[Any]
    scheme: Scheme

    def with_ranges(self, ranges: Ranges) -> ScaleNames:
        """The group with other ``ranges``; ScaleError if its type cannot hold the scale."""
        whole = union(ranges[tensor] for tensor in self.tensors)
        with naming(*self.tensors):
            quantization = activation_quantization(whole, self.scheme, self.dtype)
        integer = quantized_dtype(self.scheme.of(whole.low).activation)
        return self._replace(quantization=quantization, integer=integer)

    @property
    def is_float8(self) -> bool:
        """Whether the quantized values are FP8."""
        return self.integer == quantized_dtype(FLOAT8)


@dataclass(eq=False)
class Draft:
    """What one insertion adds: gathered first, then written in node order."""

    reads: dict[tuple[str, int], str] = field(default_factory=dict)  # new tensor by (node, input)
    outputs: dict[str, str] = field(default_factory=dict)  # float name of outputs a pair writes
    behind: dict[str, list[Nodes]] = field(default_factory=dict)  # by producing tensor
    before: dict[str, list[Nodes]] = field(default_factory=dict)  # by consumer node
    initializers: dict[str, Initializers] = field(default_factory=dict)  # by the first one's name
    names: set[PairName] = field(default_factory=set)
    scales: dict[tuple[str, int], Quantization] = field(default_factory=dict)
    groups: list[ScaleNames] = field(default_factory=list)

    def reads_by_node(self) -> dict[str, list[tuple[int, str]]]:
        """``reads`` by node: the index of each input and its new tensor."""
        by_node: dict[str, list[tuple[int, str]]] = {}
        for (node, index), tensor in self.reads.items():
            by_node.setdefault(node, []).append((index, tensor))
        return by_node

    def add_all(self, other: Draft) -> None:
        """Add what ``other`` adds, but for its names."""
        self.reads.update(other.reads)
        self.outputs.update(other.outputs)
        self.initializers.update(other.initializers)
        self.scales.update(other.scales)
        self.groups += other.groups
        for nodes_of, more in ((self.behind, other.behind), (self.before, other.before)):
            for key, nodes in more.items():
                nodes_of.setdefault(key, []).extend(nodes)

    def add_constant(self, constant: QuantizedConstant, reader: str) -> None:
        """Add a quantized constant before the node ``reader`` unless it is there already."""
        if constant.initializers.first not in self.initializers:
            self.initializers[constant.initializers.first] = constant.initializers
            self.before.setdefault(reader, []).append(constant.nodes)
