"""What an insertion adds to a model, written as a candidate."""

from __future__ import annotations

from collections import Counter

from onnx import GraphProto, ModelProto

from placer.graph.edit import rename_tensors, without_initializers
from placer.graph.flat import body_inputs, nest
from placer.graph.port_arithmetic import IntegerPort, integer_ports
from placer.model import Model
from placer.qdq.draft import Draft
from placer.qdq.port_pairs import write_ports, written_as_pairs
from placer.quantization import Scheme
from placer.version import __version__

_IR_OF_FLOAT8 = 9


class CandidateWriter:
    """Writes candidates of one model.

    The graph without initializers is made once and copied; initializers that stay float are copied
    as bytes or remain external references.
    """

    def __init__(self, model: Model, scheme: Scheme, reads: Counter[str]) -> None:
        """``reads``: how many edges read each tensor."""
        self._graph = model.graph
        self._reads = reads
        self._shell = without_initializers(model.proto, list(self._graph.initializers))
        del self._shell.graph.node[:]
        self._shell.producer_name, self._shell.producer_version = "placer", __version__
        if scheme.has_float8:
            self._shell.ir_version = max(self._shell.ir_version, _IR_OF_FLOAT8)
        self._ports = written_as_pairs(integer_ports(self._graph), scheme)
        self._body_inputs = body_inputs((n.proto for n in self._graph.nodes), self._graph.scopes)

    def write(self, draft: Draft) -> ModelProto:
        """The candidate that has what ``draft`` adds."""
        candidate = ModelProto()
        candidate.CopyFrom(self._shell)
        nodes = candidate.graph.node
        floats = draft.outputs
        renamed = {edge.node for tensor in floats for edge in self._graph.edges_of(tensor)}
        renamed.update(self._graph.producer[tensor].name for tensor in floats)
        for tensor in (*self._graph.inputs, *self._body_inputs):
            nodes.extend(draft.behind.get(tensor, ()))
        for node in self._graph.nodes:
            nodes.extend(draft.before.get(node.name, ()))
            copy = nodes.add()
            copy.CopyFrom(node.proto)
            if node.name in renamed:
                rename_tensors(copy, lambda tensor: floats.get(tensor, tensor))
            for index in range(len(node.inputs)):
                new = draft.reads.get((node.name, index))
                if new is not None:
                    copy.input[index] = new
            for tensor in node.outputs:
                for made in draft.behind.get(tensor, ()):
                    nodes.append(made)
                    if tensor in floats and made.op_type == "QuantizeLinear":
                        nodes[-1].input[0] = floats[tensor]
        self._add_initializers(candidate.graph, draft)
        write_ports(candidate.graph, [port for port in self._ports if not _is_paired(port, draft)])
        nest(candidate.graph, self._graph.scopes)
        return candidate

    def _add_initializers(self, graph: GraphProto, draft: Draft) -> None:
        reads = Counter(self._reads)
        for name, index in draft.reads:
            reads[self._graph.by_name[name].inputs[index]] -= 1
        graph.initializer.extend(
            tensor for name, tensor in self._graph.initializers.items() if reads[name] > 0
        )
        graph.initializer.extend(draft.tensors.values())


def _is_paired(port: IntegerPort, draft: Draft) -> bool:
    """Whether a pair stands among the operators of ``port``, which are no single step then."""
    first = None if port.is_input else (port.nodes[0].name, 0)
    names = {node.name for node in port.nodes}
    return any(edge != first and edge[0] in names for edge in draft.reads)
