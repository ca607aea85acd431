"""Runs of ``placer optimize`` on random models, and what finished runs leave behind."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

import numpy as np
from onnx import ModelProto

from tests.fuzz.graphs import samples
from tests.fuzz.outcome import CACHE, Case, run_command
from tests.fuzz.seeds import PACK, models

# Of a GPU whose floating-point units are slow, so that quantization pays in small models.
GPU = """\
name: slow-floats
compute_capability: "8.0"
sms: 100
boost_clock_mhz: 1000
memory_gb: 8
memory_bandwidth_gb_s: 100000
l2_mb: 1
l2_bandwidth_gb_s: 200000
peak: {float: 0.00001, float16: 0.00002, bfloat16: 0.00002, int8: 0.001}
sources:
  - fields: [sms, boost_clock_mhz, memory_gb, memory_bandwidth_gb_s, l2_mb, l2_bandwidth_gb_s, peak]
    source: made up for tests
"""
PACK_FILES = {f"mine/{name}": text.encode() for name, text in PACK.items()}
_GATES = (
    ("sqnr>=5",),
    ("sqnr>=10",),
    ("sqnr>=20",),
    ("sqnr>=35",),
    ("cosine>=0.95",),
    ("max_abs<=0.5",),
    ("argmax_agreement>=0.7",),
    ("sqnr>=8", "max_abs<=2"),
    ("cosine>=0.9", "argmax_agreement>=0.5"),
)
SHARED = ("--storage", "sqlite:///shared.db", "--study", "fuzz")


def npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The bytes of an .npz file."""
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()


def run_of(proto: ModelProto, random: Random, name: str = "random model") -> Case:
    """A run on ``proto`` with calibration and evaluation data, and options at random."""
    files = {
        "net.onnx": proto.SerializeToString(),
        "data.npz": npz(samples(proto, random, 2)),
        "eval.npz": npz(samples(proto, random, 3)),
        **PACK_FILES,
    }
    command = ["optimize", "net.onnx", "--data", "data.npz", "--eval-data", "eval.npz"]
    for gate in random.choice(_GATES):
        command += ["--gate", gate]
    if random.random() < 0.15:
        command += ["--engine", "onnxruntime"]
    else:
        base = random.choice(("float", "float", "float16"))
        pack = random.choice(("tensorrt",) * 5 + ("mine",))
        files["gpu.yaml"] = GPU.encode()
        command += ["--engine", "fusion-model", "--gpu", "gpu.yaml", "--base", base]
        command += ["--pack", pack]
        if random.random() < 0.15:
            command += ["--front", "2"]
    if random.random() < 0.3:
        command += ["--calibration", random.choice(("minmax", "percentile", "entropy", "mse"))]
    command += ["--budget", random.choice("234"), "--preset", "quick", "--no-cache"]
    return Case(name, files, (*command, "--output", "out"), _operators(proto))


def _operators(proto: ModelProto) -> list[str]:
    return sorted({node.op_type for node in proto.graph.node})


@functools.cache
def finished(engine: str, *storage: str) -> Case:
    """A run on ``engine`` that has finished: its command and all files, those of the cache too.

    ``storage``: further words of the command. Runs in this process, so that what runs import is
    there before processes are forked.
    """
    case = run_of(models()["attention"], Random("finished"))
    chosen = ["--engine", engine, "--budget", "2", "--preset", "quick", "--gate", "sqnr>=5"]
    if engine == "fusion-model":
        chosen += ["--gpu", "gpu.yaml", "--base", "float", "--pack", "tensorrt"]
    files = {**case.files, "gpu.yaml": GPU.encode()}
    command = (*case.command[:6], *chosen, "--output", "out", *storage)
    with _inside_new_folder() as folder:
        for name, data in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            code = run_command(command)
        if code:
            raise RuntimeError(f"{command} ended with exit code {code}")
        return Case("finished", _files(folder), command)


@contextlib.contextmanager
def _inside_new_folder() -> Iterator[Path]:
    """A temporary folder that is the current one, with a cache of its own."""
    here, cache = Path.cwd(), os.environ.get("XDG_CACHE_HOME")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = f"{folder}/{CACHE}"
        os.chdir(folder)
        try:
            yield Path(folder)
        finally:
            os.chdir(here)
            del os.environ["XDG_CACHE_HOME"]
            if cache is not None:
                os.environ["XDG_CACHE_HOME"] = cache


def _files(folder: Path) -> dict[str, bytes]:
    """What is in a folder, but for what only people read."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and path.suffix not in (".html", ".log")
        and path.parts[-2] != ".onnxruntime"
    }


def caches(case: Case, suffix: str) -> list[str]:
    """Files of the cache that end with ``suffix``."""
    return [name for name in case.files if name.startswith(f"{CACHE}/") and name.endswith(suffix)]
