"""The model's graph: quantized edges, and the layers that an engine makes of the nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Literal

import plotly.graph_objects as go

from placer.graph import Edge, Node
from placer.plan import Layer, Plan
from placer.plan.diff_result import CONVERSIONS
from placer.plan.dtypes import reads_quantized
from placer.report.graph_layout import Layout, Point, layered_layout
from placer.report.run_folder import Run, Topology, float_name
from placer.report.style import BAD, CONVERSION, FLOAT, INK, INTEGER, NO_OP, base_layout

Class = Literal["integer", "float", "no-op", "in a body", "in no layer"]
_LOOKS: Mapping[Class, tuple[str, str, str]] = {
    "integer": ("layer that reads integers", INTEGER, "circle"),
    "float": ("layer that reads float", FLOAT, "circle"),
    "no-op": ("no-op", NO_OP, "circle"),
    "in a body": ("in the layer of the If, Loop or Scan around it", FLOAT, "circle-open"),
    "in no layer": ("in no layer that the plan names", INK, "circle-open"),
}
# A place beside a vertex has to hold its operator's name.
ASPECT = 0.75
HEIGHT = 640
FEW = 200  # Nodes that are drawn large; also in graph.js.
Ends = tuple[Point, ...]


@dataclass(frozen=True)
class _Drawing:
    """Where vertices stand: graph inputs, nodes and graph outputs; and the ways of all edges."""

    topology: Topology
    edges: tuple[Edge, ...]
    layout: Layout
    number: Mapping[str, int]  # Of nodes by name.
    producer: Mapping[str, int]  # Number of the vertex that writes a tensor.
    ends: tuple[tuple[int, int], ...]

    def place(self, node: str) -> Point:
        return self.layout.points[self.number[node]]


def _draw(topology: Topology) -> _Drawing:
    inputs = len(topology.inputs)
    number = {node.name: inputs + i for i, node in enumerate(topology.nodes)}
    producer = {tensor: i for i, tensor in enumerate(topology.inputs)}
    for node in topology.nodes:
        producer.update({tensor: number[node.name] for tensor in node.outputs if tensor})
    first_output = inputs + len(topology.nodes)
    edges, ends = [], []
    for edge in topology.edges():
        if edge.tensor in producer:
            head = number.get(edge.node, first_output + edge.input_index)
            edges.append(edge)
            ends.append((producer[edge.tensor], head))
    count = first_output + len(topology.outputs)
    layout = layered_layout(count, ends, ASPECT)
    return _Drawing(topology, tuple(edges), layout, number, producer, tuple(ends))


def graph_figure(run: Run) -> go.Figure | None:
    """The graph with one set of traces per plan; None if the folder holds no model.

    ``meta`` of a trace says which plan it belongs to, ``predicted`` or ``actual``, and is absent
    where it belongs to none.
    """
    if run.topology is None:
        return None
    drawing = _draw(run.topology)
    figure = go.Figure()
    _add_edges(figure, drawing)
    plans = {"actual": run.actual, "predicted": run.predicted}
    shown = [(name, plan) for name, plan in plans.items() if plan is not None]
    for index, (name, plan) in enumerate(shown or [("none", Plan(()))]):
        traces = [*_bands(plan, drawing), *_nodes(plan, drawing, run), *_conversions(plan, drawing)]
        for trace in traces:
            figure.add_trace(trace.update(meta=name, visible=index == 0))
    _add_terminals(figure, drawing)
    _add_ring(figure)
    figure.layout = base_layout(
        HEIGHT,
        margin={"l": 8, "r": 40, "t": 8, "b": 8},
        dragmode="pan",
        xaxis={"visible": False, "range": _range(p.x for p in drawing.layout.points)},
        yaxis={"visible": False, "range": _range(p.y for p in drawing.layout.points)[::-1]},
        hovermode="closest",
    )
    return figure


def _range(values: Iterable[float]) -> list[float]:
    spread = list(values) or [0.0]
    return [min(spread) - 0.8, max(spread) + 1.0]


def _size(drawing: _Drawing) -> int:
    """Of markers in pixels while the whole graph is in view; the page's script changes it."""
    return 9 if len(drawing.layout.points) < FEW else 6


