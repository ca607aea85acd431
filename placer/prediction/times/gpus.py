"""Descriptions of GPUs: what a roofline estimate needs to know, each figure with its source."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated

import onnx
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from placer.common.files import read_text
from placer.common.names import unknown
from placer.common.yaml_file import parse_text
from placer.errors import InputError
from placer.prediction.times.generations import generation_of, plain_name, without_int8

Figure = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
Count = Annotated[int, Field(gt=0, strict=True)]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]*$")]

# Element type -> entries of `peak` to try in this order; see Gpu.peak_ops.
_PEAKS = {
    "float": ("tf32", "float"),
    "float16": ("float16",),
    "bfloat16": ("bfloat16", "float16"),
    "int8": ("int8",),
    "uint8": ("int8",),
    "float8e4m3fn": ("float8", "float16"),
    "float8e5m2": ("float8", "float16"),
}
_ELEMENT_TYPES = frozenset(map(str.lower, onnx.TensorProto.DataType.keys()))


class Peak(BaseModel):
    """Dense (no sparsity) peak rates in 10**12 operations per second, 2 per multiply-add.

    ``float`` is FP32 on the CUDA cores, all others are tensor core rates. ``float16`` is
    with FP16 accumulation, as TensorRT's FP16 convolutions run; the other floating-point ones are
    with FP32 accumulation, which on GeForce GPUs has half the rate.
    An absent entry means that the tensor cores do not take the type.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    float: Figure
    tf32: Figure | None = None
    float16: Figure
    bfloat16: Figure | None = None
    int8: Figure
    float8: Figure | None = None


