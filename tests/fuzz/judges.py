"""Judges of what commands wrote: each returns what is wrong with it, or nothing."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import yaml
from onnx import ModelProto
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from placer.common.ort_session import ORT_ERRORS
from placer.common.processor import this_processor
from placer.errors import InputError
from placer.model import load_model
from tests.fuzz.outcome import Case
from tests.fuzz.scores import METRICS, Outputs, agrees, holds, parsed, rounding, score
from tests.fuzz.stripping import differs_in_structure
from tests.qdq.strip import strip

Inputs = Mapping[str, np.ndarray]
# How ONNX Runtime says that it does not run a model; a ValueError tells of inputs that do not fit.
REFUSALS = (*ORT_ERRORS, ort_errors.NoSuchFile, ort_errors.EPFail, ValueError)
# What is left without its pairs of a quantized model whose pairs do not saturate: of 1,600 that
# were imported none had less. From 3 dB on an import is kept (docs/import.md), with the distance
# told, so that one below this is to be looked at, not wrong at once.
_IMPORTED_DB = 8.0
# Below 15 dB pairs may stay in the model that is recovered from a quantized one (docs/import.md).
_PAIRS_STAY_DB = 18.0
_AGAINST_FILE = "all outputs, against the quantized file"


class Unjudged(Exception):
    """The source does not run, or runs otherwise each time: there is nothing to compare with."""


def optimized(case: Case, folder: Path) -> str:
    """The models that a run wrote, against the run's own gates and its result.json."""
    told = json.loads((folder / "out/result.json").read_text())
    if told["best"] is None:
        return "exit code 0 without a result"
    asked = _options(case.command, "--gate")
    source = _Source(folder / case.command[1])
    samples = list(_samples(folder / "eval.npz", told["model"]["input_shapes"]))
    given = [source.run(inputs) for inputs in samples]
    is_float = "float" in _options(case.command, "--base") or "onnxruntime" in case.command
    if is_float and samples:
        source.check_optimizer(samples[0], given[0])
    run = _Run(asked, samples, given, _references(source, told, samples, given), is_float)
    points = [(folder / "out", told["best"])]
    points += [(folder / "out" / point["folder"], point) for point in told["front"]]
    for where, point in points:
        problem = run.judge(where, point)
        if not problem and told["source"] is None and is_float:
            problem = differs_in_structure(source.path, where / "optimized.onnx")
        if problem:
            return problem
    if not samples:
        raise Unjudged("evaluated on data that the oracle does not have")
    return ""


def _references(
    source: _Source,
    told: Mapping[str, Any],
    samples: Sequence[Inputs],
    given: Sequence[Outputs],
) -> Sequence[Outputs]:
    """Outputs that gates compare with: of the file, or of what is recovered from a quantized one.

    None where pairs may have stayed in the recovered model, as is decided on calibration data.
    """
    if told["source"] is None:
        return given
    if not told["source"]["compared"] or _rounds(source.path.parent / "out/optimized.onnx"):
        return []
    recovered = _session(load_model(source.path).proto.SerializeToString())
    found = [_run(recovered, inputs) for inputs in samples]
    return found if _least(given, found) > _PAIRS_STAY_DB else []


def _rounds(path: Path) -> bool:
    """Whether pairs stayed in a recovered model, as arithmetic that rounds like them."""
    nodes = onnx.load(path, load_external_data=False).graph.node
    return any(node.op_type == "Round" and node.output[0].count("/rounded/") for node in nodes)