def _add_ring(figure: go.Figure) -> None:
    """What marks the nodes that a search finds, the last trace."""
    figure.add_scatter(
        x=[],
        y=[],
        mode="markers",
        marker={"color": "rgba(0,0,0,0)", "size": 20, "line": {"color": BAD, "width": 3}},
        hoverinfo="skip",
        showlegend=False,
    )


def _add_edges(figure: go.Figure, drawing: _Drawing) -> None:
    routes = drawing.layout.routes
    jumps = drawing.layout.jumps
    quantized = drawing.topology.quantized

    def ways(with_pair: bool, jump: bool) -> list[Ends]:
        return [
            routes[i]
            for i, edge in enumerate(drawing.edges)
            if (edge in quantized) == with_pair and (i in jumps) == jump
        ]

    looks = ((True, INTEGER, 1.8, "quantized edge"), (False, "#b9c0c7", 1.2, "float edge"))
    for with_pair, colour, width, name in looks:
        for jump in (False, True):
            line = {"color": colour, "width": width, "dash": "dot" if jump else "solid"}
            lines = ways(with_pair, jump)
            if lines:
                figure.add_trace(
                    _lines(
                        lines,
                        line=line,
                        opacity=0.35 if jump else 1,
                        name=f"{name}, continued elsewhere" if jump else name,
                        legendgroup=name,
                        showlegend=not jump or not ways(with_pair, False),
                    )
                )


def _lines(ways: Iterable[Ends], **looks: object) -> go.Scatter:
    x: list[float | None] = []
    y: list[float | None] = []
    for way in ways:
        x += [*(point.x for point in way), None]
        y += [*(point.y for point in way), None]
    return go.Scatter(x=x, y=y, mode="lines", hoverinfo="skip", **looks)


def _bands(plan: Plan, drawing: _Drawing) -> Iterator[go.Scatter]:
    """A broad line behind the edges inside a fused layer."""
    layer_of = {node: i for i, layer in enumerate(plan.layers) for node in layer.nodes}
    ways: dict[str, list[Ends]] = defaultdict(list)
    names = {number: name for name, number in drawing.number.items()}
    for i, (tail, head) in enumerate(drawing.ends):
        first, second = (layer_of.get(names.get(end, "")) for end in (tail, head))
        if first is not None and first == second and i not in drawing.layout.jumps:
            ways[_class(plan.layers[first])].append(drawing.layout.routes[i])
    for kind, (_, colour, _) in _LOOKS.items():
        if ways[kind]:
            yield _lines(
                ways[kind],
                line={"color": colour, "width": 11},
                opacity=0.28,
                name="fused into one layer",
                showlegend=kind == next(k for k in _LOOKS if ways[k]),
            )


def _class(layer: Layer) -> Class:
    if layer.kind == "no-op":
        return "no-op"
    return "integer" if reads_quantized(layer) else "float"


def _nodes(plan: Plan, drawing: _Drawing, run: Run) -> Iterator[go.Scatter]:
    layer_of = {node: layer for layer in plan.layers for node in layer.nodes}
    nodes_of: dict[Class, list[Node]] = defaultdict(list)
    for node in drawing.topology.nodes:
        layer = layer_of.get(node.name)
        around = (body.owner for body in drawing.topology.scopes.get(node.name, ()))
        inside: Class = "in no layer" if layer_of.keys().isdisjoint(around) else "in a body"
        nodes_of[inside if layer is None else _class(layer)].append(node)
    for kind, (name, colour, symbol) in _LOOKS.items():
        nodes = nodes_of[kind]
        if nodes:
            places = [drawing.place(node.name) for node in nodes]
            yield go.Scatter(
                x=[point.x for point in places],
                y=[point.y for point in places],
                mode="markers",
                marker={
                    "color": colour,
                    "symbol": symbol,
                    "size": _size(drawing),
                    "line": {"color": INK, "width": 0.6},
                },
                name=name,
                text=[escape(node.op) for node in nodes],
                customdata=[_hover(n, layer_of.get(n.name), plan, run) for n in nodes],
                hovertemplate="%{customdata}<extra></extra>",
                ids=[node.name for node in nodes],
            )


