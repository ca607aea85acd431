"""Measured times of an engine's layers, given to the layers that the rules predict."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from placer.plan import Layer, Plan
from placer.prediction.layers.conversions import PredictedLayer
from placer.search.landscape.layer_signatures import LayerModel, PredictedLayers
from placer.search.models.latency_model import assumed_cost


def attribute(layers: PredictedLayers, actual: Plan, model: LayerModel) -> dict[int, float]:
    """Mean measured time by signature number, in microseconds: ``actual`` read as predicted.

    The time of an actual layer goes to the predicted layer that holds its first node; that of a
    conversion to the predicted one of the same kind on the same tensor, else to the layer that
    writes the tensor. What the engine built as one shares its time in proportion to what each has
    to do, since nothing tells more: ONNX Runtime sums residuals in a float Conv. So all time is
    accounted for: what the engine left out counts as 0. Empty if a layer of ``actual`` has no time.
    """
    times = measured_times(layers.layers, actual)
    if not times:
        return {}
    numbers = [model.number(predicted) for predicted in layers.layers]
    cost_of = {number: assumed_cost(model.signatures[number].work) for number in set(numbers)}
    times_of: dict[int, list[float]] = defaultdict(list)
    for together in joined(layers.layers, actual):
        costs = [cost_of[numbers[index]] for index in together]
        time, cost = math.fsum([times[index] for index in together]), math.fsum(costs)
        for index, cost_of_one in zip(together, costs, strict=True):
            times_of[numbers[index]].append(time * cost_of_one / cost)
    return {number: sum(times) / len(times) for number, times in times_of.items()}


def joined(layers: Sequence[PredictedLayer], actual: Plan) -> list[list[int]]:
    """Of ``layers`` those together, by index, that one layer of ``actual`` has nodes of."""
    by_node = {node: i for i, predicted in enumerate(layers) for node in predicted.layer.nodes}
    pairs = [
        pair
        for layer in actual.layers
        for pair in itertools.pairwise(by_node[node] for node in layer.nodes if node in by_node)
    ]
    first, second = np.array(pairs, int).reshape(-1, 2).T
    count = len(layers)
    links = coo_matrix((np.ones(len(pairs)), (first, second)), (count, count))
    indices_of: dict[int, list[int]] = defaultdict(list)
    for index, label in enumerate(connected_components(links, directed=False)[1].tolist()):
        indices_of[label].append(index)
    return list(indices_of.values())


def measured_times(layers: Sequence[PredictedLayer], actual: Plan) -> list[float]:
    """Of each predicted layer the time of the layers of ``actual`` that stand for it, see above.

    Empty if a layer of ``actual`` has no time.
    """
    if any(layer.time_us is None for layer in actual.layers):
        return []
    times = [0.0] * len(layers)
    for owner, layer in zip(owners(layers, actual), actual.layers, strict=True):
        if owner is not None:
            times[owner] += layer.time_us or 0.0
    return times


def owners(layers: Sequence[PredictedLayer], actual: Plan) -> list[int | None]:
    """Of each layer of ``actual`` the predicted one, by index, that it stands for, see above."""
    by_node: dict[str, int] = {}
    by_tensor: dict[str, int] = {}
    conversions: dict[tuple[str, str], int] = {}
    for index, predicted in enumerate(layers):
        by_node.update(dict.fromkeys(predicted.layer.nodes, index))
        tensors = [port.tensor for port in predicted.layer.outputs]
        if predicted.nodes:
            by_tensor.update(dict.fromkeys(tensors, index))
        else:
            conversions[predicted.layer.kind, tensors[0]] = index
    return [_owner(layer, by_node, by_tensor, conversions) for layer in actual.layers]


def _owner(
    layer: Layer,
    by_node: Mapping[str, int],
    by_tensor: Mapping[str, int],
    conversions: Mapping[tuple[str, str], int],
) -> int | None:
    for node in layer.nodes:
        if node in by_node and layer.kind == "compute":
            return by_node[node]
    tensors = [_float_name(port.tensor) for port in (*layer.inputs, *layer.outputs)]
    for tensor in tensors:
        if (layer.kind, tensor) in conversions:
            return conversions[layer.kind, tensor]
    return next((by_tensor[tensor] for tensor in tensors if tensor in by_tensor), None)


def _float_name(tensor: str) -> str:
    """The float model's tensor whose integers ``tensor`` is, see ``placer.qdq.insert``."""
    return tensor.removesuffix("/quantized").removesuffix("/dequantized")
