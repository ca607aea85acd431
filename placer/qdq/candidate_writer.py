"""What an insertion adds to a model, written as a candidate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from onnx import ModelProto, NodeProto

from placer.common.own_files import PRODUCER
from placer.graph import Node
from placer.graph.edit import rename_tensors, without_initializers
from placer.graph.flat import body_inputs, nest
from placer.graph.port_arithmetic import IntegerPort, integer_ports
from placer.model import Model
from placer.qdq.draft import Draft
from placer.qdq.fields import Initializers, Nodes, add_initializers, add_nodes
from placer.qdq.port_pairs import write_ports, written_as_pairs
from placer.quantization import Scheme
from placer.version import __version__

_IR_OF_FLOAT8 = 9
KEPT_NODES = 1 << 14
# New tensors that a node reads, by the index of the input.
Reads = Sequence[tuple[int, str]]


class CandidateWriter:
    """Writes candidates of one model.

    The graph without nodes and initializers is made once and copied; initializers that stay float
    are copied as bytes or remain external references.
    """

    def __init__(self, model: Model, scheme: Scheme, reads: Counter[str]) -> None:
        """``reads``: how many edges read each tensor."""
        self._graph = model.graph
        self._reads = reads
        self._shell = without_initializers(model.proto, list(self._graph.initializers))
        del self._shell.graph.node[:]
        self._shell.producer_name, self._shell.producer_version = PRODUCER, __version__
        if scheme.has_float8:
            self._shell.ir_version = max(self._shell.ir_version, _IR_OF_FLOAT8)
        self._ports = written_as_pairs(integer_ports(self._graph), scheme)
        # Of the model's nodes, by what they read instead, and of initializers that stay.
        self._edited: dict[tuple[str, Reads], bytes] = {}
        self._floats: dict[str, Initializers] = {}
        self._body_inputs = body_inputs((n.proto for n in self._graph.nodes), self._graph.scopes)

    def write(self, draft: Draft) -> ModelProto:
        """The candidate that has what ``draft`` adds."""
        candidate = ModelProto()
        candidate.CopyFrom(self._shell)
        reads = draft.reads_by_node()
        add_nodes(candidate.graph, self._nodes(draft, reads))
        add_initializers(
            candidate.graph, chain(self._left_floats(reads), draft.initializers.values())
        )
        write_ports(candidate.graph, [port for port in self._ports if not _is_paired(port, draft)])
        nest(candidate.graph, self._graph.scopes)
        return candidate

    def _nodes(self, draft: Draft, reads: Mapping[str, Reads]) -> Iterator[bytes]:
        """All nodes in order, as fields of a graph."""
        floats, before, behind = draft.outputs, draft.before, draft.behind
        renamed = {edge.node for tensor in floats for edge in self._graph.edges_of(tensor)}
        renamed.update(self._graph.producer[tensor].name for tensor in floats)
        for tensor in (*self._graph.inputs, *self._body_inputs):
            yield from (made.field for made in behind.get(tensor, ()))
        for node in self._graph.nodes:
            for made in before.get(node.name, ()):
                yield made.field
            own = tuple(reads.get(node.name, ()))
            if node.name in renamed:
                yield Nodes(_reading(_renamed(node.proto, floats), own)).field
            else:
                yield self._reading(node, own)
            for tensor in node.outputs:
                for made in behind.get(tensor, ()):
                    yield _behind(made, floats[tensor]).field if tensor in floats else made.field

    def _reading(self, node: Node, reads: Reads) -> bytes:
        """``node`` with other inputs, kept: placements differ in few nodes."""
        known = self._edited.get((node.name, reads))
        if known is None:
            if len(self._edited) >= KEPT_NODES:
                self._edited.clear()
            edited = _reading(node.proto, reads) if reads else node.proto
            known = self._edited[node.name, reads] = Nodes(edited).field
        return known

    def _left_floats(self, by_node: Mapping[str, Reads]) -> Iterator[Initializers]:
        """Initializers of the model that something still reads."""
        gone = Counter[str]()
        for name, reads in by_node.items():
            inputs = self._graph.by_name[name].inputs
            gone.update([inputs[index] for index, _ in reads])
        for name, tensor in self._graph.initializers.items():
            if self._reads[name] > gone[name]:
                if name not in self._floats:
                    self._floats[name] = Initializers([tensor])
                yield self._floats[name]


def _reading(node: NodeProto, reads: Reads) -> NodeProto:
    """A copy of ``node`` that reads other tensors."""
    copy = NodeProto()
    copy.CopyFrom(node)
    for index, tensor in reads:
        copy.input[index] = tensor
    return copy


def _renamed(node: NodeProto, floats: Mapping[str, str]) -> NodeProto:
    """A copy of ``node`` with the names that ``floats`` gives to tensors."""
    copy = NodeProto()
    copy.CopyFrom(node)
    rename_tensors(copy, lambda tensor: floats.get(tensor, tensor))
    return copy


def _behind(made: Nodes, tensor: str) -> Nodes:
    """``made``, where a QuantizeLinear reads ``tensor``."""
    quantizes = (node.op_type == "QuantizeLinear" for node in made.nodes)
    nodes = zip(made.nodes, quantizes, strict=True)
    return Nodes(*(_reading(node, [(0, tensor)]) if reads else node for node, reads in nodes))


def _is_paired(port: IntegerPort, draft: Draft) -> bool:
    """Whether a pair stands among the operators of ``port``, which are no single step then."""
    first = None if port.is_input else (port.nodes[0].name, 0)
    names = {node.name for node in port.nodes}
    return any(edge != first and edge[0] in names for edge in draft.reads)
