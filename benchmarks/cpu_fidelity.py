"""How well a pack for engines on this CPU predicts what they execute, strictly.

Shared by openvino_fidelity.py and onnxruntime_fidelity.py. Every model gets random placements of
the pack's space; each candidate is compiled, and the layers that the engine tells are held against
the prediction. Layers are the same if they cover the same nodes, and, for the second score, write
the same types. Nothing is set aside: a computing layer that names no node counts as one that was
not predicted. Layers that only reshape, and nodes that compute integers (shapes, which engines
settle when they compile) count on neither side. Conversions (quantize, dequantize, requantize)
count as false or missed by kind and place; changes of the memory layout, which nobody predicts, are
counted apart.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
import rapidocr_onnxruntime
from command_line import parser_of, write_json
from networks.given import add_option, given_models
from networks.held_out import HELD_OUT
from networks.topologies import TOPOLOGIES
from networks.unseen import UNSEEN
from rich.console import Console
from rich.table import Table

from placer.calibration.collect import calibrate
from placer.calibration.dataset import synthetic_dataset
from placer.engines.abilities import target_of
from placer.engines.base import Engine
from placer.errors import RunError
from placer.graph import Graph, Node
from placer.model import Model, load_model
from placer.plan import Plan
from placer.plan.diff import diff_plans
from placer.prediction.select import make_predictor
from placer.qdq import Inserter
from placer.results.result import versions
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites
from placer.search.space import build_space

EXAMPLES = Path(__file__).parent.parent / "examples"
OCR = Path(rapidocr_onnxruntime.__file__).parent / "models"
FILES = {
    "digits": (EXAMPLES / "digits" / "digits.onnx", {}),
    "PP-OCRv4 det": (OCR / "ch_PP-OCRv4_det_infer.onnx", {"x": (1, 3, 160, 160)}),
    "PP-OCRv4 rec": (OCR / "ch_PP-OCRv4_rec_infer.onnx", {"x": (1, 3, 48, 160)}),
    "PP-OCR cls": (OCR / "ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": (1, 3, 48, 192)}),
}
CONVERSIONS = ("quantize", "dequantize", "requantize")
# Networks that were first made to test predictions for TensorRT-RTX: other families.
NETWORKS = {"topologies": TOPOLOGIES, "others": {**UNSEEN, **HELD_OUT}}


@dataclass(frozen=True)
class Subject:
    """An engine: its pack, and what makes it for a model's input shapes."""

    pack: str
    title: str
    make: Callable[[Mapping[str, tuple[int, ...]]], Engine]


@dataclass
class Counts:
    """Layers and conversions over the placements of one model."""

    model: str
    placements: int = 0
    refused: int = 0
    predicted: int = 0
    actual: int = 0
    same_nodes: int = 0
    same_types: int = 0
    conversions_predicted: int = 0
    conversions_actual: int = 0
    conversions_false: int = 0
    conversions_missed: int = 0
    layout_changes: int = 0

    @property
    def f1(self) -> float:
        """By nodes."""
        return 2 * self.same_nodes / max(1, self.predicted + self.actual)

    @property
    def f1_types(self) -> float:
        """By nodes and the types written."""
        return 2 * self.same_types / max(1, self.predicted + self.actual)

    def add(self, graph: Graph, predicted: Plan, actual: Plan) -> None:
        """Compare two plans."""
        shapes = {node.name for node in graph.nodes if _is_integer(graph, node)}
        ones, others = _layers(predicted, shapes), _layers(actual, shapes)
        self.placements += 1
        self.predicted += sum(ones.values())
        self.actual += sum(others.values())
        self.same_types += (ones & others).total()
        self.same_nodes += (_nodes(ones) & _nodes(others)).total()
        for entry in diff_plans(predicted, actual).conversions:
            if entry.kind in CONVERSIONS:
                self.conversions_predicted += entry.predicted
                self.conversions_actual += entry.actual
                self.conversions_false += len(entry.missing)
                self.conversions_missed += len(entry.extra)
        self.layout_changes += len(actual.of_kind("reformat"))

    def __iadd__(self, other: Counts) -> Counts:
        for name, value in vars(other).items():
            if isinstance(value, int):
                setattr(self, name, getattr(self, name) + value)
        return self

    def to_json(self) -> dict[str, object]:
        """Plain data with the scores."""
        return {**asdict(self), "f1": self.f1, "f1_types": self.f1_types}


def _is_integer(graph: Graph, node: Node) -> bool:
    return not any(graph.type_of(tensor).is_float for tensor in node.outputs)


Key = tuple[frozenset[str], frozenset[str]]


