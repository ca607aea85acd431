"""ONNX Runtime's CPU provider as an engine: real latency, outputs and optimized graph."""

from __future__ import annotations

import math
import platform
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import onnx
import onnx.shape_inference
import onnxruntime as ort

from placer.common.freed_memory import give_back_freed
from placer.common.ort_session import Session, create_session, run_once
from placer.common.processor import this_processor
from placer.engines.base import Compiled, Remainder, Tensors
from placer.engines.execution_paths import ExecutionPaths, mean_seconds
from placer.engines.onnxruntime.layers import layers_plan
from placer.engines.onnxruntime.profile import median_us, profile, profile_in_turn, run_session
from placer.engines.rounds import cpu_clock, time_calls
from placer.errors import LimitError, RunError
from placer.graph.edit import all_tensors, every_node, is_large, without_initializers
from placer.graph.external_data import header, is_external
from placer.graph.flat import flatten
from placer.graph.neutral import NEUTRAL
from placer.graph.scopes import Scopes
from placer.model.body_types import BodyTypes
from placer.model.save import serialized
from placer.plan import Plan
from placer.rules.target import Target

_DISABLED = "optimization.disable_specified_optimizers"
_WITHOUT_PACKING = "session.disable_prepacking"
# ONNX Runtime 1.32's relu_quantizelinear.cc takes Relus out before a Q with zero point 0, unless it
# is int8 or int16: before FP8, int4 and int2, too, whose least value is not zero.
_RELU_LOSING = "Level2_RuleBasedTransformer"
_SIGNED_OF_ZERO = (
    onnx.TensorProto.FLOAT8E4M3FN,
    onnx.TensorProto.FLOAT8E4M3FNUZ,
    onnx.TensorProto.FLOAT8E5M2,
    onnx.TensorProto.FLOAT8E5M2FNUZ,
    onnx.TensorProto.INT4,
    onnx.TensorProto.INT2,
)
_LAYOUT_OPTIMIZERS = ("NchwcTransformer", "NhwcTransformer", "ConvAddActivationFusion")


@dataclass(frozen=True)
class ModelFile:
    """A model on disk, of which memory holds what its plan tells: not the values of weights."""

    path: Path

    @cached_property
    def bare(self) -> onnx.ModelProto:
        """The model; of large initializers inside it types and shapes alone.

        But for those that may make a node one that changes nothing, as a product with ones.
        """
        model = onnx.load(self.path, load_external_data=False)
        nodes = every_node(model.graph.node)
        looked_at = {name for node in nodes if node.op_type in NEUTRAL for name in node.input}
        weights = [
            tensor
            for tensor in model.graph.initializer
            if is_large(tensor) and not is_external(tensor) and tensor.name not in looked_at
        ]
        bare = without_initializers(model, {tensor.name for tensor in weights})
        bare.graph.initializer.extend(map(header, weights))
        return bare


class OnnxRuntimeEngine:
    """Compiles and measures on the CPU with a fixed number of threads.

    With one thread the clock is the CPU time of the calling thread, which other processes do not
    disturb as they disturb wall time; with more threads it is wall time.
    """

    name = "onnxruntime"
    rules = "onnxruntime"
    estimated = False
    verified = False
    remainder: Remainder = "kept"

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads
        self.version = str(ort.__version__)
        self.device = f"CPU ({processor()}), {threads} thread{'s' if threads > 1 else ''}"
        self._now, self.clock = cpu_clock(threads)

    @property
    def target(self) -> Target:
        """Its version and this machine's processor."""
        return Target(self.version, processor=this_processor())

    def compile(self, model: onnx.ModelProto, base_dir: Path) -> OnnxRuntimeModel:
        """Create a session; raises RunError with ONNX Runtime's reason if it refuses the model."""
        return OnnxRuntimeModel(model, base_dir, self.threads, exact=False)

    def compile_file(self, path: Path, base_dir: Path) -> OnnxRuntimeModel:
        """As ``compile``; see ``CompilesFiles``."""
        if type(self).compile is not OnnxRuntimeEngine.compile:  # A derived engine has its own way.
            return self.compile(onnx.load(path, load_external_data=False), base_dir)
        return OnnxRuntimeModel(ModelFile(path), base_dir, self.threads, exact=False)

    def measure(self, models: Sequence[Compiled], inputs: Tensors, rounds: int) -> np.ndarray:
        """Seconds per run, shape (rounds, len(models)); see ``Engine.measure``."""
        return mean_seconds(inputs, lambda sample: self._measure(models, sample, rounds))

    def _measure(self, models: Sequence[Compiled], inputs: Tensors, rounds: int) -> np.ndarray:
        calls = []
        for model in models:
            model.run(inputs)  # Within the limits of a run; to watch them takes time.
            run = model.run_unwatched if isinstance(model, OnnxRuntimeModel) else model.run
            calls.append(partial(run, inputs))
        return time_calls(calls, rounds, self._now)


