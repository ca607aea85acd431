"""Pairs of a model whose scales do not suit what the float model computes on the data."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import TensorProto

from placer.accuracy.channel_groups import ChannelGroup
from placer.calibration.sample import Sample
from placer.evaluation.layers import passes, tensor_values
from placer.graph import Graph, Node, index_graph
from placer.graph.edit import reads, standard_opset
from placer.graph.external_data import read_tensor
from placer.model import Model
from placer.model.passes.constant_nodes import constant_of

# Below these the values that a pair leaves are of little use.
_CUT_OFF_DB, _ROUNDED_DB = 20.0, 10.0
# A Q may cut off what these would, and of masked scores what a Softmax makes nearly 0 anyway: where
# they alone read a tensor, what they make of it counts.
_ABSORBED = frozenset({"Relu", "Clip", "Softmax"})
_BOUNDS = {"min": -np.inf, "max": np.inf}
_SOFTMAX_OF_AN_AXIS = 13  # In older opsets it normalises all values of its axis and those behind.
_MASKED = float(np.finfo(np.float32).min)  # What a Softmax makes nothing of, as of -inf.


@dataclass(frozen=True)
class _Pair:
    """What a QuantizeLinear leaves of a tensor: ``step`` apart, from ``low`` to ``high``.

    ``node``: what sentences call it.
    """

    node: str
    step: float
    low: float
    high: float


@dataclass(frozen=True)
class _Reader:
    """The first node of those that read a tensor, as sentences call it, and what each computes.

    ``by_element``: whether each value that they make is made of one that they read.
    """

    name: str
    by_element: bool
    computations: tuple[Callable[[np.ndarray], np.ndarray], ...]


@dataclass
class _Seen:
    """What a pair does to the values of one tensor, over samples.

    ``power`` and what is lost of it are those of what ``reader`` makes of the values, if any;
    ``rounded`` is known only then.
    """

    reader: _Reader | None = None
    count: int = 0
    power: float = 0.0
    cut_off: float = 0.0
    rounded: float = 0.0
    least: float = field(default=np.inf)
    most: float = field(default=-np.inf)

    def add(self, values: np.ndarray, pair: _Pair) -> None:
        finite = values[np.isfinite(values)].astype(np.float64)
        if not finite.size:
            return
        self.count += finite.size
        self.least = min(self.least, float(finite.min()))
        self.most = max(self.most, float(finite.max()))
        if self.reader is None:
            self.power += float((finite**2).sum())
            self.cut_off += float(((finite - finite.clip(pair.low, pair.high)) ** 2).sum())
        else:
            # Masks may be infinite; one other value that is would outweigh all else.
            masked = values.astype(np.float64)
            whole = np.nan_to_num(masked, copy=False, posinf=0.0, neginf=_MASKED)
            self._add_read(finite if self.reader.by_element else whole, pair, self.reader)

    def _add_read(self, values: np.ndarray, pair: _Pair, reader: _Reader) -> None:
        left = values.clip(pair.low, pair.high)
        steps = np.rint(left / pair.step) * pair.step if pair.step else left
        for compute in reader.computations:
            made = compute(values)
            self.power += float((made**2).sum())
            self.cut_off += float(((made - compute(left)) ** 2).sum())
            self.rounded += float(((made - compute(steps)) ** 2).sum())


def unsuited_pairs(
    reference: Model,
    candidate: Model,
    samples: Sequence[Sample],
    called: Mapping[str, str],
    shapes: Graph,
) -> tuple[str, ...]:
    """Sentences on pairs of ``candidate`` with one scale, the first ones first.

    They cut off or round away most of what the float model ``reference`` computes for what they
    read. ``called``: the names that ``candidate`` has for its tensors, ``shapes``: knows their
    shapes. Raises RunError if ``reference`` is refused.
    """
    pairs = _pairs_on(reference, candidate, called)
    readers = _readers(reference)
    seen = {tensor: _Seen(_only_reader(readers.get(tensor, ()), reference)) for tensor in pairs}
    for of_pass in passes(pairs, shapes):
        computed = [name for name in of_pass if name in reference.graph.producer]
        runs = tensor_values(reference, computed, samples)
        for sample, values in zip(samples, runs, strict=True):
            for name in of_pass:
                given = values[name] if name in values else sample.inputs.get(name)
                if isinstance(given, np.ndarray) and given.dtype.kind == "f":
                    seen[name].add(given, pairs[name])
    said = (_sentence(tensor, pairs[tensor], seen[tensor]) for tensor in pairs)
    return tuple(text for text in said if text)


def _pairs_on(reference: Model, candidate: Model, called: Mapping[str, str]) -> dict[str, _Pair]:
    """The pairs of ``candidate`` on tensors of ``reference``, by its names for these."""
    graph = index_graph(candidate.proto.graph, {})
    mine = {name: name for name in reference.graph.inputs}
    mine.update((theirs, name) for name, theirs in called.items())
    return {
        mine[node.inputs[0]]: pair
        for node in graph.nodes
        if node.op == "QuantizeLinear" and node.inputs[0] in mine
        if (pair := _pair_of(node, graph, candidate)) is not None
    }


def lost_parts(
    candidate: Model,
    groups: Sequence[ChannelGroup],
    expected: Sequence[Mapping[str, np.ndarray]],
    called: Mapping[str, str],
) -> Iterator[str]:
    """Sentences on parts of outputs that the one pair of their output rounds away.

    As of boxes and scores that a detector joins (ONNX Runtime issue 14233). ``expected``: the
    float model's outputs, sample by sample. ``called``: its names for outputs of ``candidate``
    that have others.
    """
    graph = index_graph(candidate.proto.graph, {})
    own = {theirs: name for name, theirs in called.items()}
    for group in groups:
        producer = graph.producer.get(own.get(group.output, group.output))
        if not group.spans or producer is None or producer.op != "DequantizeLinear":
            continue
        pair = _pair_of(graph.producer.get(producer.inputs[0], producer), graph, candidate)
        if pair is None:
            continue
        seen = _Seen()
        for outputs in expected:
            seen.add(group.cut(outputs[group.output]), pair)
        if _is_rounded_away(pair, seen):
            yield (
                f"{pair.node} rounds all of '{group.output}' in steps of {pair.step:.3g}, and "
                f"{group.name} has values of {_mean(seen):.2g}: leave this pair out, so that the "
                "parts of the output keep scales of their own"
            )


def _readers(model: Model) -> dict[str, list[Node]]:
    """The nodes that read each tensor; in files as they are nodes may have no names."""
    readers = defaultdict[str, list[Node]](list)
    for node in model.graph.nodes:
        for tensor in reads(node.proto):
            readers[tensor].append(node)
    return readers


def _only_reader(readers: Sequence[Node], model: Model) -> _Reader | None:
    """Those ``readers`` of a tensor if all are in ``_ABSORBED``."""
    ops = {node.op for node in readers}
    if not readers or not _ABSORBED.issuperset(ops):
        return None
    computations = tuple(_computation(node, model) for node in readers)
    return _Reader(_called(readers[0]), "Softmax" not in ops, computations)


def _called(node: Node) -> str:
    return f"'{node.name}' ({node.op})" if node.proto.name else _by_output(node)


def _by_output(node: Node) -> str:
    return f"the {node.op} before '{node.outputs[0]}'"


def _computation(node: Node, model: Model) -> Callable[[np.ndarray], np.ndarray]:
    if node.op == "Softmax":
        of_rows = standard_opset(model.proto) >= _SOFTMAX_OF_AN_AXIS
        axis = int(node.attributes.get("axis", -1 if of_rows else 1))
        if not of_rows:
            return lambda values: _softmax(_matrix(values, axis), axis=1)
        return lambda values: _softmax(values, axis)
    bounds = (0.0, np.inf) if node.op == "Relu" else _bounds(node, model)
    if bounds is None:
        return np.zeros_like  # Which tells nothing.
    return lambda values: values.clip(*bounds)


def _bounds(node: Node, model: Model) -> tuple[float, float] | None:
    """Of a Clip; None where the network computes one."""
    given = [float(node.attributes.get(name, bound)) for name, bound in _BOUNDS.items()]
    for index, name in enumerate(node.inputs[1:3]):
        tensor = _constant(name, model.graph)
        if tensor is not None:
            given[index] = float(read_tensor(tensor, model.base_dir).item())
        elif name:
            return None
    return given[0], given[1]


def _constant(name: str, graph: Graph) -> TensorProto | None:
    """An initializer or, as exporters write the bounds of a ReLU6, the value of a Constant."""
    made = graph.producer.get(name)
    return graph.initializers.get(name) if made is None else constant_of(made.proto)


def _matrix(values: np.ndarray, axis: int) -> np.ndarray:
    return values.reshape(math.prod(values.shape[:axis]), -1)


def _softmax(values: np.ndarray, axis: int) -> np.ndarray:
    powers: np.ndarray = np.exp(values - values.max(axis, keepdims=True))
    quotients: np.ndarray = powers / powers.sum(axis, keepdims=True)
    return quotients


def _pair_of(node: Node, graph: Graph, model: Model) -> _Pair | None:
    """Of a node with one constant scale, to a type of 8 bits; else None."""
    if node.op not in ("QuantizeLinear", "DequantizeLinear") or len(node.inputs) < 3:
        return None
    tensors = [graph.initializers.get(name) for name in node.inputs[1:3]]
    arrays = [None if one is None else read_tensor(one, model.base_dir) for one in tensors]
    scale, zero_point = arrays
    if scale is None or zero_point is None or scale.size != 1 or zero_point.size != 1:
        return None
    if zero_point.dtype not in (np.int8, np.uint8):
        return None
    step, zero, limits = float(scale.item()), int(zero_point.item()), np.iinfo(zero_point.dtype)
    name = f"'{node.name}'" if node.proto.name else _by_output(node)
    return _Pair(name, step, (limits.min - zero) * step, (limits.max - zero) * step)


def _sentence(tensor: str, pair: _Pair, seen: _Seen) -> str:
    if not seen.count or not seen.power:
        return ""
    beyond = max(seen.most - pair.high, pair.low - seen.least)
    # What is less than half a step is rounding, as before a mask of -3.4e38.
    is_cut = seen.cut_off and beyond > pair.step / 2
    if is_cut and 10 * np.log10(seen.power / seen.cut_off) < _CUT_OFF_DB:
        return (
            f"{pair.node} cuts '{tensor}' off at {pair.low:.3g} to {pair.high:.3g}, and its "
            f"values reach {seen.least:.3g} to {seen.most:.3g}: calibrate it again"
        )
    if not _is_rounded_away(pair, seen):
        return ""
    left = f"its values are {_mean(seen):.2g} on average"
    if seen.reader is not None:
        left = f"{seen.reader.name} makes something else of that"
    return (
        f"{pair.node} rounds '{tensor}' in steps of {pair.step:.3g}, and {left}: calibrate it "
        "again, or leave the pair out"
    )


def _is_rounded_away(pair: _Pair, seen: _Seen) -> bool:
    """Whether errors of up to half a step, spread evenly, leave less than ``_ROUNDED_DB``."""
    if seen.reader is not None:
        return seen.power < seen.rounded * 10 ** (_ROUNDED_DB / 10)
    noise = pair.step**2 / 12
    return bool(seen.count) and seen.power / seen.count < noise * 10 ** (_ROUNDED_DB / 10)


def _mean(seen: _Seen) -> float:
    return float(np.sqrt(seen.power / max(seen.count, 1)))
