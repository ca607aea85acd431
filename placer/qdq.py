"""Insert Q/DQ pairs into a float model as a placement says, and strip them again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from placer.errors import InputError
from placer.graph import Edge, Node
from placer.model import Model
from placer.normalize import rename_tensors, without_initializers
from placer.ops import bias_input, weight_input
from placer.placement import Placement
from placer.quantize import (
    Quantization,
    activation_quantization,
    bias_scale_floor,
    quantize_activation,
    quantize_bias,
    quantize_weight,
    weight_scale,
)
from placer.ranges import Range, Ranges, union
from placer.scheme import Scheme

_PAIR_NAMES = ("quantized", "dequantized", "float", "QuantizeLinear", "DequantizeLinear")


@dataclass(frozen=True, eq=False)
class _Weight:
    """A pre-quantized weight: initializers and the DequantizeLinear that reads them."""

    scale: np.ndarray
    tensors: tuple[TensorProto, ...]
    node: NodeProto


@dataclass(eq=False)
class _Draft:
    """What one insertion adds: gathered first, then written in node order."""

    reads: dict[tuple[str, int], str] = field(default_factory=dict)  # new tensor by (node, input)
    outputs: set[str] = field(default_factory=set)  # graph outputs that a pair writes
    behind: dict[str, list[NodeProto]] = field(default_factory=dict)  # by producing tensor
    before: dict[str, list[NodeProto]] = field(default_factory=dict)  # by consumer node
    tensors: dict[str, TensorProto] = field(default_factory=dict)
    scales: dict[tuple[str, int], Quantization] = field(default_factory=dict)


class Inserter:
    """Builds candidates of one model under one scheme.

    What does not depend on the placement (the graph without initializers, quantized weights) is
    made once and copied; initializers that stay float are copied as bytes or remain external
    references.
    """

    def __init__(self, model: Model, scheme: Scheme) -> None:
        self._model = model
        self._graph = model.graph
        self._scheme = scheme
        names = list(self._graph.initializers)
        self._shell = without_initializers(model.proto, names)
        del self._shell.graph.node[:]
        self._shell.producer_name = "placer"
        self._taken = {node.name for node in self._graph.nodes}
        self._taken.update(self._graph.producer, self._graph.initializers, self._graph.inputs)
        self._reads = Counter(t for t, edges in self._graph.consumers.items() for _ in edges)
        self._weights: dict[tuple[str, int | None], _Weight] = {}
        self._arrays: dict[str, np.ndarray] = {}

    def insert(self, placement: Placement, ranges: Ranges) -> ModelProto:
        """Return the candidate of ``placement``.

        ``ranges`` holds every quantized activation. Pairs are named after their tensor:
        ``T/QuantizeLinear``, ``T/DequantizeLinear``, ``T/scale``, ``T/zero_point``. Graph outputs
        keep their names and types. Raises InputError for an edge that the model does not have, a
        tensor that is not float, or a missing range.
        """
        draft = _Draft()
        for group in placement.sorted():
            self._check(group)
            self._draft_group(group, ranges, draft)
        for group in placement.sorted():
            for edge in group:
                self._draft_weight(edge, draft)
        return self._write(draft)

    def _check(self, group: list[Edge]) -> None:
        for edge in group:
            if edge not in self._graph.edges_of(edge.tensor):
                raise InputError(f"the placement quantizes {edge}, which the model does not have")
            if not self._graph.type_of(edge.tensor).is_float:
                raise InputError(f"the placement quantizes {edge}, which is not a float tensor")

    def _is_weight(self, edge: Edge) -> bool:
        if edge.is_graph_output or edge.tensor not in self._graph.initializers:
            return False
        weight = weight_input(self._graph, self._graph.by_name[edge.node])
        return weight is not None and weight.index == edge.input_index

    def _draft_group(self, group: list[Edge], ranges: Ranges, draft: _Draft) -> None:
        by_tensor: dict[str, list[Edge]] = {}
        for edge in group:
            if not self._is_weight(edge):
                by_tensor.setdefault(edge.tensor, []).append(edge)
        if not by_tensor:
            return
        whole = union(self._range(tensor, ranges) for tensor in by_tensor)
        quantization = activation_quantization(whole, self._scheme)
        leader = next(iter(by_tensor))
        scale, zero_point = self._quantization_tensors(leader, quantization, draft)
        for tensor, edges in by_tensor.items():
            self._draft_pair(tensor, edges, (scale, zero_point), quantization, draft)

    def _range(self, tensor: str, ranges: Ranges) -> Range:
        if tensor in self._graph.initializers:
            values = self._array(tensor)
            return Range(float(values.min(initial=0.0)), float(values.max(initial=0.0)))
        if tensor not in ranges:
            raise InputError(f"tensor '{tensor}' has no calibrated range; calibrate again")
        return ranges[tensor]

    def _array(self, initializer: str) -> np.ndarray:
        if initializer not in self._arrays:
            values = self._model.array(initializer)
            if not np.isfinite(values.astype(np.float32)).all():
                raise InputError(
                    f"initializer '{initializer}' of {self._model.path} holds NaN or infinity; "
                    "export the model again"
                )
            self._arrays[initializer] = values
        return self._arrays[initializer]

    def _quantization_tensors(
        self, tensor: str, quantization: Quantization, draft: _Draft
    ) -> tuple[str, str]:
        scale = self._fresh(f"{tensor}/scale", draft)
        zero_point = self._fresh(f"{tensor}/zero_point", draft)
        dtype = helper.tensor_dtype_to_np_dtype(
            self._graph.type_of(tensor).dtype or TensorProto.FLOAT
        )
        draft.tensors[scale] = _tensor(scale, np.array(quantization.scale, dtype))
        value = np.array(quantization.zero_point, self._scheme.activation)
        draft.tensors[zero_point] = _tensor(zero_point, value)
        return scale, zero_point

    def _fresh(self, name: str, draft: _Draft) -> str:
        """``name``, or with a number behind it where the model or the draft has it already."""
        number, free = 0, name
        while free in self._taken or free in draft.tensors:
            number += 1
            free = f"{name}_{number}"
        return free

    def _draft_pair(
        self,
        tensor: str,
        edges: list[Edge],
        parameters: tuple[str, str],
        quantization: Quantization,
        draft: _Draft,
    ) -> None:
        suffix = self._free_suffix(tensor, len(draft.behind.get(tensor, ())) // 2)
        integers = f"{tensor}/quantized{suffix}"
        floats = f"{tensor}/dequantized{suffix}"
        outputs = [edge for edge in edges if edge.is_graph_output]
        if outputs:
            self._check_output(tensor)
            draft.outputs.add(tensor)
            floats = tensor
        dequantize = _node("DequantizeLinear", tensor, suffix, [integers, *parameters], floats)
        if tensor in self._graph.initializers:
            values = quantize_activation(self._array(tensor), quantization, self._scheme)
            draft.tensors[integers] = _tensor(integers, values)
            first = min(edges, key=lambda e: self._graph.by_name[e.node].index)
            draft.before.setdefault(first.node, []).append(dequantize)
        else:
            quantize = _node("QuantizeLinear", tensor, suffix, [tensor, *parameters], integers)
            draft.behind.setdefault(tensor, []).extend((quantize, dequantize))
        for edge in edges:
            if not edge.is_graph_output:
                draft.reads[edge.node, edge.input_index] = floats
                draft.scales[edge.node, edge.input_index] = quantization

    def _free_suffix(self, base: str, number: int = 0) -> str:
        """The ending, from ``number`` up, with which no name of a pair is one of the model's."""
        while True:
            suffix = f"_{number}" if number else ""
            if not any(f"{base}/{part}{suffix}" in self._taken for part in _PAIR_NAMES):
                return suffix
            number += 1

    def _check_output(self, tensor: str) -> None:
        if tensor not in self._graph.producer:
            raise InputError(
                f"graph output '{tensor}' is a graph input or constant and cannot be quantized"
            )

    def _draft_weight(self, edge: Edge, draft: _Draft) -> None:
        if not self._is_weight(edge):
            return
        node = self._graph.by_name[edge.node]
        weight = weight_input(self._graph, node)
        axis = weight.axis if weight is not None and self._scheme.per_channel else None
        quantized = self._weight(edge.tensor, axis)
        source = draft.scales.get((node.name, 1 - edge.input_index))
        bias = self._int32_bias(node) if source is not None else None
        if bias is not None and source is not None:
            floor = bias_scale_floor(self._array(bias), source.scale)
            if np.any(quantized.scale < floor):
                # The bias would overflow: this node needs coarser weights of its own.
                raised = np.maximum(quantized.scale, floor if axis is not None else floor.max())
                quantized = self._quantize(edge.tensor, axis, raised, f"{node.name}/{edge.tensor}")
            self._draft_bias(node, bias, quantized.scale * np.float32(source.scale), draft)
        dequantized = quantized.node.output[0]
        if quantized.tensors[0].name not in draft.tensors:
            draft.tensors.update({t.name: t for t in quantized.tensors})
            draft.before.setdefault(self._first_reader(edge), []).append(quantized.node)
        draft.reads[edge.node, edge.input_index] = dequantized

    def _first_reader(self, edge: Edge) -> str:
        readers = [e.node for e in self._graph.edges_of(edge.tensor) if not e.is_graph_output]
        return min(readers, key=lambda name: self._graph.by_name[name].index)

    def _weight(self, tensor: str, axis: int | None) -> _Weight:
        key = (tensor, axis)
        if key not in self._weights:
            scale = weight_scale(self._array(tensor), axis)
            shared = any(other == tensor for other, _ in self._weights)
            base = f"{tensor}/axis{axis}" if shared else tensor
            self._weights[key] = self._quantize(tensor, axis, scale, base)
            if self._reads[tensor] == 1:
                del self._arrays[tensor]  # Only the int8 values are needed from here on.
        return self._weights[key]

    def _quantize(self, tensor: str, axis: int | None, scale: np.ndarray, base: str) -> _Weight:
        values = self._array(tensor)
        base += self._free_suffix(base)
        names = [f"{base}/{part}" for part in ("quantized", "scale", "zero_point")]
        tensors = (
            _tensor(names[0], quantize_weight(values, scale, axis)),
            _tensor(names[1], scale.astype(values.dtype)),
            _tensor(names[2], np.zeros(scale.shape, np.int8)),
        )
        node = _node("DequantizeLinear", base, "", names, f"{base}/dequantized")
        if axis is not None:
            node.attribute.append(helper.make_attribute("axis", axis))
        return _Weight(scale, tensors, node)

    def _int32_bias(self, node: Node) -> str | None:
        """The constant bias to quantize; Gemm's beta would change its scale, so only beta 1."""
        index = bias_input(node)
        if self._scheme.bias != "int32" or index is None:
            return None
        if node.op == "Gemm" and node.attributes.get("beta", 1.0) != 1.0:
            return None
        name = node.inputs[index]
        tensor = self._graph.initializers.get(name)
        return name if tensor is not None and len(tensor.dims) == 1 else None

    def _draft_bias(self, node: Node, bias: str, scale: np.ndarray, draft: _Draft) -> None:
        base = bias if self._reads[bias] == 1 else f"{node.name}/{bias}"
        base += self._free_suffix(base)
        names = [f"{base}/{part}" for part in ("quantized", "scale", "zero_point")]
        values = self._array(bias)
        parts = (
            quantize_bias(values, scale),
            scale.astype(values.dtype),
            np.zeros(scale.shape, np.int32),
        )
        for name, part in zip(names, parts, strict=True):
            draft.tensors[name] = _tensor(name, part)
        made = _node("DequantizeLinear", base, "", names, f"{base}/dequantized")
        if scale.ndim:
            made.attribute.append(helper.make_attribute("axis", 0))
        draft.before.setdefault(node.name, []).append(made)
        draft.reads[node.name, bias_input(node) or 2] = made.output[0]

    def _write(self, draft: _Draft) -> ModelProto:
        candidate = ModelProto()
        candidate.CopyFrom(self._shell)
        nodes = candidate.graph.node
        floats = {t: f"{t}/float{self._free_suffix(t)}" for t in draft.outputs}
        for tensor in self._graph.inputs:
            nodes.extend(draft.behind.get(tensor, ()))
        for node in self._graph.nodes:
            nodes.extend(draft.before.get(node.name, ()))
            copy = nodes.add()
            copy.CopyFrom(node.proto)
            if floats:
                rename_tensors(copy, lambda tensor: floats.get(tensor, tensor))
            for index in range(len(node.inputs)):
                new = draft.reads.get((node.name, index))
                if new is not None:
                    copy.input[index] = new
            for tensor in node.outputs:
                for made in draft.behind.get(tensor, ()):
                    nodes.append(made)
                    if tensor in floats and made.op_type == "QuantizeLinear":
                        nodes[-1].input[0] = floats[tensor]
        self._write_initializers(candidate.graph, draft)
        return candidate

    def _write_initializers(self, graph: GraphProto, draft: _Draft) -> None:
        reads = Counter(self._reads)
        for name, index in draft.reads:
            reads[self._graph.by_name[name].inputs[index]] -= 1
        graph.initializer.extend(
            tensor for name, tensor in self._graph.initializers.items() if reads[name] > 0
        )
        graph.initializer.extend(draft.tensors.values())


