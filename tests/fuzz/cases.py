"""Random cases: inputs of some kind, damaged or valid, and a command that reads them."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np

from tests.fuzz.databases import damaged_database
from tests.fuzz.documents import damaged_arrays, damaged_bytes, damaged_json, damaged_text
from tests.fuzz.graphs import random_model, with_pairs
from tests.fuzz.mutators import damaged_model
from tests.fuzz.outcome import Case
from tests.fuzz.runs import GPU, PACK_FILES, SHARED, caches, finished, npz, run_of
from tests.fuzz.seeds import MANIFEST, PLACEMENT, PLAN, models

_BASES = models()
_QUANTIZED = ("pairs", "qoperator", "dynamic")
_PLACEMENT_PACK = ("--pack", "mine")
_MODEL_COMMANDS = (
    ("check", "net.onnx", "--static"),
    ("check", "net.onnx", "--static"),
    ("explain", "net.onnx", "--pack", "mine"),
    ("explain", "net.onnx", "--pack", "mine", "--json"),
    ("import", "net.onnx", "--pack", "mine"),
    ("extract", "net.onnx", "--outputs", "y", "-o", "part.onnx"),
    ("extract", "net.onnx", "--around", "add", "--data", "data.npz", "-o", "part.onnx"),
)
_GPU_RUN = ("--engine", "fusion-model", "--gpu", "gpu.yaml", "--pack", "mine", "--base", "float")
_OPTIMIZE = (
    *("optimize", "net.onnx", *_GPU_RUN, "--budget", "2", "--preset", "quick", "--no-cache"),
    *("--output", "out", "--gate", "sqnr>=8", "--data", "data.npz", "--eval-data", "eval.npz"),
)


def model_case(random: Random) -> Case:
    """A damaged model, of the seeds or a random one, and a command that reads models."""
    command = random.choice(_MODEL_COMMANDS)
    if random.random() < 1 / 30:
        command = _OPTIMIZE
    if random.random() < 0.3:
        return _damaged_random_model(command, random)
    name = random.choice(sorted(_BASES))
    if command[0] == "import":
        name = random.choice(_QUANTIZED)
    data, classes = damaged_model(_BASES[name], random)
    files = {**PACK_FILES, "net.onnx": data}
    if "data.npz" in command:
        files["data.npz"], files["eval.npz"] = npz(_arrays(name)), npz(_arrays(name, 1))
    if command is _OPTIMIZE:
        files["gpu.yaml"] = GPU.encode()
    return Case(name, files, command, classes)


def _damaged_random_model(command: tuple[str, ...], random: Random) -> Case:
    proto = random_model(random)
    if command[0] == "import":
        proto = with_pairs(proto, random)
    run = run_of(proto, random)
    data, classes = damaged_model(proto, random)
    command = tuple(
        {"y": proto.graph.output[0].name, "add": random.choice(proto.graph.node).name}.get(w, w)
        for w in command
    )
    files = {**run.files, "net.onnx": data, "gpu.yaml": GPU.encode()}
    return Case("random model", files, command, classes)


def graph_case(random: Random) -> Case:
    """A valid random model: optimized, cut, or given Q/DQ pairs and taken apart."""
    proto = random_model(random)
    match random.choices(("optimize", "quantized", "import", "extract"), (6, 1, 2, 2))[0]:
        case "optimize":
            return replace(run_of(proto, random), classes=("optimize",))
        case "quantized":
            case = run_of(with_pairs(proto, random), random)
            return replace(case, classes=("optimize a quantized one",))
        case "import":
            command = ("import", "net.onnx", "--pack", random.choice(("mine", "tensorrt")))
            proto, kind = with_pairs(proto, random), "import"
        case _:
            kind = "extract"
            made = [tensor for node in proto.graph.node for tensor in node.output]
            where = ("--outputs", random.choice(made))
            if random.random() < 0.6:
                where = ("--around", random.choice(proto.graph.node).name)
            command = ("extract", "net.onnx", *where, "--data", "data.npz", "-o", "part.onnx")
    return Case("random model", run_of(proto, random).files, command, (kind,))


def _arrays(name: str, seed: int = 0) -> dict[str, np.ndarray]:
    """Three samples for a base model."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for value in _BASES[name].graph.input:
        dims = [d.dim_value or 1 for d in value.type.tensor_type.shape.dim]
        shape = (3 * dims[0], *dims[1:]) if dims else (3,)
        is_float = value.type.tensor_type.elem_type == 1
        arrays[value.name] = (
            rng.standard_normal(shape).astype("f4") if is_float else rng.random(3) > 0.5
        )
    return arrays


