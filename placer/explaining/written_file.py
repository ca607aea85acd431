"""What the file that ``placer apply`` writes of a placement is estimated to take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onnx import TensorProto

from placer.errors import InputError
from placer.model import load_model
from placer.prediction.select import make_predictor
from placer.prediction.times.devices import Device, make_estimator
from placer.qdq import Inserter
from placer.qdq.bases import parse_base
from placer.qdq.mixed_precision import MixedPrecision
from placer.qdq.translation import translate
from placer.quantization import EMPTY, Placement, Ranges
from placer.rules.matcher import Matches
from placer.rules.pack import Pack
from placer.rules.target import Target


@dataclass(frozen=True)
class WrittenFile:
    """Estimates in microseconds of the file as ``apply`` writes it, and of its float model.

    ``kept``: how many of its nodes compute in float32, ``casts`` how many Casts were added.
    """

    total_us: float
    float_us: float
    kept: int
    casts: int


@dataclass(frozen=True)
class Source:
    """The file that is explained, as ``explain`` was told to read it."""

    path: Path
    shapes: Mapping[str, tuple[int, ...]]
    fix: Mapping[str, float] | None


def written_file(
    source: Source,
    placement: Placement,
    ranges: Ranges,
    base: str,
    pack: Pack,
    device: Device,
    target: Target,
) -> WrittenFile | None:
    """Estimate ``placement`` on the float model of ``source`` as ``apply`` converts it to ``base``.

    The conversion keeps float32 at inputs and outputs and in nodes that half precision cannot
    compute, behind Casts that are layers of the engine. ``ranges``: those known of activations.
    None where nothing is converted, or the file's nodes are not those of its float model. Pairs
    that limit what a model computes, which ``apply`` keeps as arithmetic, are not in the estimate:
    only running the model tells them.
    """
    if base == "float" or pack.manifest.behaviour.types != "written" or target.typing == "weak":
        return None
    try:
        model = load_model(source.path, source.shapes, fix=source.fix, plugins=True).as_written()
        constants = model.graph.initializers.keys()
        edges = [e for e in placement.edges if e.tensor in constants or e.tensor in ranges]
        inserter = Inserter(model, pack.manifest.scheme)
        mixed = MixedPrecision.of(inserter, parse_base(base), "keep", ranges, edges)
        graph = mixed.model.graph
        placement = translate(placement, graph)
    except InputError:
        return None
    if graph is model.graph:
        return None
    predictor = make_predictor(graph, pack, target, base, Matches(graph, target.processor))
    estimator = make_estimator(graph, device, pack.manifest.behaviour, base)
    prediction = predictor.predict(placement)
    float_us = estimator.total_us(predictor.predict(EMPTY, prediction))
    kept = sum(
        node.op != "Cast" and graph.type_of(node.outputs[0]).dtype == TensorProto.FLOAT
        for node in graph.nodes
    )
    casts = len(graph.nodes) - len(model.graph.nodes)
    return WrittenFile(estimator.total_us(prediction), float_us, kept, casts)
