"""Tensors that no scale fits, as attention's masked scores: infinity, or a mask beside signal."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
from onnx import numpy_helper

from placer.calibration.activations import activations, observable, passes
from placer.calibration.dataset import Dataset
from placer.graph import Graph, Node
from placer.model import Model

# Exporters mask scores with -1e4, -1e9, the lowest float or infinity; no weight is as low.
_MASK = -1e3
# 254 half steps lie between zero and the largest magnitude of eight signed bits.
_HALF_STEPS = 254


def masked_tensors(model: Model, tensors: Collection[str], dataset: Dataset) -> frozenset[str]:
    """Those of ``tensors`` that no scale fits, as constants or on a sample of ``dataset``.

    They hold infinity or NaN, or values that all round to zero beside some that are far away.
    Activations are looked at behind what brings that into a model by itself: constants with
    infinity or the large negative values of masks, and Log, whose limit at zero is infinity. A
    model without either costs no run, and infinity elsewhere is data that the float model
    overflows on, which calibration refuses. Raises InputError for an unknown tensor, RunError if
    ONNX Runtime refuses the model.
    """
    arrays = {name: model.array(name) for name in model.graph.initializers}
    sources = {name for name, values in arrays.items() if _masks(values)}
    behind = _behind(model.graph, sources)
    found = {name for name in sources.intersection(tensors) if _fits_no_scale(arrays[name])}
    for chunk in passes(model, observable(model, behind.intersection(tensors))):
        for _, values in activations(model, chunk, dataset):
            found.update(name for name, value in values.items() if _fits_no_scale(value))
    return frozenset(found)


def _masks(values: np.ndarray) -> bool:
    if values.dtype.kind != "f" or not values.size:
        return False
    low, high = values.min(), values.max()
    return not np.isfinite((low, high)).all() or bool(low <= _MASK)


def _fits_no_scale(values: np.ndarray) -> bool:
    if values.dtype.kind != "f" or not values.size:
        return False
    sizes = np.abs(values.astype(np.float32, copy=False))
    largest = sizes.max()
    if not np.isfinite(largest):
        return True
    near = sizes[sizes < largest / 2].max(initial=0)
    return bool(0 < near < largest / _HALF_STEPS)


def _behind(graph: Graph, constants: Collection[str]) -> set[str]:
    """Tensors computed from ``constants``, and by or from nodes that make such values."""
    found = set(constants)
    for node in graph.nodes:
        if _makes_mask(node) or not found.isdisjoint(_read(graph, node)):
            found.update(node.outputs)
    return found - set(constants)


def _read(graph: Graph, node: Node) -> Iterator[str]:
    return (edge.tensor for edge in graph.edges_into(node))


def _makes_mask(node: Node) -> bool:
    if node.op == "ConstantOfShape":
        value = node.attributes.get("value")
        return value is not None and _masks(numpy_helper.to_array(value))
    return node.op == "Log"