def _node(op: str, base: str, suffix: str, inputs: list[str], output: str) -> NodeProto:
    return NodeProto(op_type=op, name=f"{base}/{op}{suffix}", input=inputs, output=[output])


def _tensor(name: str, values: np.ndarray) -> TensorProto:
    tensor: TensorProto = numpy_helper.from_array(values, name)
    return tensor


def strip(proto: ModelProto) -> ModelProto:
    """Remove all Q/DQ pairs; quantized constants become float initializers again.

    The result computes what the float model computes, up to the rounding of constants. Graph
    outputs keep their names.
    """
    stripped = ModelProto()
    stripped.CopyFrom(proto)
    graph = stripped.graph
    constants = {t.name: t for t in graph.initializer}
    quantize = {n.output[0]: n for n in graph.node if n.op_type == "QuantizeLinear"}
    outputs = {value.name for value in graph.output}
    new_name: dict[str, str] = {}
    kept = []
    for node in proto.graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in quantize:
            source, target = quantize[node.input[0]].input[0], node.output[0]
            new_name.update({source: target} if target in outputs else {target: source})
        elif node.op_type == "DequantizeLinear" and node.input[0] in constants:
            graph.initializer.append(_dequantized(node, constants))
        elif node.op_type != "QuantizeLinear":
            kept.append(node)
    del graph.node[:]
    graph.node.extend(kept)
    for node in graph.node:
        rename_tensors(node, lambda tensor: _resolve(tensor, new_name))
    _drop_unread(graph)
    return stripped


def _resolve(tensor: str, new_name: Mapping[str, str]) -> str:
    while tensor in new_name:
        tensor = new_name[tensor]
    return tensor


def _dequantized(node: NodeProto, constants: Mapping[str, TensorProto]) -> TensorProto:
    values, scale, zero_point = (numpy_helper.to_array(constants[name]) for name in node.input)
    axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
    if scale.ndim:
        shape = [1] * values.ndim
        shape[axis] = -1
        scale, zero_point = scale.reshape(shape), zero_point.reshape(shape)
    floats = (values.astype(np.int64) - zero_point.astype(np.int64)).astype(scale.dtype) * scale
    return _tensor(node.output[0], floats.astype(scale.dtype))


def _drop_unread(graph: GraphProto) -> None:
    read = {t for node in graph.node for t in node.input} | {v.name for v in graph.output}
    kept = [t for t in graph.initializer if t.name in read]
    copies = [TensorProto.FromString(t.SerializeToString()) for t in kept]
    del graph.initializer[:]
    graph.initializer.extend(copies)
