"""From an ONNX model to IREE's module, or to the IR that lists its dispatches."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from iree.compiler.tools.binaries import find_tool

from placer.errors import RunError
from placer.model import save_model

_TO_FLOW = (
    "--compile-to=flow",
    "--mlir-print-debuginfo",
    "--mlir-elide-elementsattrs-if-larger=4",
    "--mlir-elide-resource-strings-if-larger=4",
)


@dataclass(frozen=True)
class Compiler:
    """``iree-compile`` for one target: ``llvm-cpu`` or ``cuda``, and an instruction set.

    ``shapes``: shapes of inputs; a leading dimension that is unknown after all is 1.
    """

    target: str
    arch: str
    shapes: Mapping[str, tuple[int, ...]]

    def module(self, model: onnx.ModelProto, base_dir: Path) -> bytes:
        """Return the compiled module (vmfb); RunError with the reason if IREE refuses the model."""
        return self._compile(model, base_dir, ())

    def flow(self, model: onnx.ModelProto, base_dir: Path) -> str:
        """Return the IR in which dispatches are formed, as text with locations."""
        return self._compile(model, base_dir, _TO_FLOW).decode()

    def _compile(self, model: onnx.ModelProto, base_dir: Path, extra: Sequence[str]) -> bytes:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            source, lowered, compiled = (folder / n for n in ("model.onnx", "in.mlirbc", "out"))
            save_model(with_fixed_inputs(model, self.shapes), base_dir, source)
            _run("importer", [sys.executable, "-m", f"{__package__}.lowering", source, lowered])
            command = [find_tool("iree-compile"), lowered, *self._flags(), *extra, "-o", compiled]
            _run("compiler", command)
            return compiled.read_bytes()

    def _flags(self) -> list[str]:
        if self.target == "cuda":
            return ["--iree-hal-target-device=cuda", f"--iree-cuda-target={self.arch}"]
        return [
            "--iree-hal-target-device=local",
            "--iree-hal-local-target-device-backends=llvm-cpu",
            f"--iree-llvmcpu-target-cpu={self.arch}",
        ]


def with_fixed_inputs(
    model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]
) -> onnx.ModelProto:
    """Return ``model`` with concrete input shapes: IREE compiles unknown ones far worse."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for value in fixed.graph.input:
        dims = value.type.tensor_type.shape.dim
        for dim, size in zip(dims, shapes.get(value.name, ()), strict=False):
            dim.dim_value = size
        if dims and not dims[0].HasField("dim_value"):
            dims[0].dim_value = 1
    del fixed.graph.value_info[:]  # They may hold the symbols that are gone.
    return fixed


def _run(what: str, command: Sequence[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode < 0:
        crash = signal.Signals(-done.returncode).name
        raise RunError(f"IREE's {what} crashed with {crash}")
    if done.returncode:
        reason = telling_line(done.stderr.decode(errors="replace"))
        raise RunError(f"IREE's {what} refuses the model: {reason}")


def telling_line(stderr: str) -> str:
    """The first error that ``stderr`` tells of, else the end of a traceback, else its last line."""
    lines = [" ".join(line.split()) for line in stderr.splitlines() if line.strip()]
    errors = [line.partition("error: ")[2] for line in lines if "error: " in line]
    return (errors or lines[-1:] or ["it gave no reason"])[0]
