"""A placement as training with fake quantization needs it: scales by tensor and reader."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from placer.apply.candidate import kept_scales
from placer.apply.same_network import notes_on_losses
from placer.apply.transfer import Lost, Transferred, transfer_placement
from placer.calibration.dataset import synthetic_dataset
from placer.common.default_outputs import default_output
from placer.common.files import check_writable, read_text, write_text
from placer.common.shapes import GivenShape, given_ranges, optima
from placer.errors import InputError
from placer.graph import Edge, Node
from placer.graph.flat import flatten
from placer.importing.same_function import SAMPLES, check_same_function
from placer.model import Model, load_model
from placer.qdq import Inserter
from placer.quantization import Ranges, Scheme
from placer.quantization.placement_file import PlacementFile, read_placement
from placer.rules.packaging.load import enters_bodies
from placer.version import __version__

FORMAT = "placer-qat/1"
_SCOPES = "pkg.torch.onnx.name_scopes"  # Metadata of a node by PyTorch's exporter since 2.5.


@dataclass(frozen=True)
class Reader:
    """A node that reads a tensor quantized. Of a graph output, ``node`` and ``operator`` are empty.

    ``module``: path of the PyTorch module that the node comes from, "" for the whole network;
    None if PyTorch's exporter did not write the file.
    """

    node: str
    operator: str
    input: int
    outputs: tuple[str, ...]
    module: str | None


@dataclass(frozen=True)
class FakeQuantization:
    """A tensor that some nodes read quantized.

    ``scale``: one value, or one per channel along ``axis``. ``group``: tensors with the same number
    share one scale. ``constant``: a weight or another initializer.
    """

    tensor: str
    constant: bool
    type: str
    scale: tuple[float, ...]
    zero_point: int
    axis: int | None
    group: int
    readers: tuple[Reader, ...]

    def to_json(self) -> dict[str, Any]:
        """As the file says it."""
        limits = np.iinfo(self.type)
        return {
            "tensor": self.tensor,
            "type": self.type,
            "quant_min": int(limits.min),
            "quant_max": int(limits.max),
            "scale": self.scale[0] if self.axis is None else list(self.scale),
            "zero_point": self.zero_point,
            "axis": self.axis,
            "group": self.group,
            "readers": [
                {**vars(reader), "outputs": list(reader.outputs)} for reader in self.readers
            ],
        }


@dataclass(frozen=True, eq=False)
class TrainingPlacement:
    """What to quantize while a network is trained, and the file that says so.

    ``lost``: edges of the placement file that the model does not have. ``warnings``: what the user
    should know of the model.
    """

    path: Path
    model: Model
    source: PlacementFile
    tensors: tuple[FakeQuantization, ...]
    lost: tuple[Lost, ...]
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As the file says it."""
        return {
            "format": FORMAT,
            "producer": f"placer {__version__}",
            "model": self.model.fingerprint,
            "model_file": str(self.model.path),
            "pack": self.source.pack,
            "activations": [one.to_json() for one in self.tensors if not one.constant],
            "constants": [one.to_json() for one in self.tensors if one.constant],
        }


def export_qat(
    placement: str | PathLike[str],
    model: str | PathLike[str],
    output: str | PathLike[str] | None = None,
    *,
    shapes: Mapping[str, GivenShape] | None = None,
    partial: bool = False,
    replace: bool = False,
) -> TrainingPlacement:
    """Write what ``placement``, a placement.yaml, quantizes in ``model``, a float ONNX file.

    ``output``: a JSON file, by default ``MODEL.qat.json`` in the current folder, or
    ``MODEL-HASH.qat.json`` if that is about another file of this name. Scales are those
    that ``transfer_placement`` gives with the ranges of the file: where training begins.
    ``partial`` takes a model that seems to be another network, as ``apply_placement`` does.
    ``replace``: whether a file that no run of placer wrote may be written over.

    Raises InputError for wrong input, for FP8, which fake quantization in PyTorch does not have,
    where the placement quantizes nothing, where no edge is found or, without ``partial``, fewer
    than half are, where the file lacks a range, and where the network that placer makes of the file
    computes something else than the file, on one random input.
    """
    path = Path(model)
    target, note = default_output(path, ".qat.json", _source_of, output)
    check_writable(target, replace=replace)  # Else that is noticed when all is worked out.
    file = read_placement(Path(placement))
    if file.scheme.has_float8:
        raise InputError(
            f"{file.path} is for FP8, which cannot be trained with fake quantization; "
            "give a placement for INT8"
        )
    if not file.groups:
        raise InputError(
            f"{file.path} quantizes nothing, as that of a run that kept the float model; give one "
            "with pairs, which a run with looser gates may find"
        )
    bodies = enters_bodies(file.pack.split()[0])
    loaded = load_model(path, optima(given_ranges(shapes)), bodies=bodies)
    if loaded.imported is not None:
        raise InputError(f"{path} is quantized already; give the float model")
    transferred = transfer_placement(file, loaded)
    warnings = [note] if note else []
    warnings += notes_on_losses(transferred, file.path, loaded, strict=False, partial=partial)
    warnings += _notes_on_function(loaded)
    ranges = kept_scales(transferred, file, loaded).ranges
    tensors = tuple(_tensors(transferred, loaded, file.scheme, ranges))
    result = TrainingPlacement(target, loaded, file, tensors, transferred.lost, tuple(warnings))
    write_text(target, json.dumps(result.to_json(), indent=2) + "\n")
    return result


