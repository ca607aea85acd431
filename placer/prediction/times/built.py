"""Estimate the times of layers that TensorRT-RTX's builder has made, not of predicted ones.

The layers, their types and the sizes of what they read and write are the builder's own; only how
long each takes is an estimate, by the roofline and with its error. Of the layers that name a
convolution or a matrix product one computes it: the library kernel, which is not generated; the
others scale its result, or convert what it reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from placer.graph import Graph, Node
from placer.plan import Layer, Plan
from placer.plan.readers.rtx_log import LayerSizes, TensorSize, parse_layers, parse_sizes
from placer.plan.readers.rtx_log import typed_layers as with_types
from placer.prediction.layers.conversions import PredictedLayer
from placer.prediction.times.gpus import Gpu
from placer.prediction.times.layer_classes import LayerClasses
from placer.prediction.times.roofline import Roofline
from placer.prediction.times.work import WEIGHTED, Work, layer_work, type_bytes

GENERATED = "kgen"  # What the builder's log calls kernels that it generates.


class BuiltEstimator:
    """Estimates plans that the builder made of candidates of one model, on one GPU."""

    def __init__(self, gpu: Gpu, classes: LayerClasses) -> None:
        self._gpu, self._classes = gpu, classes

    def plan(self, lines: Sequence[str], graph: Graph, source: str) -> Plan:
        """The layers that the log ``lines`` describe, each with an estimated time.

        ``graph``: the candidate's, without its pairs, with the shapes that it was built for.
        ``source``: what the plan says of itself.
        """
        layers = tuple(with_types(parse_layers(lines)))
        products = products_of(layers, graph)
        roofline = Roofline(graph, self._gpu, self._classes)
        launch = self._classes.launch_us(self._gpu)
        timed = []
        for index, (layer, sizes) in enumerate(zip(layers, parse_sizes(lines), strict=True)):
            work = built_work(layer, sizes, products.get(index, ()), graph)
            us = 0.0 if work is None else launch + roofline.work_us(work)
            timed.append(replace(layer, time_us=us))
        return Plan(tuple(timed), source, estimated_times=True)


def products_of(layers: Sequence[Layer], graph: Graph) -> Mapping[int, tuple[Node, ...]]:
    """By position: the convolutions and matrix products that each of ``layers`` computes."""
    computes: dict[str, int] = {}
    for index, layer in enumerate(layers):
        for node in _weighted(layer, graph):
            known = computes.get(node.name)
            if known is None or (layers[known].op == GENERATED and layer.op != GENERATED):
                computes[node.name] = index
    nodes_of: dict[int, tuple[Node, ...]] = {}
    for name, index in computes.items():
        nodes_of[index] = (*nodes_of.get(index, ()), graph.by_name[name])
    return nodes_of


def built_work(
    layer: Layer, sizes: LayerSizes, products: Sequence[Node], graph: Graph
) -> Work | None:
    """What a built layer has to do, with the bytes that the log tells; None if it runs nothing.

    ``products``: the weighted nodes that it computes.
    """
    if layer.kind == "no-op":
        return None
    written = float(sum(map(_bytes, sizes.outputs)))
    moved = written + sum(map(_bytes, (*sizes.inputs, *sizes.constants)))
    others = [n for n in _nodes(layer, graph) if n.op not in WEIGHTED]
    dtype = layer.input_types[0] if layer.inputs else "float"
    if layer.kind != "compute":
        elements = max((size.elements for size in sizes.outputs), default=0)
        return Work("conversion", dtype, elements, moved, written)
    if not products and not others:  # It scales the sums of a product that another layer made.
        return Work("memory", dtype, 0, moved, written)
    predicted = PredictedLayer(layer, (*products, *others), None, ())
    work = layer_work(predicted, graph)
    return None if work is None else replace(work, bytes=moved, written=written)


def _nodes(layer: Layer, graph: Graph) -> Iterator[Node]:
    return (graph.by_name[name] for name in layer.nodes if name in graph.by_name)


def _weighted(layer: Layer, graph: Graph) -> Iterator[Node]:
    if layer.kind == "compute":
        yield from (node for node in _nodes(layer, graph) if node.op in WEIGHTED)


def _bytes(size: TensorSize) -> float:
    return size.elements * type_bytes(size.dtype)