def _layers(plan: Plan, shapes: Set[str]) -> Counter[Key]:
    return Counter(
        (frozenset(layer.nodes) - shapes, frozenset(layer.output_types))
        for layer in plan.of_kind("compute")
        if not layer.nodes or not shapes.issuperset(layer.nodes)
    )


def _nodes(layers: Counter[Key]) -> Counter[frozenset[str]]:
    found: Counter[frozenset[str]] = Counter()
    for (nodes, _), count in layers.items():
        found[nodes] += count
    return found


def models(networks: str, folder: Path) -> Iterator[tuple[str, Model]]:
    """Those of one of ``NETWORKS``, written to ``folder``; files are among the topologies."""
    for name, make in NETWORKS[networks].items():
        path = folder / f"{name}.onnx"
        onnx.save(make(), path)
        yield name, load_model(path)
    for name, (path, shapes) in FILES.items() if networks == "topologies" else ():
        yield name, load_model(path, shapes)


def pairs(
    subject: Subject,
    model: Model,
    placements: int,
    seed: int,
    counts: Counts,
    scheme_name: str | None = None,
) -> Iterator[tuple[Plan, Plan]]:
    """Predicted and actual plans: of the float model, of the default placement, of random ones."""
    engine = subject.make(model.input_shapes)
    pack, target = load_pack(subject.pack), target_of(engine)
    if scheme_name is not None:
        pack = pack.with_scheme(scheme_name)
    scheme = pack.manifest.scheme
    space = build_space(model.graph, find_sites(model.graph, pack.rules, target))
    rng = np.random.default_rng(seed)
    chosen = [space.floats, space.defaults]
    chosen += [
        {g.name: str(rng.choice(g.layouts)) for g in space.groups} for _ in range(placements)
    ]
    every = [space.placement(choices) for choices in chosen]
    tensors = {edge.tensor for placement in every for edge in placement.edges}
    tensors -= model.graph.initializers.keys()
    ranges = calibrate(model, tensors, synthetic_dataset(model, 2, seed)).ranges("minmax", scheme)
    predictor = make_predictor(model.graph, pack, target, "float", ranges=ranges)
    for placement in every:
        candidate = Inserter(model, scheme).insert(placement, ranges)
        try:
            actual = engine.compile(candidate, model.base_dir).plan()
        except RunError:
            counts.refused += 1
            continue
        yield predictor.predict(placement).plan, actual


def fidelity(
    subject: Subject,
    found: Iterable[tuple[str, Model]],
    placements: int,
    seed: int = 0,
    scheme: str | None = None,
) -> Iterator[Counts]:
    """Counts of each model as they come."""
    for name, model in found:
        counts = Counts(name)
        for predicted, actual in pairs(subject, model, placements, seed, counts, scheme):
            counts.add(model.graph, predicted, actual)
        yield counts


def pooled(found: Iterable[Counts]) -> Counts:
    """All models taken together."""
    result = Counts("all")
    for counts in found:
        result += counts
    return result


def main(subject: Subject, doc: str | None) -> None:
    """Print the table and write JSON. ``doc``: the docstring of the benchmark."""
    parser = parser_of(doc)
    parser.add_argument("--networks", choices=sorted(NETWORKS), default="topologies")
    parser.add_argument("--placements", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scheme", help="one of the pack's alternative schemes")
    parser.add_argument("--json", type=Path)
    add_option(parser)
    arguments = parser.parse_args()
    table = Table(title=f"predicted against {subject.title}")
    conversions = "conversions predicted/actual/false/missed"
    for column in ("model", "placements", "F1 nodes", "F1 nodes and types", conversions):
        table.add_column(column)
    with tempfile.TemporaryDirectory() as folder:
        entered = load_pack(subject.pack).enters_bodies
        given = given_models(arguments, entered) if arguments.model else None
        subjects = given or models(arguments.networks, Path(folder))
        found = list(
            fidelity(subject, subjects, arguments.placements, arguments.seed, arguments.scheme)
        )
    found.append(pooled(found))
    for counts in found:
        numbers = (
            counts.conversions_predicted,
            counts.conversions_actual,
            counts.conversions_false,
            counts.conversions_missed,
        )
        scores = (f"{counts.f1:.3f}", f"{counts.f1_types:.3f}")
        refused = f", {counts.refused} refused" if counts.refused else ""
        cells = (
            counts.model,
            f"{counts.placements}{refused}",
            *scores,
            "/".join(map(str, numbers)),
        )
        table.add_row(*cells)
    Console(width=110).print(table)
    if arguments.json:
        document = {"versions": dict(versions()), "models": [c.to_json() for c in found]}
        write_json(arguments.json, document)
