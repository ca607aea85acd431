"""NVIDIA's builder on a machine without a GPU: does it take a model, and which layers result.

TensorRT-RTX (extra ``rtx``) has the TensorRT 11 Python API and builds for a GPU that is not there.
The functions take the imported module, so that ``tensorrt`` itself can be passed where it runs.
"""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from placer.errors import InputError, RunError
from placer.plan import Layer, Plan, Port

_MODULES = ("tensorrt_rtx", "tensorrt_rtx_bindings")


@dataclass(frozen=True)
class Refusal:
    """Why the parser or the builder refused; ``node`` and ``op`` are empty if it did not say."""

    node: str
    op: str
    reason: str

    def __str__(self) -> str:
        """Return one sentence."""
        return f"node '{self.node}' ({self.op}): {self.reason}" if self.node else self.reason


@dataclass(frozen=True)
class BuildReport:
    """What the builder made of a model; ``plan`` is empty unless it was accepted."""

    builder: str
    gpu: str
    refusals: tuple[Refusal, ...]
    plan: Plan
    engine_bytes: int
    seconds: float

    @property
    def accepted(self) -> bool:
        """Whether an engine was built."""
        return not self.refusals


def import_builder() -> Any:
    """Return TensorRT-RTX's Python module; RunError says how to install it."""
    for name in _MODULES:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise RunError("TensorRT-RTX is not installed; install it with: pip install 'placer[rtx]'")


def check_file(
    module: Any, path: Path, gpu: str, shapes: Mapping[str, tuple[int, ...]] | None = None
) -> BuildReport:
    """Parse and build the ONNX file at ``path`` for ``gpu``, e.g. ``sm89``.

    ``shapes`` gives dynamic inputs; unknown dimensions are 1. Raises InputError for an unknown GPU
    or input; what the builder refuses is in the report.
    """
    log = _Log()
    return _check(module, log.attach(module), log, gpu, dict(shapes or {}), str(path), None)


def check_model(module: Any, model: onnx.ModelProto, gpu: str) -> BuildReport:
    """The same for a model in memory without external data."""
    log = _Log()
    return _check(module, log.attach(module), log, gpu, {}, "", model.SerializeToString())


class _Log:
    """Collects what the builder logs."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.lines: list[str] = []

    def attach(self, module: Any) -> Any:
        """Return a logger of ``module`` that writes here."""
        log = self

        class Logger(module.ILogger):  # type: ignore[misc]
            def __init__(self) -> None:
                module.ILogger.__init__(self)

            def log(self, severity: Any, message: str) -> None:
                if severity in (module.ILogger.ERROR, module.ILogger.INTERNAL_ERROR):
                    log.errors.append(message)
                log.lines += message.splitlines()

        return Logger()


def _check(
    module: Any,
    logger: Any,
    log: _Log,
    gpu: str,
    shapes: dict[str, tuple[int, ...]],
    path: str,
    serialized: bytes | None,
) -> BuildReport:
    start = time.perf_counter()
    capability = _capability(module, gpu)
    builder = module.Builder(logger)
    network = builder.create_network(0)
    parser = module.OnnxParser(network, logger)
    parsed = parser.parse(serialized) if serialized is not None else parser.parse_from_file(path)
    refusals: tuple[Refusal, ...] = ()
    engine = None
    if parsed:
        config = builder.create_builder_config()
        config.num_compute_capabilities = 1
        config.set_compute_capability(capability, 0)
        config.profiling_verbosity = module.ProfilingVerbosity.DETAILED
        _add_profile(builder, network, config, shapes)
        engine = builder.build_serialized_network(network, config)
        if engine is None:
            refusals = (Refusal("", "", _reason(log.errors)),)
    else:
        refusals = tuple(_refusals(parser)) or (Refusal("", "", _reason(log.errors)),)
    return BuildReport(
        builder=f"TensorRT-RTX {module.__version__}",
        gpu=gpu,
        refusals=refusals,
        plan=Plan(
            tuple(parse_layers(log.lines)) if engine is not None else (),
            f"TensorRT-RTX {module.__version__}",
        ),
        engine_bytes=int(engine.nbytes) if engine is not None else 0,
        seconds=time.perf_counter() - start,
    )


def _capability(module: Any, gpu: str) -> Any:
    known = [n for n in module.ComputeCapability.__members__ if re.fullmatch(r"SM\d+", n)]
    if gpu.upper() not in known:
        names = ", ".join(name.lower() for name in sorted(known))
        raise InputError(f"unknown GPU '{gpu}'; --gpu takes one of: {names}")
    return module.ComputeCapability.__members__[gpu.upper()]


def _add_profile(
    builder: Any, network: Any, config: Any, shapes: dict[str, tuple[int, ...]]
) -> None:
    inputs = [network.get_input(i) for i in range(network.num_inputs)]
    for name in shapes:
        if name not in {tensor.name for tensor in inputs}:
            known = ", ".join(tensor.name for tensor in inputs)
            raise InputError(f"--shape names unknown input '{name}'; the model has: {known}")
    if not any(-1 in tuple(tensor.shape) for tensor in inputs):
        return
    profile = builder.create_optimization_profile()
    for tensor in inputs:
        shape = shapes.get(tensor.name) or tuple(max(int(d), 1) for d in tensor.shape)
        profile.set_shape(tensor.name, shape, shape, shape)
    config.add_optimization_profile(profile)


def _refusals(parser: Any) -> Iterator[Refusal]:
    for index in range(parser.num_errors):
        error = parser.get_error(index)
        yield Refusal(error.node_name(), error.node_operator(), _reason([error.desc()]))


def _reason(messages: list[str]) -> str:
    """The first message that tells something, without the complaint that there is no GPU."""
    lines = [line.strip() for message in messages for line in message.splitlines()]
    telling = [
        line
        for line in lines
        if line and not line.startswith("Invalid Node") and "Cuda Runtime" not in line
    ]
    return (telling or lines or ["the builder gave no reason"])[0]


_LAYER = re.compile(r"^Name: (?P<name>.*?), LayerType: (?P<op>[^,]*), (?P<rest>Inputs: .*)$")
_PORT = re.compile(
    r"\{ Name: (?P<name>[^,]*), [^{}]*?Datatype: (?P<dtype>\w+)(, Format: (?P<format>[^}]*))? ?\}"
)


def parse_layers(lines: list[str]) -> Iterator[Layer]:
    """Layers from a build log at VERBOSE with DETAILED profiling verbosity.

    ``nodes`` are the ONNX nodes a layer came from, Q/DQ nodes left out.
    """
    for line in lines:
        match = _LAYER.match(line)
        if match is None:
            continue
        inputs, _, rest = match["rest"].partition("Outputs: [")
        inputs = inputs.partition("Constants: [")[0]
        outputs, _, metadata = rest.partition("TacticName:")
        nodes = re.findall(r"\[ONNX Layer: ([^\]]*)\]", metadata)
        yield Layer(
            name=match["name"],
            op=match["op"],
            nodes=tuple(sorted({n for n in nodes if not _is_pair(n)})),
            inputs=_ports(inputs),
            outputs=_ports(outputs),
        )


def _is_pair(node: str) -> bool:
    return re.search(r"(Quantize|Dequantize)Linear(_\d+)?$", node) is not None


def _ports(section: str) -> tuple[Port, ...]:
    return tuple(
        Port(match["dtype"].lower(), (match["format"] or "").strip(), match["name"])
        for match in _PORT.finditer(section)
    )
