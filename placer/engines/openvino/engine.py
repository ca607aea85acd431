"""OpenVINO's CPU plugin as an engine: latency or throughput, outputs and executed layers."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from placer.engines.base import Compiled, Remainder, Tensors
from placer.engines.execution_paths import mean_seconds
from placer.engines.openvino.crashes import crashing_nodes
from placer.engines.openvino.library import load_openvino
from placer.engines.openvino.profile import layer_times
from placer.engines.openvino.requests import Burst, infer, reason, set_inputs
from placer.engines.openvino.runtime_plan import read_plan
from placer.engines.openvino.tags import Tags, tag_nodes
from placer.engines.rounds import INTERVAL_S, cpu_clock, time_calls
from placer.errors import InputError, RunError
from placer.graph.shapes import InputType
from placer.model import save_model
from placer.plan import Plan
from placer.qdq.base_property import BASE_PROPERTY, EACH_ITS_OWN
from placer.results.objective import Objective

ov = load_openvino()
# What --base stands for: the precision hint, which holds for all that is not quantized.
PRECISIONS: Mapping[str, str] = {"float": "f32", "bfloat16": "bf16"}
_THROUGHPUT_CLOCK = "inferences per second of wall time, several requests in flight,"
# By wall time and on all cores, shorter intervals are at the mercy of the scheduler.
_THROUGHPUT_INTERVAL_S = 0.01


class OpenVinoEngine:
    """Compiles and measures on the CPU with ``threads`` threads.

    ``objective``: latency runs one inference at a time in one stream. Throughput lets OpenVINO
    divide the threads among streams, keeps as many requests in flight as it calls optimal, and
    measures wall time over the number of inferences.

    ``base``: ``float`` or ``bfloat16``, the type that what is not quantized is computed in, or
    ``auto``: the one that a model's metadata names (``placer.qdq.base_property``), else ``float``.
    ``shapes`` of inputs with unknown dimensions; a leading one is 1 where an input is not listed.

    ``extensions``: libraries of custom operators, made with OpenVINO's extension API.

    With one thread the clock of latency is the CPU time of the calling thread, in which a
    synchronous call runs; with more it is wall time. Only ``openvino.Core`` is used, which sends no
    telemetry; ``ovc`` and ``openvino.convert_model`` do.
    """

    name = "openvino"
    rules = "openvino"
    estimated = False
    verified = True
    remainder: Remainder = "computed"

    def __init__(
        self,
        threads: int = 1,
        base: str = "float",
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        objective: Objective = "latency",
        extensions: Sequence[str] = (),
    ) -> None:
        self._core = ov.Core()
        for library in extensions:
            try:
                self._core.add_extension(library)
            except RuntimeError as error:
                raise RunError(f"OpenVINO cannot load {library}: {reason(error)}") from error
        self._objective = objective
        self._shapes = dict(shapes or {})
        self._base = base
        self._settings: dict[str, Any] = {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": objective.upper(),
            # Two models of one round must not contend for the core that each was pinned to.
            "ENABLE_CPU_PINNING": False,
        }
        if objective == "latency":
            self._settings["NUM_STREAMS"] = 1
        self.version = ".".join(ov.__version__.split("-", 1)[0].split(".")[:3])
        processor = self._core.get_property("CPU", "FULL_DEVICE_NAME")
        plural = "s" if threads > 1 else ""
        self.device = f"CPU ({processor}), {threads} thread{plural}"
        if base != EACH_ITS_OWN:
            self.device = f"{self.device}, {base}"
        self._now, self.clock = cpu_clock(threads)
        self._interval_s = INTERVAL_S
        if objective == "throughput":
            self._now, self.clock = time.perf_counter, _THROUGHPUT_CLOCK
            self._interval_s = _THROUGHPUT_INTERVAL_S

    def has_bfloat16(self) -> bool:
        """Whether this CPU computes in bfloat16."""
        return "BF16" in self._core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")

    def compile(self, model: onnx.ModelProto, base_dir: Path) -> OpenVinoModel:
        """Compile ``model``; raises RunError with OpenVINO's reason if it refuses it.

        Raises it, too, for what OpenVINO is known to crash with.
        """
        with tempfile.TemporaryDirectory() as folder:
            # From a file, because a message of more than 2 GB cannot be handed over.
            path = Path(folder) / "candidate.onnx"
            save_model(model, base_dir, path)
            try:
                read = self._core.read_model(path)
                self._reshape(read)
                tags = tag_nodes(read, model.graph)
                _refuse_crashes(model.graph, tags.no_ops)
                settings = self._settings_of(read)
                compiled = self._core.compile_model(read, "CPU", settings)
            except RuntimeError as error:
                raise RunError(f"OpenVINO refuses the model: {reason(error)}") from error
        profiled = partial(self._core.compile_model, read, "CPU", {**settings, "PERF_COUNT": True})
        return OpenVinoModel(compiled, profiled, tags, f"OpenVINO {self.version}")

    def load(self, path: Path) -> SavedOpenVinoModel:
        """Compile OpenVINO's own file at ``path``; its layers name no nodes.

        Raises RunError if OpenVINO refuses it.
        """
        try:
            read = self._core.read_model(path)
            self._reshape(read)
            settings = self._settings_of(read)
            compiled = self._core.compile_model(read, "CPU", settings)
        except RuntimeError as error:
            raise RunError(f"OpenVINO refuses {path}: {reason(error)}") from error
        profiled = partial(self._core.compile_model, read, "CPU", {**settings, "PERF_COUNT": True})
        tags = Tags((), tuple(port.get_any_name() for port in read.outputs))
        return SavedOpenVinoModel(compiled, profiled, tags, f"OpenVINO {self.version}")

    def _settings_of(self, model: Any) -> dict[str, Any]:
        base = self._base
        if base == EACH_ITS_OWN:
            # Where OpenVINO keeps the metadata of ONNX files, also in files of its own.
            named = ["framework", BASE_PROPERTY]
            base = model.get_rt_info(named).astype(str) if model.has_rt_info(named) else "float"
        if base not in PRECISIONS:
            raise RunError(f"the model is for base {base}, which OpenVINO does not compute in")
        if base == "bfloat16" and not self.has_bfloat16():
            raise RunError(
                "the model is for base bfloat16, which this CPU does not compute in; "
                "use `base` float"
            )
        return {**self._settings, "INFERENCE_PRECISION_HINT": PRECISIONS[base]}

    def _reshape(self, model: Any) -> None:
        shapes = {}
        for port in model.inputs:
            shape = port.get_partial_shape()
            if shape.is_dynamic:
                shapes[port] = self._static(port.get_any_name(), shape)
        if shapes:
            model.reshape(shapes)

    def _static(self, name: str, shape: Any) -> list[int]:
        if name in self._shapes:
            return list(self._shapes[name])
        known = [d.get_length() if d.is_static else None for d in shape]
        if None in known[1:]:
            raise InputError(
                f"input '{name}' has unknown dimensions; give its shape, e.g. "
                f"{name}={'x'.join(str(d or 1) for d in known)}"
            )
        return [d or 1 for d in known]

    def measure(self, models: Sequence[Compiled], inputs: Tensors, rounds: int) -> np.ndarray:
        """Seconds per run, shape (rounds, len(models)); see ``Engine.measure``.

        With the objective throughput, wall time over the number of inferences made in it.
        """
        return mean_seconds(inputs, lambda sample: self._measure(models, sample, rounds))

    def _measure(self, models: Sequence[Compiled], inputs: Tensors, rounds: int) -> np.ndarray:
        calls, sizes = [], []
        for model in models:
            if not isinstance(model, OpenVinoModel):
                raise RunError("OpenVINO can measure only what it has compiled")
            if self._objective == "throughput":
                burst = model.burst(inputs)
                calls.append(burst.run)
                sizes.append(burst.size)
            else:
                calls.append(model.caller(inputs))
                sizes.append(1)
        seconds = time_calls(calls, rounds, self._now, self._interval_s)
        seconds /= np.array(sizes)
        return seconds


def _refuse_crashes(graph: onnx.GraphProto, no_ops: frozenset[int]) -> None:
    """Raise RunError for pairs with which OpenVINO crashes."""
    crashing = crashing_nodes(graph, no_ops)
    if crashing is not None:
        raise RunError(
            "OpenVINO crashes with a pair between '{}' and '{}' and another one behind these; "
            "keep one of both edges in float".format(*crashing)
        )


class OpenVinoModel:
    """A candidate that the CPU plugin has compiled."""

    def __init__(self, compiled: Any, profiled: Any, tags: Tags, source: str) -> None:
        self._compiled = compiled
        self._request = compiled.create_infer_request()
        self._profiled = profiled
        self._tags = tags
        self._source = source

    def run(self, inputs: Tensors) -> dict[str, np.ndarray]:
        """Return all graph outputs by name; raises RunError if OpenVINO fails."""
        set_inputs(self._request, inputs)
        infer(self._request)
        return {
            name: np.array(self._request.get_output_tensor(index).data)
            for index, name in enumerate(self._tags.outputs)
        }

    def caller(self, inputs: Tensors) -> Any:
        """A call that runs on ``inputs``, which are set once."""
        set_inputs(self._request, inputs)
        return partial(infer, self._request)

    def burst(self, inputs: Tensors) -> Burst:
        """Inferences on ``inputs`` with several requests in flight."""
        return Burst(self._compiled, inputs)

    def plan(self, inputs: Tensors | None = None) -> Plan:
        """Return the layers of OpenVINO's runtime model; with ``inputs`` with their times.

        Times are by OpenVINO's own counters, in a copy of the model that has them. Raises
        RunError if it tells no plan.
        """
        times: dict[str, float] = {}
        compiled = self._compiled
        try:
            if inputs is not None:
                compiled = self._profiled()
                times = layer_times(compiled, inputs)
            runtime = compiled.get_runtime_model()
        except RuntimeError as error:
            raise RunError(f"OpenVINO tells no plan: {reason(error)}") from error
        return read_plan(runtime, self._tags, times, self._source)


class SavedOpenVinoModel(OpenVinoModel):
    """One that was read from OpenVINO's own file."""

    @property
    def inputs(self) -> Mapping[str, InputType]:
        """Shape and type of each input."""
        return {
            port.get_any_name(): InputType(tuple(port.shape), port.element_type.to_dtype().name)
            for port in self._compiled.inputs
        }


def create(
    threads: int = 1,
    base: str = "float",
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    objective: Objective = "latency",
    extensions: Sequence[str] = (),
) -> OpenVinoEngine:
    """Make the engine in this process; the arguments are plain data, so a worker can be told them.

    Raises RunError if OpenVINO has no CPU plugin here or it lacks the type ``base``.
    """
    try:
        engine = OpenVinoEngine(threads, base, shapes, objective, extensions)
        lacks = base == "bfloat16" and not engine.has_bfloat16()
    except RuntimeError as error:
        raise RunError(f"OpenVINO cannot use this CPU: {reason(error)}") from error
    if lacks:
        raise RunError("this CPU does not compute in bfloat16; use `base` float")
    return engine
