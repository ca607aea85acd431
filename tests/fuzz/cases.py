"""Random cases: a kind of input, damaged, and a command that reads it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random

import numpy as np

from tests.fuzz.mutators import damaged_arrays, damaged_bytes, damaged_model, damaged_text
from tests.fuzz.outcome import Case
from tests.fuzz.seeds import MANIFEST, PACK, PLAN, models

_BASES = models()
_PACK = {f"mine/{name}": text.encode() for name, text in PACK.items()}
_MODEL_COMMANDS = (
    ("check", "net.onnx", "--static"),
    ("check", "net.onnx", "--static"),
    ("explain", "net.onnx", "--pack", "mine"),
    ("explain", "net.onnx", "--pack", "mine", "--json"),
    ("import", "net.onnx", "--pack", "mine"),
    ("extract", "net.onnx", "--outputs", "y", "-o", "part.onnx"),
    ("extract", "net.onnx", "--around", "add", "--data", "data.npz", "-o", "part.onnx"),
)
_OPTIMIZE = (
    "optimize",
    "net.onnx",
    "--engine",
    "fusion-model",
    "--gpu",
    "a100",
    "--pack",
    "mine",
    "--budget",
    "2",
    "--preset",
    "quick",
    "--no-cache",
    "--output",
    "out",
    "--gate",
    "sqnr>=8",
)


def model_case(random: Random) -> Case:
    """A damaged model and a command that reads models; one in thirty is optimized."""
    name = random.choice(sorted(_BASES))
    files = dict(_PACK)
    files["net.onnx"] = damaged_model(_BASES[name], random)
    command = random.choice(_MODEL_COMMANDS)
    if command[0] == "import":
        name = random.choice(("pairs", "qoperator", "dynamic"))
        files["net.onnx"] = damaged_model(_BASES[name], random)
    if random.random() < 1 / 30:
        command = _OPTIMIZE
    if "data.npz" in command:
        files["data.npz"] = _npz(_arrays(name))
    return Case(name, files, command)


def _arrays(name: str) -> dict[str, np.ndarray]:
    """Three samples for a base model."""
    rng = np.random.default_rng(0)
    arrays = {}
    for value in _BASES[name].graph.input:
        dims = [d.dim_value or 1 for d in value.type.tensor_type.shape.dim]
        shape = (3 * dims[0], *dims[1:]) if dims else (3,)
        is_float = value.type.tensor_type.elem_type == 1
        arrays[value.name] = (
            rng.standard_normal(shape).astype("f4") if is_float else rng.random(3) > 0.5
        )
    return arrays


def _npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def pack_case(random: Random) -> Case:
    """A rule pack, one file of which is damaged."""
    files = dict(_PACK)
    name = random.choice(sorted(files))
    files[name] = damaged_text(files[name].decode(), random).encode()
    if random.random() < 0.05:
        files[name] = damaged_bytes(files[name], random)
    command = random.choice(("test", "lint", "pack", "list", "show"))
    arguments = (
        ("rules", "show", "matmul", "--pack", "mine")
        if command == "show"
        else ("rules", command, "mine")
    )
    return Case("pack", files, arguments)


def placement_case(random: Random) -> Case:
    """A damaged placement of the dense model."""
    files = {**_PACK, "net.onnx": _BASES["dense"].SerializeToString()}
    files["placement.yaml"] = damaged_text(_PLACEMENT, random).encode()
    commands = (
        ("apply", "placement.yaml", "net.onnx", "--pack", "mine", "--output", "out"),
        ("explain", "net.onnx", "--placement", "placement.yaml", "--pack", "mine"),
    )
    return Case("placement", files, random.choice(commands))


def data_case(random: Random) -> Case:
    """Damaged data for a region of the residual or of the branching model."""
    name = random.choice(("residual", "branches", "dense"))
    files = {"net.onnx": _BASES[name].SerializeToString()}
    files["data.npz"] = damaged_arrays(_arrays(name), random)
    outputs = {"residual": "y", "branches": "y", "dense": "y"}[name]
    inputs = {"residual": "r,x", "branches": "b,a", "dense": "d"}[name]
    command = (
        "extract",
        "net.onnx",
        "--inputs",
        inputs,
        "--outputs",
        outputs,
        "--data",
        "data.npz",
        "-o",
        "part.onnx",
    )
    return Case("data", files, command)


def document_case(random: Random) -> Case:
    """A damaged manifest, plan or GPU file."""
    model = _BASES["dense"].SerializeToString()
    match random.choices((0, 1, 2), (1, 12, 7))[0]:
        case 0:
            files = {"net.onnx": model, "models.yaml": damaged_text(MANIFEST, random).encode()}
            return Case("manifest", files, ("onboard", "models.yaml", "--dry-run"))
        case 1:
            files = {"a.json": damaged_text(PLAN, random).encode(), "b.json": PLAN.encode()}
            return Case("plan", files, ("plan", "diff", "a.json", "b.json"))
        case _:
            text = (_CONFIGS / "gpus" / "rtx-4090.yaml").read_text(encoding="utf-8")
            files = {**_PACK, "net.onnx": model, "gpu.yaml": damaged_text(text, random).encode()}
            return Case(
                "gpu", files, ("explain", "net.onnx", "--pack", "mine", "--gpu", "gpu.yaml")
            )


_CONFIGS = Path(__file__).parents[2] / "configs"
_PLACEMENT = """\
format: placer-placement/1
id: 0123456789ab
model: sha256:00
pack: mine 1.0.0
calibrated: true
scheme: {activation: int8, symmetric: true, weight: int8, per_channel: true, bias: float}
groups:
- edges:
  - {tensor: x, node: mm, input: 0}
  range: [-1.5, 1.5]
- edges:
  - {tensor: w, node: mm, input: 1}
- edges:
  - {tensor: d, node: gemm, input: 0}
  range: [-2.0, 2.0]
structure: |
  ["x", "graph input", "", "87fff86d6d", [], ["x"]]
  ["mm", "MatMul", "4f53cda18c", "d0cfece6ee", ["x", "w"], ["a"]]
  ["relu", "Relu", "4f53cda18c", "efbcc8640c", ["c"], ["d"]]
  ["y", "graph output", "", "ccca7d3b98", ["y"], []]
"""

KINDS: Mapping[str, Callable[[Random], Case]] = {
    "models": model_case,
    "packs": pack_case,
    "placements": placement_case,
    "data": data_case,
    "documents": document_case,
}


def cases(kind: str, count: int, seed: int) -> Iterator[Case]:
    """``count`` cases of a kind; each follows from the seed and its number alone."""
    for number in range(count):
        yield KINDS[kind](Random(f"{seed}/{kind}/{number}"))
