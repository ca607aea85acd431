"""Tensors that no scale fits, as attention's masked scores: infinity, or a mask beside signal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Set

import numpy as np
from onnx import numpy_helper

from placer.calibration.activations import activations, observable, passes
from placer.calibration.dataset import Dataset
from placer.calibration.mask_values import fits_no_scale, may_mask
from placer.calibration.sample import Sample
from placer.errors import InputError
from placer.graph import Graph, Node
from placer.model import Model


def masked_tensors(
    model: Model, tensors: Collection[str], datasets: Iterable[Dataset]
) -> frozenset[str]:
    """Those of ``tensors`` that no scale fits, as constants or on a sample of ``datasets``.

    They hold infinity or NaN, or very low values beside others that all but round to zero.
    Activations are looked at behind what brings that into a model by itself: constants of such
    magnitude, inputs that are masks, and Log, whose limit at zero is infinity. A model without
    any costs no run. Infinity elsewhere, and NaN that reaches an output of the model, is data that
    the float model does not bear: nothing is found on it then, and calibration refuses it.
    Raises InputError for an unknown tensor, and where inputs hold infinity that an output does not
    survive, RunError if ONNX Runtime refuses the model.
    """
    # One constant at a time: together they may be larger than memory.
    sources = {name for name in model.graph.initializers if may_mask(model.array(name))}
    constants = {name for name in sources.intersection(tensors) if fits_no_scale(model.array(name))}
    found = (_masked_on(dataset, model, tensors, sources) for dataset in datasets)
    return frozenset(constants).union(*found)


def _masked_on(
    dataset: Dataset, model: Model, tensors: Collection[str], sources: Set[str]
) -> frozenset[str]:
    """Those of the activations ``tensors``; ``sources``: constants that may be masks."""
    outputs = frozenset(model.graph.outputs)
    behind = _behind(model.graph, sources | dataset.masks) | dataset.masks
    unfit = set[str]()
    observed = observable(model, (behind - sources).intersection({*tensors, *outputs}))
    for chunk in passes(model, observed, dataset):
        for sample, values in activations(model, chunk, dataset):
            made = {name: values[name] for name in outputs.intersection(values)}
            _check_outputs(sample, made)
            if any(np.isnan(value).any() for value in made.values()):
                return frozenset()
            unfit.update(name for name, value in values.items() if fits_no_scale(value))
    return frozenset(unfit.intersection(tensors))


def _check_outputs(sample: Sample, outputs: Mapping[str, np.ndarray]) -> None:
    """Raise InputError if infinity in the sample reaches an output."""
    infinite = [n for n, v in sample.inputs.items() if v.dtype.kind == "f" and np.isinf(v).any()]
    wrong = [name for name, values in outputs.items() if not np.isfinite(values).all()]
    if infinite and wrong:
        raise InputError(
            f"{sample.origin}: array '{infinite[0]}' holds -Inf, which reaches output "
            f"'{wrong[0]}' of the float model as NaN or Inf; remove or repair that sample"
        )


def _behind(graph: Graph, constants: Collection[str]) -> set[str]:
    """Tensors computed from ``constants``, and by or from nodes that make such values."""
    reached = set(constants)
    for node in graph.nodes:
        if _makes_mask(node) or not reached.isdisjoint(_read(graph, node)):
            reached.update(node.outputs)
    return reached - set(constants)


def _read(graph: Graph, node: Node) -> Iterator[str]:
    return (edge.tensor for edge in graph.edges_into(node))


def _makes_mask(node: Node) -> bool:
    if node.op == "ConstantOfShape":
        value = node.attributes.get("value")
        return value is not None and may_mask(numpy_helper.to_array(value))
    return node.op == "Log"