def _source_of(path: Path) -> Path | None:
    """The model that the document at ``path`` is about; None if it does not tell."""
    with suppress(InputError, ValueError):
        content = json.loads(read_text(path, "a JSON file", "json_bytes"))
        name = content.get("model_file") if isinstance(content, dict) else None
        return Path(name) if isinstance(name, str) else None
    return None


def _notes_on_function(model: Model) -> list[str]:
    """Why ``model`` was not compared with its file; raises InputError if it is another function."""
    try:
        inputs = synthetic_dataset(model, SAMPLES, 0)
    except InputError:
        return [
            f"{model.path} has inputs that cannot be made up, so what placer makes of it is not "
            "compared with it"
        ]
    doubt = check_same_function(model, inputs)
    return [] if doubt is None else [doubt]


def _tensors(
    transferred: Transferred, model: Model, scheme: Scheme, ranges: Ranges
) -> list[FakeQuantization]:
    """Each tensor of each group, in the order of the placement file."""
    inserter = Inserter(model, scheme)
    candidate = inserter.insert(transferred.placement, ranges)
    if model.graph.scopes:
        flatten(candidate.graph)
    pairs = _Pairs(candidate)
    tensors = []
    for number, group in enumerate(transferred.placement.sorted()):
        by_pair: dict[tuple[str, str], list[Edge]] = {}
        for edge in group:
            by_pair.setdefault((edge.tensor, pairs.of(edge).input[0]), []).append(edge)
        lows = (ranges[edge.tensor].low for edge in group if edge.tensor in ranges)
        activation = scheme.of(min(lows, default=-1.0)).activation
        for (tensor, _), edges in by_pair.items():
            scale, zero_point, axis = pairs.parameters(edges[0])
            is_weight = inserter.is_weight(edges[0])
            tensors.append(
                FakeQuantization(
                    tensor=tensor,
                    constant=tensor in model.graph.initializers,
                    type=scheme.weight if is_weight else activation,
                    scale=tuple(float(value) for value in np.atleast_1d(scale)),
                    zero_point=zero_point,
                    axis=axis,
                    group=number,
                    readers=tuple(_reader(edge, model) for edge in edges),
                )
            )
    return tensors


class _Pairs:
    """The Q/DQ pairs of a candidate, by the edges that they are on."""

    def __init__(self, candidate: ModelProto) -> None:
        nodes = candidate.graph.node
        self._nodes = {node.name: node for node in nodes}
        self._writers = {n.output[0]: n for n in nodes if n.op_type == "DequantizeLinear"}
        self._constants: dict[str, TensorProto] = {t.name: t for t in candidate.graph.initializer}

    def of(self, edge: Edge) -> NodeProto:
        """The DequantizeLinear of ``edge``."""
        if edge.is_graph_output:
            return self._writers[edge.tensor]
        return self._writers[self._nodes[edge.node].input[edge.input_index]]

    def parameters(self, edge: Edge) -> tuple[np.ndarray, int, int | None]:
        """Scale of shape () or (channels,), zero point and axis."""
        pair = self.of(edge)
        scale, zero_point = (numpy_helper.to_array(self._constants[n]) for n in pair.input[1:3])
        axes = [attribute.i for attribute in pair.attribute if attribute.name == "axis"]
        return scale, int(zero_point.flat[0]), axes[0] if scale.ndim and axes else None


def _reader(edge: Edge, model: Model) -> Reader:
    if edge.is_graph_output:
        return Reader("", "", edge.input_index, (), None)
    node = model.graph.by_name[edge.node]
    return Reader(node.name, node.op, edge.input_index, node.outputs, _module(node))


def _module(node: Node) -> str | None:
    """The PyTorch module of ``node``, by what either of PyTorch's exporters writes.

    The newer one keeps the modules around a node, from the outside in, and the node itself. The
    older one puts their names into the node's: /down/first/first.0/Conv is of down.first.0.
    """
    scopes = next((e.value for e in node.proto.metadata_props if e.key == _SCOPES), None)
    if scopes is not None:
        try:
            paths = ast.literal_eval(scopes)
        except (SyntaxError, ValueError, MemoryError, RecursionError):  # As Python documents it.
            return None
        return str(paths[-2]) if isinstance(paths, list) and len(paths) > 1 else None
    if not node.name.startswith("/"):
        return None
    path: list[str] = []
    for part in node.name.split("/")[1:-1]:
        if path and part.startswith(f"{path[-1]}."):
            path.pop()
        path.append(part)
    return ".".join(path)
