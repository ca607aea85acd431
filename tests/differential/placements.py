"""Random placements: what the rules do of their own, other layouts, and edges that none names."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from placer.graph import Edge, Graph
from placer.learning.shrink import with_whole_products
from placer.model import Model
from placer.quantization import EMPTY, Placement
from placer.rules.pack import Pack
from placer.rules.sites import find_sites, place
from placer.rules.target import Target
from placer.search.space import build_space


def random_placement(model: Model, pack: Pack, target: Target, random: Random) -> Placement:
    """Float, the pack's default, random layouts of its sites, or these with edges changed."""
    kind = random.random()
    if kind < 0.15:
        return EMPTY
    sites = find_sites(model.graph, pack.rules, target)
    if kind < 0.4:
        return place(sites, {})
    space = build_space(model.graph, sites)
    drawn = space.placement({group.name: random.choice(group.layouts) for group in space.groups})
    return drawn if kind < 0.9 else _mutated(drawn, model.graph, random)


def _mutated(placement: Placement, graph: Graph, random: Random) -> Placement:
    """``placement`` less a group, or with the pairs of a tensor that carries none."""
    groups = placement.sorted()
    if groups and random.random() < 0.5:
        groups.remove(random.choice(groups))
    free = sorted({e.tensor for e in _activations(graph)} - {e.tensor for e in placement.edges})
    if free and random.random() < 0.7:
        tensor = random.choice(free)
        groups.append([e for e in _activations(graph) if e.tensor == tensor])
    return with_whole_products(Placement.of_groups(groups), graph)


def _activations(graph: Graph) -> Iterator[Edge]:
    for tensor, edges in graph.consumers.items():
        if tensor not in graph.initializers and graph.type_of(tensor).is_float:
            yield from (edge for edge in edges if not edge.is_graph_output)
