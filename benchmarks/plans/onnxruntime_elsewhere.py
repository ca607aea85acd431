"""How well a pack predicts what ONNX Runtime of another processor makes; see fidelity.py.

ORT_PYTHON is a command that starts a Python with that ONNX Runtime, as one for ARM in QEMU 10,
whose graph optimizers run as on ARM. Times there say nothing.

    export ORT_PYTHON="qemu-aarch64 -cpu neoverse-n1 -L root root/usr/bin/python3"
    python -m benchmarks.plans.onnxruntime_elsewhere --pack onnxruntime-arm --model net.onnx
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import onnx

from benchmarks.plans.cpu import CpuEngine
from benchmarks.plans.fidelity import main
from placer.engines.onnxruntime import OnnxRuntimeEngine, OnnxRuntimeModel
from placer.engines.onnxruntime.layers import layers_plan
from placer.errors import RunError
from placer.graph.flat import flatten
from placer.plan import Plan

_OPTIMIZE = """
import sys, onnxruntime as ort
ort.set_default_logger_severity(4)
for line in sys.stdin:
    source, target, level = line.rstrip("\\n").split("\\t")
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    options.optimized_model_filepath, options.log_severity_level = target, 4
    try:
        ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        print("done", flush=True)
    except Exception as error:
        print(str(error).replace("\\n", " "), flush=True)
"""
_LEVELS = ("ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")


@cache
def _process() -> subprocess.Popen[str]:
    command = [*shlex.split(os.environ["ORT_PYTHON"]), "-c", _OPTIMIZE]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, bufsize=1
    )


def _optimized(source: Path, target: Path, level: str) -> onnx.ModelProto:
    process = _process()
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{source}\t{target}\t{level}\n")
    answer = process.stdout.readline().strip()
    if answer != "done":
        raise RunError(f"ONNX Runtime refuses the model: {answer or 'its process ended'}")
    return onnx.load(target, load_external_data=False)


class _Elsewhere(OnnxRuntimeModel):
    def __init__(self, model: onnx.ModelProto) -> None:
        self._candidate = model

    def plan(self, *_: object) -> Plan:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "model.onnx")
            onnx.save(self._candidate, source)
            fused, final = (_optimized(source, Path(folder, x), x) for x in _LEVELS)
        flatten(self._candidate.graph)
        for optimized in (fused, final):
            flatten(optimized.graph, name_all=False)
        return layers_plan(self._candidate, fused, final, {}, "ONNX Runtime elsewhere")


class ElsewhereEngine(OnnxRuntimeEngine):
    """Compiles in the process of ``ORT_PYTHON``; runs nothing."""

    def compile(self, model: onnx.ModelProto, *_: object) -> OnnxRuntimeModel:
        """What that process makes of the model, which must hold its weights."""
        return _Elsewhere(model)


if __name__ == "__main__":
    if "ORT_PYTHON" not in os.environ and not {"-h", "--help"} & {*sys.argv}:
        sys.exit("set ORT_PYTHON to a command that starts a Python; see --help of this script")
    title = "the graph that ONNX Runtime of ORT_PYTHON optimizes"
    main(CpuEngine("onnxruntime", title, lambda _: ElsewhereEngine()), __doc__)
