"""The project file that ``placer init`` writes: what it saw of model, data and machine, as YAML."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from os import PathLike
from os import path as os_path
from pathlib import Path

import yaml
from onnx import ModelProto, ValueInfoProto

from placer.accuracy.gates import default_gates
from placer.calibration.archives import array_shapes
from placer.calibration.data_shapes import shapes_of_data
from placer.calibration.preprocessing import PREPROCESSING
from placer.calibration.sample import LABELS
from placer.calibration.sources import files_of, function_of
from placer.common.files import check_writable, make_folder, text_of_source, write_bytes, write_text
from placer.common.shapes import Shape
from placer.engines.doctor import Diagnosis, diagnose
from placer.engines.estimated.built_plan import NAME
from placer.errors import InputError
from placer.graph.index import tensor_type
from placer.model.quantized import is_quantized
from placer.model.validate import read_model
from placer.optimizer.options.presets import load_preset
from placer.optimizer.options.request import Request
from placer.rules.packaging.new import SCHEMA_FOLDER

FILE = "placer.yaml"
SCHEMA = "project.schema.json"
_EVALUATION = re.compile(r"eval|val|test", re.IGNORECASE)
_ESTIMATES = "fusion-model"
# Engines whose latencies are estimates for a GPU that is named.
_FOR_NAMED_GPUS = (_ESTIMATES, NAME)


def init_project(
    model: str | PathLike[str],
    *,
    data: str | PathLike[str] | None = None,
    output: str | PathLike[str] | None = None,
    replace: bool = False,
) -> Path:
    """Look at ``model``, the files beside it and this machine, and write a project file.

    ``data``: calibration data; by default files beside the model that fit its inputs. ``output``:
    by default ``placer.yaml`` beside the model, and its JSON Schema in ``.schema`` beside that.
    ``replace``: whether a file that is there may be written over. Nothing is run.

    Raises InputError for a model or data that cannot be read, and for a file that is there.
    """
    path = Path(model)
    target = path.parent / FILE if output is None else Path(output)
    if target.exists() and not replace:
        raise InputError(f"{target} is there already; give `replace` or another `output`")
    check_writable(target, replace=True)  # Else the message would name the schema's folder.
    given = None if data is None else text_of_source(data)
    text = _draft(path, given, target.parent, diagnose())
    make_folder(target.parent / SCHEMA_FOLDER)
    schema = (resources.files("placer.configs") / SCHEMA).read_bytes()
    write_bytes(target.parent / SCHEMA_FOLDER / SCHEMA, schema)
    write_text(target, text)
    return target


@dataclass(frozen=True)
class _Data:
    """Sources that fit the model, the first of each kind to be used.

    ``has_labels``: whether what gates are judged on has them; None where only a pass tells.
    """

    calibration: tuple[str, ...]
    evaluation: tuple[str, ...]
    has_labels: bool | None

    @property
    def first(self) -> str | None:
        return next(iter((*self.calibration, *self.evaluation)), None)


def _draft(model: Path, given: str | None, folder: Path, machine: Diagnosis) -> str:
    proto = read_model(model)
    inputs = _inputs(proto)
    data = _data(model, given, inputs)
    shapes = {} if data.first is None else shapes_of_data(model, (), data.first)
    lines = [
        f"# yaml-language-server: $schema={SCHEMA_FOLDER}/{SCHEMA}",
        f"# Options of placer optimize for {model.name}; `placer optimize` in this folder runs it.",
        "# What is typed on the command line wins. All options: placer optimize --help.",
        *_model_lines(proto, inputs, _text(_from(folder, str(model)))),
        *_shape_lines(inputs, {name: list(shape) for name, shape in shapes.items()}),
        *_data_lines(data, lambda source: _text(_from(folder, source))),
        *_accuracy_lines(data.has_labels, any(tensor_type(o).is_float for o in proto.graph.output)),
        *_engine_lines(machine),
        *_search_lines(),
        *_profile_lines(machine),
    ]
    return "\n".join(lines) + "\n"


def _model_lines(proto: ModelProto, inputs: Sequence[ValueInfoProto], path: str) -> Iterator[str]:
    yield ""
    count = Counter(node.op_type for node in proto.graph.node)
    most = ", ".join(f"{number} {op}" for op, number in count.most_common(4))
    yield f"# {len(proto.graph.node)} nodes: {most}{' and others' if len(count) > 4 else ''}."
    shown = ", ".join(f"{value.name} ({_dims(value)})" for value in inputs)
    yield f"# Inputs: {shown}. Outputs: {', '.join(value.name for value in proto.graph.output)}."
    if is_quantized(proto):
        yield "# It is quantized already: its pairs are moved, and its scales are kept."
    yield f"model: {path}"


def _shape_lines(inputs: Sequence[ValueInfoProto], shapes: dict[str, list[int]]) -> Iterator[str]:
    unknown = [value for value in inputs if re.search(r"[^0-9x]", _dims(value).partition("x")[2])]
    if shapes:
        yield "# The model leaves sizes open; these are the data's."
        yield "shapes:"
        yield from (f"  {_text(name)}: {shape}" for name, shape in shapes.items())
    elif unknown:
        yield "# The model leaves sizes open: give them here, or data that has them."
        yield "# shapes:"
        yield from (f"#   {_text(value.name)}: {_dims(value)}" for value in unknown)


def _data_lines(data: _Data, shown: Callable[[str], str]) -> Iterator[str]:
    yield ""
    if data.first is None:
        yield "# Without data, ranges and gates rest on random inputs. Give a .npz (keys are input"
        yield "# names, optionally labels), .npy, a folder of these or of images, or a function."
        yield "# data: calibration.npz"
        yield "# eval_data: evaluation.npz"
        return
    both = bool(data.calibration and data.evaluation)
    yield "# Found beside the model." if both else "# Half of it calibrates, half is judged on."
    yield f"data: {shown((*data.calibration, *data.evaluation)[0])}"
    if both:
        yield f"eval_data: {shown(data.evaluation[0])}"
    others = [*data.calibration[1:], *data.evaluation[1 if both else 0 :]]
    others = [source for source in others if source != data.first]
    if others:
        yield f"# These fit, too: {', '.join(map(shown, others))}."


def _accuracy_lines(has_labels: bool | None, has_floats: bool) -> Iterator[str]:
    yield ""
    yield "# What a candidate must meet; see docs/gates.md."
    (gate,) = default_gates(bool(has_labels), has_floats)
    if has_labels is None:
        (labelled,) = default_gates(True)
        yield f"# By default {labelled.text()} where the data has labels, otherwise:"
        yield f"# gates: ['{gate.text()}']"
    else:
        yield f"gates: ['{gate.text()}']"


def _engine_lines(machine: Diagnosis) -> Iterator[str]:
    runs = [engine.name for engine in machine.engines if engine.reason is None]
    measures = [name for name in runs if name not in _FOR_NAMED_GPUS]
    yield ""
    gpus = ", ".join(gpu.name for gpu in machine.gpus)
    yield f"# Runs here: {', '.join(runs)}. GPUs: {gpus or 'none that CUDA sees'}."
    yield f"# auto measures on a GPU's engine, or the fastest of: {', '.join(measures)}."
    yield "engine: auto"


def _search_lines() -> Iterator[str]:
    yield ""
    yield f"# Effort: quick, default ({load_preset(Request.preset).budget} trials) or thorough."
    yield f"preset: {Request.preset}"
    yield "# timeout: 10m"


def _profile_lines(machine: Diagnosis) -> Iterator[str]:
    yield ""
    yield "# placer optimize --profile NAME: a target or an effort; several may be combined."
    yield "profiles:"
    for engine in machine.engines:
        if engine.reason is None and engine.name not in _FOR_NAMED_GPUS:
            yield f"  {engine.name}: {{engine: {engine.name}}}"
    yield "  quick: {preset: quick}"
    yield "  # Estimates for a GPU that is not here, or its name as the product has it."
    yield f"  l4: {{engine: {_ESTIMATES}, gpu: l4}}"
    if any(engine.name == NAME and engine.reason is None for engine in machine.engines):
        yield f"  l4-build: {{engine: {NAME}, gpu: l4}}"


def _inputs(proto: ModelProto) -> list[ValueInfoProto]:
    weights = {tensor.name for tensor in proto.graph.initializer}
    return [value for value in proto.graph.input if value.name not in weights]


def _dims(value: ValueInfoProto) -> str:
    """As ``1x3xHxW``."""
    dims = value.type.tensor_type.shape.dim
    return "x".join(str(d.dim_value) if d.dim_value > 0 else d.dim_param or "?" for d in dims)


def _data(model: Path, given: str | None, inputs: Sequence[ValueInfoProto]) -> _Data:
    """``given``, or what lies beside the model and fits its inputs."""
    if given is not None:
        if not Path(given).exists():
            function_of(given)  # Says what is wrong with it.
            return _Data((given,), (), None)
        return _Data((given,), (), _seen(given, inputs).has_labels)
    labelled = {}
    for path in sorted(model.parent.iterdir()):
        seen = _NO_DATA if path.name[0] == "." else _seen(str(path), inputs)
        if seen.fits:
            labelled[str(path)] = seen.has_labels
    evaluation = tuple(source for source in labelled if _EVALUATION.search(Path(source).name))
    calibration = tuple(source for source in labelled if source not in evaluation)
    judged = next(iter((*evaluation, *calibration)), None)
    return _Data(calibration, evaluation, False if judged is None else labelled[judged])


@dataclass(frozen=True)
class _Seen:
    """Whether a source is data for the inputs, and has labels; None where only a pass tells."""

    fits: bool
    has_labels: bool | None


_NO_DATA = _Seen(fits=False, has_labels=None)


def _seen(source: str, inputs: Sequence[ValueInfoProto]) -> _Seen:
    """What the first file of ``source`` tells, which is not unpacked."""
    path = Path(source)
    try:
        if (path / PREPROCESSING).is_file():  # Other images, as of docs, may be no data.
            return _Seen(fits=True, has_labels=None)
        files = files_of(path)
        shapes = array_shapes(files[0]) if files else {}
    except (InputError, OSError):  # Folders that may not be read are nobody's data.
        return _NO_DATA
    if isinstance(shapes, tuple):
        return _Seen(len(inputs) == 1 and _holds(inputs[0], shapes), has_labels=False)
    names = {value.name for value in inputs}
    if not names <= shapes.keys() or shapes.keys() - names - {LABELS}:
        return _NO_DATA
    fits = all(_holds(value, shapes[value.name]) for value in inputs)
    return _Seen(fits, LABELS in shapes.keys() - names)


def _holds(value: ValueInfoProto, shape: Shape) -> bool:
    """Whether an array of ``shape`` may hold samples; see ``placer.calibration.layout``."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return True
    sizes = [dim.dim_value for dim in tensor.shape.dim]  # Not positive where unknown.
    if math.prod(shape) == 1 and all(size <= 1 for size in sizes):
        return True
    rest = sizes[1:] if len(shape) == len(sizes) else sizes
    if len(shape) != len(rest) + 1 or 0 in shape:
        return False
    return all(size <= 0 or size == had for size, had in zip(rest, shape[1:], strict=True))


def _from(folder: Path, source: str) -> str:
    """``source`` as seen from ``folder``; ``module:function`` stays."""
    return os_path.relpath(source, folder) if Path(source).exists() else source


def _text(value: str) -> str:
    """A text as YAML takes it on one line."""
    dumped: str = yaml.safe_dump(value, width=10_000, default_flow_style=True)
    return dumped.removesuffix("\n...\n").rstrip("\n")