@dataclass(frozen=True)
class _Run:
    """A run: the gates that were asked for, its evaluation data and outputs.

    ``given`` are those of the file that it was given, ``references`` those that gates are on.
    ``is_float``: what is not quantized stays float; such models are run with optimizations.
    """

    asked: Sequence[str]
    samples: Sequence[Inputs]
    given: Sequence[Outputs]
    references: Sequence[Outputs]

    is_float: bool

    def judge(self, where: Path, point: Mapping[str, Any]) -> str:
        """A model that was written: its gates as told and recomputed, its placement's id."""
        path = where / "optimized.onnx"
        if not path.is_file():
            return f"{path.name} is missing"
        problem = self._other_placement(where, point) or self._missed(point)
        if problem:
            return problem
        try:
            session = _session(path, optimized=self.is_float)
            found = [_run(session, inputs) for inputs in self.samples]
        except REFUSALS as error:
            if "bfloat16" in str(error):
                raise Unjudged("ONNX Runtime has no kernels for BF16") from error
            return f"the source runs, what was written does not: {error}"
        return self._wrong_scores(point, found) if found else ""

    def _other_placement(self, where: Path, point: Mapping[str, Any]) -> str:
        kept = onnx.load(where / "optimized.onnx", load_external_data=False)
        ids = {
            point["placement"],
            yaml.safe_load((where / "placement.yaml").read_text())["id"],
            *(p.value for p in kept.metadata_props if p.key == "placer.placement"),
        }
        return "" if len(ids) == 1 else f"result, placement and model are of placements {ids}"

    def _missed(self, point: Mapping[str, Any]) -> str:
        if not {g["gate"] for g in point["gates"]} >= set(self.asked):
            return "a gate that was asked for was not judged"
        missed = [g["gate"] for g in point["gates"] if not g["passed"]]
        return f"the gates {missed} are told to be missed" if missed else ""

    def _wrong_scores(self, point: Mapping[str, Any], found: Sequence[Outputs]) -> str:
        for name, values in self.given[0].items():
            if not _is_alike(values, found[0].get(name)):
                return f"output '{name}' has another type or shape than in the source"
        for gate in point["gates"]:
            metric, _, _ = parsed(gate["gate"])
            if gate["where"] == _AGAINST_FILE:
                value = _least(self.given, found)
            elif self.references:
                value = score(metric, gate["where"], self.references, found)
            else:
                continue
            slack = 0.0 if gate["where"] == _AGAINST_FILE else self._slack(metric, gate["where"])
            if not agrees(metric, gate["value"], value, slack):
                return f"gate {gate} is told, recomputed it is {value}"
            if not holds(gate["gate"], np.inf if gate["value"] is None else gate["value"]):
                return f"gate {gate} is told to be passed"
        for text, told in point["metrics"].items() if self.references else ():
            metric, where = text.split(" ", 1)
            if metric not in METRICS:  # Those on labels are damaged with them.
                continue
            value = score(metric, where, self.references, found)
            if not agrees(metric, told, value, self._slack(metric, where)):
                return f"{text} is told to be {told}, recomputed it is {value}"
        return ""

    def _slack(self, metric: str, where: str) -> float:
        return rounding(metric, where, self.references)


def applied(case: Case, folder: Path) -> str:
    """A placement that was applied: the model runs, and without its pairs it is the source."""
    source = _Source(folder / case.command[2])
    written = folder / "out/optimized.onnx"
    inputs = source.made_up()
    wanted = source.run(inputs)
    try:
        found = _run(_session(written), inputs)
    except REFUSALS as error:
        return f"the source runs, what was written does not: {error}"
    for name, values in wanted.items():
        if not _is_alike(values, found.get(name)):
            return f"output '{name}' has another type or shape than in the source"
    if "float" not in _options(case.command, "--base"):
        raise Unjudged("another base precision: the model runs, its pairs are not taken out")
    return differs_in_structure(source.path, written)


def region(case: Case, folder: Path) -> str:
    """A region that was cut out: it computes what the source computes there."""
    source = _Source(folder / case.command[1])
    written = folder / "part.onnx"
    kept = onnx.load(written, load_external_data=False)
    starts = [value.name for value in kept.graph.input]
    ends = [value.name for value in kept.graph.output]
    inside = source.with_outputs([*starts, *ends])
    made_up = source.made_up()
    try:
        wanted = {**made_up, **_run(inside, made_up)}
    except REFUSALS as error:
        raise Unjudged("the source does not run") from error
    try:
        found = _run(_session(written), {name: wanted[name] for name in starts})
    except REFUSALS as error:
        return f"the source runs, the region does not: {error}"
    problem = _not_equal({name: wanted[name] for name in ends}, found)
    return problem or _wrong_data(case, folder, inside, made_up)


