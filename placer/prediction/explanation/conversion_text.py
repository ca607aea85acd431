"""Sentences about layers that only convert tensors, and about changes that remove them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from placer.common.listed import in_quotes, listed
from placer.graph import Edge
from placer.prediction.explanation.explain import StandaloneConversion
from placer.prediction.explanation.remedies import Remedy
from placer.quantization.placement import Change

MOST_EDGES = 4
# The own format of schemes in which single edges may have another (``Format``).
_INTEGERS = "int8"
_LEAST_TOLD_US = 0.05  # Less is 0.0 in the one decimal that is told.

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
    what = " and ".join(_quantized(change, pairs, MOST_EDGES))
    told = f"saves est. {saves:.1f} us" if saves > 0 else f"costs est. {-saves:.1f} us more"
    if abs(saves) < _LEAST_TOLD_US:
        told = "saves no time"
    return f"{what}, which {told}; estimated to be faster: "


def _remedy(remedy: Remedy, pairs: Pairs) -> str:
    return f"{change_text(remedy.change, pairs)}; saves est. {remedy.saves_us:.1f} us"


def change_text(change: Change, pairs: Pairs, most: int = MOST_EDGES) -> str:
    """What to do to the file that has ``pairs``; of each kind the ``most`` first edges."""
    tied = [f"give {in_quotes(tensors, most)} one scale" for tensors in tied_tensors(change)]
    removed = removed_text(change.removed, pairs, most)
    return " and ".join([*_quantized(change, pairs, most), *tied, *removed]) or _one_scale(change)


def change_in_numbers(change: Change, pairs: Pairs) -> str:
    """How many pairs and edges of the file that has ``pairs`` change."""
    taken, others = taken_out(change.removed, pairs)
    counts = (
        ("quantize", len(change.added) + len(change.reformatted), "edge", ""),
        ("take out", len(taken), "pair", ""),
        ("leave", len(others), "edge", " in float"),
    )
    parts = [f"{do} {n} {what}{'s' * (n > 1)}{end}" for do, n, what, end in counts if n]
    tied = ["give tensors one scale"] if any(tied_tensors(change)) else []
    return " and ".join([*parts, *tied])


def taken_out(
    edges: Sequence[Edge], pairs: Pairs
) -> tuple[Mapping[tuple[str, ...], Sequence[Edge]], Sequence[Edge]]:
    """The nodes to take out so that ``edges`` become float, with their edges, and other edges.

    Of these something else reads what the pair writes. A Q that other DQs read stays.
    """
    changed = frozenset(edges)
    kept = {name for edge, names in pairs.items() if edge not in changed for name in names}
    taken: dict[tuple[str, ...], list[Edge]] = {}
    others = []
    for edge in edges:
        nodes = tuple(name for name in pairs.get(edge, ()) if name not in kept)
        if nodes:
            taken.setdefault(nodes, []).append(edge)
        else:
            others.append(edge)
    return taken, others


def removed_text(edges: Sequence[Edge], pairs: Pairs, most: int = MOST_EDGES) -> Iterator[str]:
    """How ``edges`` become float: the pairs to take out, and edges whose pair others need."""
    taken, others = taken_out(edges, pairs)
    if taken:
        shown = []
        for nodes, of_pair in taken.items():
            names = " and ".join(f"'{name}'" for name in nodes)
            shown.append(f"{names} ({edges_text(of_pair, most)})")
        yield f"take out {listed(shown, most)}"
    if others:
        yield f"leave {edges_text(others, most)} in float"


def _one_scale(change: Change) -> str:
    several = rescaled_tensors(change)
    if len(several) == 1:
        return f"give '{several[0]}' one scale for all that read it"
    return "give the tensors one scale"


def rescaled_tensors(change: Change) -> Sequence[str]:
    """Tensors with several scales to which ``change`` does no more than give one each, sorted."""
    if change.added or change.removed or change.reformatted:
        return []
    of_group = ({edge.tensor for edge in group.edges} for group in change.gone)
    counts = Counter(tensor for tensors in of_group for tensor in tensors)
    return sorted(tensor for tensor, count in counts.items() if count > 1)


def tied_tensors(change: Change) -> Iterator[Sequence[str]]:
    """Tensors that ``change`` gives one scale and that had none in common before, sorted."""
    before = [{edge.tensor for edge in group.edges} for group in change.gone]
    for group in sorted(change.come, key=lambda group: min(group.edges)):
        tensors = {edge.tensor for edge in group.edges}
        if len(tensors) > 1 and not any(tensors <= known for known in before):
            yield sorted(tensors)


def _quantized(change: Change, pairs: Pairs, most: int) -> Iterator[str]:
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
    for edges, format_text in ((added, ""), (other, f" to {_INTEGERS}")):
        plain = tuple(edge for edge in edges if edge not in formats)
        if plain:
            yield _added_text(plain, format_text, most)
    for chosen in sorted({formats[edge] for edge in (*added, *other) if edge in formats}):
        same = tuple(edge for edge in (*added, *other) if formats.get(edge) == chosen)
        yield _added_text(same, f" to {chosen}", most)


def _added_text(edges: Sequence[Edge], format_text: str, most: int) -> str:
    """That ``edges`` are to be quantized, and what a pair on a graph output does to it."""
    outputs = [edge.tensor for edge in edges if not edge.node]
    rounds = f", which rounds the output {in_quotes(outputs, most)}" if outputs else ""
    return f"quantize {edges_text(edges, most)}{format_text}{rounds}"


def edges_text(edges: Sequence[Edge], most: int = MOST_EDGES) -> str:
    """The first of ``edges`` and how many more there are."""
    return listed(edges, most)
