"""Sentences about layers that only convert tensors, and about changes that remove them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from placer.common.listed import listed
from placer.graph import Edge
from placer.prediction.explanation.explain import StandaloneConversion
from placer.prediction.explanation.remedies import Remedy
from placer.quantization.placement import Change

MOST_EDGES = 4

# The names of the Q and DQ nodes that a file has at each edge.
Pairs = Mapping[Edge, tuple[str, ...]]


def conversion_text(
    conversion: StandaloneConversion, *, timed: bool, pairs: Pairs | None = None
) -> tuple[str, str]:
    """Why a conversion stays a layer, and what removes it, which may be nothing.

    ``timed``: whether there are estimates. ``pairs``: those of the file that is explained.
    """
    cost = f"est. {conversion.us:.1f} us; " if timed else ""
    remedy = ""
    if conversion.remedy is not None:
        pairs = pairs or {}
        remedy = f"remove it: {_missing(conversion, pairs)}{_remedy(conversion.remedy, pairs)}"
    elif conversion.default_of is not None:
        rule, layout = conversion.default_of
        remedy = f"the default of rule {rule}, {layout}, removes it"
    elif conversion.goes_with_others:
        remedy = "the remedies of other conversions remove it, too"
    return f"{conversion.name}: {cost}{conversion.because}", remedy


def _missing(conversion: StandaloneConversion, pairs: Pairs) -> str:
    """The pair that is missing, before the advice to take the others out instead."""
    if conversion.missing is None:
        return ""
    change, saves = conversion.missing.change, conversion.missing.saves_us
    what = " and ".join(_quantized(change, pairs))
    told = f"saves est. {saves:.1f} us" if saves > 0 else f"costs est. {-saves:.1f} us more"
    return f"{what}, which {told}; estimated to be faster: "


def _remedy(remedy: Remedy, pairs: Pairs) -> str:
    return f"{change_text(remedy.change, pairs)}; saves est. {remedy.saves_us:.1f} us"


def change_text(change: Change, pairs: Pairs) -> str:
    """What to do to the file that has ``pairs``."""
    parts = [*_quantized(change, pairs), *_tied(change), *removed_text(change.removed, pairs)]
    return " and ".join(parts) or _one_scale(change)


def removed_text(edges: Sequence[Edge], pairs: Pairs) -> Iterator[str]:
    """How ``edges`` become float: the pairs to take out, where nothing else reads what these write.

    A Q that other DQs read stays.
    """
    kept = {name for edge, names in pairs.items() if edge not in edges for name in names}
    taken: dict[tuple[str, ...], list[Edge]] = {}
    others = []
    for edge in edges:
        nodes = tuple(f"'{name}'" for name in pairs.get(edge, ()) if name not in kept)
        if nodes:
            taken.setdefault(nodes, []).append(edge)
        else:
            others.append(edge)
    if taken:
        shown = [
            f"{' and '.join(nodes)} ({edges_text(of_pair)})" for nodes, of_pair in taken.items()
        ]
        yield f"take out {listed(shown, MOST_EDGES)}"
    if others:
        yield f"leave {edges_text(others)} in float"


def _one_scale(change: Change) -> str:
    of_group = ({edge.tensor for edge in group.edges} for group in change.gone)
    counts = Counter(tensor for tensors in of_group for tensor in tensors)
    several = sorted(f"'{tensor}'" for tensor, count in counts.items() if count > 1)
    if len(several) == 1:
        return f"give {several[0]} one scale for all that read it"
    return "give the tensors one scale"


def _tied(change: Change) -> Iterator[str]:
    """Which tensors ``change`` gives one scale that had none in common before."""
    before = [{edge.tensor for edge in group.edges} for group in change.gone]
    for group in sorted(change.come, key=lambda group: min(group.edges)):
        tensors = {edge.tensor for edge in group.edges}
        if len(tensors) > 1 and not any(tensors <= known for known in before):
            names = sorted(f"'{tensor}'" for tensor in tensors)
            yield f"give {listed(names, MOST_EDGES)} one scale"


def _quantized(change: Change, pairs: Pairs) -> Iterator[str]:
    """What ``change`` quantizes, anew or in another format than before.

    A pair that the file has at an edge, without which it is predicted, has scales that no kernel
    of integers takes.
    """
    idle = [edge for edge in change.added if edge in pairs]
    for edge in idle:
        where = " and ".join(f"'{name}'" for name in pairs[edge])
        what = "scales by output channels" if edge.input_index else "one scale"
        yield f"give {where} ({edge}) {what}"
    added = tuple(edge for edge in change.added if edge not in pairs)
    other, formats = change.reformatted, change.formats
    for edges, format_text in ((added, ""), (other, " in the scheme's own format")):
        plain = tuple(edge for edge in edges if edge not in formats)
        if plain:
            yield _added_text(plain, format_text)
    for chosen in sorted({formats[edge] for edge in (*added, *other) if edge in formats}):
        same = tuple(edge for edge in (*added, *other) if formats.get(edge) == chosen)
        yield _added_text(same, f" to {chosen}")


def _added_text(edges: Sequence[Edge], format_text: str) -> str:
    """That ``edges`` are to be quantized, and what a pair on a graph output does to it."""
    outputs = [f"'{edge.tensor}'" for edge in edges if not edge.node]
    rounds = f", which rounds the output {listed(outputs, MOST_EDGES)}" if outputs else ""
    return f"quantize {edges_text(edges)}{format_text}{rounds}"


def edges_text(edges: Sequence[Edge]) -> str:
    """The first of ``edges`` and how many more there are."""
    return listed(edges, MOST_EDGES)
