"""The Python API: ``placer.optimize`` and what it takes. The command line calls it too."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from os import PathLike
from pathlib import Path
from typing import TypeVar, cast

import numpy as np
from onnx import ModelProto

from placer.accuracy.gates import Gate
from placer.calibration.collect import default_cache_dir
from placer.common.custom_ops import custom_ops as with_custom_ops
from placer.common.files import paths_of, text_of_source
from placer.common.names import texts_of
from placer.common.shapes import GivenShape, given_ranges
from placer.errors import InputError
from placer.model.validate import read_model
from placer.optimizer.observer import Observer, observer_of
from placer.optimizer.options.given_data import Data, StrPath, is_in_memory, packed
from placer.optimizer.options.kept_inputs import kept_inputs
from placer.optimizer.options.option_values import check_values
from placer.optimizer.options.request import (
    BaseOption,
    Beat,
    Calibration,
    Export,
    InputOutputTypes,
    Preset,
    Ranges,
    Recover,
    Request,
    Sampler,
    WeightRangeOption,
)
from placer.optimizer.run import optimize as run
from placer.optimizer.setup.study_settings import apart_from_others
from placer.optimizer.worker import WorkDone
from placer.optimizer.worker import work as work_on
from placer.quantization.overrides import Override
from placer.results.folder import OutputFolder
from placer.results.objective import Objective
from placer.results.result import Result

Text = TypeVar("Text", bound=str)
OneOverride = Override | Mapping[str, object] | str
Overrides = OneOverride | Sequence[OneOverride]


def optimize(
    model: StrPath | ModelProto,
    *,
    data: Data | None = None,
    eval_data: Data | None = None,
    gates: str | Sequence[str] = Request.gates,
    beats: Beat | Sequence[Beat] = Request.beats,
    shapes: Mapping[str, GivenShape] | None = None,
    fix: Mapping[str, float] | None = None,
    custom_ops: StrPath | Sequence[StrPath] = Request.custom_ops,
    engine: str = Request.engine,
    threads: int = Request.threads,
    objective: Objective = Request.objective,
    device: str | None = Request.device,
    devices: str | Sequence[str] = Request.devices,
    engine_options: Mapping[str, str] | None = None,
    gpu: str | None = Request.gpu,
    build_for: str | None = Request.build_for,
    base: BaseOption | None = Request.base,
    io_type: InputOutputTypes = Request.io_type,
    pack: str | None = Request.pack,
    scheme: str | None = Request.scheme,
    weight_range: WeightRangeOption = Request.weight_range,
    calibration: Calibration = Request.calibration,
    recover: Recover | Sequence[Recover] = Request.recover,
    ranges: Ranges = Request.ranges,
    overrides: Overrides = Request.overrides,
    exclude: str | Sequence[str] = Request.exclude,
    only: str | Sequence[str] = Request.only,
    force: str | Sequence[str] = Request.force,
    preset: Preset = Request.preset,
    budget: int | None = Request.budget,
    timeout: float | None = Request.timeout,
    sampler: Sampler = Request.sampler,
    front: int | None = Request.front,
    warm_starts: StrPath | Sequence[StrPath] = Request.warm_starts,
    storage: str | None = Request.storage,
    study: str | None = Request.study,
    seed: int = Request.seed,
    export: Export | None = Request.export,
    cache: bool = True,
    output: StrPath | None = Request.output,
    observer: Observer | None = None,
) -> Result:
    """Find the fastest Q/DQ placement of ``model`` that meets ``gates`` and write it to ``output``.

    Keywords are the options of ``placer optimize`` (``docs/api.md`` has the table); those that can
    be given several times are plural. ``model``: a path, or a model in memory, which needs
    ``output``. ``data``, ``eval_data``: see ``placer.calibration.dataset.load_dataset``, or arrays
    by input name that hold all samples, and optionally ``labels``, or an iterable of batches, such
    as a PyTorch DataLoader (see ``placer.optimizer.options.given_data.packed``). What is given in
    memory is kept in ``output``, so that the same call resumes. ``shapes``: by input name.
    ``fix``: inputs of one value by name; the result does not have them any more. ``custom_ops``:
    see ``placer.custom_ops``, which does the same for other functions.
    ``timeout`` in seconds. ``output``: by default ``MODEL.placer`` in the current folder.
    ``cache``: keep calibration statistics and layer times in the user's cache. ``observer`` is told
    how the run goes on; by default nothing is printed.

    Raises InputError for wrong input, RunError if the engine refuses every candidate or the run was
    cut short before one was measured, and GateError, after writing result.json, if no quantized
    candidate meets the gates.
    """
    request = Request(
        model=_model_path(model, output),
        output=None if output is None else Path(output),
        shape_ranges=given_ranges(shapes),
        fix=dict(fix or {}),
        custom_ops=paths_of(custom_ops),
        engine=engine,
        threads=threads,
        objective=objective,
        gpu=gpu,
        base=base,
        io_type=io_type,
        build_for=build_for,
        device=device,
        devices=_several(devices, "devices"),
        engine_options=dict(engine_options or {}),
        pack=pack,
        scheme=scheme,
        weight_range=weight_range,
        calibration=calibration,
        recover=_several(recover, "recover"),
        ranges=ranges,
        overrides=overrides_of(overrides),
        gates=_several(gates, "gates"),
        beats=_several(beats, "beats"),
        exclude=_several(exclude, "exclude"),
        only=_several(only, "only"),
        force=_several(force, "force"),
        preset=preset,
        budget=budget,
        timeout=timeout,
        seed=seed,
        sampler=sampler,
        front=front,
        warm_starts=paths_of(warm_starts),
        storage=storage,
        study=study,
        export=export,
        cache_dir=default_cache_dir() if cache else None,
    )
    observer = observer_of(observer)
    request = apart_from_others(request, observer)
    with (
        with_custom_ops(*request.custom_ops),
        _with_data_kept(request, model, data, eval_data) as request,
    ):
        return run(request, observer)


def work(
    study: str,
    storage: str,
    *,
    model: StrPath | None = None,
    data: StrPath | None = None,
    eval_data: StrPath | None = None,
    functions: str | Sequence[str] = (),
    custom_ops: StrPath | Sequence[StrPath] = (),
    device: str | None = None,
    cache: bool = True,
    wait: float = 0.0,
    observer: Observer | None = None,
) -> WorkDone:
    """Run trials of the study that ``optimize`` keeps in ``storage`` until none is left.

    ``model``, ``data``, ``eval_data``: where they are on this machine, by default where they are
    on the study's. ``functions``: those of the user, each as ``module:function``, that may run here
    besides. ``custom_ops``: libraries of custom operators. ``device``: what the engine runs on, by
    default its first. ``wait``: seconds to wait for a study that has not begun.

    Raises InputError if there is no such study, if it names other functions, or if this machine
    would measure something else.
    """
    changes: dict[str, object] = {
        "model": None if model is None else Path(model),
        "data": None if data is None else text_of_source(data),
        "evaluation_data": None if eval_data is None else text_of_source(eval_data, "eval_data"),
        "device": device,
    }
    given = {name: value for name, value in changes.items() if value is not None}
    given["cache_dir"] = default_cache_dir() if cache else None
    with with_custom_ops(*paths_of(custom_ops)):
        observer = observer_of(observer)
        return work_on(storage, study, given, observer, texts_of(functions), wait)


def function_gate(
    function: Callable[[Mapping[str, np.ndarray], Mapping[str, np.ndarray]], float],
    *,
    at_least: float | None = None,
    at_most: float | None = None,
) -> str:
    """The gate on ``function(outputs, batch)``, averaged over batches, for ``gates``.

    ``batch`` holds the inputs, and ``labels`` if given. Raises InputError unless the function can
    be found by its module and name, which workers need, and exactly one limit is given.
    """
    module, name = function.__module__, function.__qualname__
    if getattr(sys.modules.get(module), name, None) is not function:
        raise InputError(f"gate function '{name}' is not at the top level of a module; move it")
    if at_least is not None and at_most is None:
        return Gate(f"{module}:{name}", ">=", at_least).text()
    if at_most is not None and at_least is None:
        return Gate(f"{module}:{name}", "<=", at_most).text()
    raise InputError(f"gate function '{name}' needs one limit; give at_least or at_most")


@contextmanager
def _with_data_kept(
    request: Request,
    model: StrPath | ModelProto,
    data: Data | None,
    eval_data: Data | None,
) -> Iterator[Request]:
    """Check ``request``, write what is in memory to its output folder, and say where the data is.

    Raises InputError, before anything is written, for a wrong value, arrays of objects, or where
    another model or other data is there.
    """
    check_values(request)
    files = OutputFolder(request.output_folder)
    inputs = cache(partial(_input_names, model))
    arrays = {
        path: packed(given, inputs, keyword)
        for path, given, keyword in (
            (files.data, data, "data"),
            (files.evaluation_data, eval_data, "eval_data"),
        )
        if given is not None and is_in_memory(given)
    }
    given = model if isinstance(model, ModelProto) else None
    with kept_inputs(files, given, arrays, shared=request.storage is not None):
        yield replace(
            request,
            data=_source(data, files.data),
            evaluation_data=_source(eval_data, files.evaluation_data),
        )


def _model_path(model: StrPath | ModelProto, output: StrPath | None) -> Path:
    if isinstance(model, str | PathLike):
        return Path(model)
    if not isinstance(model, ModelProto):
        raise InputError(
            f"the model is of type {type(model).__name__}; give the path of an ONNX file or an "
            "onnx.ModelProto"
        )
    if output is None:
        raise InputError("a model in memory has no file name to call the results after; set output")
    return OutputFolder(Path(output)).given_model


def _source(data: Data | None, kept: Path) -> str | None:
    """Where the data is; what was in memory is in ``kept``."""
    if is_in_memory(data):
        return str(kept)
    return None if data is None else str(data)


def _input_names(model: StrPath | ModelProto) -> list[str]:
    """The model's inputs in order, without those that an initializer gives a value."""
    graph = (model if isinstance(model, ModelProto) else read_model(Path(model))).graph
    constants = {tensor.name for tensor in graph.initializer}
    return [value.name for value in graph.input if value.name not in constants]


def overrides_of(given: Overrides) -> tuple[Override, ...]:
    """Overrides as a request has them; InputError for one that is wrong."""
    if isinstance(given, Override | Mapping | str):
        return (Override.of(given),)
    return tuple(map(Override.of, given))


def _several(given: Text | Sequence[Text], keyword: str) -> tuple[Text, ...]:
    """Texts; a device may be a number."""
    several: Iterable[object] = (given,)
    if isinstance(given, Iterable) and not isinstance(given, str):
        several = given
    texts = tuple(str(one) if type(one) is int else one for one in several)
    for one in texts:
        if not isinstance(one, str):
            function = ", or of a function placer.function_gate" if callable(one) else ""
            raise InputError(
                f"`{keyword}` is or holds {type(one).__name__}; give a text or a list{function}"
            )
    return cast("tuple[Text, ...]", texts)
