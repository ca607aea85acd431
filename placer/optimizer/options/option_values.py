"""Whether each option of a request has a value that it can take, before anything is loaded."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from placer.accuracy.gates import Gate
from placer.accuracy.latency_gates import parse_beats
from placer.calibration.sources import check_source
from placer.common.counts import check_count
from placer.common.files import check_output_folder, check_there, check_utf8
from placer.common.names import unknown
from placer.common.shapes import ShapeRange
from placer.engines.registry import Registry
from placer.engines.select import BUILT_IN, check_estimate_options
from placer.errors import InputError
from placer.model.validate import ONNX_MODEL
from placer.optimizer.options.presets import load_preset
from placer.optimizer.options.request import AUTO, Request, RequestOption, options
from placer.quantization.overrides import Override
from placer.recovery.recover import steps_of
from placer.results.folder import OutputFolder
from placer.search.study.storage import check_url


def check_values(request: Request) -> None:
    """Raise InputError for the first option whose value is not one that it takes.

    What depends on the model, its data, the engine or the pack is left to ``prepare``.
    """
    for known in options().values():
        value = getattr(request, known.field)
        for one in value if isinstance(value, tuple) else (value,):
            _check(known, one)
    _check_mappings(request)
    load_preset(request.preset)
    for text in request.gates:
        Gate.parse(text)
    parse_beats(request.beats)
    if request.beats and request.objective == "throughput":
        raise InputError("`beats` are gates on latency; leave them out with `objective` throughput")
    steps_of(request.recover)
    _check_devices(request)
    _check_files(request)
    if request.engine != AUTO:
        Registry.installed(BUILT_IN).check_name(request.engine)
    check_estimate_options(request.engine, request.gpu, request.build_for)
    if request.storage is not None:
        check_url(request.storage)
    elif request.study is not None:
        raise InputError(f"`study` names study '{request.study}' in a storage; give `storage` too")


def check_inputs_there(request: Request) -> None:
    """Raise InputError if the model or the data is not there; neither is read."""
    check_there(request.model, ONNX_MODEL)
    for source in filter(None, (request.data, request.evaluation_data)):
        check_source(source)


def _check(known: RequestOption, value: object) -> None:
    """One value, of those that are given several times each; None is the default's."""
    kinds = {str, *get_args(known.type), known.type}
    if value is None and type(None) in kinds:
        return
    name = known.flag.removeprefix("--").replace("-", " ")
    if known.choices:
        if value not in known.choices:
            raise InputError(unknown(name, value, known.choices))
    elif isinstance(value, Mapping):
        return  # See ``_check_mappings``.
    elif int in kinds:
        _check_count(known, value)
    elif float in kinds:
        _check_seconds(known, value)
    elif not isinstance(value, Path | str | Override) or value == "":
        raise InputError(f"`{known.keyword}` is {value!r}; give a text or leave it out")


def _check_count(known: RequestOption, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"`{known.keyword}` is {value!r}; give a whole number")
    if known.option.least is not None:
        check_count(known.keyword, value, known.option.least, known.option.most)


def _check_seconds(known: RequestOption, value: object) -> None:
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not (math.isfinite(number) and number > 0):
        raise InputError(f"`{known.keyword}` is {value!r}; give seconds, more than 0")


def _check_mappings(request: Request) -> None:
    for name, shapes in request.shape_ranges.items():
        if not isinstance(shapes, ShapeRange):
            raise InputError(f"the shape of input '{name}' is {shapes!r}; give a ShapeRange")
        shapes.check_order(name)
    for name, value in request.fix.items():
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise InputError(f"`fix` of input '{name}' is {value!r}; give a number")
    for key, text in request.engine_options.items():
        if not key or not isinstance(text, str):
            raise InputError(f"engine option '{key}' is {text!r}; give a key and a text")


def _check_devices(request: Request) -> None:
    if request.devices and request.device is not None:
        raise InputError("`device` and `devices` exclude each other; give one of them")
    if len(set(request.devices)) < len(request.devices):
        raise InputError("`devices` names a device twice; give each of them once")


def _check_files(request: Request) -> None:
    check_utf8(request.model)
    check_utf8(request.output_folder)
    check_output_folder(request.output_folder)
    for path in request.warm_starts:
        if not os.path.lexists(path):
            raise InputError(f"warm start {path}: there is no such file or folder; check the path")
    starts = (OutputFolder(path).result if path.is_dir() else path for path in request.warm_starts)
    folder = OutputFolder(request.output_folder)
    folder.check_spares(request.model, *starts)
    folder.check_is_own()
