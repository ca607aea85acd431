"""What lies inside If, Loop and Scan nodes, where no rule looks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from onnx import GraphProto, ModelProto, NodeProto, TypeProto

from placer.common.listed import listed
from placer.graph.edit import every_node, reads, subgraphs
from placer.graph.operators import OF_SHAPES
from placer.graph.scopes import Scopes

BODY_OPS = frozenset({"If", "Loop", "Scan"})
NOT_ENTERED = "which no rule enters"


@dataclass(frozen=True)
class Bodies:
    """``nodes`` nodes, of ``total``, inside ``owners``, the outermost If, Loop and Scan nodes.

    Constant nodes do not count. ``switches``: graph inputs of one value that alone decide which
    body runs or how often; ``by_shape``: whether shapes of inputs alone decide another, and one of
    them is open.
    """

    owners: tuple[str, ...]
    nodes: int
    total: int
    switches: tuple[str, ...] = ()
    by_shape: bool = False

    def sentence(self, known: Mapping[str, float] | None = None) -> str:
        """What this means to the user, and what can be done; empty where there are no bodies.

        ``known``: values of inputs that are the same in all data.
        """
        if not self.nodes:
            return ""
        text = (
            f"{self.nodes} of {self.total} nodes ({self.nodes / self.total:.0%}) stay float in the "
            f"bodies of {listed(self.owners)}, {NOT_ENTERED}"
        )
        if self.switches:
            values = {name: f"{value:g}" for name, value in (known or {}).items()}
            fixes = " ".join(f"--fix {name}={values.get(name, 'VALUE')}" for name in self.switches)
            return f"{text}; placer optimize (or extract) {fixes} puts what runs in their place"
        if not self.by_shape:
            return text
        return f"{text}; placer extract --shape NAME=SHAPE puts what runs in their place"


def bodies_of(proto: ModelProto, scopes: Scopes | None = None) -> Bodies:
    """What the bodies in the graph of ``proto`` hold; none do whose nodes the graph has itself.

    ``scopes``: of a flat graph. What is in a body that stays is not written out.
    """
    graph = proto.graph
    owners = [node for node in graph.node if any(body.node for body in subgraphs(node))]
    inside = sum(
        inner.op_type != "Constant"
        for node in owners
        for body in subgraphs(node)
        for inner in every_node(body.node)
    )
    outside = sum(node.op_type != "Constant" for node in graph.node)
    staying = [node for node in owners if not scopes or node.name not in scopes]
    switches, by_shape = _decided_by(graph, staying)
    names = tuple(f"{node.op_type} '{node.name}'" for node in owners)
    return Bodies(names, inside, inside + outside, switches, by_shape)


def _decided_by(graph: GraphProto, owners: Iterable[NodeProto]) -> tuple[tuple[str, ...], bool]:
    """The inputs that are switches of ``owners``, and whether an open shape decides one of them."""
    producer = {tensor: node for node in graph.node for tensor in node.output if tensor}
    single = {value.name for value in graph.input if _is_single(value.type)}
    inputs = {value.name for value in graph.input}
    switches: dict[str, None] = {}
    by_shape = False
    for node in owners:
        origins = {name for t in _decisive(node) for name in _origins(t, producer)}
        if origins.isdisjoint(inputs):
            by_shape |= "" in origins and not all(_is_fixed(value.type) for value in graph.input)
        elif origins & inputs <= single:
            switches.update(dict.fromkeys(sorted(origins & inputs)))
    return tuple(switches), by_shape


def ends_by_itself(body: GraphProto) -> bool:
    """Whether the body of a Loop computes the condition rather than handing it on."""
    producer = {tensor: node for node in body.node for tensor in node.output}
    name = body.output[0].name
    for _ in range(len(producer) + 1):
        node = producer.get(name)
        if node is None or node.op_type == "Constant":
            return False
        if node.op_type not in ("Identity", "Cast") or not node.input:
            return True
        name = node.input[0]
    return False


def _decisive(node: NodeProto) -> list[str]:
    """Tensors that decide which body runs, or how often, "" for a shape; none if a body does."""
    if node.op_type == "Scan":
        return [""]
    if node.op_type == "If":
        return list(node.input[:1])
    body = next((a.g for a in node.attribute if a.name == "body"), None)
    if body is None or not body.output or ends_by_itself(body):
        return []
    return [tensor for tensor in node.input[:2] if tensor]


def _origins(tensor: str, producer: dict[str, NodeProto]) -> Iterator[str]:
    """Tensors that no node writes, on whose values ``tensor`` depends; "" for a shape."""
    stack, seen = [tensor], {tensor}
    while stack:
        name = stack.pop()
        node = producer.get(name)
        if node is None:
            yield name
        elif node.op_type in OF_SHAPES:
            yield ""
        else:
            new = [t for t in reads(node) if t and t not in seen]
            seen.update(new)
            stack += new


def _is_fixed(kind: TypeProto) -> bool:
    """Whether every dimension of a tensor of this type is a number."""
    shape = kind.tensor_type.shape
    return kind.tensor_type.HasField("shape") and all(dim.dim_value > 0 for dim in shape.dim)


def _is_single(kind: TypeProto) -> bool:
    """Whether a tensor of this type has one value."""
    if not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
        return False
    return all(dim.dim_value == 1 for dim in kind.tensor_type.shape.dim)
