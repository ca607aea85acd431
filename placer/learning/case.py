"""A graph with a placement, what an engine makes of it, and what was predicted."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import onnx
from onnx import ModelProto, helper

from placer.graph import Graph
from placer.model import Model, load_model
from placer.plan import Layer, Plan
from placer.plan.diff import diff_plans
from placer.plan.diff_result import PlanDiff
from placer.quantization import Placement


@dataclass(frozen=True, eq=False)
class Case:
    """A loaded float model and the edges of it that carry a pair."""

    model: Model
    placement: Placement

    @staticmethod
    def of(proto: ModelProto, placement: Placement) -> Case:
        """Load ``proto``; edges of ``placement`` that it does not have are left out."""
        model = loaded(proto)
        return Case(model, within(placement, model.graph))

    @property
    def text(self) -> str:
        """The graph in ONNX's text format without values, and the groups of quantized edges."""
        return "\n".join([_without_values(self.model.proto), *self._groups()])

    @property
    def id(self) -> str:
        """Eight digits that stand for graph and placement."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:8]

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators of the graph, each once, sorted."""
        return tuple(sorted({node.op for node in self.model.graph.nodes}))

    def _groups(self) -> Iterator[str]:
        for edges in self.placement.sorted():
            yield "quantized: " + ", ".join(map(str, edges))


class Refused(Exception):
    """The engine does not build the case; no disagreement, but counted."""


class Planner(Protocol):
    """Predicts the plan of a case, and has it made."""

    def plans(self, case: Case) -> tuple[Plan, Plan]:
        """The predicted and the actual plan. Raises Refused if the engine refuses the case."""
        ...


@dataclass(frozen=True, eq=False)
class Judgement:
    """How the plans of a case compare, the predicted and the actual one.

    ``refusal``: why there are none.
    """

    case: Case
    diff: PlanDiff | None
    plans: tuple[Plan, ...] = ()
    refusal: str = ""

    @property
    def disagrees(self) -> bool:
        """Whether there are plans and they differ."""
        return self.diff is not None and not self.diff.agrees

    @property
    def layers(self) -> tuple[tuple[str, ...], ...]:
        """The layers of each plan in words."""
        return tuple(
            tuple(map(_layer_text, (x for x in plan.layers if x.kind != "no-op")))
            for plan in self.plans
        )


def judge(planner: Planner, case: Case) -> Judgement:
    """Compare the two plans of ``case``; strictly, every layer counts."""
    try:
        predicted, actual = planner.plans(case)
    except Refused as refusal:
        return Judgement(case, None, refusal=str(refusal))
    return Judgement(case, diff_plans(predicted, actual), (predicted, actual))


def loaded(proto: ModelProto) -> Model:
    """Load a model in memory as from a file; raises what ``load_model`` raises."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(proto, path)
        return load_model(path)


def within(placement: Placement, graph: Graph) -> Placement:
    """``placement`` without the edges that ``graph`` does not have."""
    known = {edge for edges in graph.consumers.values() for edge in edges}
    return placement.without(placement.edges - known)


def _layer_text(layer: Layer) -> str:
    nodes = "+".join(sorted(layer.nodes)) or layer.name
    types = ", ".join(layer.input_types), ", ".join(layer.output_types)
    return f"{layer.kind} {nodes}: {types[0]} -> {types[1]} ({layer.op})"


def _without_values(proto: ModelProto) -> str:
    """The text of a model, weights by type and shape only."""
    bare = ModelProto()
    bare.CopyFrom(proto)
    del bare.graph.value_info[:]
    weights = [
        helper.make_tensor_value_info(t.name, t.data_type, tuple(t.dims))
        for t in proto.graph.initializer
        if t.data_type == onnx.TensorProto.FLOAT and len(t.dims)
    ]
    small = [t for t in proto.graph.initializer if t.name not in {w.name for w in weights}]
    del bare.graph.initializer[:]
    bare.graph.initializer.extend(small)
    lines = onnx.printer.to_text(bare).splitlines()
    shapes = [
        f"  # {weight.name}: float{[d.dim_value for d in weight.type.tensor_type.shape.dim]}"
        for weight in weights
    ]
    return "\n".join([*lines, *shapes])