def _wrong_data(case: Case, folder: Path, inside: ort.InferenceSession, inputs: Inputs) -> str:
    """What is wrong with the data of a region."""
    if "--data" not in case.command:
        return ""
    shapes = {name: list(values.shape) for name, values in inputs.items()}
    values = [
        {**sample, **_run(inside, sample)} for sample in _samples(folder / "data.npz", shapes)
    ]
    with np.load(folder / "part.npz", allow_pickle=False) as kept:
        for name in kept.files:
            wanted = np.concatenate([np.atleast_1d(v[name]) for v in values])
            if wanted.dtype.kind == kept[name].dtype.kind == "f":  # Data may have another width.
                wanted = wanted.astype(kept[name].dtype)
            problem = _not_equal({name: wanted}, {name: kept[name]})
            if problem:
                return f"data of the region: {problem}"
    return ""


def imported(case: Case, folder: Path) -> str:
    """A float model from a quantized one: its outputs are the source's but for quantization."""
    source = _Source(folder / case.command[1])
    inputs = source.made_up(0.5)
    wanted = source.run(inputs)
    written = folder / "net.float.onnx"
    try:
        found = _run(_session(written), inputs)
    except REFUSALS as error:
        return f"the source runs, the float model does not: {error}"
    for name, values in wanted.items():
        if not _is_alike(values, found.get(name)):
            return f"output '{name}' has another type or shape than in the source"
    if not _not_equal(_stripped(source, inputs), found):
        return ""
    least = _least([wanted], [found])
    if least >= _IMPORTED_DB:
        return ""
    source.check_ranges(inputs)
    return f"the float model has {least:.1f} dB of the source"


def _stripped(source: _Source, inputs: Inputs) -> Outputs:
    """Outputs of the source without its pairs, of those models that have nothing but pairs."""
    try:
        return _run(_session(strip(source.proto).SerializeToString()), inputs)
    except (InputError, *REFUSALS):  # Other operators or external data: the distance alone judges.
        return {}