class Source(BaseModel):
    """Where the figures of ``fields`` come from; ``peak.int8`` names one entry of ``peak``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    fields: Annotated[tuple[str, ...], Field(min_length=1)]
    source: Annotated[str, StringConstraints(strip_whitespace=True, min_length=10)]


class Gpu(BaseModel):
    """One GPU.

    ``sms``: streaming multiprocessors. ``boost_clock_mhz``: the clock of the peak rates.
    ``sustained_clock_mhz``: what the power limit leaves of it; absent where nothing is known.
    ``tensor_clock_mhz``: the same for operations, which draw more power than what else layers do
    and so lower the clock further; absent where it is the other.
    ``memory_gb``, ``memory_bandwidth_gb_s``: of the device memory, in 10**9 bytes (per second).
    ``l2_mb``: L2 cache in 2**20 bytes, as data sheets mean it. ``l2_bandwidth_gb_s``: L2 reads in
    10**9 bytes per second; absent where nothing is published. ``peak``: see Peak.
    ``sources`` covers every figure.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    aliases: tuple[Name, ...] = ()
    compute_capability: Annotated[str, StringConstraints(pattern=r"^\d+\.\d$")]
    sms: Count
    boost_clock_mhz: Figure
    sustained_clock_mhz: Figure | None = None
    tensor_clock_mhz: Figure | None = None
    memory_gb: Figure
    memory_bandwidth_gb_s: Figure
    l2_mb: Figure
    l2_bandwidth_gb_s: Figure | None = None
    peak: Peak
    sources: tuple[Source, ...]

    @model_validator(mode="after")
    def _every_figure_has_a_source(self) -> Gpu:
        figures = self._figures()
        cited = {field for source in self.sources for field in source.fields}
        unknown = sorted(cited - set(figures) - {"peak"})
        if unknown:
            raise ValueError(f"'sources' cites '{unknown[0]}', which is not a figure of this file")
        for figure in figures:
            if figure not in cited and figure.split(".")[0] not in cited:
                raise ValueError(f"'{figure}' has no source; add it to an entry of 'sources'")
        return self

    @property
    def clock_mhz(self) -> float:
        """The clock that layers run at but for their operations."""
        return self.sustained_clock_mhz or self.boost_clock_mhz

    def _figures(self) -> list[str]:
        """Dotted names of the numeric fields that are given."""
        names = [name for name, value in self if isinstance(value, int | float)]
        return [*names, *(f"peak.{name}" for name, value in self.peak if value is not None)]

    def ops(self, dtype: str) -> float:
        """``peak_ops`` at ``tensor_clock_mhz``."""
        clock = self.tensor_clock_mhz or self.clock_mhz
        return self.peak_ops(dtype) * clock / self.boost_clock_mhz

    def peak_ops(self, dtype: str) -> float:
        """Peak operations per second (2 per multiply-add) of matrix work on ``dtype``.

        ``dtype`` is ONNX's name of the element type, e.g. ``float16``. Engines choose, where the
        tensor cores lack a type, the next best, and so does this: float takes TF32 where there is
        TF32 (TensorRT's default) and the CUDA cores elsewhere; bfloat16 and 8-bit floats take
        float16; uint8 takes int8. Any other type (int32, int64, double, bool) runs on the CUDA
        cores, for which the FP32 rate is the upper bound. For FP32 work that never uses tensor
        cores read ``peak.float``. Raises InputError for a name that ONNX does not know.
        """
        if dtype not in _ELEMENT_TYPES:
            raise InputError(f"unknown element type '{dtype}'; use ONNX's names, e.g. float16")
        rates = dict(self.peak)
        for name in _PEAKS.get(dtype, ("float",)):
            if rates[name] is not None:
                return float(rates[name]) * 1e12
        return self.peak.float * 1e12

    @property
    def fingerprint(self) -> str:
        """16 hex digits of the SHA-256 over the description."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]


def gpu_names() -> tuple[str, ...]:
    """Names of the GPUs that placer ships, sorted; aliases are left out."""
    return tuple(sorted(path.stem for path in _folder().glob("*.yaml")))


def load_gpu(name_or_path: str) -> Gpu:
    """Load a built-in GPU by its name or an alias, or a user's YAML file by its path.

    Case and separators do not count, nor do the brands in a product's name: ``rtx4090``,
    ``RTX 4090`` and ``NVIDIA GeForce RTX 4090`` are one. A compute capability, e.g. ``sm89``, is
    an alias of its best-known GPU.

    Raises InputError for an unknown name (it lists the known ones, or those of its generation) and,
    with file, line and field, for a file that is not a valid description.
    """
    known = known_gpu(name_or_path)
    if known is not None:
        return known
    if not Path(name_or_path).is_file():
        raise InputError(_undescribed(name_or_path))
    return _read(Path(name_or_path))


def _undescribed(gpu: str) -> str:
    """What to take in the place of ``gpu``, of which there is no description."""
    generation = generation_of(gpu)
    if generation is None:
        others = "the compute capability of another one, such as sm86, or a YAML file"
        return unknown("GPU", gpu, gpu_names(), others)
    capability = generation.compute_capability
    what = f"GPU '{gpu}' ({generation.name}, compute capability {capability}) is not described"
    if reason := without_int8(generation):
        return f"{what}: {reason}; name a GPU of Turing or later"
    alike = [name for name in gpu_names() if _built_in(name).compute_capability == capability]
    own = "describe it in a YAML file (docs/prediction.md)"
    if not generation.has_tensor_cores:
        return f"{what}, and it lacks the tensor cores of others of that capability; {own}"
    if not alike:
        return f"{what}, nor is another of that capability; {own}"
    return f"{what}; name one of the same capability ({', '.join(alike)}), or {own}"


def known_gpu(called: str) -> Gpu | None:
    """The built-in GPU of that name or alias."""
    wanted = plain_name(called)
    for name in gpu_names():
        gpu = _built_in(name)
        if wanted in map(plain_name, (gpu.name, *gpu.aliases)):
            return gpu
    return None


def architecture_of(gpu: str) -> str:
    """The compute capability of ``gpu`` as compilers write it, e.g. ``sm89``.

    ``gpu``: one such itself, a GPU whose generation its name tells, or what ``load_gpu`` takes,
    with its errors.
    """
    if re.fullmatch(r"sm_?\d+", gpu.lower()):
        return gpu.lower().replace("_", "")
    named = None if Path(gpu).is_file() else generation_of(gpu)
    takes_pairs = named is not None and not without_int8(named)
    described = named if named is not None and takes_pairs else load_gpu(gpu)
    capability = described.compute_capability
    return "sm" + capability.replace(".", "")


@cache
def _built_in(name: str) -> Gpu:
    return _read(_folder() / f"{name}.yaml")


def _read(path: Path) -> Gpu:
    return parse_text(read_text(path, "a GPU file", "rule_bytes"), str(path), Gpu)


def _folder() -> Path:
    return Path(str(resources.files("placer.configs"))) / "gpus"
