"""A candidate whose scales are inputs: one session tries any ranges of one placement."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper

from placer.accuracy.evaluation import Run
from placer.common.ort_session import Session, create_session, run_once
from placer.graph.edit import subgraphs, without_initializers
from placer.graph.names import unused_prefix
from placer.graph.operators import PAIR_OPS
from placer.model.save import serialized
from placer.qdq import Inserter
from placer.qdq.draft import ScaleNames
from placer.quantization import Placement, Ranges
from placer.recovery.walk import FLOAT_KERNELS

_THREADS = 1
# What a group has in the vector of all parameters: its scale, and the least and the largest integer
# before the zero point is added.
_PARAMETERS = 3
# Groups whose parameters one vector holds after a Split: to make a session, ONNX Runtime takes
# quadratic time in how many nodes read one tensor.
_GROUPS_OF_SPLIT = 32


class Simulation:
    """The candidate of one placement on ONNX Runtime's CPU provider, for any ranges.

    Each pair of activations rounds and cuts off as QuantizeLinear and DequantizeLinear do, and
    nodes compute in float between them. That is what an engine's integer kernels compute, but for
    their rounding of sums. What no range changes is as it is first: constants, groups with a
    constant in them, int32 biases, whose scale is fine enough for any range, and FP8 pairs but for
    their scale. ``ranges``: of all tensors that ``placement`` quantizes. ``switched``: single
    groups can be left out, which then cost no time; the session takes twice as long to make. It
    holds all weights as floats and is made for the first run, which raises RunError if ONNX Runtime
    refuses the candidate.
    """

    def __init__(
        self, inserter: Inserter, placement: Placement, ranges: Ranges, *, switched: bool = False
    ) -> None:
        self._inserter = inserter
        self._placement = placement
        self._ranges = ranges
        self._scales = inserter.scales(placement, ranges)
        # Names that a candidate adds begin with one of the model's.
        prefix = unused_prefix(inserter.model.proto.graph, "simulation:")
        self._inputs = _Inputs.of(self._scales, prefix, switched=switched)

    @cached_property
    def _session(self) -> Session:
        with serialized(self._candidate(), self._inserter.model.base_dir) as (source, folder):
            return create_session(
                source,  # Of a large model there is no other copy while it loads.
                folder,
                threads=_THREADS,
                level=ort.GraphOptimizationLevel.ORT_ENABLE_ALL,  # Weights are dequantized once.
                entries=FLOAT_KERNELS,
            )

    def _candidate(self) -> ModelProto:
        candidate = self._inserter.insert(self._placement, self._ranges)
        return _with_scales_as_inputs(candidate, self._inputs)

    def release(self) -> None:
        """Let go of the session, which holds all weights; the next run makes another one."""
        vars(self).pop("_session", None)

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The tensors of each group whose range can be changed."""
        return tuple(scale.tensors for scale in self._scales)

    def run(self, ranges: Ranges, only: Collection[str] | None = None) -> Run:
        """What runs the candidate with ``ranges``: outputs by name from inputs by name.

        ``only``: see ``parameters``.
        """
        return self.run_with(self.parameters(ranges, only))

    def run_with(self, parameters: Mapping[str, np.ndarray]) -> Run:
        """The same for what ``parameters`` returned."""
        return partial(self._run, parameters)

    def parameters(
        self, ranges: Ranges, only: Collection[str] | None = None
    ) -> Mapping[str, np.ndarray]:
        """What the session reads besides the model's inputs: its outputs follow from both.

        ``only``: tensors of the groups to quantize, by default all; FP8 pairs always are. Raises
        ValueError if they are given and groups cannot be left out.
        """
        if only is not None and not self._inputs.switched:
            raise ValueError("a simulation without switches quantizes all groups")
        chosen = None if only is None else frozenset(only)
        is_on = [
            group.is_float8 or chosen is None or not chosen.isdisjoint(group.tensors)
            for group in self._scales
        ]
        given = [
            group.with_ranges(ranges) if on else None
            for group, on in zip(self._scales, is_on, strict=True)
        ]
        return self._inputs.values(given)

    def _run(
        self, scales: Mapping[str, np.ndarray], inputs: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        given, session = {**inputs, **scales}, self._session
        names = [output.name for output in session.own.get_outputs()]
        values = run_once(session, names, given, "the simulated candidate")
        return dict(zip(names, values, strict=True))


@dataclass(frozen=True, eq=False)
class _Inputs:
    """What a simulation reads besides the model's inputs: few vectors, as each input costs time.

    ``groups`` and their positions by scale. ``prefix``: what the names of all that is added begin
    with. ``switched``: whether the input ``on`` says of each group whether it is quantized.
    ``parameters``: by type, the input with ``_PARAMETERS`` values of each group.
    """

    groups: Sequence[ScaleNames]
    position: Mapping[str, int]
    prefix: str
    parameters: Mapping[np.dtype[Any], str]
    switched: bool

    @staticmethod
    def of(groups: Sequence[ScaleNames], prefix: str, *, switched: bool) -> _Inputs:
        types = dict.fromkeys(group.dtype for group in groups)
        return _Inputs(
            groups,
            {group.scale: index for index, group in enumerate(groups)},
            prefix,
            {dtype: f"{prefix}{dtype.name}" for dtype in types},
            switched,
        )

    @property
    def on(self) -> str:
        """The input that switches groups on."""
        return f"{self.prefix}on"

    def declare(self, graph: GraphProto) -> None:
        """Add the inputs to ``graph``, and the nodes that take them apart before all others."""
        count = len(self.groups)
        starts = range(0, count, _GROUPS_OF_SPLIT)
        parts = [_PARAMETERS * min(_GROUPS_OF_SPLIT, count - start) for start in starts]
        for dtype, name in self.parameters.items():
            pieces = [f"{name}/{index}" for index in range(len(parts))]
            self._add_split(graph, name, dtype, parts, pieces)
        graph.initializer.extend(
            numpy_helper.from_array(np.array(index, np.int64), f"{self.prefix}{index}")
            for index in range(max(parts, default=0))
        )
        if count and self.switched:
            switches = [self.switch(group.scale) for group in self.groups]
            self._add_split(graph, self.on, np.dtype(np.bool_), [1] * count, switches)

    def _add_split(
        self,
        graph: GraphProto,
        name: str,
        dtype: np.dtype[Any],
        parts: Sequence[int],
        pieces: Sequence[str],
    ) -> None:
        """Add the input ``name``, of the length of all ``parts``, which become ``pieces``."""
        kind = helper.np_dtype_to_tensor_dtype(dtype)
        graph.input.append(helper.make_tensor_value_info(name, kind, (sum(parts),)))
        sizes = numpy_helper.from_array(np.array(parts, np.int64), f"{name}/sizes")
        graph.initializer.append(sizes)
        _put_first(graph, [helper.make_node("Split", [name, sizes.name], pieces, name, axis=0)])

    def group(self, scale: str) -> ScaleNames:
        """The group of ``scale``."""
        return self.groups[self.position[scale]]

    def switch(self, scale: str) -> str:
        """The tensor that says whether the group of ``scale`` is quantized."""
        return f"{self.on}/{scale}"

    def parameter(self, scale: str, number: int, target: str) -> NodeProto:
        """The node that writes a parameter of the group of ``scale`` as the scalar ``target``."""
        part, place = divmod(self.position[scale], _GROUPS_OF_SPLIT)
        piece = f"{self.parameters[self.group(scale).dtype]}/{part}"
        index = f"{self.prefix}{_PARAMETERS * place + number}"
        name = f"{self.prefix}{target}/Gather"
        return helper.make_node("Gather", [piece, index], [target], name, axis=0)

    def values(self, given: Sequence[ScaleNames | None]) -> dict[str, np.ndarray]:
        """The inputs for the groups as they are ``given``; None is not quantized."""
        inputs = dict[str, np.ndarray]()
        if given and self.switched:
            inputs[self.on] = np.array([group is not None for group in given])
        for dtype, name in self.parameters.items():
            rows = np.ones((len(given), _PARAMETERS), dtype)
            for row, group in zip(rows, given, strict=True):
                if group is not None and group.dtype == dtype:
                    row[:] = _row(group)
            inputs[name] = rows.ravel()
        return inputs


def _row(group: ScaleNames) -> tuple[float, float, float]:
    scale, zero_point = group.quantization
    if group.is_float8:
        return scale, 0.0, 0.0
    integers = np.iinfo(group.integer)
    return scale, float(integers.min - zero_point), float(integers.max - zero_point)


def _with_scales_as_inputs(candidate: ModelProto, inputs: _Inputs) -> ModelProto:
    """``candidate`` with pairs of ``inputs`` that read their parameters from there."""
    model = without_initializers(candidate, inputs.position.keys())
    _simulate(model.graph, inputs, frozenset())
    kept = {scale for node in model.graph.node for scale in _scales_in(node, inputs)}
    _put_first(model.graph, [inputs.parameter(scale, 0, scale) for scale in sorted(kept)])
    inputs.declare(model.graph)
    return model


def _put_first(graph: GraphProto, nodes: Sequence[NodeProto]) -> None:
    everything = [*nodes, *graph.node]
    del graph.node[:]
    graph.node.extend(everything)


def _scales_in(node: NodeProto, inputs: _Inputs) -> Iterator[str]:
    """Scales of ``inputs`` that pairs read which stay pairs, those in bodies of ``node`` too."""
    if node.op_type in PAIR_OPS and node.input[1] in inputs.position:
        yield node.input[1]
    for body in subgraphs(node):
        for inner in body.node:
            yield from _scales_in(inner, inputs)


def _simulate(graph: GraphProto, inputs: _Inputs, outside: frozenset[str]) -> None:
    """Replace pairs in ``graph`` and its bodies; ``outside``: what was written where it lies."""
    ports = {value.name for value in graph.output}
    written = outside | {
        node.output[0]
        for node in graph.node
        if node.op_type == "QuantizeLinear"
        and node.input[1] in inputs.position
        and not inputs.group(node.input[1]).is_float8
        and node.output[0] not in ports
    }
    nodes = [new for node in graph.node for new in _simulated(node, inputs, written)]
    del graph.node[:]
    graph.node.extend(nodes)
    for body in (body for node in graph.node for body in subgraphs(node)):
        _simulate(body, inputs, written)


def _simulated(node: NodeProto, inputs: _Inputs, written: Collection[str]) -> list[NodeProto]:
    """``node``, or what does in float what a pair does whose integers are ``written``."""
    if node.op_type == "DequantizeLinear" and node.input[0] in written:
        return [helper.make_node("Identity", [node.input[0]], [node.output[0]], node.name)]
    if node.op_type != "QuantizeLinear" or node.output[0] not in written:
        return [node]
    if not inputs.switched:
        return _rounding(node, inputs, node.output[0])
    base = f"{inputs.prefix}{node.output[0]}"
    quantized, same = (f"{base}/{name}" for name in ("quantized", "same"))
    off = [helper.make_node("Identity", [node.input[0]], [same], f"{node.name}/Identity")]
    kind = helper.np_dtype_to_tensor_dtype(inputs.group(node.input[1]).dtype)

    def branch(name: str, nodes: Sequence[NodeProto], output: str) -> GraphProto:
        return helper.make_graph(
            nodes, name, [], [helper.make_tensor_value_info(output, kind, None)]
        )

    then = branch("then_branch", _rounding(node, inputs, quantized), quantized)
    other = branch("else_branch", off, same)
    made = helper.make_node("If", [inputs.switch(node.input[1])], [node.output[0]], node.name)
    made.attribute.extend(
        helper.make_attribute(name, graph)
        for name, graph in (("then_branch", then), ("else_branch", other))
    )
    return [made]


def _rounding(node: NodeProto, inputs: _Inputs, target: str) -> list[NodeProto]:
    """What writes to ``target`` the values that the pair of a QuantizeLinear ``node`` makes."""
    source, scale = node.input[0], node.input[1]
    base = f"{inputs.prefix}{node.output[0]}"
    step, low, high = (f"{base}/{name}" for name in ("step", "low", "high"))
    divided, rounded, cut = (f"{base}/{name}" for name in ("divided", "rounded", "cut"))
    return [
        *(inputs.parameter(scale, number, name) for number, name in enumerate((step, low, high))),
        helper.make_node("Div", [source, step], [divided], f"{node.name}/Div"),
        helper.make_node("Round", [divided], [rounded], f"{node.name}/Round"),
        helper.make_node("Clip", [rounded, low, high], [cut], f"{node.name}/Clip"),
        helper.make_node("Mul", [cut, step], [target], f"{node.name}/Mul"),
    ]