def pack_case(random: Random) -> Case:
    """A rule pack, one file of which is damaged."""
    files = dict(PACK_FILES)
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
    return Case("pack", files, arguments, (name.removeprefix("mine/"),))


def placement_case(random: Random) -> Case:
    """A damaged placement of the dense model."""
    files = {**PACK_FILES, "net.onnx": _BASES["dense"].SerializeToString()}
    files["placement.yaml"] = damaged_text(PLACEMENT, random).encode()
    command = random.choice(
        (
            ("apply", "placement.yaml", "net.onnx", *_PLACEMENT_PACK, "--output", "out"),
            ("apply", "placement.yaml", "net.onnx", "--base", "float", "--output", "out"),
            ("explain", "net.onnx", "--placement", "placement.yaml", *_PLACEMENT_PACK),
        )
    )
    return Case("placement", files, command, (command[0],))


def data_case(random: Random) -> Case:
    """Damaged data for a region of the residual or of the branching model, or for a run."""
    name = random.choice(("residual", "branches", "dense"))
    data, classes = damaged_arrays(_arrays(name), random)
    files = {"net.onnx": _BASES[name].SerializeToString(), "data.npz": data}
    inputs = {"residual": "r,x", "branches": "b,a", "dense": "d"}[name]
    command: tuple[str, ...] = ("extract", "net.onnx", "--inputs", inputs, "--outputs", "y")
    command += ("--data", "data.npz", "-o", "part.onnx")
    if random.random() < 0.1:
        command, other = _OPTIMIZE, random.choice(("data.npz", "eval.npz"))
        files |= {**PACK_FILES, "gpu.yaml": GPU.encode(), "data.npz": npz(_arrays(name))}
        files |= {"eval.npz": npz(_arrays(name, 1)), other: data}
    return Case("data", files, command, classes)


def manifest_case(random: Random) -> Case:
    """A damaged manifest of two models."""
    model = _BASES["dense"].SerializeToString()
    files = {"net.onnx": model, "models.yaml": damaged_text(MANIFEST, random).encode()}
    return Case("manifest", files, ("onboard", "models.yaml", "--dry-run"), ("manifest",))


def document_case(random: Random) -> Case:
    """A damaged plan or GPU file."""
    if random.random() < 0.6:
        text = (damaged_json if random.random() < 0.5 else damaged_text)(PLAN, random)
        files = {"a.json": text.encode(), "b.json": PLAN.encode()}
        return Case("plan", files, ("plan", "diff", "a.json", "b.json"), ("plan",))
    text = (_CONFIGS / "gpus" / "rtx-4090.yaml").read_text(encoding="utf-8")
    files = {**PACK_FILES, "net.onnx": _BASES["dense"].SerializeToString()}
    files["gpu.yaml"] = damaged_text(text, random).encode()
    command = ("explain", "net.onnx", "--pack", "mine", "--gpu", "gpu.yaml")
    return Case("GPU", files, command, ("GPU",))


