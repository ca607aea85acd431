"""Models judged against their float model on data, on any engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from placer.accuracy.channel_groups import ChannelGroup, channel_groups
from placer.accuracy.evaluation import Run
from placer.accuracy.evaluator import Custom, Evaluator, check_gates, own_score
from placer.accuracy.gates import Gate, GateResult
from placer.accuracy.intervals import Measure, measures
from placer.accuracy.labels import class_indices
from placer.accuracy.metrics import Comparison, finite
from placer.calibration.data_shapes import with_shapes_of_data
from placer.calibration.dataset import load_dataset
from placer.calibration.sample import Sample
from placer.common.counts import MOST_THREADS, check_count
from placer.common.files import paths_of
from placer.common.names import texts_of
from placer.common.ort_session import blamed_on
from placer.common.shapes import GivenShape, given_ranges, optima
from placer.common.user_code import load_function
from placer.engines.abilities import converts_inputs
from placer.engines.base import Engine, Tensors
from placer.engines.half_precision import HalfPrecisionModel
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.engines.select import base_of_files, check_base, select_engine
from placer.errors import InputError, RunError
from placer.evaluation.input_types import in_types_of
from placer.evaluation.layers import Layer, compare_layers, first_wrong
from placer.evaluation.pair_ranges import lost_parts, unsuited_pairs
from placer.graph import Graph
from placer.model import Model, load_as_is, load_model
from placer.model.fixed_inputs import fixed_values
from placer.model.judged import Judged, judged_by
from placer.model.same_inputs import check_same_inputs, has_bfloat16_inputs

LAYER_SAMPLES = 4


@dataclass(frozen=True)
class Evaluated:
    """One model: its metrics and, if asked for, its layers in order of computation, and gates.

    ``notes``: sentences on pairs whose scales do not suit the data.
    """

    model: str
    measures: tuple[Measure, ...]
    layers: tuple[Layer, ...] = ()
    gates: tuple[GateResult, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def first_wrong(self) -> Layer | None:
        """The first layer that goes wrong (``placer.evaluation.layers``)."""
        return first_wrong(self.layers)


@dataclass(frozen=True)
class EvalResult:
    """What each model scored, on how many samples, and on what engine it ran.

    ``note``: what was compared instead of outputs that cannot be (``placer.model.judged``).
    """

    float_model: str
    engine: str
    version: str
    samples: int
    models: tuple[Evaluated, ...]
    note: str | None = None

    def to_json(self) -> dict[str, Any]:
        """For ``json.dumps``: infinite values are null."""
        return {
            **{k: v for k, v in asdict(self).items() if k != "models"},
            "models": [_model_json(one) for one in self.models],
        }


def evaluate(
    float_model: str | PathLike[str],
    quantized: str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    data: str | PathLike[str],
    labels: str | PathLike[str] | None = None,
    metrics: str | Sequence[str] = (),
    gates: str | Sequence[str] = (),
    shapes: Mapping[str, GivenShape] | None = None,
    engine: str = "onnxruntime",
    threads: int = 1,
    device: str | None = None,
    base: str | None = None,
    engine_options: Mapping[str, str] | None = None,
    layers: bool = False,
) -> EvalResult:
    """Compare ``quantized`` models with ``float_model`` by all metrics of gates.

    ``data``: as for ``placer.optimize``; all of it is used. ``labels``: an .npy file of class
    indices for data without labels, one row for each of the first input. ``metrics``: besides,
    each a ``module:function`` as for gates, averaged over samples. ``gates``: what each model is
    judged by, as for ``placer.optimize``; to miss one is no error. The float model runs on ONNX
    Runtime, the others on ``engine``, OpenVINO in ``base``, by default the type that each file
    names, else float. ``layers``: compare intermediate tensors too, on the first samples.

    Raises InputError for wrong input and for models of other inputs or outputs, RunError if a
    model is refused.
    """
    if not quantized:
        raise InputError("no quantized model is given; give at least one beside the float model")
    check_count("threads", threads, 1, MOST_THREADS)
    fixed = with_shapes_of_data(Path(float_model), optima(given_ranges(shapes)), str(data))
    source = load_as_is(Path(float_model), fixed)
    given = load_model(Path(float_model), fixed)
    asked = tuple(map(Gate.parse, texts_of(gates)))
    functions = {name: load_function(name) for name in texts_of(metrics)}
    judged = judged_by(given, [gate.output for gate in asked if gate.output])
    samples = _labelled(list(load_dataset(str(data), source)), labels)
    outputs = tuple(dict.fromkeys((*given.graph.outputs, *judged.graph.outputs)))
    check_gates(asked, outputs, samples[0].labels is not None)
    models = [load_as_is(path, fixed) for path in paths_of(quantized)]
    runner = _engine_for(models, fixed, engine, threads, device, base, engine_options or {})
    for model in models:
        casts = converts_inputs(runner) or not has_bfloat16_inputs(model)
        check_same_inputs(source, model, converted=casts)
    source, has_judged = _with_judged_outputs(judged, source, models)
    graph = judged.graph if has_judged else given.graph
    judge = _Judge(graph, samples, _expected(source, samples, threads), functions, asked)

    def evaluated(model: Model) -> Evaluated:
        compiled = _run_of(runner, model, threads)

        def run(inputs: Tensors) -> Tensors:
            return compiled(in_types_of(model, inputs))

        compared, held = judge(_with_fixed(model, run), model.path)
        few = samples[:LAYER_SAMPLES]
        named = tuple(compare_layers(source, model, few)) if layers else ()
        pairs = unsuited_pairs(source, model, few) if layers else ()
        notes = (*lost_parts(model, judge.groups, judge.expected), *pairs)
        return Evaluated(str(model.path), compared, named, held, notes)

    return EvalResult(
        float_model=str(float_model),
        engine=runner.name,
        version=runner.version,
        samples=len(samples),
        models=tuple(map(evaluated, models)),
        note=judged.note() if has_judged else None,
    )


def _engine_for(
    models: Sequence[Model],
    shapes: Mapping[str, tuple[int, ...]],
    engine: str,
    threads: int,
    device: str | None,
    base: str | None,
    options: Mapping[str, str],
) -> Engine:
    """The engine that ``models`` run on, in the base precision that their files name."""
    runner, _, _ = select_engine(
        engine,
        threads=threads,
        pack=None,
        gpu=None,
        base=base_of_files(engine, base, [model.proto for model in models]),
        shapes=shapes,
        shape_ranges={},
        device=device,
        extra=options,
    )
    check_base(runner, base)
    return runner


def _with_judged_outputs(
    judged: Judged, source: Model, models: Sequence[Model]
) -> tuple[Model, bool]:
    """The float model that is run, and whether all models have what ``judged`` judges by.

    The outputs that they lack are added to them. They cannot be where another tool has named or
    taken apart what rows are chosen from.
    """
    if judged.rows is None:
        return source, True
    if judged.rows.reference_choices:  # The float model's choices are made in its normalised form.
        source = judged.model
    if not all(judged.fits(model.proto) for model in (source, *models)):
        return source, False
    for model in models if judged.rows.reference_choices else (source, *models):
        judged.add_to(model.proto)
    return source, True


def _expected(source: Model, samples: Sequence[Sample], threads: int) -> list[Tensors]:
    """The float model's outputs."""
    run, outputs = HalfPrecisionModel(source.proto, source.base_dir, threads).run, list[Tensors]()
    for sample in samples:
        with blamed_on(sample.origin):
            outputs.append(dict(run(sample.inputs)))
    return outputs


