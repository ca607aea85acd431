"""Whether the float model recovered from a quantized one is the function that was given.

Taking pairs out changes outputs by quantization noise. A pair that does more is part of the
function, e.g. in x - DQ(Q(x)), or where it saturates as a Clip would: its arithmetic stays.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from onnx import ModelProto

from placer.accuracy.evaluation import Run
from placer.accuracy.metrics import GroupSums, decibels
from placer.accuracy.sanity import MIN_SQNR_DB
from placer.calibration.dataset import Dataset, load_dataset, synthetic_dataset
from placer.common.ort_session import one_line
from placer.engines.base import Tensors
from placer.engines.half_precision import HalfPrecisionModel
from placer.errors import InputError, LimitError, RunError
from placer.graph.node_names import unique_names
from placer.graph.port_arithmetic import IntegerPort, as_numbers, integer_ports
from placer.graph.randomness import random_outputs
from placer.importing.source_pairs import SourcePair, source_pairs, without_pairs
from placer.model import Model, load_as_is, load_model
from placer.model.fixed_inputs import fix_in_place, fixed_values
from placer.model.judged import Judged, add_outputs, has_tensors, judged_by

log = logging.getLogger(__name__)

# Models by ONNX Runtime's own quantizer and by ModelOpt, with poor ranges included, kept 8 dB and
# more (README, docs/import.md), so one below this is looked at pair by pair.
SUSPECT_DB = 15.0
# One pair of 8 bits leaves 20 dB and more of a signal that it was made for.
MATERIAL_DB = 10.0
# Which share of the values that are finite in one model may be NaN or infinite in the other. Noise
# SUSPECT_DB below a normally distributed signal turns 5.5% of its signs, and their logarithms NaN.
MOST_LOST = 0.05
# How many groups of pairs are looked at, each of which takes an ONNX Runtime session, and on how
# many of the samples on which the models differ most.
MOST_GROUPS = 400
PAIR_SAMPLES = 4
# On how many random inputs models are compared, and on how many samples of data at most.
RANDOM_SAMPLES = 4
DATA_SAMPLES = 1024


# Why nothing is compared of some files, whose float outputs alone tell a distance.
NOTHING = "the file has no float output whose values are finite and the same in each run"


def _reason(error: RunError) -> str:
    """ONNX Runtime's own words: what may be done about the file is being done."""
    cause = error.__cause__
    return f"ONNX Runtime does not run the file ({one_line(error if cause is None else cause)})"


class UncomparedError(RunError):
    """ONNX Runtime does not run the quantized file; the text says why."""


