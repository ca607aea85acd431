"""Whether the float model recovered from a quantized one is the function that was given.

Taking pairs out changes outputs by quantization noise. A pair that does more is part of the
function, e.g. in x - DQ(Q(x)), or where it saturates as a Clip would: its arithmetic stays.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from placer.accuracy.evaluator import Run
from placer.accuracy.metrics import GroupSums, decibels
from placer.accuracy.sanity import MIN_SQNR_DB
from placer.calibration.dataset import Dataset
from placer.engines.base import Tensors
from placer.engines.half_precision import HalfPrecisionModel
from placer.errors import InputError, RunError
from placer.model import Model, load_as_is, load_model

log = logging.getLogger(__name__)

# Models by ONNX Runtime's own quantizer and by ModelOpt, with poor ranges included, kept 8 dB and
# more (README, docs/import.md), so one below this is looked at pair by pair.
SUSPECT_DB = 15.0
# One pair of 8 bits leaves 20 dB and more of a signal that it was made for.
MATERIAL_DB = 10.0
# How many pairs are looked at, each of which takes an ONNX Runtime session.
MOST_PAIRS = 400


@dataclass(frozen=True, eq=False)
class Source:
    """A quantized model as it was given, run by ONNX Runtime with its graph as it is.

    ``samples``: inputs, and ``outputs`` the float outputs of the model on each.
    """

    proto: ModelProto
    model: Model
    samples: Sequence[Tensors]
    outputs: Sequence[Mapping[str, np.ndarray]]

    @staticmethod
    def of(model: Model, samples: Sequence[Tensors]) -> Source | None:
        """The file that ``model`` was recovered from; None if ONNX Runtime does not run it."""
        proto = load_as_is(model.path, model.input_shapes).proto
        try:
            run = HalfPrecisionModel(proto, model.base_dir, threads=1).run
            return Source(proto, model, samples, [run(inputs) for inputs in samples])
        except RunError as error:
            # Whoever asked says so.
            log.info("%s is not compared with the model it came from: %s", model.path, error)
            return None

    def sqnr(self, proto: ModelProto) -> float:
        """SQNR in dB of the outputs of ``proto`` against the source's, of the worst float output.

        -inf if ONNX Runtime does not run it.
        """
        try:
            return self.sqnr_of(HalfPrecisionModel(proto, self.model.base_dir, threads=1).run)
        except RunError as error:
            log.info("not compared with the source: %s", error)
            return -math.inf

    def sqnr_of(self, run: Run) -> float:
        """As ``sqnr``, of a model that is run by ``run``, whose errors pass through."""
        return worst_sqnr(self.outputs, [run(inputs) for inputs in self.samples])

    def material_pairs(self) -> frozenset[str]:
        """What those QuantizeLinear nodes write without which the outputs are others."""
        pairs = list(_pairs(self.proto))
        if len(pairs) > MOST_PAIRS:
            log.warning("only %d of %d pairs are looked at one by one", MOST_PAIRS, len(pairs))
        return frozenset(
            pair.integers
            for pair in pairs[:MOST_PAIRS]
            if self.sqnr(_without(self.proto, pair)) < MATERIAL_DB
        )


def worst_sqnr(
    expected: Sequence[Mapping[str, np.ndarray]], found: Sequence[Mapping[str, np.ndarray]]
) -> float:
    """SQNR in dB over all samples of the float output that has the least; inf without any."""
    sums: dict[str, GroupSums] = {}
    for wanted, got in zip(expected, found, strict=True):
        for name, values in wanted.items():
            if not _is_float(values):
                continue
            of_output = sums.setdefault(name, GroupSums())
            other = got.get(name)
            if other is None or other.shape != values.shape:
                of_output.add_mismatch(values)
            else:
                of_output.add(values, other)
    return decibels(max((one.noise for one in sums.values()), default=0.0))


def _is_float(values: np.ndarray) -> bool:
    return values.dtype.kind == "f" or "float" in values.dtype.name


class _Pair(NamedTuple):
    """What a QuantizeLinear writes and reads, and what the DequantizeLinear nodes of it write.

    ``clamps``: whether it keeps what a node writes from being negative, as the Relu does that the
    importer puts back.
    """

    integers: str
    source: str
    targets: tuple[str, ...]
    clamps: bool


def _pairs(proto: ModelProto) -> Iterator[_Pair]:
    """Pairs of activations whose integers nothing else reads."""
    constants = {tensor.name: tensor for tensor in proto.graph.initializer}
    outputs = {value.name for value in proto.graph.output}
    written = {tensor for node in proto.graph.node for tensor in node.output}
    readers: dict[str, list[tuple[str, str]]] = {}
    for node in proto.graph.node:
        for tensor in node.input:
            readers.setdefault(tensor, []).append((node.op_type, node.output[0]))
    for node in proto.graph.node:
        if node.op_type != "QuantizeLinear" or node.input[0] in constants:
            continue
        read = readers.get(node.output[0], [])
        targets = tuple(target for _, target in read)
        if not read or any(op != "DequantizeLinear" for op, _ in read):
            continue
        if outputs.isdisjoint((node.output[0], *targets)):
            zero_point = constants.get(node.input[2]) if len(node.input) > 2 else None
            clamps = node.input[0] in written and _is_lowest(zero_point)
            yield _Pair(node.output[0], node.input[0], targets, clamps)


def _is_lowest(zero_point: TensorProto | None) -> bool:
    if zero_point is None or zero_point.data_type == TensorProto.UINT8:
        return zero_point is None or not numpy_helper.to_array(zero_point).any()
    values = numpy_helper.to_array(zero_point)
    return values.dtype == np.int8 and bool((values == -128).all())


def _without(proto: ModelProto, pair: _Pair) -> ModelProto:
    """``proto`` with readers of the pair reading what it reads."""
    copy = ModelProto()
    copy.CopyFrom(proto)
    del copy.graph.node[:]
    instead = f"{pair.integers}/instead"
    for node in proto.graph.node:
        added = copy.graph.node.add()
        if node.op_type == "QuantizeLinear" and node.output[0] == pair.integers:
            op = "Relu" if pair.clamps else "Identity"
            added.CopyFrom(helper.make_node(op, [pair.source], [instead]))
        elif node.output[0] in pair.targets:
            added.CopyFrom(helper.make_node("Identity", [instead], [node.output[0]]))
        else:
            added.CopyFrom(node)
    return copy


def recovered(model: Model, data: Dataset, samples: int) -> tuple[Model, float | None]:
    """``model``, with the pairs left in that are part of its function, and its distance.

    That is the SQNR in dB of its outputs against those of the quantized file, on at most so many
    samples of ``data``; None if ONNX Runtime does not run the file. Below ``SUSPECT_DB`` pairs are
    taken out one by one, and those stay whose removal alone leaves less than ``MATERIAL_DB``.
    Raises InputError if less than ``MIN_SQNR_DB`` is left nevertheless.
    """
    source = Source.of(model, inputs_of(model, data.limit(samples)))
    if source is None:
        return model, None
    sqnr = source.sqnr(model.proto)
    if sqnr < SUSPECT_DB:
        kept = source.material_pairs()
        if kept:
            model = load_model(model.path, model.input_shapes, kept)
            sqnr = source.sqnr(model.proto)
    if sqnr < MIN_SQNR_DB:
        raise InputError(
            f"{model.path} is quantized, and the float model that placer recovers from it gives "
            f"other outputs ({sqnr:.1f} dB); give the float model"
            + (", or `data`, as these were random inputs" if data.synthetic else "")
        )
    return model, sqnr


def distance_sentence(sqnr: float | None) -> str:
    """What ``recovered`` found, for the end of a sentence."""
    if sqnr is None:
        return "ONNX Runtime does not run the file, so the two were not compared"
    if math.isinf(sqnr):
        return "the float model's outputs equal the file's"
    return f"the float model's outputs keep {sqnr:.1f} dB of the file's"


def inputs_of(model: Model, data: Dataset) -> list[Tensors]:
    """The inputs of ``data``; made up ones are scaled to what the source was calibrated for.

    That is to half its range to the nearer side: ranges are those of the largest values of much
    data, often of one sample only.
    """
    if not data.synthetic or model.imported is None:
        return [sample.inputs for sample in data]
    ranges = {
        name: (
            (scale.lowest - scale.zero_point) * scale.scale,
            (scale.highest - scale.zero_point) * scale.scale,
        )
        for name, scale in model.imported.activations.items()
    }
    return scaled_to([sample.inputs for sample in data], ranges)


def scaled_to(
    samples: Sequence[Tensors], ranges: Mapping[str, tuple[float, float]]
) -> list[Tensors]:
    """``samples`` scaled to half of each input's range, to the nearer side."""
    return [
        {
            name: _scaled(values, *ranges[name]) if name in ranges else values
            for name, values in inputs.items()
        }
        for inputs in samples
    ]


def _scaled(values: np.ndarray, low: float, high: float) -> np.ndarray:
    largest = float(np.abs(values).max(initial=0.0))
    if not largest or max(-low, high) <= 0:
        return values
    nearer = min(side for side in (-low, high) if side > 0)
    scaled: np.ndarray = np.clip(values * (nearer / 2 / largest), low, high)
    return scaled.astype(values.dtype)
