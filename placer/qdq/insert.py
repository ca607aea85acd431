"""Insert Q/DQ pairs into a float model as a placement says."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from placer.errors import InputError, RunError
from placer.graph import Edge, Node
from placer.graph.edit import rename_tensors, without_initializers
from placer.graph.weights import WeightInput, bias_input, weight_input
from placer.model import Model
from placer.quantization import Placement, Range, Ranges, Scheme, union
from placer.quantization.numerics import (
    Quantization,
    ScaleError,
    activation_quantization,
    bias_scale,
    in_type,
    quantize_activation,
    quantize_bias,
    quantize_weight,
    quantized_dtype,
    weight_scale,
    weight_scale_for_bias,
)

# Every name that a candidate adds is base/part or base/part_number.
_ADDED = re.compile(
    "(?s:(.*))/(?:quantized|dequantized|float|scale|zero_point|QuantizeLinear|DequantizeLinear)"
    r"(?:_(\d+))?"
)
_STANDARD = ("", "ai.onnx")
_HALF = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
_OPSET_OF_HALF = 19  # From here on QuantizeLinear takes float16 and bfloat16, and makes FP8.
_IR_OF_FLOAT8 = 9


class _Name(NamedTuple):
    """What the names of one pair or one quantized constant have in common."""

    base: str
    number: int

    def of(self, part: str) -> str:
        """Name of one part: base/part, with the number behind unless it is 0."""
        return f"{self.base}/{part}_{self.number}" if self.number else f"{self.base}/{part}"


@dataclass(frozen=True, eq=False)
class _Constant:
    """A quantized weight or bias: initializers and the DequantizeLinear that reads them."""

    scale: np.ndarray
    tensors: tuple[TensorProto, ...]
    node: NodeProto


class _Weighted(NamedTuple):
    """Weight and int32 bias of a node for one scale of its input."""

    input_scale: float
    weight: _Constant
    bias: _Constant


@dataclass(eq=False)
class _Draft:
    """What one insertion adds: gathered first, then written in node order."""

    reads: dict[tuple[str, int], str] = field(default_factory=dict)  # new tensor by (node, input)
    outputs: dict[str, str] = field(default_factory=dict)  # float name of outputs a pair writes
    behind: dict[str, list[NodeProto]] = field(default_factory=dict)  # by producing tensor
    before: dict[str, list[NodeProto]] = field(default_factory=dict)  # by consumer node
    tensors: dict[str, TensorProto] = field(default_factory=dict)
    names: set[_Name] = field(default_factory=set)
    scales: dict[tuple[str, int], Quantization] = field(default_factory=dict)

    def add(self, name: str, values: np.ndarray) -> None:
        """Add an initializer."""
        self.tensors[name] = _tensor(name, values)

    def add_constant(self, constant: _Constant, reader: str) -> None:
        """Add a quantized constant before the node ``reader`` unless it is there already."""
        if constant.tensors[0].name not in self.tensors:
            self.tensors.update({t.name: t for t in constant.tensors})
            self.before.setdefault(reader, []).append(constant.node)


class Inserter:
    """Builds candidates of one model under one scheme.

    Activations and other constants get one scale per tensor; weights are int8 or FP8 initializers
    with scales of their own, an imported model's where the scheme can have them. With
    ``scheme.bias`` int32, the bias of a node whose input and weight are quantized is stored with
    scale input scale * weight scale; where it would overflow, that channel of the weight takes a
    larger scale.

    What rarely depends on the placement (the graph without initializers, quantized weights and
    biases) is made once and copied; initializers that stay float are copied as bytes or remain
    external references.
    """

    def __init__(self, model: Model, scheme: Scheme) -> None:
        self.model = model
        self._graph = model.graph
        self.scheme = scheme
        names = list(self._graph.initializers)
        self._shell = without_initializers(model.proto, names)
        del self._shell.graph.node[:]
        self._shell.producer_name = "placer"
        if scheme.is_float8:
            self._shell.ir_version = max(self._shell.ir_version, _IR_OF_FLOAT8)
        self._opset = max(e.version for e in model.proto.opset_import if e.domain in _STANDARD)
        found = {node.name: weight_input(self._graph, node) for node in self._graph.nodes}
        self._weight_inputs = {name: weight for name, weight in found.items() if weight}
        self._reads = Counter(t for t, edges in self._graph.consumers.items() for _ in edges)
        self._taken = self._taken_names()
        self._weight_names = self._name_weights()
        biases = {name: self._int32_bias(self._graph.by_name[name]) for name in self._weight_inputs}
        self._biases = {name: index for name, index in biases.items() if index is not None}
        self._own_names = self._name_own_constants()
        self._weights: dict[tuple[str, int | None], _Constant] = {}
        self._weighted: dict[str, _Weighted] = {}
        self._arrays: dict[str, np.ndarray] = {}

    def _taken_names(self) -> set[_Name]:
        """The model's own names that look like one that a candidate adds."""
        graph = self._graph
        names = (*graph.by_name, *graph.producer, *graph.initializers, *graph.inputs)
        matches = (_ADDED.fullmatch(name) for name in names)
        return {_Name(m[1], int(m[2] or 0)) for m in matches if m}

    def _name_weights(self) -> dict[tuple[str, int | None], _Name]:
        """Name each weight in node order, so that no name depends on earlier insertions."""
        names: dict[tuple[str, int | None], _Name] = {}
        for weight in self._weight_inputs.values():
            key = (weight.tensor, self._axis(weight))
            if key not in names:
                names[key] = _claim(weight.tensor, self._taken, self._taken)
        return names

    def _name_own_constants(self) -> dict[tuple[str, int], _Name]:
        """Name, for nodes whose bias may be int32, that bias and a weight of the node's own."""
        names: dict[tuple[str, int], _Name] = {}
        for node, index in self._biases.items():
            weight, bias = self._weight_inputs[node], self._graph.by_name[node].inputs[index]
            base = bias if self._reads[bias] == 1 else f"{node}/{bias}"
            names[node, index] = _claim(base, self._taken, self._taken)
            base = f"{node}/{weight.tensor}"
            names[node, weight.index] = _claim(base, self._taken, self._taken)
        return names

    def _axis(self, weight: WeightInput) -> int | None:
        return weight.axis if self.scheme.per_channel else None

    def insert(self, placement: Placement, ranges: Ranges) -> ModelProto:
        """Return the candidate of ``placement``.

        ``ranges`` holds every quantized activation. Pairs are named after their tensor:
        ``T/QuantizeLinear``, ``T/DequantizeLinear``, ``T/scale``, ``T/zero_point``, with a number
        behind where that is taken. Graph outputs keep their names and types; what computes a
        quantized one writes ``T/float``. A weight has scales of its own whatever its group.
        Raises InputError for an edge that the model does not have or that lies in a subgraph, a
        tensor whose type QuantizeLinear does not take, or a missing or infinite range, RunError for
        a scale that the tensor's type cannot hold.
        """
        draft = _Draft()
        groups = placement.sorted()
        for group in groups:
            for edge in group:
                self._check(edge)
            self._draft_group(group, ranges, draft)
        for group in groups:
            for edge in group:
                self._draft_weight(edge, draft)
        return self._write(draft)

    def _check(self, edge: Edge) -> None:
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
                f"needs opset {_OPSET_OF_HALF}; export the model with that opset or later"
            )
        if self.scheme.is_float8 and self._opset < _OPSET_OF_HALF:
            raise InputError(
                f"the placement quantizes {edge} to FP8, which needs opset {_OPSET_OF_HALF}; "
                "export the model with that opset or later"
            )
        if dtype != TensorProto.FLOAT and dtype not in _HALF:
            raise InputError(
                f"the placement quantizes {edge}, which is not a float32, float16 or bfloat16 "
                "tensor; leave it as it is"
            )

    def is_weight(self, edge: Edge) -> bool:
        """Whether ``edge`` reads a weight, which has scales of its own."""
        weight = self._weight_inputs.get(edge.node)
        return weight is not None and weight.index == edge.input_index

    def _draft_group(self, group: list[Edge], ranges: Ranges, draft: _Draft) -> None:
        by_tensor: dict[str, list[Edge]] = {}
        for edge in group:
            if not self.is_weight(edge):
                by_tensor.setdefault(edge.tensor, []).append(edge)
        if not by_tensor:
            return
        whole = union(self._range(tensor, ranges) for tensor in by_tensor)
        dtype = self._group_dtype(list(by_tensor))
        with _naming(*by_tensor):
            quantization = activation_quantization(whole, self.scheme, dtype)
        scale = zero_point = ""
        for tensor, edges in by_tensor.items():
            name = _claim(tensor, self._taken, draft.names)
            if not scale:  # The first tensor names what the whole group shares.
                scale, zero_point = name.of("scale"), name.of("zero_point")
                draft.add(scale, np.array(quantization.scale, dtype))
                integer = quantized_dtype(self.scheme.activation)
                draft.add(zero_point, np.array(quantization.zero_point, integer))
            self._draft_pair(name, edges, (scale, zero_point), quantization, draft)

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
            values = self._array(tensor)
            return Range(float(values.min(initial=0.0)), float(values.max(initial=0.0)))
        if tensor not in ranges:
            raise InputError(f"tensor '{tensor}' has no calibrated range; calibrate again")
        if not all(map(math.isfinite, ranges[tensor])):
            raise InputError(
                f"tensor '{tensor}' has the infinite or undefined range {tuple(ranges[tensor])}; "
                "leave it float or calibrate with other data"
            )
        return ranges[tensor]

    def _array(self, initializer: str) -> np.ndarray:
        if initializer not in self._arrays:
            values = self.model.array(initializer)
            if not np.isfinite(values.astype(np.float32)).all():
                raise InputError(
                    f"initializer '{initializer}' of {self.model.path} holds NaN or infinity; "
                    "export the model again"
                )
            self._arrays[initializer] = values
        return self._arrays[initializer]

    def _draft_pair(
        self,
        name: _Name,
        edges: list[Edge],
        parameters: tuple[str, str],
        quantization: Quantization,
        draft: _Draft,
    ) -> None:
        tensor = name.base
        integers, floats = name.of("quantized"), name.of("dequantized")
        if any(edge.is_graph_output for edge in edges):
            floats = tensor
            draft.outputs[tensor] = name.of("float")
        dequantize = _node("DequantizeLinear", name, [integers, *parameters], floats)
        if tensor in self._graph.initializers:
            values = quantize_activation(self._array(tensor), quantization, self.scheme)
            draft.add(integers, values)
            first = min(edges, key=lambda e: self._graph.by_name[e.node].index)
            draft.before.setdefault(first.node, []).append(dequantize)
        else:
            quantize = _node("QuantizeLinear", name, [tensor, *parameters], integers)
            draft.behind.setdefault(tensor, []).extend((quantize, dequantize))
        for edge in edges:
            if not edge.is_graph_output:
                draft.reads[edge.node, edge.input_index] = floats
                draft.scales[edge.node, edge.input_index] = quantization

    def _draft_weight(self, edge: Edge, draft: _Draft) -> None:
        if not self.is_weight(edge):
            return
        index = self._biases.get(edge.node)
        source = draft.scales.get((edge.node, 1 - edge.input_index))
        if index is None or source is None or (edge.node, index) in draft.reads:
            made = self._weight(edge.tensor, self._axis(self._weight_inputs[edge.node]))
        else:
            made, bias = self._with_bias(edge.node, index, source.scale)
            draft.add_constant(bias, edge.node)
            draft.reads[edge.node, index] = bias.node.output[0]
        draft.add_constant(made, self._first_reader(edge.tensor))
        draft.reads[edge.node, edge.input_index] = made.node.output[0]

    def _first_reader(self, tensor: str) -> str:
        return next(e.node for e in self._graph.edges_of(tensor) if not e.is_graph_output)

    def _weight(self, tensor: str, axis: int | None) -> _Constant:
        key = (tensor, axis)
        if key not in self._weights:
            with _naming(tensor):
                scale = self._weight_scale(self._array(tensor), tensor, axis)
            self._weights[key] = self._quantize(tensor, axis, scale, self._weight_names[key])
            if self._reads[tensor] == 1:
                del self._arrays[tensor]  # Only the quantized values are needed from here on.
        return self._weights[key]

    def _weight_scale(self, values: np.ndarray, tensor: str, axis: int | None) -> np.ndarray:
        """The scale that an imported model had, where the scheme can have it, else amax / 127.

        In the type of ``values``; raises ScaleError if that cannot hold it.
        """
        imported = self.model.imported
        found = None
        if imported is not None and not self.scheme.is_float8:
            found = imported.weight_scale(tensor, axis, values.shape)
        if found is None:
            return weight_scale(values, axis, self.scheme.weight)
        return in_type(found, values.dtype)

    def check_scale(self, edge: Edge, ranges: Ranges, dtype: np.dtype[Any]) -> None:
        """Raise ScaleError if ``dtype`` cannot hold the scale that ``edge`` has by itself."""
        if self.is_weight(edge):
            values = self.model.array(edge.tensor).astype(dtype)
            axis = self._axis(self._weight_inputs[edge.node])
            self._weight_scale(values, edge.tensor, axis)
        else:
            activation_quantization(self._range(edge.tensor, ranges), self.scheme, dtype)

    def _with_bias(self, node: str, index: int, input_scale: float) -> tuple[_Constant, _Constant]:
        """Weight and bias of ``node``, kept for the last input scale: few ranges ever change."""
        known = self._weighted.get(node)
        if known is None or known.input_scale != input_scale:
            known = self._weighted[node] = self._make_with_bias(node, index, input_scale)
        return known.weight, known.bias

    def _make_with_bias(self, node: str, index: int, input_scale: float) -> _Weighted:
        source = self._weight_inputs[node]
        weight = self._weight(source.tensor, self._axis(source))
        bias = self._array(self._graph.by_name[node].inputs[index])
        if bias.size == 1:  # Gemm broadcasts it.
            bias = np.broadcast_to(bias, weight.scale.size)
        scale = weight_scale_for_bias(weight.scale, bias, input_scale)
        if not np.array_equal(scale, weight.scale):
            # The bias would overflow: this node needs coarser weights of its own.
            name = self._own_names[node, source.index]
            weight = self._quantize(source.tensor, self._axis(source), scale, name)
        product = bias_scale(scale, bias.size, input_scale)
        parts = (quantize_bias(bias, product), product, np.zeros(product.shape, np.int32))
        axis = 0 if product.ndim else None
        return _Weighted(input_scale, weight, _constant(self._own_names[node, index], parts, axis))

    def _quantize(self, tensor: str, axis: int | None, scale: np.ndarray, name: _Name) -> _Constant:
        parts = (
            quantize_weight(
                self._array(tensor), scale, axis, self.scheme.weight, self._lowest(tensor)
            ),
            scale,
            np.zeros(scale.shape, quantized_dtype(self.scheme.weight)),
        )
        return _constant(name, parts, axis)

    def _lowest(self, tensor: str) -> int:
        """Imported weights may use -128, which symmetric scales of placer's own never reach."""
        imported = self.model.imported
        return -128 if imported is not None and tensor in imported.weights else -127

    def _int32_bias(self, node: Node) -> int | None:
        """Input index of the bias to quantize.

        Gemm's alpha and beta would change the scale at which the engine adds the bias, so they
        must be 1; products of float16 scales underflow, so the bias must be float32.
        """
        index = bias_input(node)
        if self.scheme.bias != "int32" or index is None:
            return None
        if any(node.attributes.get(name, 1.0) != 1.0 for name in ("alpha", "beta")):
            return None
        tensor = self._graph.initializers.get(node.inputs[index])
        if tensor is None or len(tensor.dims) != 1 or tensor.data_type != TensorProto.FLOAT:
            return None
        return index

    def _write(self, draft: _Draft) -> ModelProto:
        candidate = ModelProto()
        candidate.CopyFrom(self._shell)
        nodes = candidate.graph.node
        floats = draft.outputs
        renamed = {edge.node for tensor in floats for edge in self._graph.edges_of(tensor)}
        renamed.update(self._graph.producer[tensor].name for tensor in floats)
        for tensor in self._graph.inputs:
            nodes.extend(draft.behind.get(tensor, ()))
        for node in self._graph.nodes:
            nodes.extend(draft.before.get(node.name, ()))
            copy = nodes.add()
            copy.CopyFrom(node.proto)
            if node.name in renamed:
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