def result_case(random: Random) -> Case:
    """A damaged result.json: to be reported, or that of an earlier run to begin with."""
    run = finished("fusion-model")
    if random.random() < 0.5:
        files = {**run.files, "out/result.json": _damaged_result(run, random)}
        return Case("result", files, ("report", "out"), ("reported",))
    files = _fresh(run)
    files["earlier/placement.yaml"] = run.files["out/placement.yaml"]
    files["earlier/result.json"] = run.files["out/result.json"]
    if random.random() < 0.5:
        files["earlier/result.json"] = _damaged_result(run, random)
        return Case("earlier result", files, _after_earlier(run), ("earlier result",))
    text = damaged_text(run.files["out/placement.yaml"].decode(), random)
    files["earlier/placement.yaml"] = text.encode()
    return Case("earlier placement", files, _after_earlier(run), ("earlier placement",))


def _after_earlier(run: Case) -> tuple[str, ...]:
    return (*run.command, "--warm-start", "earlier")


def _damaged_result(run: Case, random: Random) -> bytes:
    text = run.files["out/result.json"].decode()
    return (damaged_json if random.random() < 0.7 else damaged_text)(text, random).encode()


def _fresh(run: Case) -> dict[str, bytes]:
    """The files of a finished run without its output folder."""
    return {name: data for name, data in run.files.items() if not name.startswith("out/")}


def database_case(random: Random) -> Case:
    """A damaged study: of a run that goes on, or one that a worker joins."""
    run = finished("fusion-model")
    if random.random() < 0.5:
        data, classes = damaged_database(run.files["out/study.db"], random)
        command = (*run.command, "--budget", "3") if random.random() < 0.5 else run.command
        return Case("study", {**run.files, "out/study.db": data}, command, classes)
    shared = finished("fusion-model", *SHARED)
    data, classes = damaged_database(shared.files["shared.db"], random)
    command = shared.command if random.random() < 0.3 else ("worker", *SHARED)
    return Case("shared study", {**_fresh(run), "shared.db": data}, command, classes)


def cache_case(random: Random) -> Case:
    """A damaged cache: statistics of calibration, or times of layers."""
    if random.random() < 0.6:
        run = finished("fusion-model")
        (name,) = caches(run, ".npz")
        data, classes = _damaged_statistics(run.files[name], random)
    else:
        run = finished("onnxruntime")
        (name,) = caches(run, ".db")
        data, classes = damaged_database(run.files[name], random)
        classes = [f"layer times: {kind}" for kind in classes]
    return Case("cache", {**_fresh(run), name: data}, run.command, classes)


def _damaged_statistics(data: bytes, random: Random) -> tuple[bytes, list[str]]:
    kind = "statistics"
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    if random.random() < 0.5:
        changed, (what,) = damaged_arrays(arrays, random)
        return changed, [f"{kind}: {what}"]
    name = random.choice(sorted(arrays))
    values = arrays[name].copy()
    if values.dtype.kind == "f" and values.size:
        flat = values.reshape(-1)
        flat[random.randrange(flat.size)] = random.choice((np.nan, np.inf, -1e30, 0.0, 1e30))
        arrays[name] = values
    elif values.ndim:
        arrays[name] = values[::-1]
    return npz(arrays), [f"{kind}: values"]


_CONFIGS = Path(__file__).parents[2] / "configs"
KINDS: Mapping[str, Callable[[Random], Case]] = {
    "models": model_case,
    "graphs": graph_case,
    "packs": pack_case,
    "placements": placement_case,
    "data": data_case,
    "manifests": manifest_case,
    "documents": document_case,
    "results": result_case,
    "databases": database_case,
    "caches": cache_case,
}


def case(kind: str, seed: int, number: int) -> Case:
    """A case of a kind; it follows from the seed and its number alone."""
    return KINDS[kind](Random(f"{seed}/{kind}/{number}"))


def cases(kind: str, count: int, seed: int) -> Iterator[Case]:
    """The first ``count`` cases of a kind and a seed."""
    return (case(kind, seed, number) for number in range(count))
