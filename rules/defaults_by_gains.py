"""Which sites of a default placement save more time than the conversions around them take.

A region of integers pays where what it saves exceeds what it takes to quantize what enters it and
dequantize what leaves it, which no site can tell by itself. By the times that a pack states
(``Behaviour.gains``), the regions that save the most together are a minimum cut: sites are
connected to a source that stands for integers or a sink that stands for float by what they save or
lose, and to each other by the conversions between them.

Source: D. Greig, B. Porteous, A. Seheult, "Exact maximum a posteriori estimation for binary
images", Journal of the Royal Statistical Society B 51 (1989). SciPy computes the flow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from placer.graph import Edge, Graph, Node
from placer.rules.fusion_schema import Fusion
from placer.rules.gains import Gain, Gains
from placer.rules.match import Match
from placer.rules.matcher import Matches
from placer.rules.pack import Pack
from placer.rules.schema import Rule
from placer.rules.sites import Site, find_sites_with_overlaps, place, rule_layout
from placer.rules.target import ANY_TARGET, Target

_STEPS = 10  # In a microsecond: SciPy's flows are 32-bit integers,
_MOST = 10**6  # so no site counts for more than that many steps,
_NEVER = 10**9  # and this is more than all of them.
_TIE_US = 0.1  # Of what takes as long, readers want one type, so that a tensor is written once.
_ELEMENTWISE = frozenset({"Add", "Sub", "Mul", "BatchNormalization"})
_BESIDE_CONVS = _ELEMENTWISE | {  # Read and write maps as Convs do.
    *("Concat", "Div", "Relu", "LeakyRelu", "PRelu", "Clip", "Elu", "Sigmoid", "Tanh", "HardSwish"),
    *("HardSigmoid", "Mish", "Gelu", "Softplus", "Max", "Min"),
}
_INTEGERS, _FLOATS = "integers", "floats"  # The source and the sink.


def sites_with_defaults(graph: Graph, pack: Pack, target: Target = ANY_TARGET) -> tuple[Site, ...]:
    """``find_sites``, with the defaults that make the pack's default placement."""
    matches = Matches(graph, target.processor)
    sites, _ = find_sites_with_overlaps(matches, pack.rules, pack.target(target))
    gains = pack.manifest.behaviour.gains_on(pack.target(target))
    return defaults_by_gains(matches, sites, pack.rules, gains, target)


def defaults_by_gains(
    matches: Matches,
    sites: Sequence[Site],
    rules: Iterable[Rule],
    gains: Gains | None,
    target: Target = ANY_TARGET,
) -> tuple[Site, ...]:
    """``sites``, with float as the default where integers would not pay for their conversions.

    ``rules``: those that say which layers exist. Sites of equal structure keep one default. A site
    whose default is float, or that has no float layout, keeps its own. Nothing changes without
    ``gains``.
    """
    if gains is None:
        return tuple(sites)
    floats = {site.signature: name for site in sites if (name := _float_layout(site)) is not None}
    kept = _cut(matches, sites, tuple(rules), gains, target, floats).side_of_source()
    decided = [
        replace(site, default=floats[site.signature])
        if site.signature in floats and site.signature not in kept
        else site
        for site in sites
    ]
    return _beside_others(decided, matches.graph, gains)


def _cut(
    matches: Matches,
    sites: Sequence[Site],
    rules: Sequence[Rule],
    gains: Gains,
    target: Target,
    floats: Mapping[str, str],
) -> _Cut:
    """What integers save and conversions take; ``floats``: the float layouts by signature."""
    cut, graph = _Cut(), matches.graph
    fused = _fused(matches, rules, gains)
    vertices = {n.name: (s, _vertex(s, floats)) for s in sites for n in s.match.nodes.values()}

    def saved_us(site: Site) -> list[float]:
        return [
            gains.saved_us(node, graph, writes_floats=_writes_floats(node, graph, vertices, gains))
            for node in _kernels(site)
        ]

    for site in sites:
        vertex = _vertex(site, floats)
        if vertex not in (_INTEGERS, _FLOATS):
            cut.prefer(vertex, sum(saved_us(site)))
    quantized = {edge.tensor for site in sites for edge in site.layouts[site.default].quantize}
    for reader, saved in _reordered(graph, gains):
        cut.prefer(vertices.get(reader, (None, _FLOATS))[1], saved)
    for site in sites:
        vertex = _vertex(site, floats)
        _require(site, vertex, vertices, cut)
        _sum(site, vertex, graph, vertices, gains, cut)
        if any(saved < 0 for saved in saved_us(site)):
            _follow(site, vertex, graph, vertices, cut)
    for tensor in sorted(quantized - graph.initializers.keys()):
        _connect(tensor, graph, vertices, gains, fused.get(tensor, ()), cut)
    for name, taken_us in _alone(matches, rules, gains, target).items():
        if name in vertices:
            cut.separate(vertices[name][1], _FLOATS, taken_us)
    return cut


