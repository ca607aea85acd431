"""Float and quantized model compared tensor by tensor: where the accuracy goes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime as ort

from placer.accuracy.metrics import GroupSums
from placer.calibration.sample import Sample
from placer.common.ort_session import create_session, run_once
from placer.evaluation.input_types import in_types_of
from placer.graph import Graph, index_graph
from placer.model import Model
from placer.model.quantized.operators import DEQUANTIZE, QUANTIZE
from placer.model.save import serialized

_THREADS = 1
_WIDE = frozenset({onnx.TensorProto.DOUBLE, onnx.TensorProto.INT64})
CLAMPING = frozenset({"Relu", "Clip"})
# What the tensors of one sample that are held at once may take, of either model; one of an unknown
# shape counts as a megabyte. A run of a large model takes long, whatever is looked at.
_AT_ONCE = 64 << 20
_UNKNOWN = 1 << 20
WRONG_BELOW_DB = 15.0


@dataclass(frozen=True)
class Layer:
    """A tensor that both models have, and the node of the float model that computes it.

    ``sqnr``: in dB against the float model, all layers before quantized too. ``before``: the
    lowest SQNR of what the node's inputs come from; inf where they are exact.
    """

    tensor: str
    node: str
    op: str
    sqnr: float
    before: float

    @property
    def own(self) -> float | None:
        """dB lost in this layer: ``before`` - ``sqnr``; None if that is not finite."""
        lost = self.before - self.sqnr
        return lost if np.isfinite(lost) else None


def compare_layers(
    reference: Model,
    candidate: Model,
    samples: Iterable[Sample],
    named: Mapping[str, str],
    shapes: Graph,
) -> list[Layer]:
    """Every float tensor of ``reference`` that ``candidate`` has too, in order of computation.

    ``named``: what ``candidate`` calls these. ``shapes``: knows those of them. Both run on ONNX
    Runtime with their graphs as they are. A tensor of another shape counts as wrong altogether.
    Raises RunError if one of the models is refused.

    Where a quantizer has taken out the Relu or Clip that makes a tensor, because what the pair
    behind cuts off is the same, the tensor is what that pair makes of it.
    """
    graph, other = reference.graph, index_graph(candidate.proto.graph, {})
    common = [name for name in graph.producer if name in named]
    called = {name: _called(name, named[name], graph, other) for name in common}
    sums = {name: GroupSums() for name in common}
    kept = list(samples)
    for names in passes(common, shapes):
        runs = zip(
            tensor_values(reference, names, kept),
            tensor_values(candidate, [called[name] for name in names], kept),
            strict=True,
        )
        for expected, actual in runs:
            for name in names:
                _add(sums[name], expected[name], actual[called[name]])
    compared = {name: noise.sqnr for name, noise in sums.items() if noise.reference > 0}
    return [_layer(graph, name, compared) for name in compared]


def _called(name: str, tensor: str, graph: Graph, other: Graph) -> str:
    """What ``other`` calls what ``graph`` calls ``name``, by which ``tensor`` was found there."""
    if graph.producer[name].op not in CLAMPING or other.producer[tensor].op in CLAMPING:
        return tensor
    quantizer = other.sole_reader(tensor)
    if quantizer is None or quantizer.op not in QUANTIZE:
        return tensor
    dequantizer = other.sole_reader(quantizer.outputs[0])
    if dequantizer is None or dequantizer.op not in DEQUANTIZE:
        return tensor
    return dequantizer.outputs[0]


def first_wrong(layers: Sequence[Layer], below: float = WRONG_BELOW_DB) -> Layer | None:
    """The first layer below ``below`` dB whose inputs are not; None if all are well."""
    wrong = (layer for layer in layers if layer.sqnr < below <= layer.before)
    return next(wrong, None)


def _add(sums: GroupSums, expected: object, actual: object) -> None:
    """Add what both computed; sequences and integers are not compared.

    Masks hold infinities, which have no difference: they count where the candidate has others.
    """
    if not isinstance(expected, np.ndarray) or expected.dtype.kind != "f":
        return
    if not isinstance(actual, np.ndarray) or expected.shape != actual.shape:
        sums.add_mismatch(np.where(np.isfinite(expected), expected, 0))
        return
    alike = ~np.isfinite(expected) & (
        (expected == actual) | (np.isnan(expected) & np.isnan(actual))
    )
    sums.add(np.where(alike, 0, expected), np.where(alike, 0, actual))


def passes(names: Iterable[str], shapes: Graph) -> Iterator[list[str]]:
    """``names`` in parts that are held at once, by the sizes that ``shapes`` knows."""
    part, held = list[str](), 0
    for name in names:
        dtype, shape = shapes.type_of(name)
        width = 8 if dtype in _WIDE else 4
        size = _UNKNOWN if shape is None else width * math.prod(shape)
        if part and held + size > _AT_ONCE:
            yield part
            part, held = [], 0
        part.append(name)
        held += size
    if part:
        yield part


def tensor_values(
    model: Model, names: Sequence[str], samples: Sequence[Sample]
) -> Iterator[Mapping[str, np.ndarray]]:
    """``names`` of each sample."""
    if not names:  # ONNX Runtime takes this for all outputs.
        yield from ({} for _ in samples)
        return
    present = {output.name for output in model.proto.graph.output}
    extra = onnx.ModelProto()
    extra.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names if n not in present)
    # Concatenated messages merge, and repeated fields append (protobuf.dev, "Encoding").
    more = extra.SerializeToString()
    level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    with serialized(model.proto, model.base_dir) as (source, folder):
        observed = b"".join((source, more))
        session = create_session(observed, folder, threads=_THREADS, level=level)
    for sample in samples:
        what = f"{model.path} on {sample.origin}"
        values = run_once(session, list(names), in_types_of(model, sample.inputs), what)
        yield dict(zip(names, values, strict=True))


def _layer(graph: Graph, tensor: str, compared: Mapping[str, float]) -> Layer:
    node = graph.producer[tensor]
    before = min((compared[name] for name in _known(graph, tensor, compared)), default=np.inf)
    return Layer(tensor, node.name, node.op, compared[tensor], float(before))


def _known(graph: Graph, tensor: str, compared: Mapping[str, float]) -> set[str]:
    """The nearest tensors before ``tensor`` that were compared."""
    names: set[str] = set()
    seen: set[str] = set()
    ahead = [edge.tensor for edge in graph.edges_into(graph.producer[tensor])]
    while ahead:
        name = ahead.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in compared:
            names.add(name)
        elif name in graph.producer:
            ahead += [edge.tensor for edge in graph.edges_into(graph.producer[name])]
    return names