@contextmanager
def _naming(*tensors: str) -> Iterator[None]:
    """Say of which tensors a scale is that their type cannot hold."""
    try:
        yield
    except ScaleError as error:
        names = ", ".join(repr(tensor) for tensor in tensors)
        raise RunError(f"{names} cannot be quantized: {error}; leave it float") from error


def _node(op: str, name: _Name, inputs: list[str], output: str) -> NodeProto:
    return NodeProto(op_type=op, name=name.of(op), input=inputs, output=[output])


def _constant(
    name: _Name, parts: tuple[np.ndarray, np.ndarray, np.ndarray], axis: int | None
) -> _Constant:
    """Constant of quantized values, scale and zero point; channels lie along ``axis``."""
    names = [name.of(part) for part in ("quantized", "scale", "zero_point")]
    node = _node("DequantizeLinear", name, names, name.of("dequantized"))
    if axis is not None:
        node.attribute.append(helper.make_attribute("axis", axis))
    tensors = tuple(_tensor(n, part) for n, part in zip(names, parts, strict=True))
    return _Constant(parts[1], tensors, node)


def _claim(base: str, taken: set[_Name], claimed: set[_Name]) -> _Name:
    """Claim the first name on ``base`` that neither the model nor the draft has."""
    number = 0
    while (name := _Name(base, number)) in taken or name in claimed:
        number += 1
    claimed.add(name)
    return name


def _tensor(name: str, values: np.ndarray) -> TensorProto:
    tensor: TensorProto = numpy_helper.from_array(values, name)
    return tensor
