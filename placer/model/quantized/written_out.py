"""Fake quantization that was exported as arithmetic: Q/DQ pairs again.

Quantization-aware training written by hand, and PyTorch's exporter with ``dynamo=True`` at first
(PyTorch issue 127167), trace to Div, Round, Clip and Mul, with a zero point and Casts among them.
Engines compute that in float.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from placer.graph.edit import reads, remove_dead_nodes, standard_opset
from placer.graph.external_data import read_tensor
from placer.model.constant_nodes import constants_to_initializers
from placer.model.identities import remove_identities
from placer.model.quantized.names import Names
from placer.model.quantized.operators import input_at
from placer.model.quantized.scales import limits_of

_BYTES = (TensorProto.INT8, TensorProto.UINT8)
_FIRST_OPSET = 13  # Scales along an axis; Clip of integers came before.
_STEPS = frozenset({"Cast", "Sub", "Add", "Clip", "Round"})


def restore_pairs(proto: ModelProto, base_dir: Path) -> int:
    """Replace what quantizes and dequantizes by arithmetic by pairs; returns how many.

    That is x / scale, rounded, clipped to a range of int8 or uint8, times the same scale, and
    integer weights that are cast and multiplied beside it. ``base_dir``: of external data.
    """
    graph, found = proto.graph, _found(proto, base_dir)
    if not found:
        return 0
    names = Names({t for n in graph.node for t in (*n.input, *n.output)})
    nodes = list[NodeProto]()
    for node in graph.node:
        pair = found.get(node.output[0]) if node.output else None
        made, constants = pair.nodes(node, names) if pair is not None else ([node], [])
        nodes.extend(made)
        graph.initializer.extend(constants)
    del graph.node[:]
    graph.node.extend(nodes)
    remove_dead_nodes(graph)
    return sum(not pair.dtype_of_constant for pair in found.values())


def written_out(proto: ModelProto, base_dir: Path) -> tuple[tuple[NodeProto, str], ...]:
    """The last node of each pair that is arithmetic, and the tensor that it quantizes."""
    found = _found(proto, base_dir)
    pairs = ((node, found.get(node.output[0])) for node in proto.graph.node if node.output)
    return tuple((n, pair.source) for n, pair in pairs if pair and not pair.dtype_of_constant)


def _found(proto: ModelProto, base_dir: Path) -> dict[str, _Pair]:
    """By tensor the pair that writes it by arithmetic; none where no value is rounded."""
    graph = proto.graph
    if standard_opset(proto) < _FIRST_OPSET or all(n.op_type != "Round" for n in graph.node):
        return {}
    constants_to_initializers(graph)
    remove_identities(graph)  # Before scales that several have.
    finder = _Finder(proto, base_dir)
    found = {node.output[0]: pair for node in graph.node if (pair := finder.pair(node))}
    return {} if all(pair.dtype_of_constant for pair in found.values()) else found


@dataclass(frozen=True, eq=False)
class _Pair:
    """``source``: what is quantized; ``dtype_of_constant``: of integers that are stored, else 0."""

    source: str
    scale: np.ndarray
    zero_point: int
    lowest: int
    highest: int
    dtype_of_constant: int = 0

    @property
    def dtype(self) -> int:
        """The ONNX element type of the integers."""
        fits = self.highest <= limits_of(TensorProto.INT8)[1]
        return self.dtype_of_constant or (TensorProto.INT8 if fits else TensorProto.UINT8)

    def nodes(self, last: NodeProto, names: Names) -> tuple[list[NodeProto], list[TensorProto]]:
        """Q, a Clip where the range is narrower than the type, and DQ in the place of ``last``."""
        target = last.output[0]
        axes = [i - self.scale.ndim for i, size in enumerate(self.scale.shape) if size > 1]
        integer = helper.tensor_dtype_to_np_dtype(self.dtype)
        scale = self.scale.ravel() if axes else self.scale.reshape(())
        zero_point = np.full(scale.shape, self.zero_point, integer)
        parts = [names.unused(f"{target}/{part}") for part in ("scale", "zero_point", "quantized")]
        constants = [
            numpy_helper.from_array(a, n) for a, n in zip((scale, zero_point), parts, strict=False)
        ]
        dequantize = helper.make_node(
            "DequantizeLinear", [parts[2], *parts[:2]], [target], f"{target}/dequantize"
        )
        quantize = helper.make_node(
            "QuantizeLinear", [self.source, *parts[:2]], [parts[2]], f"{target}/quantize"
        )
        for half in (quantize, dequantize):
            half.attribute.extend(helper.make_attribute("axis", axis) for axis in axes)
        if self.dtype_of_constant:
            dequantize.input[0] = self.source
            return [dequantize], constants
        bounds = (self.lowest, self.highest)
        if bounds == limits_of(self.dtype):
            return [quantize, dequantize], constants
        limits = [names.unused(f"{target}/{part}") for part in ("lowest", "highest")]
        constants += [
            numpy_helper.from_array(np.asarray(v, integer), n)
            for v, n in zip(bounds, limits, strict=True)
        ]
        clipped = names.unused(f"{target}/clipped")
        clip = helper.make_node("Clip", [parts[2], *limits], [clipped], f"{target}/clip")
        dequantize.input[0] = clipped
        return [quantize, clip, dequantize], constants


class _Finder:
    def __init__(self, proto: ModelProto, base_dir: Path) -> None:
        graph = proto.graph
        self._base_dir = base_dir
        self._constants: Mapping[str, TensorProto] = {t.name: t for t in graph.initializer}
        self._producer = {t: node for node in graph.node for t in node.output}
        self._reads = Counter(t for node in graph.node for t in reads(node))
        self._reads.update(value.name for value in graph.output)

    def pair(self, last: NodeProto) -> _Pair | None:
        """The pair that ends with ``last``, a product with the scale."""
        tensor, scale = self._factors(last, "Mul")
        if scale is None or sum(size > 1 for size in scale.shape) > 1:
            return None
        steps = list[NodeProto]()
        while tensor in self._producer and self._producer[tensor].op_type in _STEPS:
            if self._reads[tensor] > 1:
                return None
            steps.append(self._producer[tensor])
            tensor = self._source(steps[-1])
        kinds = [node.op_type for node in steps if node.op_type != "Cast"]
        taken = self._zero_point(steps, kinds, "Sub")
        if self._dtype(tensor) in _BYTES and kinds in ([], ["Sub"]) and steps:
            lowest, highest = limits_of(self._dtype(tensor))
            if taken is None or not lowest <= taken <= highest:
                return None
            return _Pair(
                tensor, scale, taken, int(lowest), int(highest), self._constants[tensor].data_type
            )
        return self._rounded(tensor, scale, steps, kinds, taken)

    def _rounded(
        self, tensor: str, scale: np.ndarray, steps: list[NodeProto], kinds: list[str],
        taken: int | None,
    ) -> _Pair | None:  # fmt: skip
        first = self._producer.get(tensor)
        added = self._zero_point(steps, kinds, "Add")
        if first is None or taken is None or taken != added or self._reads[tensor] > 1:
            return None
        if sorted(k for k in kinds if k not in ("Add", "Sub")) != ["Clip", "Round"]:
            return None
        if "Sub" in kinds[1:]:
            return None
        source, divisor = self._factors(first, "Div")
        if divisor is None:
            source, factor = self._factors(first, "Mul")
            divisor = None if factor is None or not factor.all() else 1 / factor
        if divisor is None or divisor.size != scale.size:
            return None
        if not np.allclose(divisor.ravel(), scale.ravel(), rtol=1e-4, atol=0):
            return None
        bounds = self._bounds(steps[[node.op_type for node in steps].index("Clip")])
        is_before = "Add" in kinds and kinds.index("Add") < kinds.index("Clip")
        low, high = (b + (added if is_before else 0) for b in bounds or (1, 0))
        fits = -128 <= low < high <= 127 or 0 <= low < high <= 255
        return _Pair(source, scale, added, low, high) if fits and low <= added <= high else None

    def _source(self, node: NodeProto) -> str:
        """What a step reads that is no constant."""
        return next((t for t in node.input if t not in self._constants), node.input[0])

    def _zero_point(self, steps: list[NodeProto], kinds: list[str], op: str) -> int | None:
        """The integer that the one ``op`` adds or takes away, 0 without one; None of others."""
        if op not in kinds:
            return 0
        node = next(node for node in steps if node.op_type == op)
        _, value = self._factors(node, op)
        if kinds.count(op) > 1 or value is None or not (value == value.flat[0]).all():
            return None
        return int(value.flat[0]) if float(value.flat[0]).is_integer() else None

    def _factors(self, node: NodeProto, op: str) -> tuple[str, np.ndarray | None]:
        """What ``node``, an ``op``, combines with a float constant, and that; "" and None else."""
        if node.op_type != op or len(node.input) != 2:
            return "", None
        left, right = node.input
        if op in ("Mul", "Add") and left in self._constants:
            left, right = right, left
        value = self._array(right)
        return (left, value) if value is not None and value.size else ("", None)

    def _bounds(self, clip: NodeProto) -> tuple[int, int] | None:
        values = [self._array(input_at(clip, index)) for index in (1, 2)]
        if any(v is None or v.size != 1 or not float(v.item()).is_integer() for v in values):
            return None
        low, high = (int(v.item()) for v in values if v is not None)
        return low, high

    def _array(self, name: str) -> np.ndarray | None:
        if name not in self._constants:
            return None
        return read_tensor(self._constants[name], self._base_dir)

    def _dtype(self, tensor: str) -> int:
        return self._constants[tensor].data_type if tensor in self._constants else 0
