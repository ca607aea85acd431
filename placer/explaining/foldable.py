"""What an explanation says of constants that could be part of the weights before them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from placer.common.listed import in_quotes, listed
from placer.graph import Edge, Graph, Node

_AFFINE = frozenset({"Add", "Sub", "Mul"})
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm"})
_NORM = "LayerNormalization"


def foldable(graph: Graph, pairs: Mapping[Edge, tuple[str, ...]]) -> Iterator[str]:
    """Sentences on Add, Sub and Mul of a file that a pair keeps apart, and on those behind a norm.

    Engines and exporters fold a constant for each channel into the Conv before it only where
    nothing stands between them, and none into a norm: SmoothQuant's factors are to be part of it
    (Model-Optimizer issue 10). ``pairs``: the names of the Q and DQ of a file, by edge.
    """
    norms: list[str] = []
    apart: list[tuple[Sequence[str], Node, Node]] = []
    for node in graph.nodes:
        edge, before = _foldable(node, graph)
        if edge is None or before is None:
            continue
        if before.op == _NORM:
            norms.append(f"'{node.name}' ({node.op}) into '{before.name}'")
        elif edge in pairs:
            apart.append((pairs[edge], node, before))
    if apart:
        yield _kept_apart(apart)
    if norms:
        yield (
            f"fold {listed(norms)} before the model is quantized, as placer import does: a norm's "
            "scale and bias hold such constants at no cost"
        )


def _kept_apart(apart: Sequence[tuple[Sequence[str], Node, Node]]) -> str:
    """What is said of pairs, each between a product and what adds or multiplies a constant."""
    if len(apart) == 1:
        ((pair, node, before),) = apart
        return (
            f"{in_quotes(pair)} keep the constant of '{node.name}' ({node.op}) from being part of "
            f"the weights of '{before.name}': take this pair out, or fold the constant before the "
            "model is quantized, as placer import does"
        )
    places = [f"{in_quotes(pair)} before '{node.name}' ({node.op})" for pair, node, _ in apart]
    return (
        f"{len(apart)} pairs keep constants from being part of the weights before them: "
        f"{listed(places)}; take these pairs out, or fold the constants before the model is "
        "quantized, as placer import does"
    )


def _foldable(node: Node, graph: Graph) -> tuple[Edge | None, Node | None]:
    """Where ``node`` reads what it could be part of, and what writes that; else Nones."""
    if node.op not in _AFFINE or node.domain:
        return None, None
    for edge in graph.edges_into(node):
        before = graph.producer.get(edge.tensor)
        other = graph.initializers.get(node.inputs[1 - edge.input_index])
        if before is None or other is None or graph.edges_of(edge.tensor) != (edge,):
            continue
        if _is_per_channel(tuple(other.dims), before, graph):
            return edge, before
    return None, None


def _is_per_channel(dims: tuple[int, ...], before: Node, graph: Graph) -> bool:
    """Whether a constant of ``dims`` has one value, or one for each channel, of what is written.

    What ``placer.model.passes.affine_folding`` folds: ``before`` has constant weights and at most a
    constant bias with a value for each channel, and normalizes one axis if it is a norm.
    """
    shape = graph.type_of(before.outputs[0]).shape
    if before.op not in {*_PRODUCTS, _NORM} or before.domain or shape is None:
        return False
    if not _has_constants(before, graph):
        return False
    if len(dims) > (1 if before.op == _NORM else len(shape)):
        return False
    axis = len(shape) - 1 if before.op in ("Gemm", _NORM) else 1
    full = (1,) * (len(shape) - len(dims)) + dims
    return all(size in (1, shape[i] if i == axis else 1) for i, size in enumerate(full))


def _has_constants(layer: Node, graph: Graph) -> bool:
    """Whether weight and bias, or scale and bias of a norm, are constants, and vectors if such."""
    own = [graph.initializers.get(tensor) for tensor in layer.inputs[1:3] if tensor]
    constants = [tensor for tensor in own if tensor is not None]
    vectors = constants if layer.op == _NORM else constants[1:]
    return 0 < len(constants) == len(own) and all(len(one.dims) <= 1 for one in vectors)
