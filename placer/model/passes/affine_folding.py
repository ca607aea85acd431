"""Fold per-channel affine nodes into the weighted node before them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from placer.graph.edit import reads, replace_nodes
from placer.graph.external_data import digest, read_tensor
from placer.graph.names import UnusedNames, tensor_names

_NORM = "LayerNormalization"
# A norm's scale and bias are where the others have weights and bias.
_WEIGHTED = ("Conv", "ConvTranspose", "Gemm", _NORM)
_AFFINE = ("BatchNormalization", "Add", "Sub", "Mul")


@dataclass(frozen=True, eq=False)
class _Affine:
    """``y = x * scale + shift``; each of shape (channels,) or ()."""

    scale: np.ndarray
    shift: np.ndarray


@dataclass(frozen=True, eq=False)
class FoldedWeight:
    """What a weight was multiplied by: ``factors`` of shape (channels,) along ``axis``.

    ``source``, ``digest``: its name and that of its values before.
    """

    source: str
    digest: str
    axis: int
    factors: np.ndarray


@dataclass(frozen=True)
class Folded:
    """``counts``: of folded nodes by operator. ``normalized``: what weighted nodes write that had a
    BatchNormalization behind them. ``weights``: by name, those with one factor for each output
    channel, but for ConvTransposes in groups, whose channels lie along two axes.
    """

    counts: Counter[str] = field(default_factory=Counter)
    normalized: frozenset[str] = frozenset()
    weights: Mapping[str, FoldedWeight] = field(default_factory=dict)


def _arithmetic(op: str, position: int, constant: np.ndarray) -> _Affine:
    """What an Add, Sub or Mul with a constant does to its operand at ``position``."""
    one, zero = np.float64(1), np.float64(0)
    match op, position:
        case "Add", _:
            return _Affine(one, constant)
        case "Sub", 0:
            return _Affine(one, -constant)
        case "Sub", _:
            return _Affine(-one, constant)
    return _Affine(constant, zero)


def _underflows(exact: np.ndarray, stored: np.ndarray) -> bool:
    """Whether float16 lost more of the weight ``exact`` than it loses of numbers in its range.

    Numbers below 6e-5 have fewer digits there, and below 3e-8 none. In a channel that is next to
    nothing beside others, as trained networks have them, that is less than the rounding of these.
    float32 and bfloat16 begin at 1e-38, which no sum of activations notices.
    """
    if stored.dtype != np.float16:
        return False
    lost = np.square(exact - stored.astype(np.float64)).sum()
    return bool(lost > np.finfo(np.float16).eps ** 2 * np.square(exact).sum())


def fold_affine(graph: GraphProto, base_dir: Path) -> Folded:
    """Fold BatchNormalization and constant Mul, Add and Sub into a preceding weighted node.

    Exact up to rounding: with y = W x + b, scale * y + shift = (scale * W) x + (scale * b + shift)
    per output channel. So is a LayerNormalization, which is how SmoothQuant's factors become part
    of it (Model-Optimizer issue 10). Computed in float64, stored in the weights' type. Nodes whose
    output has other readers, and weights or biases that are no initializers, are left alone; an
    initializer that others read is copied.
    """
    operators = {node.op_type for node in graph.node}
    if operators.isdisjoint(_AFFINE) or operators.isdisjoint(_WEIGHTED):
        return Folded()
    return _Folder(graph, base_dir).run()


class _Folder:
    def __init__(self, graph: GraphProto, base_dir: Path) -> None:
        self._graph = graph
        self._base_dir = base_dir
        self._tensors = {t.name: t for t in graph.initializer}
        self._names = UnusedNames(tensor_names(graph))
        self._producer = {t: node for node in graph.node for t in node.output}
        self._reads = Counter(t for node in graph.node for t in reads(node))
        self._reads.update(value.name for value in graph.output)
        self._folded: dict[str, FoldedWeight] = {}

    def run(self) -> Folded:
        counts: Counter[str] = Counter()
        kept, normalized = [], []
        for node in self._graph.node:
            before = self._fold(node)
            if before is None:
                kept.append(node)
                continue
            counts[node.op_type] += 1
            if node.op_type == "BatchNormalization":
                normalized.append(before)
        written = frozenset(node.output[0] for node in normalized)
        if counts:
            replace_nodes(self._graph, kept)
        return Folded(counts, written, self._folded)

    def _fold(self, node: NodeProto) -> NodeProto | None:
        """Fold ``node`` into the node that made its input, which it returns if that is possible."""
        for position, source in enumerate(node.input[:2]):
            before = self._producer.get(source)
            if before is None or before.op_type not in _WEIGHTED or before.domain:
                continue
            if self._reads[source] != 1 or not self._has_constant_weights(before):
                continue
            affine = self._affine(node, position, before)
            if affine is not None and self._apply(before, affine):
                before.output[0] = node.output[0]
                self._producer[node.output[0]] = before
                return before
        return None

    def _has_constant_weights(self, node: NodeProto) -> bool:
        return all(name in self._tensors for name in node.input[1:3] if name)

    def _array(self, name: str) -> np.ndarray:
        return read_tensor(self._tensors[name], self._base_dir).astype(np.float64)

    def _affine(self, node: NodeProto, position: int, before: NodeProto) -> _Affine | None:
        if node.op_type == "BatchNormalization" and position == 0:
            if before.op_type == _NORM:  # Whose channels may lie along another axis.
                return None
            return self._batch_normalization(node, self._channels(before))
        if node.op_type in _AFFINE[1:] and node.input[1 - position] in self._tensors:
            value = self._array(node.input[1 - position])
            channels = self._per_channel(value, before)
            return None if channels is None else _arithmetic(node.op_type, position, channels)
        return None

    def _batch_normalization(self, node: NodeProto, channels: int) -> _Affine | None:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if attributes.get("training_mode", 0) or sum(bool(o) for o in node.output) > 1:
            return None
        if not all(name in self._tensors for name in node.input[1:5]):
            return None
        if any(list(self._tensors[name].dims) != [channels] for name in node.input[1:5]):
            return None
        gamma, beta, mean, variance = (self._array(name) for name in node.input[1:5])
        if not (variance + attributes.get("epsilon", 1e-5) > 0).all():
            return None
        scale = gamma / np.sqrt(variance + attributes.get("epsilon", 1e-5))
        return _Affine(scale, beta - mean * scale)

    def _per_channel(self, value: np.ndarray, before: NodeProto) -> np.ndarray | None:
        """``value`` as (channels,) or () if it broadcasts along the channels alone."""
        if before.op_type == _NORM:  # Of unknown rank.
            fits = value.ndim <= 1 == self._rank(before)
            return value if fits and value.size in (1, self._channels(before)) else None
        if value.size == 1:
            # A higher rank than the output's would change the output's rank.
            return value.reshape(()) if value.ndim <= self._rank(before) else None
        axis = -1 if before.op_type == "Gemm" else 1 - self._rank(before)
        channels = self._channels(before)
        fits = value.size == channels and value.ndim >= -axis and value.shape[axis] == channels
        return value.reshape(-1) if fits and value.ndim <= self._rank(before) else None

    def _rank(self, node: NodeProto) -> int:
        return len(self._tensors[node.input[1]].dims)

    def _channels(self, node: NodeProto) -> int:
        dims = self._tensors[node.input[1]].dims
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "ConvTranspose":
            return int(dims[1] * attributes.get("group", 1))
        if node.op_type == "Gemm":
            return int(dims[0] if attributes.get("transB", 0) else dims[1])
        return int(dims[0])

    def _apply(self, node: NodeProto, affine: _Affine) -> bool:
        bias = self._bias(node)
        if bias is None:
            return False
        weight = self._array(node.input[1])
        dtype = numpy_helper.to_array(
            TensorProto(data_type=self._tensors[node.input[1]].data_type, dims=[0])
        ).dtype
        scale = np.broadcast_to(affine.scale, self._channels(node))
        with np.errstate(over="ignore", under="ignore"):
            product = weight * self._along(node, scale, weight)
            new_weight = product.astype(dtype)
            new_bias = (bias * scale + affine.shift).astype(dtype)
        if not (np.isfinite(new_weight).all() and np.isfinite(new_bias).all()):
            return False  # The products overflow the weights' type, the activations may not.
        if _underflows(product, new_weight):
            return False
        known = self._folded_weight(node, scale)
        self._replace(node, 1, new_weight)
        if known is not None:
            self._folded[node.input[1]] = known
        self._replace(node, 2, new_bias)
        for attribute in node.attribute:
            if node.op_type == "Gemm" and attribute.name == "beta":
                attribute.f = 1.0
        return True

    def _folded_weight(self, node: NodeProto, factors: np.ndarray) -> FoldedWeight | None:
        """What is recorded of the weight of ``node``, which is about to be multiplied."""
        name = node.input[1]
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == _NORM or (
            node.op_type == "ConvTranspose" and attributes.get("group", 1) > 1
        ):
            return None
        if known := self._folded.get(name):
            return replace(known, factors=known.factors * factors)
        is_second = node.op_type == "ConvTranspose"
        is_second |= node.op_type == "Gemm" and not attributes.get("transB", 0)
        return FoldedWeight(name, digest(self._tensors[name]), int(is_second), np.array(factors))

    def _bias(self, node: NodeProto) -> np.ndarray | None:
        """The bias, shape (channels,), with Gemm's beta applied; None if it varies by row."""
        channels = self._channels(node)
        if len(node.input) < 3 or not node.input[2]:
            return np.zeros(channels)
        bias = self._array(node.input[2])
        if bias.size not in (1, channels) or (bias.size > 1 and bias.shape[-1] != channels):
            return None
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        beta = attributes.get("beta", 1.0) if node.op_type == "Gemm" else 1.0
        return np.broadcast_to(beta * bias.reshape(-1), channels)

    def _along(self, node: NodeProto, scale: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """``scale`` (channels,) shaped to multiply ``weight``'s output channels."""
        if node.op_type == _NORM:
            return scale
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        ones = (1,) * (weight.ndim - 2)
        if node.op_type == "Gemm":
            return scale.reshape(-1, 1) if attributes.get("transB", 0) else scale.reshape(1, -1)
        if node.op_type == "Conv":
            return scale.reshape(-1, 1, *ones)
        # ConvTranspose weights are (inputs, outputs / group): rows of one group share a block.
        groups = attributes.get("group", 1)
        block = scale.reshape(groups, -1)
        return np.repeat(block, weight.shape[0] // groups, axis=0).reshape(*weight.shape[:2], *ones)

    def _replace(self, node: NodeProto, index: int, value: np.ndarray) -> None:
        """Give ``node`` a new initializer, in place of its own or beside a shared one."""
        while len(node.input) <= index:
            node.input.append("")
        old = node.input[index]
        name = old
        if not old or self._reads[old] > 1:
            part = ("x", "weight", "bias")[index]
            name = self._names.unused(f"{old or node.output[0]}/{part}")
        tensor = numpy_helper.from_array(np.ascontiguousarray(value), name)
        if name == old:
            self._tensors[name].CopyFrom(tensor)
        else:
            self._reads[old] -= 1
            self._reads[name] = 1
            self._graph.initializer.append(tensor)
            self._tensors[name] = self._graph.initializer[-1]
            node.input[index] = name
