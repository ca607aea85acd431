"""Predicted layers of small graphs, and tests that NVIDIA's builder makes the same."""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper, numpy_helper

from placer.engines.tensorrt.offline_builder import check_model
from placer.graph import Graph
from placer.model import Model, load_model
from placer.plan import Plan
from placer.plan.diff import diff_plans
from placer.plan.readers.rtx_log import typed_layers
from placer.prediction.select import make_predictor
from placer.qdq import Inserter
from placer.qdq.mixed_precision import MixedPrecision
from placer.quantization import Format, Placement, Range
from placer.rules.packaging.load import load_pack
from placer.rules.target import Target

TARGET = Target(compute_capability="8.9", typing="strong")


def model_of(text: str, folder: Path) -> Model:
    path, proto = folder / "model.onnx", onnx.parser.parse_model(text)
    for index, weight in enumerate(proto.graph.initializer):
        values = np.random.default_rng(index).normal(0, 0.1, tuple(weight.dims))
        dtype = helper.tensor_dtype_to_np_dtype(weight.data_type)
        filled = numpy_helper.from_array(values.astype(dtype), weight.name)
        weight.CopyFrom(filled)
    onnx.save(proto, path)
    return load_model(path)


def placement_of(
    graph: Graph, pairs: tuple[str, ...], shared: Sequence[Collection[str]] = ()
) -> Placement:
    """``pairs`` as ``tensor->node``; ``shared``: tensors that have one scale."""
    edges = [edge for edges in graph.consumers.values() for edge in edges]
    return Placement.of((e for e in edges if f"{e.tensor}->{e.node}" in pairs), shared=shared)


def predicted(graph: Graph, placement: Placement) -> Plan:
    predictor = make_predictor(graph, load_pack("tensorrt-rtx"), TARGET, "float16")
    return predictor.predict(placement).plan


def check_built(model: Model, placement: Placement, builder: ModuleType) -> None:
    """Fail unless the builder makes exactly the layers that are predicted."""
    tensors = {t for node in model.graph.nodes for t in (*node.inputs, *node.outputs)}
    manifest = load_pack("tensorrt-rtx").manifest
    schemes = manifest.alternatives["int8-and-fp8"] if placement.formats else manifest
    inserter = Inserter(model, schemes.scheme)
    ranges = dict.fromkeys(tensors, Range(-4.0, 4.0))
    mixed = MixedPrecision.of(inserter, "float16", "keep", ranges, placement.edges)
    report = check_model(builder, mixed.insert(placement), "sm89")
    assert report.accepted, report.refusals
    actual = Plan(tuple(typed_layers(report.plan.layers)), report.plan.source)
    found = diff_plans(predicted(model.graph, placement), actual)
    assert found.exact.f1 == 1.0, found.sentences
    assert found.false_conversions == found.missed_conversions == 0


def text_of(graph: str, opset: int) -> str:
    return f'<ir_version: 9, opset_import: ["": {opset}]> g {graph}'


def builder_test(
    graphs: Mapping[str, str] | Mapping[str, tuple[str, str]],
    opset: int,
    one_scale: bool = False,
    chosen: Format | None = None,
) -> Callable[..., None]:
    """A test for each of ``graphs``: the builder makes exactly the layers that are predicted.

    By title: a graph, or the edges that carry pairs, with spaces between them, and a graph.
    ``one_scale``: whether weights have one each; ``chosen``: the format of pairs.
    """

    @pytest.mark.builder
    @pytest.mark.parametrize("shown", graphs)
    def check(shown: str, tmp_path: Path, builder: ModuleType):
        given = graphs[shown]
        pairs, graph = ("", given) if isinstance(given, str) else given
        model = model_of(text_of(graph, opset), tmp_path)
        placement = placement_of(model.graph, tuple(pairs.split())).in_format(chosen)
        weights = (e for e in placement.edges if e.tensor in model.graph.initializers)
        own = frozenset(weights) if one_scale else frozenset()
        check_built(model, placement.with_weights(own), builder)

    return check


def joined_placement(text: str, pairs: str, folder: Path) -> Placement:
    """``pairs`` as ``tensor->node``; one scale for the tensors a and b and what joins them, j."""
    graph = model_of(text, folder).graph
    return placement_of(graph, tuple(pairs.split()), [{"a", "b", "j"}])
