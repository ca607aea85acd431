"""Horizontal fusion of layers that read one tensor: `joins` and `joins_first` of rules.

TensorRT calls it horizontal fusion and names such a layer ``A || B`` (TensorRT issue 2525), or of
matrix products ``A+B`` (issue 4397).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from placer.graph import Graph, Node
from placer.prediction.layers.layer_candidate import LayerCandidate
from placer.prediction.layers.motion import NormalForm

# The rule or none, the tensor, and of Convs the window and the operators behind.
Key = tuple[object, ...]
# Convs that one layer holds at most: 36 of a CenterPoint are layers of 8, 8, 8, 8 and 4 (TensorRT
# 8.2.3, A100, FP16; NVIDIA-AI-IOT/Lidar_AI_Solution, CUDA-CenterPoint/model).
MOST_CONVS = 8


def joins(candidate: LayerCandidate) -> bool:
    """Whether the layer joins others that read its tensor."""
    return candidate.claim is not None and candidate.claim.fusion.joins


def joins_first(candidate: LayerCandidate) -> bool:
    """Whether the layer's first node joins others, without those behind it."""
    return candidate.claim is not None and candidate.claim.fusion.joins_first


def joined(claimed: Sequence[LayerCandidate]) -> list[list[int]]:
    """The positions of the layers that join if they read their tensor alike."""
    positions_of: dict[Key, set[int]] = {}
    for candidate in claimed:
        if joins(candidate) and (key := _key(candidate)) is not None:
            positions_of.setdefault(key, set()).add(candidate.position)
    return [sorted(positions) for positions in positions_of.values() if len(positions) > 1]


def groups_of(
    claimed: Sequence[LayerCandidate], candidates: Mapping[int, LayerCandidate], form: NormalForm
) -> list[tuple[LayerCandidate, ...]]:
    """The layers of ``candidates``, by position, that join because they read one tensor."""
    groups = []
    for positions in joined(claimed):
        present = [candidates[p] for p in positions if p in candidates and joins(candidates[p])]
        for group in _alike(present, form):
            # Convs and products join whichever can; of others, such as Slices, all or none.
            if len(group) == len(positions) or (len(group) > 1 and _multiplies(group[0])):
                groups += _parts(group)
    return groups


def _parts(group: Sequence[LayerCandidate]) -> list[tuple[LayerCandidate, ...]]:
    """``group`` as layers, of Convs in parts of at most ``MOST_CONVS``; one left over is none."""
    most = MOST_CONVS if _is_conv(group[0].nodes[0]) else len(group)
    parts = (tuple(group[start : start + most]) for start in range(0, len(group), most))
    return [part for part in parts if len(part) > 1]


def _alike(
    candidates: Sequence[LayerCandidate], form: NormalForm
) -> Iterable[list[LayerCandidate]]:
    """Those that read their tensor in one scale and, of products, write integers or all floats."""
    candidates_of: dict[tuple[object, ...], list[LayerCandidate]] = {}
    for candidate in candidates:
        read = frozenset(form.chain(edge) for edge in candidate.reads)
        written: object = ()
        if _multiplies(candidate):
            written = [[s is None for s in scales] for scales in candidate.output_scales(form)]
        key = _key(candidate), read, str(written)
        if len(read) == 1:
            candidates_of.setdefault(key, []).append(candidate)
    return candidates_of.values()


def taken_apart(candidates: Mapping[int, LayerCandidate], form: NormalForm) -> set[LayerCandidate]:
    """Layers whose first node joins that of another layer, so that they are not built."""
    partners: dict[tuple[object, ...], list[LayerCandidate]] = {}
    for candidate in candidates.values():
        if joins_first(candidate) or (joins(candidate) and len(candidate.nodes) == 1):
            key = _window(candidate.nodes[0], candidate.graph)
            if key is not None:
                chain = form.chain(candidate.reads[0])
                partners.setdefault((key, candidate.nodes[0].inputs[0], chain), []).append(
                    candidate
                )
    apart = (group for group in partners.values() if len(group) > 1)
    return {candidate for group in apart for candidate in group if joins_first(candidate)}


def _key(candidate: LayerCandidate) -> Key | None:
    first = candidate.nodes[0]
    if first.op == "ConvTranspose":
        return None
    if not _is_conv(first):
        rule = None if candidate.claim is None else candidate.claim.match.rule.id
        return rule, first.inputs[0], *_behind(candidate.nodes)
    window = _window(first, candidate.graph)
    return None if window is None else (first.inputs[0], window, *_behind(candidate.nodes))


def _behind(nodes: Sequence[Node]) -> list[object]:
    """The operators behind a layer's first, with their attributes."""
    attributes = (sorted(a.SerializeToString() for a in n.proto.attribute) for n in nodes[1:])
    return [(n.op, *values) for n, values in zip(nodes[1:], attributes, strict=True)]


def _multiplies(candidate: LayerCandidate) -> bool:
    return candidate.nodes[0].op in ("Conv", "MatMul", "Gemm")


def _is_conv(node: Node) -> bool:
    return node.op == "Conv"


def _window(node: Node, graph: Graph) -> Key | None:
    """What Convs of one layer have in common; None for what is no Conv of a single group."""
    attributes = {a.name: a for a in node.proto.attribute}
    if not _is_conv(node) or ("group" in attributes and attributes["group"].i != 1):
        return None
    shape = graph.type_of(node.inputs[1]).shape
    if shape is None:
        return None
    spatial = len(shape) - 2
    steps = tuple(tuple(attributes[n].ints) if n in attributes else () for n in _STEPS)
    default = ((1,) * spatial, (1,) * spatial, (0,) * (2 * spatial))
    same = tuple(given or usual for given, usual in zip(steps, default, strict=True))
    auto = attributes["auto_pad"].s if "auto_pad" in attributes else b""
    return (*shape[2:], *same, auto)


_STEPS = ("strides", "dilations", "pads")
