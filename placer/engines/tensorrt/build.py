"""Parse an ONNX model and build an engine from it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from placer.common.files import check_utf8
from placer.common.listed import listed
from placer.engines.tensorrt.library import NO_IMPLICIT, Library
from placer.engines.tensorrt.log import BuildLog
from placer.engines.tensorrt.optional import optional
from placer.engines.tensorrt.plugins import load_plugins
from placer.engines.tensorrt.profile import ValueRange, add_profile, missing_values
from placer.engines.tensorrt.timing_cache import TimingCache
from placer.errors import InputError, RunError
from placer.graph.shapes import ShapeRange
from placer.plan import Plan
from placer.plan.readers.rtx_log import layer_lines, parse_layers

__all__ = ["BuildReport", "BuildSettings", "Refusal", "ShapeRange", "build", "check_gpu"]


@dataclass(frozen=True)
class BuildSettings:
    """How to build.

    ``shapes``: of dynamic inputs; unknown dimensions are 1 where an input is not listed.
    ``shape_values``: of inputs whose values are a shape, all of which must be listed.
    ``gpu``: compute capability, e.g. ``sm89``, of a GPU that is not there; None builds for the one
    that is. ``gpu_here``: name and compute capability of that one, which the
    timing cache's file is named after. ``typing``: ``weak`` lets TensorRT up to 10 choose among
    FP32, FP16 and INT8.
    ``workspace_bytes``, ``optimization_level``: TensorRT's own defaults where None.
    ``timing_cache``: the folder that keeps it. ``plugins``: libraries to load. ``calibrator``:
    makes the engine an implicitly quantized one (TensorRT up to 10).
    """

    shapes: Mapping[str, ShapeRange] = field(default_factory=dict)
    shape_values: Mapping[str, ValueRange] = field(default_factory=dict)
    gpu: str | None = None
    gpu_here: str = "the GPU here"
    typing: Literal["strong", "weak"] = "strong"
    workspace_bytes: int | None = None
    optimization_level: int | None = None
    timing_cache: Path | None = None
    plugins: tuple[Path, ...] = ()
    calibrator: Any | None = None


@dataclass(frozen=True)
class Refusal:
    """Why the parser or the builder refused; ``node`` and ``op`` are empty if it did not say."""

    node: str
    op: str
    reason: str

    def __str__(self) -> str:
        """Return one sentence."""
        if self.node:
            return f"node '{self.node}' ({self.op}): {self.reason}"
        return f"{self.op}: {self.reason}" if self.op else self.reason


@dataclass(frozen=True)
class BuildReport:
    """What the builder made of a model; ``plan`` and ``engine`` are empty unless it accepted.

    ``logged``: the lines of its log that ``plan`` was read from. ``assumed``: shapes of inputs that
    were not given, e.g. ``image=1x3xNxN``, each N a dimension that was taken as 1; a leading one,
    the batch, does not count.
    """

    builder: str
    gpu: str
    refusals: tuple[Refusal, ...]
    plan: Plan
    engine: bytes
    seconds: float
    logged: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether an engine was built."""
        return not self.refusals


def build(library: Library, source: Path | bytes, settings: BuildSettings) -> BuildReport:
    """Parse ``source``, a file (external data beside it) or a serialized model, and build it.

    Raises InputError for settings that the library or the model does not take, RunError if there is
    no builder; what the parser or the builder refuses is in the report.
    """
    start = time.perf_counter()
    if isinstance(source, Path):
        check_utf8(source)
    load_plugins(library, settings.plugins)
    log = BuildLog()
    logger = log.attach(library.module)
    builder = library.module.Builder(logger)
    if builder is None:
        raise RunError(f"{library.title} cannot make a builder: {log.reason()}")
    _check_typing(library, settings)
    network = builder.create_network(library.network_flags(settings.typing == "strong"))
    parser = library.module.OnnxParser(network, logger)
    is_file = isinstance(source, Path)
    parsed = parser.parse_from_file(str(source)) if is_file else parser.parse(source)
    engine, refusals = b"", tuple(_refusals(parser, log)) if not parsed else ()
    missing = missing_values(network, settings.shape_values) if parsed else None
    if missing is not None:
        refusals = (Refusal("", "", missing),)
    elif parsed:
        engine = _build(library, builder, network, settings)
    if not engine and not refusals:
        refusals = (Refusal("", "", log.reason()),)
    logged = layer_lines(log.lines) if engine else ()
    return BuildReport(
        builder=library.title,
        gpu=settings.gpu or settings.gpu_here,
        refusals=refusals,
        plan=Plan(tuple(parse_layers(logged)), library.title),
        engine=engine,
        seconds=time.perf_counter() - start,
        logged=logged,
        assumed=tuple(_assumed(network, settings.shapes)) if parsed else (),
    )