def _dequantized_bytes(model: onnx.ModelProto) -> int:
    """What constants behind DequantizeLinear take in float32."""
    sizes = {tensor.name: math.prod(tensor.dims) for tensor in model.graph.initializer}
    pairs = (n for n in every_node(model.graph.node) if n.op_type == "DequantizeLinear")
    return sum(4 * sizes.get(node.input[0], 0) for node in pairs)


class OnnxRuntimeModel:
    """A model in an ONNX Runtime session.

    ``optimized`` False runs the graph as it is: ONNX Runtime 1.31's optimizer makes invalid graphs
    of FP16 models with Q/DQ pairs. ``exact``: outputs are those of processors on which products do
    not saturate, as other engines are compared with; else this one's, as users of ONNX Runtime get
    them.
    """

    def __init__(
        self,
        model: onnx.ModelProto | ModelFile,
        base_dir: Path,
        threads: int,
        *,
        optimized: bool = True,
        exact: bool = True,
    ) -> None:
        self._model = model
        self._base_dir = base_dir
        self._threads = threads
        level = ort.GraphOptimizationLevel
        make = partial(_session, model, base_dir, threads, exact=exact)
        try:
            self._session = make(level.ORT_ENABLE_ALL if optimized else level.ORT_DISABLE_ALL)
        except LimitError:
            raise
        except RunError:
            # Its step that makes products exact fails where two nodes read one weight.
            if not (optimized and exact and this_processor().exact_products is not True):
                raise
            optimized = False
            self._session = make(level.ORT_DISABLE_ALL)
        if not optimized:  # Then weights are dequantized in the run, and all stay until its end.
            known = self._session.limits
            more = known.run_bytes + _dequantized_bytes(_bare(model))
            self._session.limits = replace(known, run_bytes=more)
        self._outputs = [o.name for o in self._session.own.get_outputs()]

    def run(self, inputs: Tensors) -> dict[str, np.ndarray]:
        """Return all graph outputs by name.

        Raises RunError if ONNX Runtime fails or takes more than ``placer.common.limits`` allow.
        """
        return dict(zip(self._outputs, run_once(self._session, None, inputs), strict=True))

    def run_unwatched(self, inputs: Tensors) -> list[np.ndarray]:
        """All graph outputs in order, without limits; for inputs that ``run`` has taken."""
        return run_session(self._session, inputs)

    def plan(self, inputs: Tensors | None = None) -> Plan:
        """Return the nodes of the optimized graph, each with the candidate's nodes it covers.

        Every node of the candidate is in exactly one layer or in ``Plan.removed``.

        With ``inputs``, times are medians by ONNX Runtime's profiler, which counts whole
        microseconds.
        """
        level = ort.GraphOptimizationLevel
        given, base_dir, threads = self._model, self._base_dir, self._threads
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "optimized.onnx"
            if _has_half(_bare(given)):  # What it converts to float is fused last of all.
                off = _LAYOUT_OPTIMIZERS
                _session(given, base_dir, threads, level.ORT_ENABLE_ALL, path, off=off, runs=False)
            else:
                _session(given, base_dir, threads, level.ORT_ENABLE_EXTENDED, path, runs=False)
            fused = onnx.load(path, load_external_data=False)
            # Names of added layers differ from session to session: one tells both graph and times.
            prefix = None if inputs is None else Path(folder) / "profile"
            session = _session(given, base_dir, threads, level.ORT_ENABLE_ALL, path, prefix)
            final = onnx.load(path, load_external_data=False)
            times = {} if inputs is None else _kernel_times(session, inputs)
            del session
        model = _bare(given)
        source = f"ONNX Runtime {ort.__version__}"
        scopes = flatten(final.graph, name_all=False)
        if not scopes:
            return layers_plan(model, fused, final, times, source)
        flat = onnx.ModelProto()
        flat.CopyFrom(model)
        flatten(flat.graph)
        BodyTypes(flat.graph)  # Declares what bodies are given, from which other types follow.
        flatten(fused.graph, name_all=False)
        return layers_plan(flat, fused, final, _own_times(times, scopes), source)


