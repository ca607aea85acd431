"""Everything the report of a run shows, read from the run's output folder alone."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from placer.errors import InputError
from placer.graph import Edge, Node, TensorType
from placer.graph.flat import flatten
from placer.graph.index import captured_tensors
from placer.graph.scopes import Scopes
from placer.plan import Plan
from placer.plan.readers.read import read_plan
from placer.qdq.extract import ExtractedModel, extract_placement
from placer.qdq.origin import named_placement
from placer.quantization import Range
from placer.quantization.placement_file import read_placement
from placer.results.folder import OutputFolder
from placer.results.parts import SitePart
from placer.results.result import Result

log = logging.getLogger(__name__)

# As candidates name what their pairs add to a tensor.
_ADDED = re.compile(r"/(?:quantized|dequantized)(?:_\d+)?$")


@dataclass(frozen=True)
class Topology:
    """The model without its pairs.

    ``inputs``: graph inputs that nodes read. ``quantized``: edges that carry a pair.
    ``classifiers``: outputs of shape (batch, classes), which may be scores of classes. ``types``:
    of tensors, as far as they can be inferred. ``ranges``: what pairs represent, by edge.
    ``scopes``: of nodes in bodies.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: frozenset[str]
    quantized: frozenset[Edge]
    classifiers: frozenset[str] = frozenset()
    types: Mapping[str, TensorType] = field(default_factory=dict)
    ranges: Mapping[Edge, Range] = field(default_factory=dict)
    scopes: Scopes = field(default_factory=dict)

    def edges(self) -> Iterator[Edge]:
        """All edges that no constant feeds, in node order, graph outputs last."""
        for node in self.nodes:
            for index, tensor in enumerate(node.inputs):
                if tensor and tensor not in self.constants:
                    yield Edge(tensor, node.name, index)
        for index, tensor in enumerate(self.outputs):
            yield Edge(tensor, "", index)


@dataclass(frozen=True)
class Run:
    """A run's output folder; what it does not hold is None.

    ``predicted``: what the rules say of the result. ``actual``: what the engine ran. Times of
    ``float_plan`` are estimates if the engine estimates.
    """

    folder: Path
    result: Result
    topology: Topology | None
    predicted: Plan | None
    actual: Plan | None
    float_plan: Plan | None
    study: bool

    @property
    def plan(self) -> Plan | None:
        """The plan of the result that tells most."""
        return self.actual or self.predicted

    @property
    def classifiers(self) -> frozenset[str]:
        """Outputs that may be scores of classes, by their shape."""
        return frozenset() if self.topology is None else self.topology.classifiers

    @cached_property
    def sites_by_node(self) -> Mapping[str, SitePart]:
        """The site that decides for each node."""
        return {name: site for site in self.result.site_decisions for name in site.nodes}


def load_run(folder: Path) -> Run:
    """Read the output folder of ``placer optimize``.

    Raises InputError if it has no result.json, or if a file in it is damaged or another run's.
    """
    result = Result.read(folder)
    best, predicts = result.best, result.engine.predicts
    files = OutputFolder(folder)
    return Run(
        folder=folder,
        result=result,
        topology=None if best is None else _topology(files, result),
        predicted=_plan(files.plan(predicted=True)) if best else None,
        actual=_plan(files.plan(predicted=False)) if best and not predicts else None,
        float_plan=_plan(files.float_plan(predicted=predicts)),
        study=files.study.is_file(),
    )


def _plan(path: Path) -> Plan | None:
    return read_plan(path) if path.is_file() else None


def _with_returned(node: Node) -> Node:
    """``node``; one with bodies reads what they return, which the graph is drawn with."""
    returned = captured_tensors(node.proto)
    return replace(node, inputs=(*node.inputs, *returned)) if returned else node


def _topology(files: OutputFolder, result: Result) -> Topology | None:
    path = files.model
    if not path.is_file():
        return None
    try:
        proto = onnx.load(path, load_external_data=False)
    except (OSError, DecodeError) as error:
        raise InputError(f"cannot read {path}: {error}; run placer optimize again") from error
    result.check_model(path)
    _check_placement(proto, path, result)
    scopes = flatten(proto.graph)
    extracted = extract_placement(proto)
    nodes = tuple(map(_with_returned, extracted.nodes)) if scopes else extracted.nodes
    constants = frozenset(extracted.constants)
    read = {tensor for node in nodes for tensor in node.inputs}
    inputs = tuple(v.name for v in proto.graph.input if v.name in read and v.name not in constants)
    quantized, classes = extracted.placement.edges, _classifiers(proto)
    shapes = {name: tuple(shape) for name, shape in result.model.input_shapes.items()}
    return Topology(
        nodes=nodes,
        inputs=inputs,
        outputs=extracted.outputs,
        constants=constants,
        quantized=quantized,
        classifiers=classes,
        types=_types(extracted, shapes, path),
        ranges=_ranges(files.placement),
        scopes=scopes,
    )


def _check_placement(proto: onnx.ModelProto, path: Path, result: Result) -> None:
    """Raise InputError for a model of another placement, all that tells runs without a SHA-256."""
    named = named_placement(proto)
    wanted = named if result.best is None else result.best.placement
    if named is not None and named != wanted:
        raise InputError(
            f"{path} has placement {named}, but {OutputFolder(path.parent).result} is about "
            f"{wanted}; put that run's model back, or run placer optimize again"
        )


def _types(
    model: ExtractedModel, shapes: Mapping[str, tuple[int, ...]], path: Path
) -> Mapping[str, TensorType]:
    try:
        return model.graph(shapes, path).types
    except InputError as error:  # The engine took the model: its graph is drawn without shapes.
        log.warning("the report tells no shapes: %s", error)
        return {}


def _ranges(path: Path) -> Mapping[Edge, Range]:
    if not path.is_file():
        return {}
    groups = read_placement(path).groups
    return {edge: group.range for group in groups if group.range for edge in group.edges}


def _classifiers(proto: onnx.ModelProto) -> frozenset[str]:
    """Outputs of two axes of which the first is that of the inputs, the batch."""
    batches = {str(dims[0]) for value in proto.graph.input if (dims := _dims(value))}
    return frozenset(
        value.name
        for value in proto.graph.output
        if len(dims := _dims(value)) == 2 and str(dims[0]) in batches and dims[1] not in (0, 1)
    )


def _dims(value: onnx.ValueInfoProto) -> list[int | str]:
    """Sizes, names of those that are not known, or 0."""
    return [d.dim_value or d.dim_param or 0 for d in value.type.tensor_type.shape.dim]


def float_name(tensor: str) -> str:
    """The float model's name of a tensor that a candidate's engine names."""
    return _ADDED.sub("", tensor)