def _run_of(engine: Engine, model: Model, threads: int) -> Run:
    try:
        return engine.compile(model.proto, model.base_dir).run
    except RunError:
        if engine.name != OnnxRuntimeEngine.name or engine.verified:  # Its other providers are.
            raise
        # Its optimizer makes invalid graphs of some models with FP16 tensors.
        return HalfPrecisionModel(model.proto, model.base_dir, threads).run


def _with_fixed(model: Model, run: Run) -> Run:
    """``run`` for samples of the model as it was before inputs of it were fixed."""
    fixed = fixed_values(model.proto)
    if not fixed:
        return run

    def run_fixed(inputs: Tensors) -> Tensors:
        for name, value in fixed.items():
            if name in inputs and not np.all(inputs[name] == value):
                raise InputError(
                    f"{model.path} was fixed for {name}={value:g}, and the data has other values; "
                    "give samples with that value only"
                )
        return run({name: array for name, array in inputs.items() if name not in fixed})

    return run_fixed


class _Judge:
    """Compares models with the float model's outputs, sample by sample."""

    def __init__(
        self,
        graph: Graph,
        samples: Sequence[Sample],
        expected: Sequence[Mapping[str, np.ndarray]],
        functions: Mapping[str, Custom],
        gates: tuple[Gate, ...],
    ) -> None:
        self._samples = samples
        self.expected = expected
        self._labels = [_class_indices(sample.labels) for sample in samples]
        self._functions = functions
        numbers = [name for name in graph.outputs if _has_numbers(expected[0][name])]
        self.groups = tuple(
            group
            for group in channel_groups(graph)
            if group.output in numbers and _is_compared(group, expected[0][group.output])
        )
        self._evaluator = Evaluator(graph, gates, samples, _replayed(expected)) if gates else None

    def __call__(self, run: Run, path: Path) -> tuple[tuple[Measure, ...], tuple[GateResult, ...]]:
        compared = []
        kept = []  # For gates, which are judged by what judges candidates.
        values: dict[str, list[float]] = {name: [] for name in self._functions}
        rows = zip(self._samples, self.expected, self._labels, strict=True)
        for sample, expected, labels in rows:
            outputs = run(sample.inputs)
            missing = expected.keys() - outputs.keys()
            if missing:
                raise InputError(
                    f"{path} has no output '{min(missing)}', which the float model has; "
                    "give a model quantized from it"
                )
            if self._evaluator is not None:
                kept.append(dict(outputs))
            comparison = Comparison.of(self.groups)
            comparison.add(expected, outputs, labels)
            compared.append(comparison)
            for name, function in self._functions.items():
                values[name].append(own_score(f"metric {name}", function, outputs, sample))
        _check_labels(compared)
        judged = self._evaluator.evaluate(_replayed(kept)).gates if self._evaluator else ()
        return tuple(measures(compared, values)), tuple(value.result() for value in judged)


