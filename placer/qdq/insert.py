"""Insert Q/DQ pairs into a float model as a placement says."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper

from placer.errors import InputError
from placer.graph import Edge
from placer.graph.operators import STANDARD_DOMAINS
from placer.model import Model
from placer.qdq.candidate_writer import CandidateWriter
from placer.qdq.draft import Draft, ScaleNames
from placer.qdq.fields import Initializers, Nodes
from placer.qdq.parts import PairName, claim, naming, new_tensor, pair_node, taken_names
from placer.qdq.weights import WeightQuantizer
from placer.quantization import Format, Placement, Range, Ranges, Scheme, union
from placer.quantization.numerics import (
    Quantization,
    activation_quantization,
    quantize_activation,
    quantized_dtype,
)

_HALF = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
KEPT_GROUPS = 1 << 14
_OPSET_OF_HALF = 19  # From here on QuantizeLinear takes float16 and bfloat16, and makes FP8.


class Inserter:
    """Builds candidates of one model under one scheme.

    Activations and other constants get one scale per tensor; weights and biases are those of
    ``WeightQuantizer``.

    Quantized weights and biases rarely depend on the placement: they are made once and copied.
    """

    def __init__(self, model: Model, scheme: Scheme) -> None:
        self.model = model
        self._graph = model.graph
        self.scheme = scheme
        self._opset = max(
            e.version for e in model.proto.opset_import if e.domain in STANDARD_DOMAINS
        )
        reads = Counter(t for t, edges in self._graph.consumers.items() for _ in edges)
        self._writer = CandidateWriter(model, scheme, reads)
        self._taken = taken_names(self._graph)
        # Edges that may carry a pair, by its format.
        self._checked: set[tuple[Edge, Format | None]] = set()
        # What a group of edges adds by its names, ranges and format: placements differ in few.
        self._made: dict[Hashable, Draft] = {}
        # Its names come first: they are the same whatever other formats there are.
        self._weights = WeightQuantizer(model, scheme, reads, self._taken)
        self._in_format = {
            chosen: WeightQuantizer(model, scheme.in_format(chosen), reads, self._taken)
            for chosen in scheme.formats
        }

    def is_weight(self, edge: Edge) -> bool:
        """Whether ``edge`` reads a weight, which has scales of its own."""
        return self._weights.is_weight(edge)

    def check_scale(self, edge: Edge, ranges: Ranges, dtype: np.dtype[Any]) -> None:
        """Raise ScaleError if ``dtype`` cannot hold a scale that ``edge`` may have by itself."""
        for chosen in (None, *self.scheme.formats):
            if self.is_weight(edge):
                self._quantizer(chosen).check_scale(edge, dtype)
            else:
                scheme = self.scheme.in_format(chosen)
                activation_quantization(self._range(edge.tensor, ranges), scheme, dtype)

    def insert(self, placement: Placement, ranges: Ranges) -> ModelProto:
        """Return the candidate of ``placement``.

        ``ranges`` holds every quantized activation. Pairs are named after their tensor:
        ``T/QuantizeLinear``, ``T/DequantizeLinear``, ``T/scale``, ``T/zero_point``, with a number
        behind where that is taken. Graph outputs keep their names and types; what computes a
        quantized one writes ``T/float``. A weight has scales of its own whatever its group.
        Raises InputError for an edge that the model does not have or that lies in a subgraph, a
        group in a format that the scheme does not have, a tensor whose type QuantizeLinear does not
        take, or a missing or infinite range, RunError for a scale that the tensor's type cannot
        hold.
        """
        draft = Draft()
        groups = placement.sorted()
        for group in groups:
            for edge in group:
                if (edge, placement.formats.get(edge)) not in self._checked:
                    self._check(edge, self._scheme_at(edge, placement))
                    self._checked.add((edge, placement.formats.get(edge)))
            self._draft_group(self._without_biases(group, placement), ranges, draft, placement)
        for group in groups:
            for edge in group:
                self._draft_weight(edge, placement, draft)
        return self._writer.write(draft)

    def scales(self, placement: Placement, ranges: Ranges) -> list[ScaleNames]:
        """What ``insert`` gives to groups of activations that have no constant in them.

        Raises what ``insert`` raises for ranges.
        """
        draft = Draft()
        for group in placement.sorted():
            self._draft_group(self._without_biases(group, placement), ranges, draft, placement)
        constants = self._graph.initializers.keys()
        return [scale for scale in draft.groups if constants.isdisjoint(scale.tensors)]

    def _without_biases(self, group: list[Edge], placement: Placement) -> list[Edge]:
        """``group`` without biases that are int32; see ``_added_bias``."""
        products = ((edge, self._weights.product_of(edge)) for edge in group)
        return [e for e, node in products if not node or self._added_bias(node, placement) is None]

    def _added_bias(self, node: str, placement: Placement) -> Edge | None:
        """The bias that is added behind the MatMul ``node`` and is int32 in ``placement``.

        That is one with a pair where both operands have one and the product has none. ONNX Runtime
        makes MatMul and Add a Gemm and that, for int32 biases only, a QGemm that may write float.
        """
        bias = self._weights.added_bias_of(node)
        if bias is None or bias not in placement.edges:
            return None
        operands = self._graph.edges_into(self._graph.by_name[node])
        product = self._graph.by_name[node].outputs[0]
        is_alone = placement.edges.isdisjoint(self._graph.edges_of(product))
        return bias if is_alone and placement.edges.issuperset(operands) else None

    def _scheme_at(self, edge: Edge, placement: Placement) -> Scheme:
        """The scheme of the format that ``placement`` has at ``edge``."""
        chosen = placement.formats.get(edge)
        if chosen is None or chosen == self.scheme.activation:
            return self.scheme
        if chosen not in self.scheme.formats:
            raise InputError(
                f"the placement quantizes {edge} to {chosen}, which is not a format of its scheme; "
                "give a scheme with several formats, as int8-and-fp8 of pack tensorrt"
            )
        return self.scheme.in_format(chosen)

    def _quantizer(self, chosen: Format | None) -> WeightQuantizer:
        """What quantizes weights to a format."""
        return self._weights if chosen is None else self._in_format.get(chosen, self._weights)

    def _check(self, edge: Edge, scheme: Scheme) -> None:
        if edge not in self._graph.edges_of(edge.tensor):
            raise InputError(f"the placement quantizes {edge}, which the model does not have")
        if edge.is_graph_output:
            if edge.tensor not in self._graph.producer:
                raise InputError(
                    f"the placement quantizes {edge}, which no node computes; leave it float"
                )
        elif edge.input_index >= len(self._graph.by_name[edge.node].inputs):
            raise InputError(
                f"the placement quantizes {edge}, which a subgraph of the node reads; "
                "leave it float"
            )
        dtype = self._graph.type_of(edge.tensor).dtype
        if dtype in _HALF and self._opset < _OPSET_OF_HALF:
            raise InputError(
                f"the placement quantizes {edge} of type {TensorProto.DataType.Name(dtype)}, which "
                f"needs opset {_OPSET_OF_HALF}; export the model with that opset or later, or in "
                "float32"
            )
        if scheme.is_float8 and self._opset < _OPSET_OF_HALF:
            raise InputError(
                f"the placement quantizes {edge} to FP8, which needs opset {_OPSET_OF_HALF}; "
                "export the model with that opset or later"
            )
        if dtype != TensorProto.FLOAT and dtype not in _HALF:
            raise InputError(
                f"the placement quantizes {edge}, which is not a float32, float16 or bfloat16 "
                "tensor; leave it as it is"
            )

    def _draft_group(
        self, group: list[Edge], ranges: Ranges, draft: Draft, placement: Placement
    ) -> None:
        edges = tuple([edge for edge in group if not self.is_weight(edge)])
        if not edges:
            return
        tensors = dict.fromkeys([edge.tensor for edge in edges])
        group_scheme = tuple([self._range(tensor, ranges) for tensor in tensors])
        scheme = self._scheme_at(group[0], placement)
        names = tuple([claim(tensor, self._taken, draft.names) for tensor in tensors])
        key = edges, names, group_scheme, scheme.activation
        made = self._made.get(key)
        if made is None:
            if len(self._made) >= KEPT_GROUPS:
                self._made.clear()
            made = self._made[key] = self._made_group(edges, names, union(group_scheme), scheme)
        draft.add_all(made)

    def _made_group(
        self, edges: Sequence[Edge], names: Sequence[PairName], whole: Range, scheme: Scheme
    ) -> Draft:
        """The pairs on ``edges``, with the ``names`` of those of each tensor."""
        by_tensor: dict[str, list[Edge]] = {}
        for edge in edges:
            by_tensor.setdefault(edge.tensor, []).append(edge)
        dtype = self._group_dtype(list(by_tensor))
        with naming(*by_tensor):
            quantization = activation_quantization(whole, scheme, dtype)
        group_scheme, draft = scheme.of(whole.low), Draft()
        integer = quantized_dtype(group_scheme.activation)
        # The first tensor names what the whole group shares.
        scale, zero_point = names[0].of("scale"), names[0].of("zero_point")
        tensors = [
            new_tensor(scale, np.array(quantization.scale, dtype)),
            new_tensor(zero_point, np.array(quantization.zero_point, integer)),
        ]
        group = ScaleNames(tuple(by_tensor), scale, quantization, dtype, integer, scheme)
        draft.groups.append(group)
        for name, on_tensor in zip(names, by_tensor.values(), strict=True):
            tensors += self._draft_pair(
                name, on_tensor, (scale, zero_point), quantization, group_scheme, draft
            )
        draft.initializers[scale] = Initializers(tensors)
        return draft

    def _group_dtype(self, tensors: list[str]) -> np.dtype[Any]:
        dtype = self._graph.type_of(tensors[0]).dtype or TensorProto.FLOAT
        for tensor in tensors:
            if self._graph.type_of(tensor).dtype != dtype:
                raise InputError(
                    f"tensors '{tensors[0]}' and '{tensor}' cannot share a scale: "
                    "their types differ"
                )
        return helper.tensor_dtype_to_np_dtype(dtype)

    def _range(self, tensor: str, ranges: Ranges) -> Range:
        if tensor in self._graph.initializers:
            values = self._weights.array(tensor)
            return Range(float(values.min(initial=0.0)), float(values.max(initial=0.0)))
        if tensor not in ranges:
            is_bfloat16 = self._graph.type_of(tensor).dtype == TensorProto.BFLOAT16
            why = "is bfloat16, which is not calibrated; export the model in float32"
            why = why if is_bfloat16 else "has no calibrated range; calibrate again"
            raise InputError(f"tensor '{tensor}' {why}")
        if not all(map(math.isfinite, ranges[tensor])):
            raise InputError(
                f"tensor '{tensor}' has the infinite or undefined range {tuple(ranges[tensor])}; "
                "leave it float or calibrate with other data"
            )
        return ranges[tensor]

    def _draft_pair(
        self,
        name: PairName,
        edges: list[Edge],
        parameters: tuple[str, str],
        quantization: Quantization,
        scheme: Scheme,
        draft: Draft,
    ) -> list[TensorProto]:
        """Add one tensor's pair; returns the initializers that it has of its own."""
        tensor, own = name.base, list[TensorProto]()
        integers, floats = name.of("quantized"), name.of("dequantized")
        if any(edge.is_graph_output for edge in edges):
            floats = tensor
            draft.outputs[tensor] = name.of("float")
        dequantize = pair_node("DequantizeLinear", name, [integers, *parameters], floats)
        if tensor in self._graph.initializers:
            values = quantize_activation(self._weights.array(tensor), quantization, scheme)
            own.append(new_tensor(integers, values))
            first = min(edges, key=lambda e: self._graph.by_name[e.node].index)
            draft.before.setdefault(first.node, []).append(Nodes(dequantize))
        else:
            quantize = pair_node("QuantizeLinear", name, [tensor, *parameters], integers)
            draft.behind.setdefault(tensor, []).append(Nodes(quantize, dequantize))
        for edge in edges:
            if not edge.is_graph_output:
                draft.reads[edge.node, edge.input_index] = floats
                draft.scales[edge.node, edge.input_index] = quantization
        return own

    def _draft_weight(self, edge: Edge, placement: Placement, draft: Draft) -> None:
        if not self.is_weight(edge):
            return
        per_tensor = edge in placement.per_tensor
        weights = self._quantizer(placement.formats.get(edge))
        bias = self._weights.bias_of(edge.node) or self._added_bias(edge.node, placement)
        source = draft.scales.get((edge.node, 1 - edge.input_index))
        if bias is None or source is None or (bias.node, bias.input_index) in draft.reads:
            made = weights.weight(edge, per_tensor=per_tensor)
        else:
            made, added = weights.with_bias(edge.node, bias, source.scale, per_tensor=per_tensor)
            draft.add_constant(added, bias.node)
            draft.reads[bias.node, bias.input_index] = added.node.output[0]
        readers = (e.node for e in self._graph.edges_of(edge.tensor) if not e.is_graph_output)
        draft.add_constant(made, next(readers))
        draft.reads[edge.node, edge.input_index] = made.node.output[0]
