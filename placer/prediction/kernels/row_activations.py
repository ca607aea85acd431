"""Activations behind products of a single row, as between the two layers of a channel's gate.

A kernel that multiplies a row adds its bias, and computes the activation of the sum if that reads
it once, as Relu, Sigmoid, Tanh, LeakyRelu and SiLU do. What reads the sum twice, as HardSwish and
GELU do, and most activations of a sum without a bias are left to the kernel of what reads them. Of
a HardSigmoid the first kernel multiplies and the next one limits; a Clip is limited on one side by
each. Both kernels are called after a Relu of a sum without a bias.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of 58 small graphs of
channels' gates: two products with and without biases, nine activations between them and seven
behind.
"""

from __future__ import annotations

from collections.abc import Iterable

from placer.graph import Graph
from placer.prediction.kernels.parts import PRODUCTS, Unit

_READ_TWICE = ("HardSwish",)
_LEFT_WITHOUT_BIAS = ("Relu", "Sigmoid", "Tanh", "HardSigmoid")


def is_left(graph: Graph, unit: Unit) -> bool:
    """Whether the next kernel computes a unit behind the sum of a row's product."""
    if not unit.works:
        return False
    for _, writer in unit.reads:
        if writer is None:
            continue
        plain = _multiplies_row(writer)
        if not (plain or adds_bias(graph, writer)):
            continue
        if unit.node.op in _READ_TWICE or _is_read_twice(writer):
            return True
        if plain and unit.node.op in _LEFT_WITHOUT_BIAS and not _feeds_written_out(unit):
            return True
    return False


def ends_kernel(graph: Graph, unit: Unit, feeds_product: bool) -> bool:
    """Whether another kernel than the product's computes ``unit``, which is behind its sum.

    ``feeds_product``: whether only products of a single row read it in the end.
    """
    if keeps_bias(graph, unit):
        return False
    return is_left(graph, unit) or not feeds_product


def keeps_bias(graph: Graph, bias: Unit) -> bool:
    """Whether the product's kernel adds its bias in any case, for what limits or gates the sum."""
    if not adds_bias(graph, bias):
        return False
    readers = [reader.node.op for _, reader in bias.readers]
    return readers in (["HardSwish"], ["HardSigmoid"]) or _is_read_twice(bias)


def adds_bias(graph: Graph, unit: Unit) -> bool:
    """Whether it adds a bias to what the product of a row sums."""
    writer = unit.reads[0][1] if len(unit.reads) == 1 else None
    if writer is None or not _multiplies_row(writer):
        return False
    constant = any(tensor in graph.initializers for tensor in unit.node.inputs)
    return not unit.works or (unit.node.op == "Add" and constant)


def name(graph: Graph, units: Iterable[Unit]) -> None:
    """Let kernels be called after activations that another kernel computes in part."""
    for unit in units:
        writer = unit.reads[0][1] if len(unit.reads) == 1 else None
        if writer is None:
            continue
        if unit.node.op == "Relu" and _multiplies_row(writer) and writer.group != unit.group:
            writer.views += (unit.node,)
            unit.views += (writer.node,)
        elif unit.node.op == "HardSigmoid" and writer.group != unit.group:
            if _multiplies_row(writer) or adds_bias(graph, writer):
                writer.views += (unit.node,)
        elif unit.node.op == "Clip" and adds_bias(graph, writer) and writer.group == unit.group:
            for reader in (r for _, r in unit.readers if _multiplies_row(r)):
                reader.views += (unit.node,)


def _multiplies_row(unit: Unit) -> bool:
    return unit.role == "reduce" and unit.node.op in PRODUCTS


def _feeds_written_out(unit: Unit) -> bool:
    """Whether a product of so few elements reads it that each is an operand."""
    return any(r.role == "pointwise" and r.node.op in PRODUCTS for _, r in unit.readers)


def _is_read_twice(unit: Unit) -> bool:
    """Whether several nodes read it that are no SiLU."""
    readers = [reader for _, reader in unit.readers]
    if len(readers) < 2 or any(reader.role != "pointwise" for reader in readers):
        return False
    gates = [reader for reader in readers if reader.node.op == "Sigmoid"]
    others = [reader for reader in readers if reader not in gates]
    return not (
        len(gates) == len(others) == 1
        and others[0].node.op == "Mul"
        and any(writer is gates[0] for _, writer in others[0].reads)
    )
