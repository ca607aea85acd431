"""Tensors that hold infinity, as attention's masked scores do, and so fit no scale."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
from onnx import numpy_helper

from placer.calibration.activations import activations, observable, passes
from placer.calibration.dataset import Dataset
from placer.graph import Graph, Node
from placer.model import Model


def infinite_tensors(model: Model, tensors: Collection[str], dataset: Dataset) -> frozenset[str]:
    """Those of ``tensors`` that hold infinity or NaN, as constants or on a sample of ``dataset``.

    Activations are looked at behind what brings infinity into a model by itself: constants that
    hold it, as masks do, and Log, whose limit at zero it is. A model without either costs no run,
    and infinity elsewhere is data that the float model overflows on, which calibration refuses.
    Raises InputError for an unknown tensor, RunError if ONNX Runtime refuses the model.
    """
    constants = {name for name in model.graph.initializers if _holds_infinity(model.array(name))}
    behind = _behind(model.graph, constants)
    found = constants.intersection(tensors)
    for chunk in passes(model, observable(model, behind.intersection(tensors))):
        for _, values in activations(model, chunk, dataset):
            found.update(name for name, value in values.items() if _holds_infinity(value))
    return frozenset(found)


def _holds_infinity(values: np.ndarray) -> bool:
    return values.dtype.kind == "f" and not np.isfinite(values).all()


def _behind(graph: Graph, constants: Collection[str]) -> set[str]:
    """Tensors computed from ``constants``, and by or from nodes that make infinity."""
    found = set(constants)
    for node in graph.nodes:
        if _makes_infinity(node) or not found.isdisjoint(_read(graph, node)):
            found.update(node.outputs)
    return found - set(constants)


def _read(graph: Graph, node: Node) -> Iterator[str]:
    return (edge.tensor for edge in graph.edges_into(node))


def _makes_infinity(node: Node) -> bool:
    if node.op == "ConstantOfShape":
        value = node.attributes.get("value")
        return value is not None and _holds_infinity(numpy_helper.to_array(value))
    return node.op == "Log"
