"""Quantized weights and biases of a model, made once and shared by its candidates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from onnx import NodeProto, TensorProto, helper

from placer.errors import InputError
from placer.graph import Edge, Node
from placer.graph.weights import WeightInput, added_bias, bias_input, is_row, weight_input
from placer.model import Model
from placer.qdq.fields import Initializers, Nodes
from placer.qdq.parts import PairName, claim, naming, new_tensor, pair_node
from placer.quantization import Scheme
from placer.quantization.neighbours import added_in_pairs, weight_magnitudes
from placer.quantization.numerics import (
    bias_scale,
    of_channels,
    quantize_bias,
    quantize_weight,
    quantized_dtype,
    weight_scale,
    weight_scale_for_bias,
)

# 255 times as much is within 16 bits.
_LARGEST_SUM = 128


@dataclass(frozen=True, eq=False)
class QuantizedConstant:
    """A quantized weight or bias: initializers and the DequantizeLinear that reads them."""

    scale: np.ndarray
    tensors: tuple[TensorProto, ...]
    node: NodeProto

    @cached_property
    def initializers(self) -> Initializers:
        """``tensors`` as they are written."""
        return Initializers(self.tensors)

    @cached_property
    def nodes(self) -> Nodes:
        """``node`` as it is written."""
        return Nodes(self.node)


class _Weighted(NamedTuple):
    """Weight and int32 bias of a node for one scale of its input."""

    input_scale: float
    per_tensor: bool
    weight: QuantizedConstant
    bias: QuantizedConstant


class WeightQuantizer:
    """Quantizes weights of one model under one scheme, and the biases that are added to them.

    Weights are int8 or FP8 with scales of their own, an imported model's where the scheme can have
    them. With ``scheme.weight_range`` reduced, a scale holds the sums of neighbours as well, where
    kernels may add them. With ``scheme.bias`` int32, the bias of a node whose input and weight are
    quantized is stored with scale input scale * weight scale; where it would overflow, that channel
    of the weight takes a larger scale.
    """

    def __init__(self, model: Model, scheme: Scheme, reads: Counter[str], taken: set[PairName]):
        """``reads``: how many edges read each tensor. ``taken``: names in use; gets those made."""
        self._model = model
        self._graph = model.graph
        self._scheme = scheme
        self._reads = reads
        self._taken = taken
        inputs = {node.name: weight_input(self._graph, node) for node in self._graph.nodes}
        self._weight_inputs = {name: weight for name, weight in inputs.items() if weight}
        self._weight_names = self._name_weights()
        nodes = [self._graph.by_name[name] for name in self._weight_inputs]
        self._biases = {n.name: edge for n in nodes if (edge := self._int32_bias(n)) is not None}
        self._in_pairs = self._added_in_pairs(nodes)
        added = {n.name: edge for n in nodes if (edge := self._added_bias(n)) is not None}
        self._products = {edge: name for name, edge in added.items()}
        self._added = added
        self._own_names = self._name_own_constants()
        self._weights: dict[tuple[str, int | None], QuantizedConstant] = {}
        self._weighted: dict[str, _Weighted] = {}
        self._arrays: dict[str, np.ndarray] = {}

    def is_weight(self, edge: Edge) -> bool:
        """Whether ``edge`` reads a weight, which has scales of its own."""
        weight = self._weight_inputs.get(edge.node)
        return weight is not None and weight.index == edge.input_index

    def bias_of(self, node: str) -> Edge | None:
        """Where ``node`` reads a bias that can be int32; None without one."""
        return self._biases.get(node)

    def added_bias_of(self, node: str) -> Edge | None:
        """Where the Add behind the MatMul ``node`` reads a bias that can be int32; None without."""
        return self._added.get(node)

    def product_of(self, bias: Edge) -> str | None:
        """The MatMul behind which an Add reads ``bias``; None where that cannot be int32."""
        return self._products.get(bias)

    def weight(self, edge: Edge, *, per_tensor: bool = False) -> QuantizedConstant:
        """The weight that ``edge`` reads, quantized by itself; ``per_tensor``: with one scale."""
        axis = None if per_tensor else self._axis(self._weight_inputs[edge.node])
        return self._weight(edge.tensor, axis)

    def check_scale(self, edge: Edge, dtype: np.dtype[Any]) -> None:
        """Raise ScaleError if ``dtype`` cannot hold the scales of the weight at ``edge``."""
        values = self._model.array(edge.tensor).astype(dtype)
        self._weight_scale(values, edge.tensor, self._axis(self._weight_inputs[edge.node]))

    def array(self, initializer: str) -> np.ndarray:
        """Values of an initializer; InputError if they are not finite."""
        if initializer not in self._arrays:
            values = self._model.array(initializer)
            if not np.isfinite(values.astype(np.float32)).all():
                raise InputError(
                    f"initializer '{initializer}' of {self._model.path} holds NaN or infinity; "
                    "export the model again"
                )
            self._arrays[initializer] = values
        return self._arrays[initializer]

    def with_bias(
        self, node: str, bias: Edge, input_scale: float, *, per_tensor: bool
    ) -> tuple[QuantizedConstant, QuantizedConstant]:
        """Weight and bias of ``node``, kept for the last input scale: few ranges ever change.

        ``per_tensor``: the weight has one scale.
        """
        known = self._weighted.get(node)
        if known is None or (known.input_scale, known.per_tensor) != (input_scale, per_tensor):
            known = self._make_with_bias(node, bias, input_scale, per_tensor=per_tensor)
            self._weighted[node] = known
        return known.weight, known.bias

    def _make_with_bias(
        self, node: str, edge: Edge, input_scale: float, *, per_tensor: bool
    ) -> _Weighted:
        source = self._weight_inputs[node]
        axis = None if per_tensor else self._axis(source)
        weight = self._weight(source.tensor, axis)
        bias = self.array(edge.tensor).reshape(-1)  # QGemm adds none of two dimensions.
        if bias.size == 1:  # Gemm broadcasts it.
            bias = np.broadcast_to(bias, weight.scale.size)
        scale = weight_scale_for_bias(weight.scale, bias, input_scale)
        if not np.array_equal(scale, weight.scale):
            # The bias would overflow: this node needs coarser weights of its own.
            name = self._own_names[node, source.index]
            weight = self._quantize(source.tensor, axis, scale, name)
        product = bias_scale(scale, bias.size, input_scale)
        parts = (quantize_bias(bias, product), product, np.zeros(product.shape, np.int32))
        bias_axis = 0 if product.ndim else None
        made = _make_constant(self._own_names[edge.node, edge.input_index], parts, bias_axis)
        return _Weighted(input_scale, per_tensor, weight, made)

    def _quantize(
        self, tensor: str, axis: int | None, scale: np.ndarray, name: PairName
    ) -> QuantizedConstant:
        parts = (
            quantize_weight(
                self.array(tensor), scale, axis, self._scheme.weight, self._lowest(tensor)
            ),
            scale,
            np.zeros(scale.shape, quantized_dtype(self._scheme.weight)),
        )
        return _make_constant(name, parts, axis)

    def _lowest(self, tensor: str) -> int:
        """Imported weights may use -128, which symmetric scales of placer's own never reach."""
        imported = self._model.imported
        return -128 if imported is not None and tensor in imported.weights else -127

    def _int32_bias(self, node: Node) -> Edge | None:
        """The bias of ``node`` to quantize.

        Gemm's alpha and beta would change the scale at which the engine adds the bias, so they
        must be 1; products of float16 scales underflow, so the bias must be float32.
        """
        index = bias_input(node)
        if self._scheme.bias != "int32" or index is None:
            return None
        if any(node.attributes.get(name, 1.0) != 1.0 for name in ("alpha", "beta")):
            return None
        tensor = self._graph.initializers.get(node.inputs[index])
        if tensor is None or tensor.data_type != TensorProto.FLOAT:
            return None
        if len(tensor.dims) != 1 and not is_row(self._graph, node.inputs[index]):
            return None
        return Edge(node.inputs[index], node.name, index)

    def _added_bias(self, node: Node) -> Edge | None:
        """The bias to quantize that is added behind the MatMul ``node``; float32, as above."""
        edge = added_bias(self._graph, node) if self._scheme.bias == "int32" else None
        if edge is None or self._graph.initializers[edge.tensor].data_type != TensorProto.FLOAT:
            return None
        return edge

    def _weight(self, tensor: str, axis: int | None) -> QuantizedConstant:
        key = (tensor, axis)
        if key not in self._weights:
            with naming(tensor):
                scale = self._weight_scale(self.array(tensor), tensor, axis)
            self._weights[key] = self._quantize(tensor, axis, scale, self._weight_names[key])
            if self._reads[tensor] == 1:
                del self._arrays[tensor]  # Only the quantized values are needed from here on.
        return self._weights[key]

    def _weight_scale(self, values: np.ndarray, tensor: str, axis: int | None) -> np.ndarray:
        """The scale that an imported model had, where the scheme can have it, else placer's own.

        An imported one that leaves no room for sums which are to be held is not kept.

        In the type of ``values``; raises ScaleError if that cannot hold it.
        """
        imported, known = self._model.imported, None
        if imported is not None and not self._scheme.is_float8:
            known = imported.weight_scale(tensor, axis, values.shape)
        readers = self._in_pairs.get(tensor, [])
        if known is not None and not readers:
            return of_channels(known, values.dtype)
        held = [weight_magnitudes(values, r, self._weight_inputs[r.name]) for r in readers]
        largest = np.maximum.reduce(held) if held else values
        own = weight_scale(largest, axis, self._scheme.weight, values.dtype)
        if known is not None and np.all(own <= known * (_LARGEST_SUM / 127)):
            return of_channels(known, values.dtype)
        return own

    def _added_in_pairs(self, nodes: Sequence[Node]) -> dict[str, list[Node]]:
        """By weight the nodes that may add products of neighbours, if their sums are to be held."""
        found: dict[str, list[Node]] = {}
        for node in nodes if self._scheme.weight_range == "reduced" else ():
            weight = added_in_pairs(self._graph, node)
            if weight is not None:
                found.setdefault(weight.tensor, []).append(node)
        return found

    def _name_weights(self) -> dict[tuple[str, int | None], PairName]:
        """Name each weight in node order, so that no name depends on earlier insertions."""
        names: dict[tuple[str, int | None], PairName] = {}
        for weight in self._weight_inputs.values():
            key = (weight.tensor, self._axis(weight))
            if key not in names:
                names[key] = claim(weight.tensor, self._taken, self._taken)
        for tensor, _ in list(names):
            if (tensor, None) not in names:
                names[tensor, None] = self._name_per_tensor(tensor)
        return names

    def _name_per_tensor(self, tensor: str) -> PairName:
        """The name of a weight with one scale, beyond all that other uses of it may claim."""
        number = 2 * self._reads[tensor]
        while PairName(tensor, number) in self._taken:
            number += 1
        self._taken.add(PairName(tensor, number))
        return PairName(tensor, number)

    def _name_own_constants(self) -> dict[tuple[str, int], PairName]:
        """Name, for nodes whose bias may be int32, that bias and a weight of the node's own."""
        names: dict[tuple[str, int], PairName] = {}
        for node, edge in (*self._biases.items(), *self._added.items()):
            weight, bias = self._weight_inputs[node], edge.tensor
            base = bias if self._reads[bias] == 1 else f"{edge.node}/{bias}"
            # What an Add reads may get a pair as any constant, of the same name, instead.
            made = self._taken if node in self._biases else set()
            names[edge.node, edge.input_index] = claim(base, self._taken, made)
            base = f"{node}/{weight.tensor}"
            names[node, weight.index] = claim(base, self._taken, self._taken)
        return names

    def _axis(self, weight: WeightInput) -> int | None:
        return weight.axis if self._scheme.per_channel else None


def _make_constant(
    name: PairName, parts: tuple[np.ndarray, np.ndarray, np.ndarray], axis: int | None
) -> QuantizedConstant:
    """Constant of quantized values, scale and zero point; channels lie along ``axis``."""
    names = [name.of(part) for part in ("quantized", "scale", "zero_point")]
    node = pair_node("DequantizeLinear", name, names, name.of("dequantized"))
    if axis is not None:
        node.attribute.append(helper.make_attribute("axis", axis))
    tensors = tuple(new_tensor(n, part) for n, part in zip(names, parts, strict=True))
    return QuantizedConstant(parts[1], tensors, node)
