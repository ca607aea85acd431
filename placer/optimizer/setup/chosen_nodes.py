"""Nodes that the user leaves float or forces: the options ``exclude``, ``only`` and ``force``."""

from __future__ import annotations

from collections.abc import Mapping

from placer.errors import InputError
from placer.graph import Edge, Graph
from placer.graph.dependence import data_tensors
from placer.graph.selection import selected_nodes, selected_where_any
from placer.optimizer.observer import Observer
from placer.optimizer.options.request import Request
from placer.rules.pack import Pack
from placer.rules.restriction import forced, restricted
from placer.rules.sites import Site
from placer.search.space import Space

Needed = Mapping[str, frozenset[Edge]]  # What a forced site quantizes, by its name.


def chosen_sites(
    sites: tuple[Site, ...], graph: Graph, pack: Pack, request: Request, observer: Observer
) -> tuple[tuple[Site, ...], Needed]:
    """``sites`` as the options leave them, and what forced ones quantize in every proposal.

    What ``pack`` excludes stays float too, unless it is forced.
    Raises InputError for options that leave nothing to quantize or contradict each other, and for
    nodes that no rule can quantize.
    """
    floats = selected_nodes(graph, request.exclude, "exclude")
    if request.only:
        floats |= graph.by_name.keys() - selected_nodes(graph, request.only, "only")
    by_pack = selected_where_any(graph, pack.manifest.exclude)
    if by_pack and request.force:
        by_pack -= selected_nodes(graph, request.force, "force")
    floats |= by_pack
    chosen = sites
    if floats:
        chosen = restricted(sites, graph, floats)
        kept = _count(chosen)
        if not kept and _count(sites):
            raise InputError(
                "`exclude` and `only` leave no site that could be quantized; relax them"
                + (f", or take another pack than {pack.name_and_version}" if by_pack else "")
            )
        asks = f"as pack {pack.name_and_version} has it" if by_pack else "as asked"
        observer.stage(f"{len(sites) - kept} of {len(sites)} sites stay float, {asks}")
    if not request.force:
        return chosen, {}
    return _forced_sites(chosen, graph, request, floats, observer)


def _count(sites: tuple[Site, ...]) -> int:
    """How many of ``sites`` could be quantized."""
    return sum(any(layout.quantize for layout in site.layouts.values()) for site in sites)


def _forced_sites(
    sites: tuple[Site, ...],
    graph: Graph,
    request: Request,
    floats: frozenset[str],
    observer: Observer,
) -> tuple[tuple[Site, ...], Needed]:
    wanted = selected_nodes(graph, request.force, "force")
    both = sorted(wanted & floats)
    if both:
        raise InputError(
            f"`force` names node '{both[0]}', which `exclude` or `only` leaves float; name it in "
            "one of them"
        )
    choice = forced(sites, graph, wanted)
    for pattern in request.force:
        named = selected_nodes(graph, [pattern], "force")
        if choice.nodes.isdisjoint(named):
            raise InputError(
                f"`force` '{pattern}': {_why_undecided(named, graph)}, so none can be forced; "
                "leave it out"
            )
    observer.stage(
        f"{len(choice.nodes)} of {len(wanted)} named nodes quantized in every proposal, as asked"
    )
    return choice.sites, choice.edges


def _why_undecided(named: frozenset[str], graph: Graph) -> str:
    data = data_tensors(graph)
    if any(tensor in data for name in named for tensor in graph.by_name[name].outputs):
        return "no rule of this pack decides on such a node"
    return "such a node computes the same for all inputs of a shape"


def check_forced(space: Space, needed: Needed) -> None:
    """Raise InputError where a placement that may be proposed leaves a forced site float."""
    for choices in (space.least, space.defaults, space.everything):
        edges = space.placement(choices).edges
        for name, needed_edges in needed.items():
            missing = sorted(needed_edges - edges)
            if missing:
                raise InputError(
                    f"`force`: site {name} cannot quantize {missing[0]}, which another site keeps "
                    "float; leave its node out"
                )
