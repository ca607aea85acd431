"""Whether choices at sites can express what ``quantize_static`` places, by ONNX Runtime's plans.

Each network is quantized with several options. The pairs of each file are read, and the choices are
taken that come closest. For the file and for the candidate of these choices, the table has how many
layers compute in integers and in float, and how many conversions there are. Pairs that no choice
expresses are counted by the operator that reads them.

    python -m benchmarks.peers.expressible --networks det cls ViT
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx
from onnxruntime.quantization import QuantType, quantize_static
from rich.console import Console
from rich.table import Table

from benchmarks.command_line import parser_of
from benchmarks.networks.real import NAMES, Case, case
from benchmarks.peers.calibration_reader import Samples
from placer.calibration.collect import calibrate
from placer.engines.abilities import target_of
from placer.engines.onnxruntime import OnnxRuntimeEngine
from placer.graph import Edge, Graph
from placer.model import load_quantized, save_model
from placer.plan import Plan
from placer.qdq import Inserter
from placer.qdq.extract import extract_placement
from placer.quantization import Placement, Scheme
from placer.rules.defaults_by_gains import sites_with_defaults
from placer.rules.packaging.load import load_pack
from placer.search.space import build_space

SAMPLES = 2
_PRODUCTS = ["Conv", "MatMul", "Gemm"]
_LATER = {"OpTypesToExcludeOutputQuantization": _PRODUCTS}
# All with uint8 activations and int8 weights, a scale for each channel.
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "every operator": {},
    "products only": {"op_types_to_quantize": _PRODUCTS},
    "Convs only": {"op_types_to_quantize": ["Conv"]},
    "no pair behind products": {
        "op_types_to_quantize": [*_PRODUCTS, "Add", "Mul"],
        "extra_options": _LATER,
    },
}


def placed(path: Path, graph: Graph, scheme: Scheme) -> Placement:
    """The pairs of a file on edges of ``graph``, but for those of biases, which are int32."""
    at = {(e.node, e.input_index): e for t in graph.consumers for e in graph.edges_of(t)}
    found = extract_placement(load_quantized(path), scheme).placement.edges
    edges = [at[e.node, e.input_index] for e in found if (e.node, e.input_index) in at]
    return Placement.of(edge for edge in edges if not _is_bias(edge, graph))


def _is_bias(edge: Edge, graph: Graph) -> bool:
    reader = "" if edge.is_graph_output else graph.by_name[edge.node].op
    return reader in _PRODUCTS and edge.input_index == 2


def counts(plan: Plan) -> str:
    """Layers in integers, in float, and conversions."""
    compute = plan.of_kind("compute")
    types = [(*layer.input_types, *layer.output_types) for layer in compute]
    integers = sum(not {"int8", "uint8"}.isdisjoint(own) for own in types)
    conversions = sum(len(plan.of_kind(kind)) for kind in ("quantize", "dequantize", "requantize"))
    return f"{integers}, {len(compute) - integers}, {conversions}"


def readers(edges: Collection[Edge], graph: Graph) -> str:
    """How many of ``edges`` each kind of operator reads."""
    ops = Counter("output" if e.is_graph_output else graph.by_name[e.node].op for e in edges)
    return ", ".join(f"{count} {op}" for op, count in ops.most_common()) or "none"


def rows(subject: Case, folder: Path) -> Iterator[tuple[str, ...]]:
    """A row for each of ``OPTIONS``."""
    model, data, engine = subject.model, subject.data["calibration"], OnnxRuntimeEngine()
    graph, pack = model.graph, load_pack("onnxruntime")
    scheme = pack.manifest.scheme
    space = build_space(graph, sites_with_defaults(graph, pack, target_of(engine)))
    source, target = folder / "float.onnx", folder / "quantized.onnx"
    save_model(model.proto, model.base_dir, source)
    inserter = Inserter(model, scheme)
    types = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    for name, options in OPTIONS.items():
        quantize_static(source, target, Samples(data), per_channel=True, **types, **options)
        given = placed(target, graph, scheme)
        nearest = space.placement(space.nearest(given))
        tensors = {edge.tensor for edge in nearest.edges} - graph.initializers.keys()
        ranges = calibrate(model, tensors, data).ranges("minmax", scheme)
        theirs = engine.compile(onnx.load(target), folder).plan()
        ours = engine.compile(inserter.insert(nearest, ranges), model.base_dir).plan()
        inexpressible = readers(given.edges - nearest.edges, graph)
        yield name, str(len(given.edges)), inexpressible, counts(theirs), counts(ours)


def main() -> None:
    """Print a table."""
    parser = parser_of(__doc__)
    parser.add_argument("--networks", nargs="+", choices=NAMES, required=True)
    table = Table(title="pairs of quantize_static and the nearest choices")
    for column in ("network", "options", "pairs", "not expressible"):
        table.add_column(column)
    table.add_column("theirs: integers, float, conversions")
    table.add_column("nearest")
    for name in parser.parse_args().networks:
        with tempfile.TemporaryDirectory() as folder:
            for row in rows(case(name, SAMPLES, Path(folder)), Path(folder)):
                table.add_row(name, *row)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
