"""Sites that a placement decides otherwise than the pack's default, and what the default saves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from placer.graph import Edge
from placer.prediction.explanation.remedies import MIN_GAIN_US, Remedies, Remedy
from placer.quantization import Format, Placement
from placer.quantization.placement import Change
from placer.rules.sites import ResolvedLayout, Site, kept_float

OTHER = "other"


@dataclass(frozen=True)
class Decision:
    """A site and the layout that the placement has there, ``other`` if it is none of the rule's.

    ``default``: the layout that the pack's default placement has there. ``inside``: edges that
    carry a pair though the layout keeps them float, so that what it fuses is split or rounds more
    often. ``nearest``: where the layout is ``other``, the one that lacks the fewest pairs beside
    those that are there, and ``missing`` the edges of these; empty where there are none, or some of
    no layout.
    """

    site: Site
    layout: str
    default: str
    inside: tuple[Edge, ...]
    nearest: str = ""
    missing: tuple[Edge, ...] = ()

    @cached_property
    def kind(self) -> tuple[str, str, str, bool]:
        """Decisions of one kind are told, and set back to the default, together."""
        return self.site.match.rule.id, self.layout, self.default, bool(self.inside)


def decide(
    sites: Iterable[Site],
    placement: Placement,
    default: Placement,
    moved: Set[Edge] = frozenset(),
) -> Iterator[Decision]:
    """What ``placement`` has at each of ``sites``.

    ``moved``: edges that are as good as quantized, as the engine moves pairs to them.
    Pairs of other sites may be on edges of a site, so that the default placement has no layout of
    the rule there as it stands; the site then has its default where it is as in that placement.
    """
    for site in sites:
        by_default = chosen_layout(site, default)
        if by_default == OTHER:
            by_default = site.default
        layout = chosen_layout(site, placement)
        if layout == OTHER and _at(site, placement) == _at(site, default):
            layout = by_default
        floats = kept_float([site.layouts[layout]]) if layout in site.layouts else frozenset()
        inside = tuple(sorted(floats & placement.edges - default.edges))
        nearest, missing = _nearest(site, placement) if layout == OTHER else ("", ())
        if nearest and set(missing) <= moved:
            layout, nearest, missing = nearest, "", ()
        if layout != by_default and _is_moved_to(site, by_default, placement, moved):
            layout, nearest, missing = by_default, "", ()
        yield Decision(site, layout, by_default, inside, nearest, missing)


def _is_moved_to(site: Site, layout: str, placement: Placement, moved: Set[Edge]) -> bool:
    """Whether ``layout`` has all pairs at ``site``, and what it has more is as good as quantized.

    As a residual behind the Slice of a crop. Of layouts that give tensors one scale that is no
    matter of edges alone.
    """
    present = _considered(site) & placement.edges
    wanted = site.layouts.get(layout)
    if wanted is None or wanted.shared or not present < wanted.quantize:
        return False
    formats = {placement.formats.get(edge) for edge in present}
    return formats == {wanted.format} and wanted.quantize - present <= moved


def _nearest(site: Site, placement: Placement) -> tuple[str, tuple[Edge, ...]]:
    """The layout that has all pairs at ``site`` and the fewest others, and the edges of these."""
    present = _considered(site) & placement.edges
    formats = {placement.formats.get(edge) for edge in present}
    fitting = [
        (len(layout.quantize), name)
        for name, layout in site.layouts.items()
        if present < layout.quantize and {layout.format} == formats
    ]
    if not fitting:
        return "", ()
    _, name = min(fitting)
    return name, tuple(sorted(site.layouts[name].quantize - present))


def _at(site: Site, placement: Placement) -> tuple[object, ...]:
    """The pairs on edges of ``site``, which share scales there, and their formats."""
    edges = _edges_of(site)
    groups = frozenset(group.edges & edges for group in placement.groups if group.edges & edges)
    return groups, frozenset((e, f) for e, f in placement.formats.items() if e in edges)


def default_gains(
    remedies: Remedies, decisions: Sequence[Decision], default: Placement
) -> dict[tuple[str, str, str, bool], Remedy]:
    """By kind, what setting its decisions back to ``default`` saves, where it saves anything."""
    placement = remedies.prediction.placement
    touched: dict[tuple[str, str, str, bool], set[Edge]] = {}
    for decision in decisions:
        if decision.inside or decision.layout != decision.default:
            touched.setdefault(decision.kind, set()).update(_edges_of(decision.site))
    gains = {}
    for kind, edges in touched.items():
        change = _back_to(default, edges, remedies)
        saves_us = remedies.saving(change)
        if saves_us >= MIN_GAIN_US:
            gains[kind] = Remedy(placement, change, saves_us)
    return gains


def chosen_layout(site: Site, placement: Placement) -> str:
    """The layout that ``placement`` has at ``site``, the default first; ``other`` if none."""
    present = _considered(site) & placement.edges
    names = sorted(site.layouts, key=lambda name: name != site.default)
    for name in names:
        layout = site.layouts[name]
        if (
            layout.quantize == present
            and _shares(layout, placement)
            and _has_format(layout, placement)
        ):
            return name
    return OTHER


def _considered(site: Site) -> frozenset[Edge]:
    """The edges that some layout of ``site`` quantizes."""
    return frozenset(edge for layout in site.layouts.values() for edge in layout.quantize)


def _edges_of(site: Site) -> frozenset[Edge]:
    """All edges that some layout of ``site`` decides on."""
    layouts = site.layouts.values()
    return kept_float(layouts).union(*(layout.quantize for layout in layouts))


def _back_to(default: Placement, edges: Set[Edge], remedies: Remedies) -> Change:
    """What turns ``edges`` into what they are in ``default``."""
    groups = [group for group in default.groups if group.edges & edges]
    tensors = {edge.tensor for edge in edges}
    around = remedies.around(tensors.union(*(_tensors(group.edges) for group in groups)))
    kept = around.without(edges)
    formats: dict[Edge, Format] = {**kept.formats}
    formats |= {edge: chosen for edge, chosen in default.formats.items() if edge in edges}
    tied = [_tensors(group.edges) for group in (*kept.groups, *groups)]
    return around.change_to(Placement.of([*kept.edges, *(default.edges & edges)], tied, formats))


def _tensors(edges: Iterable[Edge]) -> set[str]:
    return {edge.tensor for edge in edges}


def _shares(layout: ResolvedLayout, placement: Placement) -> bool:
    """Whether the placement has one scale for each set of tensors that the layout ties."""
    return all(
        len({placement.group_of.get(e) for e in layout.quantize if e.tensor in tensors}) <= 1
        for tensors in layout.shared
    )


def _has_format(layout: ResolvedLayout, placement: Placement) -> bool:
    """Whether what the layout quantizes of its own nodes' inputs has its format.

    Edges into other nodes have those of their sites; layouts with ``requires`` follow others.
    """
    edges = layout.own or layout.quantize
    return bool(layout.requires) or all(placement.formats.get(e) == layout.format for e in edges)
