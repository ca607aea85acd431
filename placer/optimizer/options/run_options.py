"""The options of a run as YAML gives them: types, checks and JSON Schema of their fields."""

from __future__ import annotations

import os
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    NonNegativeInt,
    PositiveInt,
    field_validator,
)

from placer.accuracy.gates import Gate
from placer.accuracy.latency_gates import parse_beats
from placer.common.counts import MOST_THREADS
from placer.common.durations import parse_duration
from placer.common.shapes import parse_shape_range
from placer.common.yaml_file import Strict, as_value_error
from placer.optimizer.options.request import (
    BaseOption,
    Calibration,
    InputOutputTypes,
    Preset,
    Ranges,
    Recover,
    Sampler,
    WeightRangeOption,
    options,
)
from placer.quantization.overrides import Override
from placer.results.objective import Objective


def _as_list(given: object) -> object:
    return [given] if isinstance(given, str) else given


def _as_texts(given: object) -> object:
    """Numbers as YAML reads them are texts to an engine."""
    if not isinstance(given, dict):
        return given
    return {key: str(v) if type(v) in (int, float) else v for key, v in given.items()}


def _as_text(given: object) -> object:
    return str(given) if type(given) in (int, float) else given


def _as_device_names(given: object) -> object:
    return [_as_text(one) for one in given] if isinstance(given, list) else given


def _as_shape_texts(given: object) -> object:
    """``[1, 3, 32, 32]`` as ``1x3x32x32``."""
    if not isinstance(given, dict):
        return given
    return {
        name: "x".join(map(str, shape)) if isinstance(shape, list) else shape
        for name, shape in given.items()
    }


def with_home(given: object) -> object:
    """Paths that begin with ``~`` as a shell gives them to a command."""
    if isinstance(given, list):
        return [with_home(one) for one in given]
    return os.path.expanduser(given) if isinstance(given, str) else given  # noqa: PTH111 globs


def _gate(text: str) -> str:
    with as_value_error():
        Gate.parse(text)
    return text


def _beats(texts: list[str]) -> list[str]:
    with as_value_error():
        parse_beats(texts)
    return texts


def _duration(text: str) -> str:
    with as_value_error():
        parse_duration(text)
    return text


def _shapes(shapes: dict[str, str]) -> dict[str, str]:
    for name, text in shapes.items():
        with as_value_error():
            parse_shape_range(f"{name}={text}")
    return shapes


Gates = Annotated[
    list[Annotated[str, AfterValidator(_gate)]],
    BeforeValidator(_as_list, json_schema_input_type=str | list[str]),
]
Text = Annotated[str, Field(min_length=1)]
Texts = Annotated[list[Text], BeforeValidator(_as_list, json_schema_input_type=str | list[str])]
Duration = Annotated[
    str,
    BeforeValidator(_as_text, json_schema_input_type=str | int | float),
    AfterValidator(_duration),
]
Shapes = Annotated[
    dict[str, str],
    BeforeValidator(_as_shape_texts, json_schema_input_type=dict[str, str | list[int]]),
    AfterValidator(_shapes),
]
EngineOptions = Annotated[
    dict[str, str],
    BeforeValidator(_as_texts, json_schema_input_type=dict[str, str | int | float]),
]
Recovery = Annotated[
    list[Recover], BeforeValidator(_as_list, json_schema_input_type=Recover | list[Recover])
]
Devices = Annotated[
    list[str], BeforeValidator(_as_device_names, json_schema_input_type=list[str | int])
]


_PATHS = ("model", "data", "eval_data", "output", "gpu", "pack", "warm_starts", "custom_ops")


def described(keyword: str) -> Any:
    """An option of a run; null is its default."""
    return Field(default=None, description=options()[keyword].option.help)


class RunOptions(Strict):
    """What ``placer.optimize`` takes, under its names; null is its default."""

    # Of the options here and of those that projects and manifests add.
    _home = field_validator(*_PATHS, mode="before", check_fields=False)(with_home)

    shapes: Shapes | None = Field(
        default=None, description="Shape by input: [1, 3, 32, 32], 1x3x32x32 or MIN:OPT:MAX."
    )
    fix: dict[str, float] | None = described("fix")
    custom_ops: Texts | None = described("custom_ops")
    data: Text | None = described("data")
    eval_data: Text | None = described("eval_data")
    gates: Gates | None = described("gates")
    beats: Annotated[Texts, AfterValidator(_beats)] | None = described("beats")
    calibration: Calibration | None = described("calibration")
    recover: Recovery | None = described("recover")
    ranges: Ranges | None = described("ranges")
    overrides: list[Override] | None = described("overrides")
    engine: Text | None = described("engine")
    gpu: Text | None = described("gpu")
    build_for: Text | None = described("build_for")
    threads: Annotated[PositiveInt, Field(le=MOST_THREADS)] | None = described("threads")
    objective: Objective | None = described("objective")
    engine_options: EngineOptions | None = described("engine_options")
    pack: Text | None = described("pack")
    scheme: Text | None = described("scheme")
    weight_range: WeightRangeOption | None = described("weight_range")
    base: BaseOption | None = described("base")
    io_type: InputOutputTypes | None = described("io_type")
    exclude: Texts | None = described("exclude")
    only: Texts | None = described("only")
    force: Texts | None = described("force")
    preset: Preset | None = described("preset")
    budget: PositiveInt | None = described("budget")
    timeout: Duration | None = described("timeout")
    sampler: Sampler | None = described("sampler")
    front: Annotated[int, Field(ge=2)] | None = described("front")
    warm_starts: Texts | None = described("warm_starts")
    seed: NonNegativeInt | None = described("seed")
    cache: bool | None = described("cache")