def _hover(node: Node, layer: Layer | None, plan: Plan, run: Run) -> str:
    lines = [f"<b>{_short(node.name)}</b>", escape(node.op)]
    if layer is not None:
        what = "predicted layer" if plan.estimated else "layer"
        lines.append(f"{what}: {_short(layer.name)} ({escape(layer.op)})")
        lines += _types(layer)
    site = run.sites_by_node.get(node.name)
    if site is not None:
        decided = f"{escape(site.layout)}, by " if site.layout is not None else ""
        lines.append(f"decision: {decided}rule {escape(site.rule)}")
    return "<br>".join(lines)


def _types(layer: Layer) -> Iterator[str]:
    reads = ", ".join(dict.fromkeys(layer.input_types)) or "?"
    writes = ", ".join(dict.fromkeys(layer.output_types)) or "?"
    yield f"reads {escape(reads)}, writes {escape(writes)}"
    if layer.time_us is not None:
        yield f"{layer.time_us:.1f} µs"


def _short(name: str) -> str:
    return escape(name if len(name) <= 90 else f"{name[:45]}…{name[-44:]}")


def _conversions(plan: Plan, drawing: _Drawing) -> Iterator[go.Scatter]:
    """Layers that only convert a tensor, beside what writes it."""
    at: dict[int, list[Layer]] = defaultdict(list)
    for layer in plan.of_kind(*CONVERSIONS):
        for tensor in (port.tensor for port in (*layer.inputs, *layer.outputs)):
            vertex = drawing.producer.get(tensor, drawing.producer.get(float_name(tensor)))
            if vertex is not None:
                at[vertex].append(layer)
                break
    placed = [
        (Point(place.x + 0.16 * i, place.y), layer)
        for vertex, layers in at.items()
        for place in [_below(vertex, drawing)]
        for i, layer in enumerate(layers)
    ]
    if not placed:
        return
    yield go.Scatter(
        x=[point.x for point, _ in placed],
        y=[point.y for point, _ in placed],
        mode="markers",
        marker={
            "color": CONVERSION,
            "symbol": "diamond",
            "size": _size(drawing),
            "line": {"color": "#ffffff", "width": 1},
        },
        name="layer that only converts",
        customdata=[_conversion_hover(layer) for _, layer in placed],
        hovertemplate="%{customdata}<extra></extra>",
        ids=[layer.name for _, layer in placed],
    )


def _conversion_hover(layer: Layer) -> str:
    return "<br>".join([f"<b>{escape(layer.kind)}</b>: {_short(layer.name)}", *_types(layer)])


def _below(vertex: int, drawing: _Drawing) -> Point:
    """On the way from ``vertex`` to its first reader, near the vertex."""
    start = drawing.layout.points[vertex]
    for i, (tail, _) in enumerate(drawing.ends):
        if tail == vertex and i not in drawing.layout.jumps:
            after = drawing.layout.routes[i][1]
            return Point(start.x + 0.45 * (after.x - start.x), start.y + 0.45 * (after.y - start.y))
    return Point(start.x, start.y + 0.45)


def _add_terminals(figure: go.Figure, drawing: _Drawing) -> None:
    topology = drawing.topology
    first_output = len(topology.inputs) + len(topology.nodes)
    numbers = [*range(len(topology.inputs))]
    numbers += range(first_output, first_output + len(topology.outputs))
    names = [*topology.inputs, *topology.outputs]
    places = [drawing.layout.points[i] for i in numbers]
    figure.add_scatter(
        x=[point.x for point in places],
        y=[point.y for point in places],
        mode="markers",
        marker={"color": INK, "symbol": "square", "size": _size(drawing)},
        name="graph input or output",
        text=[_short(name) for name in names],
        customdata=[f"<b>{_short(name)}</b>" for name in names],
        hovertemplate="%{customdata}<extra></extra>",
        ids=names,
    )