def _replayed(outputs: Sequence[Tensors]) -> Run:
    """What gives ``outputs`` one after the other, whatever the inputs."""
    rest = iter(outputs)
    return lambda _: next(rest)


def _class_indices(labels: np.ndarray | None) -> np.ndarray | None:
    """Class indices; None for other labels, such as boxes, which only functions read."""
    try:
        return None if labels is None else class_indices(labels)
    except ValueError:
        return None


def _check_labels(compared: Sequence[Comparison]) -> None:
    """Raise InputError for labels that are classes of no output that they fit."""
    fitting = [o for o, counts in compared[0].classes.items() if counts.labelled]
    outside = {o: sum(one.classes[o].outside for one in compared) for o in fitting}
    if fitting and all(outside.values()):
        output = fitting[0]
        raise InputError(
            f"{outside[output]} labels lie outside 0 to {compared[0].classes[output].classes - 1}, "
            f"the classes of output '{output}'; correct the labels"
        )


def _has_numbers(values: object) -> bool:
    """Whether an output is no text, sequence or map."""
    return isinstance(values, np.ndarray) and values.dtype.kind in "fiub"


def _is_compared(group: ChannelGroup, values: np.ndarray) -> bool:
    """Integers have no heads of some range: they are compared as a whole."""
    return values.dtype.kind == "f" or not group.spans


def _labelled(samples: list[Sample], labels: str | PathLike[str] | None) -> list[Sample]:
    """``samples`` with the class indices of the file ``labels``, or with their own labels."""
    if labels is None:
        return samples
    path = Path(labels)
    try:
        rows = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as labels: {error}; give an .npy file") from error
    counts = [_rows(sample) for sample in samples]
    if not isinstance(rows, np.ndarray) or rows.ndim == 0:
        raise InputError(f"{path} is not an array of labels; give an .npy file, a label a row")
    if len(rows) != sum(counts):
        raise InputError(
            f"{path} has {len(rows)} labels for {sum(counts)} rows of data; give one for each row "
            "that fills a batch, in the same order"
        )
    parts = np.split(rows, np.cumsum(counts)[:-1])
    return [_with_labels(sample, part) for sample, part in zip(samples, parts, strict=True)]


def _rows(sample: Sample) -> int:
    """Rows of the first input that has any; a scalar, such as a sampling rate, has none."""
    return next((values.shape[0] for values in sample.inputs.values() if values.ndim), 1)


def _with_labels(sample: Sample, labels: np.ndarray) -> Sample:
    try:
        return Sample(sample.inputs, class_indices(labels), sample.origin)
    except ValueError as error:
        raise InputError(f"the labels of {sample.origin} {error}") from error


def _model_json(one: Evaluated) -> dict[str, Any]:
    wrong = one.first_wrong
    return {
        "model": one.model,
        "metrics": [
            {
                "metric": measure.metric,
                "where": measure.where,
                "value": finite(measure.value),
                "interval": measure.interval and [finite(end) for end in measure.interval],
            }
            for measure in one.measures
        ],
        "gates": [{**asdict(measure), "passed": measure.passed} for measure in one.gates],
        "layers": [_layer_json(layer) for layer in one.layers],
        "first_wrong": None if wrong is None else wrong.tensor,
        "notes": list(one.notes),
    }


def _layer_json(layer: Layer) -> dict[str, Any]:
    return {
        "tensor": layer.tensor,
        "node": layer.node,
        "op": layer.op,
        "sqnr_db": finite(layer.sqnr),
        "before_db": finite(layer.before),
        "own_db": layer.own,
    }
