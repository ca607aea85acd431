"""A candidate whose scales are inputs: one session tries any ranges of one placement."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property, partial

import numpy as np
import onnxruntime as ort
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from placer.accuracy.evaluation import Run
from placer.common.ort_session import Session, create_session, run_once
from placer.graph.edit import subgraphs, without_initializers
from placer.graph.operators import PAIR_OPS
from placer.qdq import Inserter
from placer.qdq.draft import ScaleNames
from placer.quantization import Placement, Ranges
from placer.recovery.walk import FLOAT_KERNELS

_THREADS = 1
# Steps over the range of a tensor that is not quantized: float32 has no more digits.
_STEPS_WHEN_FLOAT = 2.0**23


class Simulation:
    """The candidate of one placement on ONNX Runtime's CPU provider, for any ranges.

    Each pair of activations rounds and cuts off as QuantizeLinear and DequantizeLinear do, and
    nodes compute in float between them. That is what an engine's integer kernels compute, but for
    their rounding of sums. What no range changes is as it is first: constants, groups with a
    constant in them, int32 biases, whose scale is fine enough for any range, and FP8 pairs but for
    their scale. ``ranges``: of all tensors that ``placement`` quantizes. The session, which holds
    all weights as floats, is made for the first run, which raises RunError if ONNX Runtime refuses
    the candidate.
    """

    def __init__(self, inserter: Inserter, placement: Placement, ranges: Ranges) -> None:
        self._inserter = inserter
        self._placement = placement
        self._ranges = ranges
        self._scales = inserter.scales(placement, ranges)

    @cached_property
    def _session(self) -> Session:
        return create_session(
            self._serialized(),  # Of a large model there is no other copy while it loads.
            self._inserter.model.base_dir,
            threads=_THREADS,
            level=ort.GraphOptimizationLevel.ORT_ENABLE_ALL,  # Weights are dequantized once.
            entries=FLOAT_KERNELS,
        )

    def _serialized(self) -> bytes:
        candidate = self._inserter.insert(self._placement, self._ranges)
        return _with_scales_as_inputs(candidate, self._scales).SerializeToString()

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The tensors of each group whose range can be changed."""
        return tuple(scale.tensors for scale in self._scales)

    def run(self, ranges: Ranges, only: Collection[str] | None = None) -> Run:
        """What runs the candidate with ``ranges``: outputs by name from inputs by name.

        ``only``: tensors of the groups to quantize, by default all; FP8 pairs always are.
        """
        given: dict[str, np.ndarray] = {}
        for names in self._inserter.scales(self._placement, ranges):
            on = only is None or not set(only).isdisjoint(names.tensors)
            given.update(self._values(names, on, ranges))
        return partial(self._run, given)

    def _values(
        self, names: ScaleNames, on: bool, ranges: Ranges
    ) -> Iterator[tuple[str, np.ndarray]]:
        scale, zero_point = names.quantization
        dtype = names.dtype
        if names.is_float8:
            yield names.scale, np.array(scale, dtype)
            return
        integers = np.iinfo(names.integer)
        low, high = float(integers.min - zero_point), float(integers.max - zero_point)
        if not on:
            largest = max(max(map(abs, ranges[tensor])) for tensor in names.tensors)
            scale = largest / _STEPS_WHEN_FLOAT if largest else 1.0
            low, high = -np.inf, np.inf
        yield names.scale, np.array(scale, dtype)
        yield f"{names.scale}/low", np.array(low, dtype)
        yield f"{names.scale}/high", np.array(high, dtype)

    def _run(
        self, scales: Mapping[str, np.ndarray], inputs: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        given, session = {**inputs, **scales}, self._session
        names = [output.name for output in session.own.get_outputs()]
        values = run_once(session, names, given, "the simulated candidate")
        return dict(zip(names, values, strict=True))


def _with_scales_as_inputs(candidate: ModelProto, scales: Collection[ScaleNames]) -> ModelProto:
    """``candidate`` with pairs of ``scales`` that read their parameters from inputs."""
    by_name = {pair_scale.scale: pair_scale for pair_scale in scales}
    model = without_initializers(candidate, by_name.keys())
    for pair_scale in scales:
        names = (
            [pair_scale.scale]
            if pair_scale.is_float8
            else [pair_scale.scale, *_limits(pair_scale.scale)]
        )
        kind = helper.np_dtype_to_tensor_dtype(pair_scale.dtype)
        model.graph.input.extend(helper.make_tensor_value_info(n, kind, ()) for n in names)
    _simulate(model.graph, by_name)
    return model


def _simulate(graph: GraphProto, scales: Mapping[str, ScaleNames]) -> None:
    """Let the pairs of ``graph`` and of its bodies read ``scales`` from inputs of the model."""
    kept = [tensor for tensor in graph.initializer if tensor.name not in scales]
    if len(kept) < len(graph.initializer):
        kept = [TensorProto.FromString(tensor.SerializeToString()) for tensor in kept]
        del graph.initializer[:]
        graph.initializer.extend(kept)
    integers = {name: pair_scale for name, pair_scale in scales.items() if not pair_scale.is_float8}
    if integers:
        nodes = [new for node in graph.node for new in _simulated(node, integers)]
        del graph.node[:]
        graph.node.extend(nodes)
    for body in (body for node in graph.node for body in subgraphs(node)):
        _simulate(body, scales)


def _limits(scale: str) -> tuple[str, str]:
    return f"{scale}/low", f"{scale}/high"


def _simulated(node: NodeProto, scales: Mapping[str, ScaleNames]) -> list[NodeProto]:
    """``node``, or the float operators that do the same with integers in float tensors."""
    if node.op_type not in PAIR_OPS or node.input[1] not in scales:
        return [node]
    source, target, scale = node.input[0], node.output[0], node.input[1]
    if node.op_type == "DequantizeLinear":
        return [helper.make_node("Mul", [source, scale], [target], node.name)]
    divided, rounded = f"{target}/divided", f"{target}/rounded"
    return [
        helper.make_node("Div", [source, scale], [divided], f"{node.name}/Div"),
        helper.make_node("Round", [divided], [rounded], f"{node.name}/Round"),
        helper.make_node("Clip", [rounded, *_limits(scale)], [target], node.name),
    ]