def _bare(model: onnx.ModelProto | ModelFile) -> onnx.ModelProto:
    return model.bare if isinstance(model, ModelFile) else model


def _session(
    model: onnx.ModelProto | ModelFile,
    base_dir: Path,
    threads: int,
    level: ort.GraphOptimizationLevel = ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
    optimized_path: Path | None = None,
    profile_prefix: Path | None = None,
    off: Sequence[str] = (),
    *,
    exact: bool = False,
    runs: bool = True,
) -> Session:
    """A session of ``model``; ``off``: optimizers that are not to run.

    ``runs`` False: only its optimized graph is needed. No weights are copied for kernels then.
    """
    off = (*off, _RELU_LOSING) if _loses_relus(_bare(model)) else off
    entries = {_DISABLED: ";".join(off)} if off else {}
    if not runs:
        entries[_WITHOUT_PACKING] = "1"
    opened: AbstractContextManager[tuple[bytes | Path, Path]]
    if not isinstance(model, ModelFile):
        # What is measured is read from the message, as it is from a user's file.
        opened = serialized(model, base_dir, mapped=exact)
    elif _is_whole(model, base_dir):
        # ONNX Runtime reads it itself: as a message it would be in memory once more.
        opened = nullcontext((model.path, base_dir))
        give_back_freed(model.path.stat().st_size)  # Of a model before, as ``serialized`` does.
    else:
        opened = nullcontext((model.path.read_bytes(), base_dir))
    del model  # Where nobody else needs it, it is freed before the session is made.
    with opened as (source, folder):
        return create_session(
            source,
            folder,
            threads=threads,
            level=level,
            optimized_path=optimized_path,
            profile_prefix=profile_prefix,
            entries=entries,
            exact=exact,
        )


def _is_whole(model: ModelFile, base_dir: Path) -> bool:
    """Whether its data is inside or beside it."""
    beside = model.path.parent == base_dir
    return beside or not any(map(is_external, all_tensors(model.bare.graph)))


def _loses_relus(model: onnx.ModelProto) -> bool:
    """Whether there are Relus and Qs to such types, in bodies too; what is between may fold."""
    nodes = list(every_node(model.graph.node))
    quantizers = [n for n in nodes if n.op_type == "QuantizeLinear" and len(n.input) > 2]
    if not quantizers or all(node.op_type != "Relu" for node in nodes):
        return False
    types = {tensor.name: tensor.data_type for tensor in all_tensors(model.graph)}
    written = (node for node in nodes if node.op_type == "Constant" and node.attribute)
    types.update((node.output[0], node.attribute[0].t.data_type) for node in written)
    return any(types.get(node.input[2]) in _SIGNED_OF_ZERO for node in quantizers)


def _has_half(model: onnx.ModelProto) -> bool:
    """Whether constants or inputs are float16."""
    half = onnx.TensorProto.FLOAT16
    return any(tensor.data_type == half for tensor in model.graph.initializer) or any(
        value.type.tensor_type.elem_type == half for value in model.graph.input
    )


def _kernel_times(session: Session, inputs: Tensors) -> dict[str, float]:
    """Median microseconds by name of the node over some runs of a session that profiles.

    Over several execution paths their mean by share; a node that does not run takes no time.
    """
    if not isinstance(inputs, ExecutionPaths):
        return {name: median_us(events) for name, events in profile(session, inputs).items()}
    times: dict[str, float] = defaultdict(float)
    profiles = profile_in_turn(session, [path.inputs for path in inputs.paths])
    for path, by_name in zip(inputs.paths, profiles, strict=True):
        for name, events in by_name.items():
            times[name] += path.share * median_us(events)
    return times


def _own_times(times: Mapping[str, float], scopes: Scopes) -> dict[str, float]:
    """``times`` in which nodes with bodies take none, since theirs include the nodes there.

    What is beside these is ONNX Runtime's dispatch, most of it the profiler's own. Nodes in
    bodies that did not run take none either: a plan in which a layer lacks its time tells a
    search nothing.
    """
    if not times:
        return {}
    owners = {body.owner for scope in scopes.values() for body in scope}
    return {**dict.fromkeys(scopes, 0.0), **times, **dict.fromkeys(owners, 0.0)}


def processor() -> str:
    """The name of this machine's CPU."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
