"""How well layers of TensorRT-RTX are predicted of placements as other tools make them.

Pairs before products alone, as ModelOpt puts them, and before every operator that ONNX Runtime's
``quantize_static`` or PyTorch's eager mode knows; the same with half of the nodes left out, as by
lists of nodes that stay in float; weights with a scale for each channel or one; and FP8. A scale
belongs to each tensor. Everything else is as in tensorrt_rtx.py.

    python -m benchmarks.plans.tensorrt_rtx_placements --networks deployed --keep built/
    python -m benchmarks.plans.tensorrt_rtx_placements --networks deployed --drawn 2  # of each
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random

from benchmarks.networks.sets import fixed
from benchmarks.plans.fidelity import Candidate, main
from benchmarks.plans.tensorrt_rtx import TARGET, CalibratedNetwork, RtxEngine
from placer.graph import Edge, Graph
from placer.model import Model
from placer.plan import Plan
from placer.prediction.select import make_predictor
from placer.quantization import FLOAT8, Placement
from placer.rules.packaging.load import load_pack
from placer.rules.sites import find_sites, place

_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_CLAMPS = ("Relu", "Clip")  # Part of what is before, which no pair parts them from.
_BEFORE_CLAMPS = (*_PRODUCTS[:1], "Gemm", "MatMul", "Add")
_KNOWN = frozenset(
    {*_PRODUCTS, *_CLAMPS, "Add", "Mul", "Sub", "Div", "Sigmoid", "LeakyRelu", "HardSwish", "Tanh"}
    | {"HardSigmoid", "Gelu", "Softmax", "MaxPool", "AveragePool", "GlobalAveragePool", "Concat"}
    | {"Split", "Slice", "Pad", "Gather", "Resize", "Reshape", "Transpose", "Squeeze", "Unsqueeze"}
    | {"Flatten", "LayerNormalization", "InstanceNormalization"}
)


@dataclass(frozen=True)
class Style:
    """Which edges have pairs, one scale for each weight or more, and the format of all pairs.

    ``partial``: of half of the nodes, drawn at random.
    """

    edges: str
    per_tensor: bool = False
    float8: bool = False
    partial: bool = False


STYLES: Mapping[str, Style] = {
    "products": Style("products"),
    "products, one scale": Style("products", per_tensor=True),
    "everywhere": Style("everywhere"),
    "everywhere, one scale": Style("everywhere", per_tensor=True),
    "default, one scale": Style("default", per_tensor=True),
    "default, FP8": Style("default", float8=True),
    "products, FP8": Style("products", float8=True),
    "half of the products": Style("products", partial=True),
    "half of everything": Style("everywhere", partial=True),
}
_INT8 = sorted(name for name, style in STYLES.items() if not style.float8)


class PlacementsEngine(RtxEngine):
    """NVIDIA's builder, which is given the placements of ``STYLES``."""

    default_set = "deployed"

    def candidates(self, model: Model, options: argparse.Namespace) -> Iterator[Candidate]:
        """One of each style, or of as many in INT8 as are to be drawn for each network."""
        model = fixed(model)
        draw = Random(f"{options.seed} {model.fingerprint}")
        styles = draw.sample(_INT8, options.drawn) if options.drawn else list(STYLES)
        manifest = load_pack("tensorrt").manifest
        schemes = {False: manifest.scheme, True: manifest.alternatives["int8-and-fp8"].scheme}
        networks = {float8: CalibratedNetwork(model, scheme) for float8, scheme in schemes.items()}
        predictor = make_predictor(model.graph, load_pack(options.pack), TARGET, "float16")

        def predicted(placement: Placement) -> Plan:
            return predictor.predict(placement).plan

        for name in styles:
            build = networks[STYLES[name].float8].build
            yield Candidate(name, placed(model.graph, STYLES[name]), predicted, build, name)


def placed(graph: Graph, style: Style) -> Placement:
    """The placement of ``style``."""
    weights = frozenset(_weights(graph))
    if style.edges == "default":
        found = place(find_sites(graph, load_pack("tensorrt").rules, TARGET), {})
    else:
        found = Placement.of([*weights, *_activations(graph, style.edges == "products")])
    if style.partial:
        names = [node.name for node in graph.nodes]
        kept = set(Random(0).sample(names, len(names) // 2))
        found = Placement.of(edge for edge in found.edges if edge.node in kept)
    found = found.with_weights(weights) if style.per_tensor else found
    return found.in_format(FLOAT8) if style.float8 else found


def _add_drawn(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--drawn", type=int, default=0, help="styles in INT8, at random; 0: all")


def _weights(graph: Graph) -> Iterator[Edge]:
    for node in graph.nodes:
        if node.op in _PRODUCTS and node.inputs[1] in graph.initializers:
            yield Edge(node.inputs[1], node.name, 1)


def _activations(graph: Graph, only_products: bool) -> Iterator[Edge]:
    for node in graph.nodes:
        if only_products:
            if node.op in _PRODUCTS and node.inputs[1] in graph.initializers:
                yield Edge(node.inputs[0], node.name, 0)
        elif node.op in _KNOWN:
            for index, tensor in enumerate(node.inputs):
                known = bool(tensor) and tensor not in graph.initializers
                if (
                    known
                    and graph.type_of(tensor).is_float
                    and not _is_part(graph, node.op, tensor)
                ):
                    yield Edge(tensor, node.name, index)


def _is_part(graph: Graph, op: str, tensor: str) -> bool:
    """Whether a clamp alone reads what a product or sum writes."""
    before = graph.producer.get(tensor)
    single = before is not None and len(graph.edges_of(tensor)) == 1
    return op in _CLAMPS and single and before is not None and before.op in _BEFORE_CLAMPS


if __name__ == "__main__":
    main(PlacementsEngine(), __doc__, _add_drawn)
