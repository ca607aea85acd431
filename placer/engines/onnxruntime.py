"""ONNX Runtime's CPU provider as an engine: real latency, outputs and optimized graph."""

from __future__ import annotations

import platform
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnx.shape_inference
import onnxruntime as ort
from onnx import TensorProto

from placer.engines.base import Compiled, Remainder, Tensors
from placer.engines.rounds import time_calls
from placer.errors import RunError
from placer.plan import Kind, Layer, Plan, Port
from placer.session import ORT_ERRORS, create_session, one_line

_KINDS: Mapping[str, Kind] = {"QuantizeLinear": "quantize", "DequantizeLinear": "dequantize"}


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
        self.device = f"CPU ({_processor()}), {threads} thread{'s' if threads > 1 else ''}"
        self._now, self.clock = _clock(threads)

    def compile(self, model: onnx.ModelProto, base_dir: Path) -> OnnxRuntimeModel:
        """Create a session; raises RunError with ONNX Runtime's reason if it refuses the model."""
        return OnnxRuntimeModel(model, base_dir, self.threads)

    def measure(self, models: Sequence[Compiled], inputs: Tensors, rounds: int) -> np.ndarray:
        """Seconds per run, shape (rounds, len(models)); see ``Engine.measure``."""
        return time_calls([partial(model.run, inputs) for model in models], rounds, self._now)


class OnnxRuntimeModel:
    """A model in an ONNX Runtime session.

    ``optimized`` False runs the graph as it is: ONNX Runtime 1.31's optimizer makes invalid graphs
    of FP16 models with Q/DQ pairs.
    """

    def __init__(
        self, model: onnx.ModelProto, base_dir: Path, threads: int, optimized: bool = True
    ) -> None:
        self._model = model
        self._base_dir = base_dir
        self._threads = threads
        level = ort.GraphOptimizationLevel
        self._session = _session(
            model, base_dir, threads, level.ORT_ENABLE_ALL if optimized else level.ORT_DISABLE_ALL
        )
        self._outputs = [o.name for o in self._session.get_outputs()]

    def run(self, inputs: Tensors) -> dict[str, np.ndarray]:
        """Return all graph outputs by name; raises RunError if ONNX Runtime fails."""
        try:
            values = self._session.run(self._outputs, dict(inputs))
        except ORT_ERRORS as error:
            raise RunError(f"ONNX Runtime failed to run the model: {one_line(error)}") from error
        return dict(zip(self._outputs, values, strict=True))

    def plan(self) -> Plan:
        """Return the nodes of the optimized graph, each with the candidate's nodes it covers."""
        level = ort.GraphOptimizationLevel
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "optimized.onnx"
            graphs = []
            for depth in (level.ORT_ENABLE_EXTENDED, level.ORT_ENABLE_ALL):
                _session(self._model, self._base_dir, self._threads, depth, path)
                graphs.append(onnx.load(path, load_external_data=False).graph)
        return _plan(self._model, fused=graphs[0], final=graphs[1])


def _session(
    model: onnx.ModelProto,
    base_dir: Path,
    threads: int,
    level: ort.GraphOptimizationLevel = ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
    optimized_path: Path | None = None,
) -> ort.InferenceSession:
    return create_session(
        model.SerializeToString(),
        base_dir,
        threads=threads,
        level=level,
        optimized_path=optimized_path,
    )


def _clock(threads: int) -> tuple[Callable[[], float], str]:
    # Where thread time ticks coarsely (Windows: 15.6 ms) it cannot time a single inference.
    if threads == 1 and time.get_clock_info("thread_time").resolution <= 1e-5:
        return time.thread_time, "CPU time of one thread"
    return time.perf_counter, "wall time"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _plan(model: onnx.ModelProto, fused: onnx.GraphProto, final: onnx.GraphProto) -> Plan:
    """Describe ``final``, the graph that runs, by ``fused``, the same before layout changes.

    Layout optimization renames nodes and tensors: a fused layer X becomes X_token_N, or is called
    after its output tensor with the suffix _nchwc. Layers that it adds cover no nodes.
    """
    types = _tensor_types(model)
    known: dict[str, Layer] = {}
    for layer, output in _fused_layers(model.graph, fused, types):
        known[layer.name] = known[f"{output}_nchwc"] = layer
    layers = []
    for node in final.node:
        found = known.get(node.name) or known.get(re.sub(r"_token_\d+$", "", node.name))
        layers.append(found or Layer(node.name, node.op_type, ()))
    return Plan(tuple(layers), f"ONNX Runtime {ort.__version__}")


def _fused_layers(
    candidate: onnx.GraphProto, fused: onnx.GraphProto, types: Mapping[str, str]
) -> Iterator[tuple[Layer, str]]:
    producer = {t: node for node in candidate.node for t in node.output}
    constants = {t.name for t in fused.initializer}
    for node in fused.node:
        layer = Layer(
            name=node.name,
            op=node.op_type,
            nodes=_covered(node, producer),
            inputs=tuple(_port(t, types) for t in node.input if t and t not in constants),
            outputs=tuple(_port(t, types) for t in node.output if t),
            kind=_KINDS.get(node.op_type, "compute"),
        )
        yield layer, node.output[0]


def _port(tensor: str, types: Mapping[str, str]) -> Port:
    return Port(types.get(tensor, "unknown"), tensor=tensor)


def _covered(layer: onnx.NodeProto, producer: Mapping[str, onnx.NodeProto]) -> tuple[str, ...]:
    """Candidate nodes on the paths that lead from the layer's inputs to its outputs.

    Fused layers keep the names of the tensors at their borders, so walking back from the outputs
    up to the inputs collects what the layer replaces. Q/DQ nodes are left out.
    """
    border = set(layer.input)
    waiting = [t for t in layer.output if t]
    seen: dict[str, onnx.NodeProto] = {}
    while waiting:
        node = producer.get(waiting.pop())
        if node is not None and node.name not in seen:
            seen[node.name] = node
            waiting += [t for t in node.input if t not in border]
    quantizing = ("QuantizeLinear", "DequantizeLinear")
    return tuple(sorted(n.name for n in seen.values() if n.op_type not in quantizing))


def _tensor_types(model: onnx.ModelProto) -> dict[str, str]:
    graph = onnx.shape_inference.infer_shapes(model).graph
    types = {
        value.name: value.type.tensor_type.elem_type
        for value in (*graph.input, *graph.value_info, *graph.output)
    }
    return {name: str(TensorProto.DataType.Name(t)).lower() for name, t in types.items()}
