"""ONNX Runtime with another execution provider than the CPU's: an engine in a worker process."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from placer.common.ort_session import Session, create_session
from placer.common.processor import UNKNOWN_PROCESSOR, this_processor
from placer.engines.base import Compiled, Remainder, Tensors
from placer.engines.execution_paths import mean_seconds
from placer.engines.onnxruntime.engine import processor
from placer.engines.onnxruntime.profile import Event, median_us, profile, run_session
from placer.engines.onnxruntime.providers import PROVIDERS, Provider, Settings, session_use
from placer.engines.rounds import cpu_clock, time_calls
from placer.errors import RunError
from placer.graph.edit import every_node
from placer.graph.operators import PAIR_OPS
from placer.plan import Layer, Plan
from placer.plan.readers.onnx_graph import original_name
from placer.rules.packaging.load import load_pack
from placer.rules.target import Target


class ProviderEngine:
    """Compiles and measures with one execution provider; what it leaves runs on the CPU.

    ``settings.base``: what the provider computes in, for one that has the choice. On a CPU the
    clock is that of the engine ``onnxruntime``; on a GPU it is wall time of a call, which takes its
    inputs from host memory and returns its outputs there.
    """

    name = "onnxruntime"
    estimated = False
    verified = True

    def __init__(self, provider: Provider, settings: Settings) -> None:
        self._provider, self._settings = provider, settings
        self._use = session_use(provider, settings)
        self.rules = load_pack(provider.pack).manifest.engine
        self.remainder: Remainder = "computed" if provider.bases else "kept"
        runtime = f"ONNX Runtime {ort.__version__}"
        self.version = provider.library_version() or f"unknown ({runtime})"
        place = f"GPU {settings.device}" if provider.on_gpu else f"CPU ({processor()})"
        plural = "s" if settings.threads > 1 else ""
        base = f", {settings.base}" if provider.bases else ""
        self.device = (
            f"{provider.name} of {runtime}, {place}, {settings.threads} thread{plural}{base}"
        )
        self._now, self.clock = cpu_clock(settings.threads)
        # What this machine's processor computes says nothing of a GPU.
        own = UNKNOWN_PROCESSOR if provider.on_gpu else this_processor()
        self.target = Target(processor=own)
        if provider.on_gpu:
            self._now, self.clock = time.perf_counter, "wall time of a call with its copies"

    def compile(self, model: onnx.ModelProto, base_dir: Path) -> ProviderModel:
        """Create a session; RunError if it refuses the model or leaves the provider out."""
        make = partial(self._session, model, base_dir)
        return ProviderModel(model, make, f"{self._provider.name}, ONNX Runtime {ort.__version__}")

    def _session(
        self, model: onnx.ModelProto, base_dir: Path, profile_prefix: Path | None = None
    ) -> Session:
        levels = ort.GraphOptimizationLevel
        optimized = self._provider.optimized
        session = create_session(
            model.SerializeToString(),
            base_dir,
            threads=self._settings.threads,
            level=levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL,
            profile_prefix=profile_prefix,
            use=self._use,
            exact=False,
        )
        # A provider that cannot start is left out without an error.
        if self._provider.name not in session.own.get_providers():
            raise RunError(
                f"ONNX Runtime cannot start {self._provider.name} here; the log says why (often a "
                "library of the provider's that is missing or of another version)"
            )
        return session

    def measure(self, models: Sequence[Compiled], inputs: Tensors, rounds: int) -> np.ndarray:
        """Seconds per run, shape (rounds, len(models)); see ``Engine.measure``."""

        def measure(sample: Tensors) -> np.ndarray:
            calls = [partial(model.run, sample) for model in models]
            return time_calls(calls, rounds, self._now)

        return mean_seconds(inputs, measure)


class ProviderModel:
    """A model in a session with an execution provider; ``make`` makes another such session."""

    def __init__(self, model: onnx.ModelProto, make: Any, source: str) -> None:
        self._model = model
        self._make = make
        self._source = source
        self._session: Session = make()
        self._outputs = [output.name for output in self._session.own.get_outputs()]

    def run(self, inputs: Tensors) -> dict[str, np.ndarray]:
        """Return all graph outputs by name; raises RunError if ONNX Runtime fails."""
        # The first run may build engines, so only this process's limits hold.
        return dict(zip(self._outputs, run_session(self._session, inputs), strict=True))

    def plan(self, inputs: Tensors | None = None) -> Plan:
        """What ONNX Runtime's profiler saw of a few runs, on zeros without ``inputs``.

        A subgraph that the provider compiled is one layer. It covers the nodes that ran nowhere
        else if it is the only one, else none: ONNX Runtime does not tell them.
        """
        given = _zeros(self._session) if inputs is None else inputs
        with tempfile.TemporaryDirectory() as folder:
            events = profile(self._make(profile_prefix=Path(folder) / "profile"), given)
        layers = tuple(_layers(events, self._model.graph, inputs is not None))
        return Plan(layers, self._source)


def _zeros(session: Session) -> Tensors:
    return {
        value.name: np.zeros(
            [size if isinstance(size, int) else 1 for size in value.shape], _dtype(value.type)
        )
        for value in session.own.get_inputs()
    }


def _dtype(name: str) -> np.dtype[Any]:
    """Of ONNX Runtime's name of a tensor type, e.g. ``tensor(float)``."""
    inner = name.removeprefix("tensor(").removesuffix(")")
    return np.dtype({"float": "float32", "double": "float64"}.get(inner, inner))


def _layers(
    events: Mapping[str, Sequence[Event]], graph: onnx.GraphProto, timed: bool
) -> Iterator[Layer]:
    nodes = every_node(graph.node)  # Those in branches run as others do.
    known = {node.name: node for node in nodes if node.op_type not in PAIR_OPS}
    compiled = [name for name in events if name.split("_", 1)[0] in PROVIDERS]
    alone = {original_name(name) for name in events if name not in compiled}
    rest = tuple(name for name in known if name not in alone)
    for name, runs in events.items():
        original: tuple[str, ...] = (original_name(name),) if original_name(name) in known else ()
        time_us = median_us(runs) if timed else None
        if name in compiled:
            original = rest if len(compiled) == 1 else ()
        args = runs[0].args
        op = args.op_name
        yield Layer(name, op, original, kind=_kind(op), kernel=args.provider, time_us=time_us)


def _kind(op: str) -> Any:
    kinds = {"QuantizeLinear": "quantize", "DequantizeLinear": "dequantize"}
    return "reformat" if op.startswith("Memcpy") else kinds.get(op, "compute")


def create(provider: str, threads: int, base: str, device: int) -> ProviderEngine:
    """Make the engine in this process, from plain data; RunError if ``provider`` cannot start."""
    return ProviderEngine(PROVIDERS[provider], Settings(threads, base, device))
