"""Tensors that no scale fits, as attention's masked scores: infinity, or a mask beside signal."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

import numpy as np
from onnx import numpy_helper

from placer.calibration.activations import activations, observable, passes
from placer.calibration.dataset import Dataset
from placer.graph import Graph, Node
from placer.model import Model

# Exporters mask scores with -1e4, -1e9, the lowest float or infinity; nothing else is as low.
_MASK = -1e3
# Scores may be scaled behind their mask, by the root of a head's width: this much is left of it.
_FAR = -50.0
# All that is not masked lies this much nearer to zero: four of 127 steps are left to it.
_GAP = 32


def masked_tensors(model: Model, tensors: Collection[str], dataset: Dataset) -> frozenset[str]:
    """Those of ``tensors`` that no scale fits, as constants or on a sample of ``dataset``.

    They hold infinity or NaN, or very low values beside others that all but round to zero.
    Activations are looked at behind what brings that into a model by itself: constants of such
    magnitude, and Log, whose limit at zero is infinity. A model without either costs no run.
    Infinity elsewhere, and NaN that reaches an output of the model, is data that the float model
    does not bear: nothing is found then, and calibration refuses it.
    Raises InputError for an unknown tensor, RunError if ONNX Runtime refuses the model.
    """
    outputs = frozenset(model.graph.outputs)
    # One constant at a time: together they may be larger than memory.
    sources = {name for name in model.graph.initializers if _may_mask(model.array(name))}
    constants = {
        name for name in sources.intersection(tensors) if _fits_no_scale(model.array(name))
    }
    behind = _behind(model.graph, sources)
    found = set(constants)
    observed = observable(model, behind.intersection({*tensors, *outputs}))
    for chunk in passes(model, observed, dataset):
        for _, values in activations(model, chunk, dataset):
            if any(np.isnan(values[name]).any() for name in outputs.intersection(values)):
                return frozenset(constants)
            found.update(name for name, value in values.items() if _fits_no_scale(value))
    return frozenset(found.intersection(tensors))


def _may_mask(values: np.ndarray) -> bool:
    """Whether a product or sum with these constants may be a mask; NaN counts as one."""
    if values.dtype.kind != "f" or not values.size:
        return False
    return not (values.min() > _MASK and values.max() < -_MASK)


def _fits_no_scale(values: np.ndarray) -> bool:
    if values.dtype.kind != "f" or not values.size:
        return False
    low, high = float(values.min()), float(values.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        return True
    near = float(np.abs(values[values > low / 2]).max(initial=0)) if low <= _FAR else 0.0
    return 0 < near < -low / _GAP


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
        return value is not None and _may_mask(numpy_helper.to_array(value))
    return node.op == "Log"
