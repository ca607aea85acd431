"""Predicted and executed layers of engines on this CPU, for openvino.py and onnxruntime.py.

Layers are the same if they cover the same nodes, and, for the second score, write the same types.
Nothing is set aside: a computing layer that names no node counts as one that was not predicted.
Layers that only reshape, and nodes that compute integers (shapes, which engines settle when they
compile) count on neither side, nor do predicted layers in bodies of If, Loop and Scan where the
engine's plan has none of these. Conversions count as false or missed by kind and place; changes of
the memory layout, which nobody predicts, are left out.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.plans.fidelity import Candidate, Counts
from placer.calibration.collect import calibrate
from placer.calibration.dataset import synthetic_dataset
from placer.engines.abilities import target_of
from placer.engines.base import Engine
from placer.graph import Graph, Node
from placer.model import Model
from placer.plan import Layer, Plan
from placer.plan.diff import diff_plans
from placer.prediction.select import make_predictor
from placer.qdq import Inserter
from placer.quantization import Placement
from placer.rules.defaults_by_gains import sites_with_defaults
from placer.rules.packaging.load import load_pack
from placer.search.space import build_space

_CLAMPS = frozenset({"Relu", "Clip"})
CONVERSIONS = ("quantize", "dequantize", "requantize")
Key = tuple[frozenset[str], frozenset[str]]


@dataclass(frozen=True)
class CpuEngine:
    """An engine: its pack, and what makes it for a model's input shapes.

    ``shows_bodies``: whether its plans hold the layers in bodies of If, Loop and Scan.
    """

    default_pack: str
    title: str
    make: Callable[[Mapping[str, tuple[int, ...]]], Engine]
    default_set: str = "topologies"
    default_placements: int = 20
    shows_bodies: bool = True

    @property
    def enters_bodies(self) -> bool:
        """Whether nodes in bodies are nodes as others."""
        return load_pack(self.default_pack).enters_bodies

    def version(self) -> str:
        """The engine and its version."""
        return self.make({}).version

    def understood(self, plan: Plan) -> Plan:
        """The plan itself."""
        return plan

    def candidates(self, model: Model, options: argparse.Namespace) -> Iterator[Candidate]:
        """The float model, the default placement and random ones."""
        engine, pack = self.make(model.input_shapes), load_pack(options.pack)
        target = target_of(engine)
        pack = pack if options.scheme is None else pack.with_scheme(options.scheme)
        scheme = pack.manifest.scheme
        space = build_space(model.graph, sites_with_defaults(model.graph, pack, target))
        rng = np.random.default_rng(options.seed)
        chosen = {"float": space.floats, "default": space.defaults}
        for number in range(options.placements):
            layouts = {group.name: str(rng.choice(group.layouts)) for group in space.groups}
            chosen[f"random {number}"] = layouts
        placements = {what: space.placement(layouts) for what, layouts in chosen.items()}
        tensors = {edge.tensor for placement in placements.values() for edge in placement.edges}
        tensors -= model.graph.initializers.keys()
        samples = synthetic_dataset(model, 2, options.seed)
        ranges = calibrate(model, tensors, samples).ranges("minmax", scheme)
        predictor = make_predictor(model.graph, pack, target, "float", ranges=ranges)
        inserter = Inserter(model, scheme)

        def compiled(placement: Placement) -> Plan:
            candidate = inserter.insert(placement, ranges)
            return engine.compile(candidate, model.base_dir).plan()

        def predicted(placement: Placement) -> Plan:
            return predictor.predict(placement).plan

        for what, placement in placements.items():
            yield Candidate(what, placement, predicted, compiled)

    def count(self, graph: Graph, predicted: Plan, actual: Plan) -> Counts:
        """Compare two plans strictly.

        A plan may name a Relu or Clip that Q replaces with the layer before it, or not at all.
        """
        if not self.shows_bodies:
            predicted = _outside_bodies(predicted, graph)
        shapes = {node.name for node in graph.nodes if _is_integer(graph, node)}
        idle = {name for layer in predicted.of_kind("no-op") for name in layer.nodes}
        gone = {name for name in idle if graph.by_name[name].op in _CLAMPS}
        ones, others = layers(predicted, shapes, gone), layers(actual, shapes, gone)
        converted = [
            entry
            for entry in diff_plans(predicted, actual).conversions
            if entry.kind in CONVERSIONS
        ]
        return Counts(
            plans=1,
            predicted=ones.total(),
            actual=others.total(),
            by_nodes=(_nodes(ones) & _nodes(others)).total(),
            exact=(ones & others).total(),
            predicted_conversions=sum(entry.predicted for entry in converted),
            actual_conversions=sum(entry.actual for entry in converted),
            false_conversions=sum(len(entry.missing) for entry in converted),
            missed_conversions=sum(len(entry.extra) for entry in converted),
        )


def _outside_bodies(plan: Plan, graph: Graph) -> Plan:
    """Without layers whose nodes are all in bodies, and conversions between such."""

    def is_inside(layer: Layer) -> bool:
        if layer.nodes:
            return graph.scopes.keys() >= set(layer.nodes)
        tensors = {port.tensor for port in (*layer.inputs, *layer.outputs)}
        writers = {graph.producer[t].name for t in tensors if t in graph.producer}
        edges = (edge for tensor in tensors for edge in graph.edges_of(tensor))
        users = writers.union(edge.node for edge in edges if not edge.is_graph_output)
        return bool(users) and graph.scopes.keys() >= users

    return replace(plan, layers=tuple(one for one in plan.layers if not is_inside(one)))


def _is_integer(graph: Graph, node: Node) -> bool:
    return not any(graph.type_of(tensor).is_float for tensor in node.outputs)


def layers(plan: Plan, shapes: Set[str], gone: Set[str]) -> Counter[Key]:
    """Computing layers by their nodes, less those in ``shapes``, and the types that they write.

    ``gone``: nodes that name no layer; one of these alone is a layer all the same.
    """
    return Counter(
        (frozenset(layer.nodes) - shapes - gone, frozenset(layer.output_types))
        for layer in plan.of_kind("compute")
        if not layer.nodes or set(layer.nodes) - shapes
    )


def _nodes(found: Counter[Key]) -> Counter[frozenset[str]]:
    by_nodes: Counter[frozenset[str]] = Counter()
    for (nodes, _), count in found.items():
        by_nodes[nodes] += count
    return by_nodes