def _writes_floats(
    node: Node, graph: Graph, vertices: Mapping[str, tuple[Site, str]], gains: Gains
) -> bool:
    """Whether some reader of an activation behind ``node`` wants floats, whatever is decided.

    Other readers count as if they read integers: a cut cannot price two decisions at once.
    """
    tensor = gains.activated_tensor(node, graph)
    if tensor is None:
        return False
    own = vertices[node.name][0].match.nodes.values()
    if any(edge.node == other.name for edge in graph.edges_of(tensor) for other in own):
        tensor = max(own, key=lambda each: each.index).outputs[0]  # Of a sum in the same kernel.
    return any(not _may_read(edge, vertices) for edge in graph.edges_of(tensor))


def _may_read(edge: Edge, vertices: Mapping[str, tuple[Site, str]]) -> bool:
    """Whether some layout reads integers on ``edge``."""
    site, _ = vertices.get(edge.node, (None, _FLOATS))
    return site is not None and any(edge in layout.quantize for layout in site.layouts.values())


def _beside_others(sites: Sequence[Site], graph: Graph, gains: Gains) -> tuple[Site, ...]:
    """``sites``, with layouts that are defaults where most of their tensors are quantized anyway.

    Only tensors count that are then integers for all readers, and whose writer converts them.
    Sites of equal structure keep one default.
    """
    quantized = place(sites, {}).edges
    site_of = {node.name: site for site in sites for node in site.match.nodes.values()}
    converted = {
        tensor
        for tensor in {edge.tensor for edge in quantized}
        if (node := graph.producer.get(tensor)) is not None
        and (
            node.op == "Concat"  # Q moves before it.
            or _converts_decided(site_of.get(node.name), node, gains, quantized)
        )
    }
    edges_of: dict[str, list[Edge]] = {}
    for site in sites:
        edges_of.setdefault(site.signature, []).extend(_edges_beside_others(site))
    chosen, before = set(edges_of), set[str]()
    # Without some of them, tensors of others have readers of floats. Each round leaves fewer.
    while chosen != before:
        before = chosen
        integers = quantized.union(*(edges_of[signature] for signature in chosen))
        tensors = {t for t in converted if integers.issuperset(graph.edges_of(t))}
        chosen = {
            signature
            for signature, edges in edges_of.items()
            if 2 * sum(edge.tensor in tensors for edge in edges) > len(edges)
        }
    return tuple(
        replace(site, default=name)
        if site.signature in chosen and (name := _beside(site)) is not None
        else site
        for site in sites
    )


def _converts_decided(
    site: Site | None, node: Node, gains: Gains, quantized: frozenset[Edge]
) -> bool:
    """``_converts``, of the layer that there is if ``quantized`` are the pairs."""
    layout = None if site is None else site.layouts[site.default]
    in_integers = layout is not None and not quantized.isdisjoint(layout.own | layout.requires)
    return _converts(site, node, gains, in_integers=in_integers)


def _edges_beside_others(site: Site) -> frozenset[Edge]:
    """What ``site`` may quantize where others do."""
    name = _beside(site)
    return frozenset() if name is None else site.layouts[name].quantize


def _beside(site: Site) -> str | None:
    """The layout by which ``site``, whose default quantizes nothing, follows others."""
    if site.layouts[site.default].quantize:
        return None
    offered = ((name, lay) for name, lay in site.layouts.items() if name not in site.barred)
    return next((name for name, layout in offered if layout.beside_others), None)


