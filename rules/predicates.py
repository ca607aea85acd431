"""The closed list of predicates that a rule may put on a match (``predicate_schema``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from onnx import numpy_helper

from placer.common.processor import Processor
from placer.graph import Graph
from placer.graph.dependence import data_tensors
from placer.graph.external_data import is_external
from placer.graph.signs import is_non_negative
from placer.rules.block_operators import block_of, reads_blocks
from placer.rules.block_sizes import equal_in_blocks
from placer.rules.blocked import is_blocked
from placer.rules.check import Check, Nodes, Tensors, of_each, within
from placer.rules.dataflow_checks import (
    consumers_are,
    different,
    is_moved_to_output,
    is_read_once,
    read_before,
    read_by,
    repeats,
    written_apart,
    written_by,
)
from placer.rules.factors import is_moved_factor
from placer.rules.memory import (
    is_channels_last,
    is_one_piece,
    is_sliced_apart,
)
from placer.rules.norm_statistics import is_norm_statistic
from placer.rules.predicate_schema import (
    AttributeIs,
    PadsOnly,
    Predicate,
    ValuesAre,
)
from placer.rules.shape_checks import (
    batched_product,
    depthwise,
    dim_is,
    elements_are,
    equal_in_model,
    is_scalar,
    is_square,
    is_turned,
    keeps_order,
    kernel_covers_strides,
    over_last_axis,
    over_one_axis,
    products_are,
    rank_is,
    same_shape,
    type_is,
)

MAX_VALUES = 1024  # Larger constants are weights; no condition needs their values.


def check_of(predicate: Predicate, processor: Processor) -> Check:
    """What tells whether ``predicate`` holds on ``processor``."""
    (field,) = predicate.model_fields_set
    value = getattr(predicate, field)
    check: Check = (
        _MAKERS_BY_PROCESSOR[field](value, processor)
        if field in _MAKERS_BY_PROCESSOR
        else _MAKERS[field](value)
    )
    return check


def _never(predicate: Predicate, processor: Processor) -> Check:
    check = check_of(predicate, processor)
    return lambda nodes, tensors, graph: not check(nodes, tensors, graph)


def _any_of(predicates: Sequence[Predicate], processor: Processor) -> Check:
    checks = tuple([check_of(predicate, processor) for predicate in predicates])
    return lambda nodes, tensors, graph: any(check(nodes, tensors, graph) for check in checks)


def _blocked(tensor: str, processor: Processor) -> Check:
    block = block_of(processor)
    return of_each(lambda bound, graph: is_blocked(bound, graph, block))(tensor)


def _equal_in_blocks(names: Sequence[str], processor: Processor) -> Check:
    block = block_of(processor)

    def check(_: Nodes, tensors: Tensors, graph: Graph) -> bool:
        bound = [tensor for name in names for tensor in tensors.get(name, ())]
        return bool(bound) and all(
            equal_in_blocks(bound[0], tensor, graph, block) for tensor in bound[1:]
        )

    return check


def _reads_blocks(name: str, processor: Processor) -> Check:
    block = block_of(processor)

    def check(nodes: Nodes, _: Tensors, graph: Graph) -> bool:
        node = nodes.get(name)
        return node is not None and reads_blocks(node, graph, block)

    return check


def _attribute_is(condition: AttributeIs) -> Check:
    def check(nodes: Nodes, tensors: Tensors, graph: Graph) -> bool:
        node = nodes.get(condition.node)
        if node is None:
            return False
        value = node.attributes.get(condition.name, condition.default)
        if isinstance(value, int):
            value = _from_first(value, condition.axis_of, tensors, graph)
        if condition.equals is not None and value != condition.equals:
            return False
        if condition.at_least is None and condition.at_most is None:
            return True
        values = value if isinstance(value, list) else [value]
        return all(
            isinstance(v, int | float) and within(v, condition.at_least, condition.at_most)
            for v in values
        )

    return check


def _values_are(condition: ValuesAre) -> Check:
    def check(_: Nodes, tensors: Tensors, graph: Graph) -> bool:
        constants = _small_constants(condition.tensor, tensors, graph)
        values = [
            _from_first(v, condition.axes_of, tensors, graph)
            for constant in constants or ()
            for v in constant
        ]
        limits = condition.at_least, condition.at_most
        return constants is not None and all(within(v, *limits) for v in values)

    return check


def _from_first(axis: float, tensor: str | None, tensors: Tensors, graph: Graph) -> float:
    """``axis`` of a tensor of known rank, counted from the first; what it is if of none."""
    names = tensors.get(tensor, ()) if tensor is not None else ()
    shape = graph.type_of(names[0]).shape if names else None
    return axis + len(shape) if shape is not None and axis < 0 else axis


def _pads_only(condition: PadsOnly) -> Check:
    def check(_: Nodes, tensors: Tensors, graph: Graph) -> bool:
        constants = _small_constants(condition.tensor, tensors, graph)
        return constants is not None and not any(
            pad for pads in constants for pad in _pads_before(pads, condition.last)
        )

    return check


def _pads_before(pads: Sequence[float], last: int) -> Sequence[float]:
    """Of ``pads`` at the start of all axes, then at their end: those of all but the last axes."""
    rank = len(pads) // 2
    other = max(rank - last, 0)
    return [*pads[:other], *pads[rank : rank + other]]


def _small_constants(name: str, tensors: Tensors, graph: Graph) -> list[list[float]] | None:
    """The values of the tensors of a name; None if there is none or one is no small constant."""
    initializers = [graph.initializers.get(t) for t in tensors.get(name, ())]
    constants = [t for t in initializers if t is not None and math.prod(t.dims) <= MAX_VALUES]
    # A constant this small is never in another file, which only the model could read.
    if not initializers or len(constants) < len(initializers) or any(map(is_external, constants)):
        return None
    return [numpy_helper.to_array(t).ravel().tolist() for t in constants]


_MAKERS_BY_PROCESSOR: Mapping[str, Callable[..., Check]] = {
    "never": _never,
    "any_of": _any_of,
    "blocked": _blocked,
    "equal_in_blocks": _equal_in_blocks,
    "reads_blocks": _reads_blocks,
}
_MAKERS: Mapping[str, Callable[..., Check]] = {
    "is_initializer": of_each(lambda tensor, graph: tensor in graph.initializers),
    "is_activation": of_each(lambda tensor, graph: tensor not in graph.initializers),
    "varies": of_each(lambda tensor, graph: tensor in data_tensors(graph)),
    "is_graph_input": of_each(lambda tensor, graph: tensor in graph.inputs),
    "is_graph_output": of_each(lambda tensor, graph: tensor in graph.outputs),
    "scalar": of_each(is_scalar),
    "fixed": of_each(lambda tensor, graph: tensor not in graph.open_tensors),
    "non_negative": of_each(is_non_negative),
    "sole_consumer": of_each(is_read_once),
    "attribute": _attribute_is,
    "consumers": consumers_are,
    "values": _values_are,
    "pads_only": _pads_only,
    "written_by": written_by,
    "read_by": read_by,
    "read_before": read_before,
    "different": different,
    "keeps_order": keeps_order,
    "leaves": of_each(is_moved_to_output),
    "square": of_each(is_square),
    "turned": of_each(is_turned),
    "over_last_axis": over_last_axis,
    "over_one_axis": over_one_axis,
    "repeats": repeats,
    "batched_product": batched_product,
    "sliced_apart": of_each(is_sliced_apart),
    "moved_factor": of_each(is_moved_factor),
    "norm_statistic": of_each(is_norm_statistic),
    "one_piece": of_each(is_one_piece),
    "channels_last": of_each(is_channels_last),
    "written_apart": written_apart,
    "rank": rank_is,
    "type": type_is,
    "dim": dim_is,
    "elements": elements_are,
    "same_shape": same_shape,
    "equal_in_model": equal_in_model,
    "depthwise": depthwise,
    "kernel_covers_strides": kernel_covers_strides,
    "products": products_are,
}