@dataclass(frozen=True)
class Distance:
    """How far the recovered float model is from the quantized file.

    ``sqnr``: in dB, of its outputs against the file's; None where ``reason`` says why they were not
    compared. ``notes``: what was left out of it.
    """

    sqnr: float | None
    reason: str = ""
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return what is said of it at the end of a sentence."""
        if self.sqnr is None:
            return f"nothing was compared, because {self.reason}"
        if math.isinf(self.sqnr):
            return "the float model's outputs equal the file's"
        return f"the float model's outputs agree with the file's to {self.sqnr:.1f} dB"


@dataclass(frozen=True, eq=False)
class Source:
    """A quantized model as it was given, run by ONNX Runtime with its graph as it is.

    ``outputs``: those that are compared. Where rows are chosen by value, what they are chosen from
    stands for them (``placer.model.judged``), if the file has tensors of these names. ``swapped``:
    see ``Comparison``.
    """

    proto: ModelProto
    model: Model
    run: Run
    outputs: frozenset[str]
    swapped: frozenset[str] = frozenset()

    @staticmethod
    def of(model: Model, data: Dataset | None = None) -> Source:
        """The file that ``model`` was made from; inputs that it was fixed for are constants.

        Outputs that differ from run to run on the first sample of ``data`` are not compared. Raises
        UncomparedError with ONNX Runtime's reason if it refuses the file.
        """
        proto, judged = load_as_is(model.path, model.input_shapes).proto, _judged(model)
        if fixed := fixed_values(model.proto):
            fix_in_place(proto, fixed, {}, model.path)
        for node, name in zip(proto.graph.node, unique_names(proto.graph.node), strict=True):
            node.name = name  # ONNX Runtime takes no two nodes of one name.
        if judged.rows is not None and has_tensors(proto, judged.rows.sources):
            add_outputs(proto, judged.rows.sources)
        present = {value.name for value in proto.graph.output}
        try:
            run = _run_of(proto, model)
            outputs = frozenset(present.intersection(judged.graph.outputs))
            outputs -= random_on(model, data) if data is not None else frozenset()
            return Source(proto, model, run, outputs, judged.swapped)
        except RunError as error:
            raise UncomparedError(_reason(error)) from error

    def compared(self, run: Run, samples: Iterable[Tensors]) -> Comparison | None:
        """``outputs`` of the model that ``run`` runs against these, a sample at a time.

        None if the source has no float output with finite values. Raises
        UncomparedError if ONNX Runtime does not run it, LimitError if it takes too much. What
        ``run`` raises passes through.
        """
        sums = []
        for inputs in samples:
            try:
                wanted = self._wanted(inputs)
            except LimitError:
                raise
            except RunError as error:
                raise UncomparedError(_reason(error)) from error
            sums.append(self._sums(wanted, run(inputs)))
        found = Comparison(sums, self.swapped)
        return found if found.shares else None

    def material_pairs(self, samples: Sequence[Tensors]) -> frozenset[str]:
        """What those QuantizeLinear nodes write without which the outputs are others.

        Noise adds up, so a group that can go together holds none of them; others are halved.
        """
        outputs = [self._wanted(inputs) for inputs in samples]
        waiting, material, looks = [list(source_pairs(self.proto))], set(), 0
        while waiting and looks < MOST_GROUPS:
            group, looks = waiting.pop(), looks + 1
            if self._sqnr_without(group, samples, outputs) >= MATERIAL_DB:
                continue
            if len(group) == 1:
                material.add(group[0].integers)
            elif group:
                half = len(group) // 2
                waiting += [group[half:], group[:half]]
        if left := sum(map(len, waiting)):
            log.warning("%d pairs are not looked at: the others took %d runs", left, looks)
        return frozenset(material)

    def _wanted(self, inputs: Tensors) -> Tensors:
        return {name: v for name, v in self.run(inputs).items() if name in self.outputs}

    def _sums(self, wanted: Tensors, computed: Tensors) -> dict[str, OutputSums]:
        """``output_sums``, of quantized outputs by the numbers that they stand for."""
        return output_sums(as_numbers(wanted, self._ports), as_numbers(computed, self._ports))

    @cached_property
    def _ports(self) -> Mapping[str, IntegerPort]:
        ports = integer_ports(self.model.graph)
        return {port.integers: port for port in ports if not port.is_input}

    def _sqnr_without(
        self, pairs: Sequence[SourcePair], samples: Sequence[Tensors], outputs: Sequence[Tensors]
    ) -> float:
        try:
            run = _run_of(without_pairs(self.proto, pairs), self.model)
            sums = [self._sums(w, run(i)) for w, i in zip(outputs, samples, strict=True)]
        except LimitError:
            raise
        except RunError as error:
            log.info("not compared with the source: %s", error)
            return -math.inf
        return Comparison(sums, self.swapped).sqnr


def random_on(model: Model, data: Dataset) -> frozenset[str]:
    """Graph outputs that a random node without a seed makes differ between two runs.

    They are run on the first sample of ``data``, where such a node may be scaled by 0 or not run.
    """
    drawn = random_outputs(model.graph, seeded=False)
    if not drawn:
        return frozenset()
    run, inputs = _run_of(model.proto, model), next(iter(data)).inputs
    one, other = run(inputs), run(inputs)
    return frozenset(name for name in drawn if not _is_same(one[name], other[name]))


def _is_same(one: object, other: object) -> bool:
    if is_float(one):
        return np.array_equal(np.asarray(one), np.asarray(other), equal_nan=True)
    return isinstance(one, np.ndarray) and np.array_equal(one, np.asarray(other))


def _run_of(proto: ModelProto, model: Model) -> Run:
    return HalfPrecisionModel(proto, model.base_dir, threads=1).run


@dataclass
class OutputSums(GroupSums):
    """Sums over the values of one output that are finite in both models.

    ``size``: how many it has, of which ``finite`` are finite in the one, and ``lost`` of these not
    in the other.
    """

    size: int = 0
    finite: int = 0
    lost: int = 0

    @property
    def is_compared(self) -> bool:
        """Whether the one model has a finite value, or none at all."""
        return self.finite > 0 or self.size == 0

    @property
    def is_broken(self) -> bool:
        """Whether more is lost than rounding explains: any if all values are finite in the one."""
        return self.lost > (MOST_LOST * self.finite if self.finite < self.size else 0)


@dataclass(frozen=True, eq=False)
class Comparison:
    """The float outputs of two models: sums by output, for each sample.

    An output of which more than ``MOST_LOST`` is lost is infinitely far.
    ``swapped``: outputs that may have other rows, as behind another choice of a NonMaxSuppression.
    They count as long as they are no reason to suspect the models, so that choices agree.
    """

    samples: Sequence[Mapping[str, OutputSums]]
    swapped: frozenset[str] = frozenset()

    @property
    def sqnr(self) -> float:
        """SQNR in dB over all samples of the output that has the least; inf without any."""
        return _sqnr(self.shares)

    def worst(self, count: int) -> list[int]:
        """Indices of the ``count`` samples with the most noise, in their order."""
        most = [max(shares, default=0.0) for shares in zip(*self.shares.values(), strict=True)]
        order = sorted(range(len(most)), key=lambda index: most[index], reverse=True)
        return sorted(order[:count])

    @property
    def left_out(self) -> str:
        """Which values were not compared as they are not finite, as clauses; "" if all were."""
        clauses = []
        for name, sums in self._by_output.items():
            whole = _whole(sums)
            if not whole.is_compared:
                clauses.append(f"'{name}' has no finite value")
            elif whole.lost:
                clauses.append(
                    f"{whole.lost} of {whole.finite} finite values of '{name}' become NaN or "
                    "infinite"
                )
        return "; ".join(clauses)

    def notes(self, source: Path) -> tuple[str, ...]:
        """``left_out`` as a warning on the comparison with the file at ``source``."""
        text = f"not everything could be compared with {source}: {self.left_out}"
        return (text,) if self.left_out else ()

    @cached_property
    def _by_output(self) -> Mapping[str, Sequence[OutputSums]]:
        names = dict.fromkeys(name for sample in self.samples for name in sample)
        return {name: [sample.get(name, OutputSums()) for sample in self.samples] for name in names}

    @cached_property
    def shares(self) -> Mapping[str, Sequence[float]]:
        """By output that counts, noise of each sample over the signal of all."""
        found = {}
        for name, sums in self._by_output.items():
            whole = _whole(sums)
            if whole.is_compared:
                errors = [math.inf if whole.is_broken and s.lost else s.error for s in sums]
                found[name] = [replace(whole, error=error).noise for error in errors]
        if _sqnr(found) < SUSPECT_DB:
            return {name: own for name, own in found.items() if name not in self.swapped}
        return found


def _whole(sums: Sequence[OutputSums]) -> OutputSums:
    """The signal and the counts of all samples."""
    return OutputSums(
        reference=sum(one.reference for one in sums),
        size=sum(one.size for one in sums),
        finite=sum(one.finite for one in sums),
        lost=sum(one.lost for one in sums),
    )


def _sqnr(shares: Mapping[str, Sequence[float]]) -> float:
    return decibels(max((sum(one) for one in shares.values()), default=0.0))


def output_sums(wanted: Tensors, computed: Tensors) -> dict[str, OutputSums]:
    """By output of floats, ``computed`` held against ``wanted`` on one sample.

    Values that are finite in ``wanted`` alone are counted: a logarithm behind rounding has some.
    """
    sums = {}
    for name, values in wanted.items():
        if not is_float(values):
            continue
        own = np.isfinite(values)
        sums[name] = OutputSums(size=values.size, finite=int(own.sum()))
        other = computed.get(name)
        if other is None or other.shape != values.shape:
            if own.any() or not values.size:
                sums[name].add_mismatch(values[own])
            continue
        both = own & np.isfinite(other)
        sums[name].lost = int((own & ~both).sum())
        sums[name].add(values[both], other[both])
    return sums


def is_float(values: object) -> bool:
    """Whether an output is a tensor of floats."""
    if not isinstance(values, np.ndarray):  # A sequence or a map.
        return False
    return values.dtype.kind == "f" or "float" in values.dtype.name


def samples_of(data: str | None, model: Model) -> Dataset:
    """What a command compares models on that takes ``data`` or does without."""
    if data is None:
        return synthetic_dataset(model, RANDOM_SAMPLES, 0)
    return load_dataset(data, model).limit(DATA_SAMPLES)


def recovered(model: Model, data: Dataset, samples: int = PAIR_SAMPLES) -> tuple[Model, Distance]:
    """``model``, with the pairs left in that are part of its function, and its distance.

    That is the distance on ``data``. Below ``SUSPECT_DB`` pairs are taken out by themselves, and
    those stay whose removal alone leaves less than ``MATERIAL_DB`` on the so many ``samples`` on
    which the two differ most. Raises InputError if less than ``MIN_SQNR_DB`` is left nevertheless,
    and LimitError where a run takes too much.
    """
    try:
        source = Source.of(model, data)
        comparison = _distance(source, model, data)
    except UncomparedError as error:
        return model, Distance(None, str(error))
    if comparison is None:
        return model, Distance(None, NOTHING)
    if comparison.sqnr < SUSPECT_DB:
        chosen = data.choose(comparison.worst(samples))
        kept = source.material_pairs(list(inputs_of(model, chosen)))
        if kept:
            entered = bool(model.graph.scopes)
            model = load_model(model.path, model.input_shapes, kept, bodies=entered)
            comparison = _distance(source, model, data) or comparison
    if comparison.sqnr < MIN_SQNR_DB:
        _refuse_infinite(model)
        left_out = f"; {comparison.left_out}" if comparison.left_out else ""
        raise InputError(
            f"{model.path} is quantized, and the float model that placer recovers from it gives "
            f"other outputs ({comparison.sqnr:.1f} dB{left_out}); give the float model"
            + (", or `data`, as these were random inputs" if data.synthetic else "")
        )
    return model, Distance(comparison.sqnr, notes=comparison.notes(model.path))


def _refuse_infinite(model: Model) -> None:
    """Raise InputError for a constant that only its pair makes finite."""
    for name in model.graph.initializers:
        if model.graph.type_of(name).is_float and not np.isfinite(model.array(name)).all():
            raise InputError(
                f"{model.path}: initializer '{name}' holds NaN or infinity, which its pair alone "
                "keeps from the outputs; export the model again"
            )


def _judged(model: Model) -> Judged:
    """What tells how far ``model`` is from the file, to which nothing but outputs is added."""
    return judged_by(model, has_copy=False)


def _distance(source: Source, model: Model, data: Dataset) -> Comparison | None:
    """``Source.compared``; infinitely far if ONNX Runtime does not run ``model``."""
    try:
        return source.compared(_run_of(_judged(model).model.proto, model), inputs_of(model, data))
    except (LimitError, UncomparedError):
        raise
    except RunError as error:
        log.info("not compared with the source: %s", error)
        return Comparison([{"": OutputSums(error=math.inf)}] * len(data))


def inputs_of(model: Model, data: Dataset) -> Iterator[Tensors]:
    """The inputs of ``data``; made up ones are scaled to what the source was calibrated for.

    That is to half its range to the nearer side: ranges are those of the largest values of much
    data, often of one sample only.
    """
    samples = (sample.inputs for sample in data)
    if not data.synthetic or model.imported is None:
        return samples
    ranges = {
        name: (
            (scale.lowest - scale.zero_point) * scale.scale,
            (scale.highest - scale.zero_point) * scale.scale,
        )
        for name, scale in model.imported.activations.items()
    }
    return scaled_to(samples, ranges)


def scaled_to(
    samples: Iterable[Tensors], ranges: Mapping[str, tuple[float, float]]
) -> Iterator[Tensors]:
    """``samples`` scaled to half of each input's range, to the nearer side."""
    for inputs in samples:
        yield {
            name: _scaled(values, *ranges[name]) if name in ranges else values
            for name, values in inputs.items()
        }


def _scaled(values: np.ndarray, low: float, high: float) -> np.ndarray:
    largest = float(np.abs(values).max(initial=0.0))
    if not largest or max(-low, high) <= 0:
        return values
    nearer = min(side for side in (-low, high) if side > 0)
    scaled: np.ndarray = np.clip(values * (nearer / 2 / largest), low, high)
    return scaled.astype(values.dtype)