def _fused(
    matches: Matches, rules: Iterable[Rule], gains: Gains
) -> Mapping[str, Sequence[tuple[Match, float]]]:
    """By tensor the layers that exist only where it carries no pair, and what they save."""
    found: dict[str, list[tuple[Match, float]]] = {}
    for rule in rules:
        for fusion, gain in _bare_fusions(rule, gains):
            for match in matches.of(rule):
                saved = gain.saves_us(match.anchor, matches.graph)
                edges = [e for name in fusion.bare for e in match.edges(name, matches.graph)]
                for tensor in {edge.tensor for edge in edges}:
                    found.setdefault(tensor, []).append((match, saved))
    return found


def _bare_fusions(rule: Rule, gains: Gains) -> Iterator[tuple[Fusion, Gain]]:
    for fusion in (one for layout in rule.layouts.values() for one in layout.fuses):
        gain = gains.of_fused(fusion.op)
        if fusion.bare and gain is not None:
            yield fusion, gain


def _alone(
    matches: Matches, rules: Sequence[Rule], gains: Gains, target: Target
) -> Mapping[str, float]:
    """By the first node of float layers what the nodes behind it take where it is in integers."""
    taken: dict[str, float] = {}
    ops = {op for gain in gains.alone for op in gain.op}
    for rule in rules:
        if ops.isdisjoint(op for node in rule.pattern.values() for op in node.op):
            continue
        for fusion in _float_layers(rule, target):
            for match in matches.of(rule):
                first, *others = (match.nodes[n] for n in fusion.nodes if n in match.nodes)
                us = sum(gains.alone_us(node, matches.graph) for node in others)
                taken[first.name] = max(us, taken.get(first.name, 0.0))
    return taken


def _reordered(graph: Graph, gains: Gains) -> Iterator[tuple[str, float]]:
    """The nodes, by name, that read maps which are moved in memory, and what integers save."""
    for node in graph.nodes if gains.reordered else ():
        saved_us = gains.reordered_us(node, graph)
        for edge in _maps_before(node, graph) or () if saved_us else ():
            yield edge.node, saved_us


def _maps_before(node: Node, graph: Graph) -> list[Edge] | None:
    """The maps that ``node`` and the element-wise operators before it read, if they are one layer.

    Those alone that a Conv wrote: others need no move. None where a Conv takes them along.
    """
    found: list[Edge] = []
    for edge in graph.edges_into(node):
        writer = graph.producer.get(edge.tensor)
        if (
            writer is None
            or graph.type_of(edge.tensor).shape != graph.type_of(node.outputs[0]).shape
        ):
            continue
        is_read_alone = len(graph.edges_of(edge.tensor)) == 1
        if is_read_alone and writer.op == "Conv":
            return None
        before = [edge]
        if is_read_alone and writer.op in _ELEMENTWISE:
            behind_conv = _maps_before(writer, graph)
            if behind_conv is None:
                return None
            before = behind_conv
        elif not _is_behind_conv(writer, graph):
            continue
        found += before
    return found


def _is_behind_conv(writer: Node, graph: Graph) -> bool:
    """Whether a Conv wrote what ``writer`` writes, but for joining and element-wise operators."""
    seen, waiting = set[str](), [writer]
    while waiting:
        node = waiting.pop()
        if node.op == "Conv":
            return True
        if node.op in _BESIDE_CONVS and node.name not in seen:
            seen.add(node.name)
            read = (graph.producer.get(edge.tensor) for edge in graph.edges_into(node))
            waiting += [before for before in read if before is not None]
    return False


def _float_layers(rule: Rule, target: Target) -> Iterator[Fusion]:
    for layout in rule.layouts.values():
        for fusion in layout.fuses:
            if fusion.inputs == "float" and target.meets(fusion.when):
                yield fusion


def _float_layout(site: Site) -> str | None:
    """The layout that quantizes nothing, of a site whose default does."""
    if not site.layouts[site.default].quantize:
        return None
    plain = (name for name, layout in site.layouts.items() if not layout.quantize)
    return next((name for name in plain if name not in site.barred), None)


