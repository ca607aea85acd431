"""Where ONNX Runtime takes out a Relu or Clip that does nothing before Q: Q moves past it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from placer.graph import Edge, Graph, Node
from placer.prediction.layers.clamps import (
    CLAMPS,
    RELU,
    Bounds,
    Exceeds,
    bounds_of,
    clamp_behind,
    reshaped_gemm,
)
from placer.prediction.layers.motion import (
    FormDraft,
    NormalForm,
    Passage,
    Scale,
    common_scale,
    move_pairs,
)


@dataclass(frozen=True)
class ClampPassage(Passage):
    """A Relu or Clip that Q passes only where Q clamps to its ``bounds``, too.

    ``summed``: of one behind a Gemm with a Reshape behind it, the edge to the sum with its bias. Q
    stays unless a pair on that edge keeps product and bias apart.
    """

    bounds: Bounds = RELU
    summed: Edge | None = None


# Which clamps a product takes along in float before the others behind it are taken out.
_ACTIVATED = {"Conv": frozenset(CLAMPS), "Gemm": frozenset({"Relu"})}


def clamp_passages(graph: Graph) -> Iterator[ClampPassage]:
    """Each Relu and Clip that Q passes where it does what they do, in node order.

    It must alone read what it does. A Clip of a graph input stays, and so does the second of three
    and more behind a Conv or Gemm, which takes the first along. Relus before a Clip are part of it.
    Optimized graphs of ONNX Runtime 1.32.0; relu_clip_fusion.cc, relu_quant_fusion.cc,
    clip_quant_fusion.cc.
    """
    for node in graph.nodes:
        bounds = bounds_of(node, graph)
        if bounds is None or len(graph.edges_of(node.inputs[0])) != 1:
            continue
        if _reads_input(node, graph) or _is_second_of_many(node, graph):
            continue
        before = graph.edges_of(node.inputs[0])
        after = tuple(graph.edges_of(node.outputs[0]))
        summed = reshaped_gemm(node, graph)
        yield ClampPassage(tuple(before), after, bounds=bounds, summed=summed)


def _reads_input(node: Node, graph: Graph) -> bool:
    """Whether a Clip, and a Relu that becomes part of it, reads a graph input."""
    clamp: Node | None = node
    if node.op == "Relu":
        clamp = clamp_behind(node, graph)
    else:
        before = graph.producer.get(node.inputs[0])
        node = before if before is not None and before.op == "Relu" else node
    return clamp is not None and clamp.op == "Clip" and node.inputs[0] in graph.inputs


def _is_second_of_many(node: Node, graph: Graph) -> bool:
    """Whether it follows a clamp that a product takes along in float, and others follow it."""
    first = _before_row(node, graph)
    if first is None or first.op not in CLAMPS or clamp_behind(node, graph) is None:
        return False
    product = _before_row(first, graph)
    return (
        product is not None
        and first.op in _ACTIVATED.get(product.op, ())
        and not _joins_clip(node, graph)
    )


def _before_row(node: Node, graph: Graph) -> Node | None:
    """What a clamp reads, past the Relus that are one with it."""
    before = graph.producer.get(node.inputs[0])
    while before is not None and _joins_clip(before, graph):
        before = graph.producer.get(before.inputs[0])
    return before


def _joins_clip(node: Node, graph: Graph) -> bool:
    """Whether it is a Relu that becomes part of a Clip, behind other Relus or none."""
    behind: Node | None = node
    while behind is not None and behind.op == "Relu":
        behind = clamp_behind(behind, graph)
    return node.op == "Relu" and behind is not None


def move_pairs_and_clamps(
    given: Mapping[Edge, Scale], passages: Sequence[Passage], outlasts: Exceeds
) -> NormalForm:
    """Move pairs of ``given`` scales, and Q past the clamps that do nothing before it last.

    ONNX Runtime 1.32.0 takes out the last clamp of a row, moves Q past Transposes, and takes out
    the rest. ``outlasts``: whether a clamp stays before Q of a scale.
    """
    clamps = [passage for passage in reversed(passages) if isinstance(passage, ClampPassage)]
    rest = [passage for passage in passages if not isinstance(passage, ClampPassage)]
    form = move_pairs(given, rest)
    if not clamps:
        return form
    draft = FormDraft(dict(form.scales), dict(form.second), set(form.back))
    turns = [p for p in rest if p.turns and p.backward and given.keys().isdisjoint(p.inside)]
    read_by_q = set(draft.scales)
    for passage in clamps:
        goes = read_by_q.issuperset(passage.after) and _go_on(passage, draft, outlasts)
        if goes and passage.bounds != RELU:
            read_by_q.update(passage.before)  # A Relu before a Clip is one with it.
    moves = [True]
    while any(moves):
        moves = [draft.move_back(passage) for passage in reversed(turns)]
    for passage in clamps:
        _go_on(passage, draft, outlasts)
    return draft.form()


def _go_on(passage: ClampPassage, draft: FormDraft, outlasts: Exceeds) -> bool:
    """Move Q past a clamp that does nothing before it."""
    if passage.summed is not None and passage.summed not in draft.scales:
        return False
    scale = common_scale(passage.after, draft.scales)
    if scale is None or outlasts(scale, passage.bounds):
        return False
    return draft.move_back(passage)
