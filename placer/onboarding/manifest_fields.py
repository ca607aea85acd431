"""The fields of a manifest of ``placer onboard``, and their JSON Schema."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, PositiveInt, field_validator

from placer.common.yaml_file import Strict
from placer.onboarding.dask_address import SCHEME, is_address
from placer.optimizer.options.run_options import Devices, Duration, RunOptions, with_home

NAME = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}"


def _address(text: str) -> str:
    if not is_address(text):
        raise ValueError(f"'{text}' is not an address; give {SCHEME}HOST:PORT of a scheduler")
    return text


class Options(RunOptions):
    """What ``placer.optimize`` takes, under its names; null is its default.

    Paths are relative to the manifest's folder, where modules of ``module:function`` are looked
    for too.
    """

    priority: int = Field(default=0, description="Models of higher priority come first.")
    time_limit: Duration | None = Field(
        default=None, description="Time after which the model's process is killed, e.g. 2h."
    )


class Entry(Options):
    """One model, or all that a glob matches; what it sets counts instead of the defaults."""

    model: str = Field(min_length=1, description="Path or glob, from the manifest's folder.")
    name: Annotated[str, Field(pattern=f"^{NAME}$")] | None = Field(
        default=None, description="Of the folder of the results; not with a glob."
    )


class Target(Options):
    """What every model is optimized for besides; it counts before what entries say."""


class Manifest(Strict):
    """What ``placer onboard`` does."""

    output: str | None = Field(
        default=None,
        description="Folder of all results; by default MANIFEST.placer beside the manifest.",
    )
    _home = field_validator("output", mode="before")(with_home)

    devices: Devices = Field(
        default=[], description="GPUs to use; each serves one model at a time."
    )
    jobs: PositiveInt | None = Field(
        default=None,
        description="Models at a time; by default as many as there are devices, or one.",
    )
    executor: Annotated[str, AfterValidator(_address)] | None = Field(
        default=None,
        description="Dask scheduler whose workers optimize the models, dask://HOST:PORT.",
    )
    targets: dict[Annotated[str, Field(pattern=f"^{NAME}$")], Target] = Field(
        default={}, description="Engines or GPUs by name; each model is optimized for each of them."
    )
    defaults: Options = Field(default=Options(), description="What counts for every model.")
    models: list[Entry] = Field(min_length=1)