def _build(library: Library, builder: Any, network: Any, settings: BuildSettings) -> bytes:
    config = _config(library, builder, network, settings)
    cache = None
    if settings.timing_cache is not None:
        cache = TimingCache(settings.timing_cache, library, settings.gpu or settings.gpu_here)
        if not optional("the timing cache", partial(_attached, cache, config), False):
            cache = None
    serialized = builder.build_serialized_network(network, config)
    if serialized is None:
        return b""
    if cache is not None:
        optional("keeping the timing cache", partial(cache.merge, config), None)
    return bytes(serialized)


def _attached(cache: TimingCache, config: Any) -> bool:
    cache.attach(config)
    return True


def _check_typing(library: Library, settings: BuildSettings) -> None:
    if settings.typing == "weak" and not library.has_weak_typing:
        raise InputError(f"{library.title} has strong typing only; do not ask for weak")
    if settings.calibrator is not None and not library.has_implicit_quantization:
        raise InputError(f"{library.title} {NO_IMPLICIT}")


def _config(library: Library, builder: Any, network: Any, settings: BuildSettings) -> Any:
    module = library.module
    config = builder.create_builder_config()
    config.profiling_verbosity = module.ProfilingVerbosity.DETAILED
    if settings.gpu is not None:
        config.num_compute_capabilities = 1
        config.set_compute_capability(_capability(library, settings.gpu), 0)
    if settings.workspace_bytes is not None:
        config.set_memory_pool_limit(module.MemoryPoolType.WORKSPACE, settings.workspace_bytes)
    if settings.optimization_level is not None:
        config.builder_optimization_level = settings.optimization_level
    if settings.typing == "weak":
        config.set_flag(module.BuilderFlag.FP16)
        config.set_flag(module.BuilderFlag.INT8)
    if settings.calibrator is not None:
        config.int8_calibrator = settings.calibrator
    profile = add_profile(builder, network, config, settings.shapes, settings.shape_values)
    if profile is not None and settings.calibrator is not None:
        config.set_calibration_profile(profile)  # Which takes the optimum for all three.
    return config


def check_gpu(library: Library, gpu: str, name: str = "") -> None:
    """Raise InputError if ``library`` does not build for ``gpu``, e.g. ``sm89``.

    ``name``: of the GPU as the user gave it, for the message.
    """
    _capability(library, gpu, name)


def _capability(library: Library, gpu: str, name: str = "") -> Any:
    if not library.builds_without_gpu:
        raise InputError(
            f"{library.title} builds for the GPU of this machine only; leave out `gpu`"
        )
    members = library.module.ComputeCapability.__members__
    known = [member for member in members if re.fullmatch(r"SM\d+", member)]
    if gpu.upper() not in known:
        names = [member.lower() for member in sorted(known)]
        given = gpu if name in ("", gpu) else f"{name} ({gpu})"
        raise InputError(
            f"{library.title} does not build for {given}, but for "
            f"{listed(names, len(names))}; placer check --static looks "
            "at Q/DQ pairs without building"
        )
    return members[gpu.upper()]


_PARSING = re.compile(r"Parsing node: (.*) \[(\w+)\]")


def _assumed(network: Any, given: Mapping[str, ShapeRange]) -> Iterator[str]:
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        first, *others = tuple(tensor.shape) or (1,)
        if tensor.name not in given and -1 in others:
            sizes = (abs(int(first)), *("N" if size == -1 else int(size) for size in others))
            yield f"{tensor.name}={'x'.join(map(str, sizes))}"


def _refusals(parser: Any, log: BuildLog) -> Iterator[Refusal]:
    for index in range(parser.num_errors):
        error = parser.get_error(index)
        name, op = error.node_name(), error.node_operator()
        if not op:  # Attributes are refused in importOPERATOR, of a node that the error lacks.
            op = (re.findall(r"^import([A-Z]\w+)$", error.func()) or [""])[0]
        if not (name or op):  # Axes, in a function of all operators; the last node is logged.
            parsing = (_PARSING.fullmatch(line) for line in reversed(log.lines))
            name, op = next((match.groups() for match in parsing if match), ("", ""))
        yield Refusal(name, op, _reason(BuildLog([error.desc()]).reason()))


def _reason(reason: str) -> str:
    """``reason`` in words: the parser gives the condition in its code that did not hold."""
    if reason == "false":  # Its check of an operator that it knows of, and does not import.
        return "TensorRT has no such operator"
    if "Plugin not found" in reason:
        return "TensorRT has no such operator, and no plugin was loaded that has it"
    text = re.search(r'&& "([^"]+)"', reason)
    return text[1] if text else reason