def _kernels(site: Site) -> list[Node]:
    """The nodes that integer layers are named after; others, as a bias, are part of these."""
    layout = site.match.rule.layouts[rule_layout(site.default)]
    first = {fusion.nodes[0] for fusion in layout.fuses}
    nodes = site.match.nodes
    return [node for name, node in nodes.items() if name in first] or [*nodes.values()]


def _require(site: Site, vertex: str, vertices: Mapping[str, tuple[Site, str]], cut: _Cut) -> None:
    """What runs in integers only where its readers do is in float where one of them is.

    ``vertex``: what stands for ``site``.
    """
    own = {node.name for node in site.match.nodes.values()}
    for edge in site.layouts[site.default].requires:
        if edge.node not in own:
            cut.never(vertex, _reader(edge, vertices))


def _follow(
    site: Site, vertex: str, graph: Graph, vertices: Mapping[str, tuple[Site, str]], cut: _Cut
) -> None:
    """What follows the layer that it reads runs in integers where that one does.

    ``vertex``: what stands for ``site``.
    """
    for edge in site.layouts[site.default].requires:
        node = graph.producer.get(edge.tensor)
        writer, before = _of_node(node, vertices)
        if (
            writer is not None
            and writer is not site
            and edge in writer.layouts[writer.default].quantize
        ):
            cut.never(before, vertex)


def _sum(
    site: Site,
    vertex: str,
    graph: Graph,
    vertices: Mapping[str, tuple[Site, str]],
    gains: Gains,
    cut: _Cut,
) -> None:
    """A sum whose operands ``site`` quantizes takes time to write floats, once for all readers.

    ``vertex``: what stands for ``site``.
    """
    nodes = [*site.match.nodes.values()]
    quantized = site.layouts[site.default].quantize
    if not any(n.op == "Add" and quantized.issuperset(graph.edges_into(n)) for n in nodes):
        return
    last = max(nodes, key=lambda node: node.index).outputs[0]
    written = f"{last} summed for integers alone"
    cut.separate(vertex, written, gains.summed.takes_us(last, graph))
    for edge in graph.edges_of(last):
        reader = graph.by_name.get(edge.node)
        if reader is None or reader.op not in gains.summed.scaling:
            cut.never(written, _reader(edge, vertices))


def _reader(edge: Edge, vertices: Mapping[str, tuple[Site, str]]) -> str:
    """What stands for the node that reads ``edge``, where it may read integers."""
    site, reader = vertices.get(edge.node, (None, _FLOATS))
    return _FLOATS if site is None or not _reads(site, edge) else reader


def _converts(site: Site | None, node: Node | None, gains: Gains, *, in_integers: bool) -> bool:
    """Whether no layer is needed to convert what ``node`` writes as all its readers want it.

    As the rule says what the layer writes that ends with it, in float or in integers.
    """
    if node is None:
        return False
    if site is not None:
        nodes, rule = site.match.nodes, site.match.rule
        default = rule.layouts[rule_layout(site.default)]
        for layout in (default, *rule.layouts.values()):
            for fusion in layout.fuses:
                alike = fusion.reads == "any" or (fusion.inputs != "float") is in_integers
                if alike and any(nodes.get(name) is node for name in fusion.nodes):
                    return fusion.outputs in ("readers", "each")
    return node.op in gains.converting


def _vertex(site: Site, floats: Mapping[str, str]) -> str:
    """What stands for a site in the cut; one that follows others takes either side at no cost."""
    if site.signature in floats:
        return site.signature
    layout = site.layouts[site.default]
    if layout.requires:
        return site.name
    return _INTEGERS if layout.quantize else _FLOATS