class _Source:
    """The model that a command was given, run by ONNX Runtime as it is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.proto = onnx.load_model_from_string(path.read_bytes())
        for node in _every_node(self.proto):
            if node.op_type.startswith(("Random", "Bernoulli", "Multinomial")):
                raise Unjudged("the source is random")
        try:
            self._session = _session(path)
        except REFUSALS as error:
            raise Unjudged("the source does not run") from error

    def run(self, inputs: Inputs) -> dict[str, np.ndarray]:
        """All outputs by name."""
        try:
            return _run(self._session, inputs)
        except REFUSALS as error:
            raise Unjudged("the source does not run") from error

    def made_up(self, largest: float = 1.0) -> dict[str, np.ndarray]:
        """Inputs of the oracle's own."""
        rng = np.random.default_rng(99)
        values = {}
        for value in self._session.get_inputs():
            shape = [d if isinstance(d, int) else 1 for d in value.shape]
            if value.type in ("tensor(float)", "tensor(double)", "tensor(float16)"):
                dtype = {"f": "f4", "d": "f8"}.get(value.type[7], "f4")
                dtype = "f2" if "16" in value.type else dtype
                values[value.name] = (largest * rng.standard_normal(shape)).astype(dtype)
            elif value.type == "tensor(bool)":
                values[value.name] = np.asarray(rng.random(shape) > 0.5)
            else:
                raise Unjudged(f"inputs of {value.type} are not made up")
        return values

    def with_outputs(self, names: Sequence[str]) -> ort.InferenceSession:
        """The source with tensors inside of it as outputs too."""
        copy = ModelProto.FromString(self.proto.SerializeToString())
        known = {value.name for value in (*copy.graph.output, *copy.graph.input)}
        made = {tensor for node in copy.graph.node for tensor in node.output}
        if not made.union(known) >= set(names):
            raise Unjudged("the region ends inside of a function")
        for name in names:
            if name not in known:
                copy.graph.output.add(name=name)
        try:
            return _session(copy.SerializeToString())
        except REFUSALS as error:
            raise Unjudged("the source does not run with more outputs") from error

    def check_optimizer(self, inputs: Inputs, expected: Outputs) -> None:
        """Raise Unjudged if ONNX Runtime's optimizer makes another model of the source.

        That of 1.31 puts a Pad into a MaxPool with ceil_mode, whose output then is smaller.
        """
        found = _run(_session(self.path, optimized=True), inputs)
        if not all(_is_alike(values, found.get(name)) for name, values in expected.items()):
            raise Unjudged("ONNX Runtime's optimizer makes another model of the source")

    def check_ranges(self, inputs: Inputs) -> None:
        """Raise Unjudged if the quantized tensors of the source say little of their float ones."""
        integers = [
            node.output[0]
            for node in self.proto.graph.node
            if node.op_type in ("QuantizeLinear", "DynamicQuantizeLinear")
            or node.op_type.startswith("QLinear")
        ]
        try:
            found = _run(self.with_outputs(integers), inputs)
        except REFUSALS as error:
            raise Unjudged("the source does not run with more outputs") from error
        for name in integers:
            values = found[name]
            kind = np.iinfo(values.dtype) if values.dtype.kind in "iu" else None
            ends = 0.0 if kind is None else np.isin(values, (kind.min, kind.max)).mean()
            if ends > 0.1 or np.unique(values).size < min(8, values.size // 2 + 1):
                raise Unjudged("the pairs of the source saturate")


def _session(model: Path | bytes, *, optimized: bool = False) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if not optimized:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    if this_processor().exact_products is not False:
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    options.add_session_config_entry("session.x64quantprecision", "1")
    try:
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except REFUSALS:  # The optimization for it fails where two nodes read one weight.
        return _session(model)


def _run(session: ort.InferenceSession, inputs: Inputs) -> dict[str, np.ndarray]:
    names = [value.name for value in session.get_outputs()]
    taken = {value.name: value.type for value in session.get_inputs()}
    found = session.run(names, {n: _fitting(v, taken[n]) for n, v in inputs.items() if n in taken})
    return {n: v for n, v in zip(names, found, strict=True) if isinstance(v, np.ndarray)}


def _fitting(values: np.ndarray, kind: str) -> np.ndarray:
    """``values`` as an input takes them: floats may have any width."""
    widths = {"tensor(float16)": "f2", "tensor(float)": "f4", "tensor(double)": "f8"}
    array = np.asarray(values)
    return array.astype(widths[kind]) if array.dtype.kind == "f" and kind in widths else array


def _samples(path: Path, shapes: Mapping[str, Sequence[int]]) -> Iterator[dict[str, np.ndarray]]:
    """The samples of an .npz, none if there is no file."""
    if not path.is_file():
        return
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files if name in shapes}
    first = next(iter(arrays))
    count = len(arrays[first]) // (shapes[first][0] if shapes[first] else 1)
    for i in range(count):
        yield {
            name: (
                values[i * shapes[name][0] : (i + 1) * shapes[name][0]]
                if shapes[name]
                else values[i]
            )
            for name, values in arrays.items()
        }


def _not_equal(wanted: Outputs, found: Outputs) -> str:
    """The first output that differs by more than rounding; of none, this says so too."""
    if not wanted:
        return "nothing to compare"
    for name, values in wanted.items():
        got = found.get(name)
        if got is None or not _is_alike(values, got):
            return f"'{name}' has another type or shape"
        with np.errstate(all="ignore"):
            same = (
                np.allclose(values, got, rtol=1e-4, atol=1e-5, equal_nan=True)
                if values.dtype.kind == "f"
                else np.array_equal(values, got)
            )
        if not same:
            return f"'{name}' differs"
    return ""


def _is_alike(one: np.ndarray, other: np.ndarray | None) -> bool:
    return other is not None and one.shape == other.shape and one.dtype == other.dtype


def _least(wanted: Sequence[Outputs], found: Sequence[Outputs]) -> float:
    """SQNR in dB of the float output that has the least, infinite without any."""
    floats = [name for name, values in wanted[0].items() if values.dtype.kind == "f"]
    return min((score("sqnr", name, wanted, found) for name in floats), default=np.inf)


def _every_node(proto: ModelProto) -> Iterator[onnx.NodeProto]:
    graphs = [proto.graph]
    while graphs:
        graph = graphs.pop()
        for node in graph.node:
            yield node
            graphs += [a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
    for function in proto.functions:
        yield from function.node


def _options(command: Sequence[str], flag: str) -> list[str]:
    return [value for name, value in itertools.pairwise(command) if name == flag]
