"""Find the tensors and weights of an OpenVINO IR in the ONNX model that it was made from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from onnx import numpy_helper

from placer.graph import Edge, Node
from placer.graph.external_data import digest
from placer.graph.weights import WEIGHTED_OPS, WeightInput, weight_input
from placer.importing.fake_quantize import (
    Quantized,
    QuantizedActivation,
    QuantizedWeight,
    Reader,
    with_256_levels,
)
from placer.model import Model
from placer.model.quantized import ActivationScale, Imported, WeightScale
from placer.quantization import Placement

# A weight is the float model's if no value is further off than it was rounded.
_ROUNDED = 0.51
# How far off a whole number zero may be, in steps.
_ZERO_POINT_ERROR = 0.01


@dataclass(frozen=True, eq=False)
class Matched:
    """What of an IR is found in the ONNX model.

    ``by_name``, ``by_structure``: how many activations and weights were found how. ``unmatched``: a
    sentence for each that was not.
    """

    imported: Imported
    by_name: int
    by_structure: int
    unmatched: tuple[str, ...]


def match_ir(quantized: Quantized, model: Model, source: Path) -> Matched:
    """Scales and places of ``quantized`` on ``model``, which the IR at ``source`` was made from.

    Tensors are found by the names that OpenVINO keeps. Where names differ, weights are found by
    their values, activations as what a node with such a weight reads or, if each side has one
    such node only, by what reads them.
    """
    return _Matcher(quantized, model).matched(source)


@dataclass(eq=False)
class _Matcher:
    quantized: Quantized
    model: Model
    activations: dict[str, ActivationScale] = field(default_factory=dict)
    weights: dict[str, WeightScale] = field(default_factory=dict)
    groups: list[frozenset[Edge]] = field(default_factory=list)
    unmatched: list[str] = field(default_factory=list)
    by_name: int = 0
    by_structure: int = 0
    # The ONNX node that computes with a weight, by the IR's reader.
    nodes: dict[Reader, Node] = field(default_factory=dict)
    found: set[str] = field(default_factory=set)  # Weights, by tensor.

    def matched(self, source: Path) -> Matched:
        self.unmatched += self.quantized.unsupported
        for weight in self.quantized.weights:
            self._weight(weight)
        for activation in self.quantized.activations:
            self._activation(activation)
        imported = Imported(
            proto=self.model.proto,
            source=f"OpenVINO IR {source.name}, FakeQuantize",
            activations=self.activations,
            weights=self.weights,
            placement=Placement.of_groups(self.groups),
            notes=tuple(self.unmatched),
        )
        return Matched(imported, self.by_name, self.by_structure, tuple(self.unmatched))

    def _weight(self, weight: QuantizedWeight) -> None:
        graph = self.model.graph
        named = self._node_of(weight.reader)
        by_name = [] if named is None else [named]
        others = [node for nodes in map(graph.by_op.get, WEIGHTED_OPS) for node in nodes or ()]
        for node in (*by_name, *others):
            weight_port = weight_input(graph, node)
            if weight_port is None or weight_port.tensor in self.found:
                continue
            scale = self._scale_of(weight, weight_port.tensor)
            if scale is not None:
                self._keep_scale(weight, scale, weight_port)
                self.groups.append(
                    frozenset({Edge(weight_port.tensor, node.name, weight_port.index)})
                )
                self.nodes[weight.reader] = node
                self.found.add(weight_port.tensor)
                self._count(is_named=node is named)
                return
        self.unmatched.append(f"weight '{weight.name}': no weight of the ONNX model has its values")

    def _keep_scale(
        self, weight: QuantizedWeight, scale: np.ndarray, weight_port: WeightInput
    ) -> None:
        """Keep ``scale`` for the ONNX model's weight ``weight_port``, if Q/DQ can express it."""
        kept = _along(scale, weight_port.axis)
        if kept is None:
            self.unmatched.append(
                f"weight '{weight.name}': its scales are not one per output channel, so it is "
                f"quantized with those of the values of '{weight_port.tensor}'"
            )
            return
        axis = 0 if weight_port.axis is None else weight_port.axis
        tensor = self.model.graph.initializers[weight_port.tensor]
        self.weights[weight_port.tensor] = WeightScale(kept, axis, digest(tensor))

    def _count(self, *, is_named: bool) -> None:
        self.by_name += is_named
        self.by_structure += not is_named

    def _scale_of(self, weight: QuantizedWeight, tensor: str) -> np.ndarray | None:
        """Scale of each value of the initializer, in its shape; None if its values are others."""
        values = self._values.get(tensor)
        if values is None or values.size != weight.values.size:
            return None
        for turned in (False, True):
            stored, scale = weight.values, weight.scale
            if turned:
                if stored.ndim < 2:
                    return None
                stored, scale = (np.swapaxes(array, -1, -2) for array in (stored, scale))
            stored, scale = stored.reshape(values.shape), scale.reshape(values.shape)
            if np.all(np.abs(values - stored) <= _ROUNDED * scale):
                return scale
        return None

    @cached_property
    def _values(self) -> Mapping[str, np.ndarray]:
        """Float initializers that are weights."""
        graph, folder = self.model.graph, str(self.model.base_dir)
        inputs = (weight_input(graph, node) for node in graph.nodes)
        return {
            weight_port.tensor: numpy_helper.to_array(
                graph.initializers[weight_port.tensor], folder
            )
            for weight_port in inputs
            if weight_port is not None
        }

    def _activation(self, activation: QuantizedActivation) -> None:
        try:
            scale = _activation_scale(activation)
            tensor, is_named = self._tensor_of(activation)
            edges = frozenset(self._edges(activation, tensor))
        except LookupError as error:
            self.unmatched.append(f"activation '{activation.name}': {error.args[0]}")
            return
        if self.activations.setdefault(tensor, scale) != scale:
            self.unmatched.append(
                f"activation '{activation.name}': '{tensor}' has another scale elsewhere"
            )
            return
        taken = frozenset().union(*self.groups)
        self.groups.append(edges - taken)
        self._count(is_named=is_named)

    def _tensor_of(self, activation: QuantizedActivation) -> tuple[str, bool]:
        graph = self.model.graph
        known = {*graph.inputs, *graph.producer}
        named = sorted(activation.tensors & known)
        if named:
            return named[0], True
        for reader in activation.readers:
            node = self.nodes.get(reader)
            weight = None if node is None else weight_input(graph, node)
            if node is not None and weight is not None:
                return node.inputs[1 - weight.index], False
        raise LookupError("the ONNX model has no tensor of its name")

    def _edges(self, activation: QuantizedActivation, tensor: str) -> Iterator[Edge]:
        """Where the ONNX model reads ``tensor`` quantized."""
        edges = self.model.graph.edges_of(tensor)
        nodes = [self._node_of(reader) for reader in activation.readers]
        names = {node.name for node in nodes if node is not None}
        outputs = {reader.output for reader in activation.readers if reader.output}
        matching = [
            edge
            for edge in edges
            if (edge.tensor in outputs if edge.is_graph_output else edge.node in names)
        ]
        if not matching and len(edges) == len(activation.readers):
            matching = list(edges)  # All are quantized, whatever they are called.
        if not matching:
            raise LookupError(f"what reads '{tensor}' is not found in the ONNX model")
        yield from matching

    def _node_of(self, reader: Reader) -> Node | None:
        """The ONNX node of a reader, by the names of what it writes, or by its weight."""
        producer = self.model.graph.producer
        named: Iterable[str] = sorted(reader.tensors & producer.keys())
        return next((producer[name] for name in named), self.nodes.get(reader))


def _along(scale: np.ndarray, axis: int | None) -> np.ndarray | None:
    """The scale of shape () or (channels,) that gives ``scale``, None if there is none."""
    if np.all(scale == scale.flat[0]):
        return np.asarray(scale.flat[0], np.float32)
    if axis is None:
        return None
    others = tuple(i for i in range(scale.ndim) if i != axis % scale.ndim)
    largest: np.ndarray = scale.max(axis=others).astype(np.float32)
    return largest if np.array_equal(scale.min(axis=others), largest) else None


def _activation_scale(activation: QuantizedActivation) -> ActivationScale:
    """As uint8 with the zero point that makes zero exact; LookupError if none does."""
    wide = with_256_levels(activation)
    scale = (wide.high - wide.low) / (wide.levels - 1)
    zero_point = -wide.low / scale
    whole = round(zero_point)
    if abs(zero_point - whole) > _ZERO_POINT_ERROR or not 0 <= whole < wide.levels:
        raise LookupError("zero is not a level of its range")
    return ActivationScale(float(np.float32(scale)), whole, 0, wide.levels - 1, "uint8")
