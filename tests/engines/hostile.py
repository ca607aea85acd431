"""An engine that does to its process what vendor libraries do, as the candidate's name asks.

A graph called ``segfault in run`` makes the process die when it is run. Other graphs are ONNX
Runtime's.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx

from placer.engines.base import Compiled, Tensors
from placer.engines.onnxruntime import OnnxRuntimeEngine, OnnxRuntimeModel
from placer.errors import InputError, RunError
from placer.plan import Layer, Plan


def segfault() -> None:
    ctypes.string_at(0)


def leave() -> None:
    os._exit(3)


def hang() -> None:
    time.sleep(600)


def hang_with_the_gil() -> None:
    ctypes.PyDLL(None).sleep(600)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def hang_with_a_child() -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        print(f"child {child.pid}", flush=True)


def grow() -> None:
    np.ones(1 << 27).sum()  # 1 GiB
    time.sleep(600)


def fail() -> None:
    raise ValueError("no tactic\nfor this layer")


def refuse() -> None:
    raise RunError("the parser refuses node 'conv1'")


def blame_the_user() -> None:
    raise InputError("the plug-in is for another GPU; build it again")


def complain() -> None:
    print("a warning of the vendor's", file=sys.stderr)


DEEDS = {
    deed.__name__: deed
    for deed in (
        segfault,
        leave,
        hang,
        hang_with_the_gil,
        stop,
        hang_with_a_child,
        grow,
        fail,
        refuse,
        blame_the_user,
        complain,
    )
}


class HostileEngine(OnnxRuntimeEngine):
    """``at_start``: a deed to begin with. ``deadly``: a tensor that must not be quantized."""

    name = "hostile"

    def __init__(self, at_start: str = "complain", deadly: str = "") -> None:
        super().__init__()
        DEEDS[at_start]()
        self._deadly = deadly
        self.device = os.environ.get("CUDA_VISIBLE_DEVICES", "any")
        self._alive: weakref.WeakSet[HostileModel] = weakref.WeakSet()

    def compile(self, model: onnx.ModelProto, base_dir: Path) -> HostileModel:
        act(model.graph.name, "compile")
        # The folder for temporary files outlives a worker.
        seen = Path(tempfile.gettempdir()) / model.graph.name
        if seen.exists():
            act(model.graph.name, "rebuild")
        seen.touch()
        for node in model.graph.node:
            if node.op_type == "QuantizeLinear" and node.input[0] == self._deadly:
                segfault()
        compiled = HostileModel(model, base_dir, self._alive)
        self._alive.add(compiled)
        return compiled

    def measure(self, models: Sequence[Compiled], inputs: Tensors, rounds: int) -> np.ndarray:
        for model in models:
            if isinstance(model, HostileModel):
                act(model.name, "measure")
        return super().measure(models, inputs, rounds)


class HostileModel(OnnxRuntimeModel):
    def __init__(
        self, model: onnx.ModelProto, base_dir: Path, alive: weakref.WeakSet[HostileModel]
    ) -> None:
        super().__init__(model, base_dir, threads=1)
        self.name = str(model.graph.name)
        self._alive = alive

    def run(self, inputs: Tensors) -> dict[str, np.ndarray]:
        act(self.name, "run")
        return super().run(inputs)

    def plan(self, inputs: Tensors | None = None) -> Plan:
        """Says which process this is and which models live in it."""
        del inputs
        act(self.name, "plan")
        names = tuple(sorted(model.name for model in self._alive))
        return Plan((Layer("models", "", names),), source=str(os.getpid()))


def act(name: str, stage: str) -> None:
    deed, _, when = name.partition(" in ")
    if when == stage:
        DEEDS[deed]()
