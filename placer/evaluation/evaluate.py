"""Models judged against their float model on data, on any engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path

import numpy as np

from placer.accuracy.evaluation import Run
from placer.accuracy.evaluator import are_constant, check_gates
from placer.accuracy.gates import Gate
from placer.calibration.data_shapes import with_shapes_of_data
from placer.calibration.dataset import load_dataset
from placer.calibration.sample import Sample
from placer.common.counts import MOST_THREADS, check_count
from placer.common.files import paths_of, text_of_source
from placer.common.names import texts_of
from placer.common.ort_session import blamed_on
from placer.common.shapes import GivenShape, given_ranges, optima
from placer.common.user_code import load_function
from placer.engines.abilities import converts_inputs
from placer.engines.base import Engine, Tensors
from placer.engines.half_precision import HalfPrecisionModel
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.engines.placed_for import placed_for_others
from placer.engines.select import base_of_files, check_base, select_engine
from placer.errors import InputError, RunError
from placer.evaluation.given_labels import with_given_labels
from placer.evaluation.input_types import in_types_of
from placer.evaluation.judge import Judge
from placer.evaluation.layers import compare_layers
from placer.evaluation.lost_channels import lost_channels
from placer.evaluation.pair_ranges import lost_parts, unsuited_pairs
from placer.evaluation.results import EvalResult, Evaluated
from placer.evaluation.same_tensors import same_tensors
from placer.graph import Graph
from placer.graph.port_arithmetic import numeric_outputs
from placer.model import Model, load_as_is, load_model
from placer.model.fixed_inputs import fixed_values
from placer.model.judged import Judged, judged_by
from placer.model.same_inputs import check_same_inputs, has_bfloat16_inputs

LAYER_SAMPLES = 4


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
    data = text_of_source(data)
    fixed = with_shapes_of_data(Path(float_model), optima(given_ranges(shapes)), data)
    source = load_as_is(Path(float_model), fixed)
    given = load_model(Path(float_model), fixed)
    asked = tuple(map(Gate.parse, texts_of(gates)))
    functions = {name: load_function(name) for name in texts_of(metrics)}
    judged = judged_by(given, [gate.output for gate in asked if gate.output])
    dataset = load_dataset(data, source)
    dataset.check_informative()
    samples = with_given_labels(list(dataset), labels)
    outputs = tuple(dict.fromkeys((*given.graph.outputs, *judged.graph.outputs)))
    check_gates(asked, outputs, samples[0].labels is not None)
    models = [load_as_is(path, fixed) for path in paths_of(quantized)]
    runner = _engine_for(models, fixed, engine, threads, device, base, engine_options or {})
    others = placed_for_others(models, runner, "judged", "where it may round otherwise")
    for model in models:
        casts = converts_inputs(runner) or not has_bfloat16_inputs(model)
        check_same_inputs(source, model, converted=casts)
    source, has_judged = _with_judged_outputs(judged, source, models)
    graph = judged.graph if has_judged else given.graph
    expected = _expected(source, samples, threads)
    floats = numeric_outputs(graph)  # A detector that finds nothing still has scores.
    if are_constant(expected, floats or graph.outputs, floats):
        dataset.refuse_constant_outputs()
    judge = Judge(graph, samples, expected, functions, asked)
    few = samples[:LAYER_SAMPLES] if layers else []
    return EvalResult(
        float_model=str(float_model),
        engine=runner.name,
        version=runner.version,
        samples=len(samples),
        models=tuple(
            _evaluated(model, _run_of(runner, model, threads), judge, source, given, few)
            for model in models
        ),
        note="; ".join(filter(None, [judged.note() if has_judged else None, *others])) or None,
    )


def _evaluated(
    model: Model, run: Run, judge: Judge, source: Model, given: Model, few: Sequence[Sample]
) -> Evaluated:
    """``few``: the samples on which its layers are compared with those of ``source``; or none.

    ``given``: ``source``, normalised.
    """
    called = _called_otherwise(source.graph, model.graph)
    compared, held = judge(run, model.path, called)
    named, renamed = same_tensors(source, given, model) if few else ({}, "")
    layers = tuple(compare_layers(source, model, few, named, given.graph)) if few else ()
    pairs = unsuited_pairs(source, model, few, named, given.graph) if few else ()
    parts = lost_parts(model, judge.groups, judge.expected, called)
    notes = (*map(_renaming, called.items()), renamed, *parts, lost_channels(model), *pairs)
    return Evaluated(str(model.path), compared, layers, held, tuple(filter(None, notes)))


def _called_otherwise(reference: Graph, candidate: Graph) -> Mapping[str, str]:
    """The names that ``reference`` has for outputs of ``candidate``, where they differ.

    Exporters number tensors: PyTorch's gives the outputs of a model and of its quantized one other
    names. Outputs are then the same by their place. None are if a name that both have stands at
    another place in between, where a number may have come to mean another output.
    """
    mine = [name for name in reference.outputs if name not in candidate.outputs]
    theirs = [name for name in candidate.outputs if name not in reference.outputs]
    places = [reference.outputs.index(name) for name in mine]
    if places != [candidate.outputs.index(name) for name in theirs]:
        return {}
    return dict(zip(theirs, mine, strict=True))


def _renaming(names: tuple[str, str]) -> str:
    return f"output '{names[0]}' is compared with the float model's '{names[1]}', by its place"


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
        base=base_of_files(engine, base, [model.proto for model in models]),
        shapes=shapes,
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
    """Runs ``model`` on samples of the float model, in the types that ``model`` reads."""
    run = _compiled(engine, model, threads)
    return _with_fixed(model, lambda inputs: run(in_types_of(model, inputs)))


def _compiled(engine: Engine, model: Model, threads: int) -> Run:
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