def _connect(
    tensor: str,
    graph: Graph,
    vertices: Mapping[str, tuple[Site, str]],
    gains: Gains,
    fused: Sequence[tuple[Match, float]],
    cut: _Cut,
) -> None:
    """Add what it takes to convert ``tensor`` where it is written or read in float.

    ``fused``: layers that read it in float, and are none where it comes from integers.
    """
    node = graph.producer.get(tensor)
    site_of_writer, writer = _of_node(node, vertices)
    quantized = (
        site_of_writer.layouts[site_of_writer.default].quantize if site_of_writer else frozenset()
    )
    read_by = [_reader(edge, vertices) for edge in graph.edges_of(tensor)]
    if any(edge.tensor == tensor for edge in quantized):
        for reader in read_by:
            cut.separate(writer, reader, gains.dequantize.takes_us(tensor, graph))
        for match, saved_us in fused:
            parts = {vertices.get(each.name, (None, _FLOATS))[1] for each in match.nodes.values()}
            cut.separate(writer, _FLOATS if _FLOATS in parts else min(parts), saved_us)
    readers = set(read_by)
    # One conversion does for all readers.
    read = f"{tensor} quantized"
    for reader in readers - {_FLOATS}:
        cut.never(reader, read)
        cut.separate(read, reader, _TIE_US)
    # A kernel that converts what it writes spares it, unless some readers want floats.
    in_float, in_integers = (
        _converts(site_of_writer, node, gains, in_integers=state) for state in (False, True)
    )
    written = writer
    if in_float or in_integers:
        written = f"{tensor} written in integers alone"
        for end in readers if in_float else {writer, *readers}:
            cut.never(written, end)
    cut.separate(read, written, gains.quantize.takes_us(tensor, graph))
    # Q moves before a node like MaxPool, which then runs in integers where its writer does not.
    if node is not None and node.inputs:
        _, before = _of_node(graph.producer.get(node.inputs[0]), vertices)
        cut.separate(read, before, max(-gains.saved_behind_floats_us(node, graph), 0.0))


def _of_node(
    node: Node | None, vertices: Mapping[str, tuple[Site, str]]
) -> tuple[Site | None, str]:
    """The site of a node, if it has one, and what stands for it in the cut."""
    return (None, _FLOATS) if node is None else vertices.get(node.name, (None, _FLOATS))


def _reads(site: Site, edge: Edge) -> bool:
    """Whether the default layout reads integers on ``edge``."""
    layout = site.layouts[site.default]
    return edge in layout.own or edge in layout.requires


@dataclass(frozen=True, eq=False)
class _Cut:
    """Capacities between named vertices, in steps."""

    numbers: dict[str, int] = field(default_factory=lambda: {_INTEGERS: 0, _FLOATS: 1})
    capacities: dict[tuple[int, int], int] = field(default_factory=dict)

    def prefer(self, vertex: str, saved_us: float) -> None:
        """``vertex`` saves so much in integers, or loses if negative."""
        if saved_us > 0:
            self.separate(_INTEGERS, vertex, saved_us)
        else:
            self.separate(vertex, _FLOATS, -saved_us)

    def separate(self, one: str, other: str, us: float) -> None:
        """It takes so long that ``one`` is in integers and ``other`` in float."""
        self._add(one, other, min(round(us * _STEPS), _MOST))

    def never(self, one: str, other: str) -> None:
        """``one`` cannot be in integers with ``other`` in float."""
        self._add(one, other, _NEVER)

    def _add(self, one: str, other: str, capacity: int) -> None:
        if one in {other, _FLOATS} or other == _INTEGERS:
            return
        ends = self._number(one), self._number(other)
        self.capacities[ends] = min(self.capacities.get(ends, 0) + capacity, _NEVER)
        self.capacities.setdefault((ends[1], ends[0]), 0)

    def _number(self, vertex: str) -> int:
        return self.numbers.setdefault(vertex, len(self.numbers))

    def side_of_source(self) -> frozenset[str]:
        """The vertices in integers, the fewest that save the most."""
        ends = np.array(list(self.capacities), dtype=np.int32).reshape(-1, 2)
        values = np.array(list(self.capacities.values()), dtype=np.int32)
        count = len(self.numbers)
        network = csr_array((values, (ends[:, 0], ends[:, 1])), shape=(count, count))
        flow = maximum_flow(network, 0, 1).flow
        left = csr_array(network - flow)
        left.eliminate_zeros()
        reached = set(breadth_first_order(left, 0, return_predecessors=False).tolist())
        return frozenset(name for name, number in self.numbers.items() if number in reached)
