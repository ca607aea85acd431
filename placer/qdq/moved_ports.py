"""Graph inputs and outputs that are integers and are moved: a cache of INT8 keys, for example.

A Concat appends to such a cache on integers, and the DequantizeLinear stands behind it. The halves
of the pair that are outside of the model are put at its edge, as if the rest of it stood there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper

from placer.graph.edit import rename_tensors
from placer.graph.names import UnusedNames, tensor_names
from placer.graph.operators import PAIR_OPS
from placer.model.quantized.movers import MOVERS

_Q, _DQ = PAIR_OPS
_INTEGERS = frozenset({TensorProto.INT8, TensorProto.UINT8})
_ALL_INPUTS = "Concat"  # Moves all that it reads; others read sizes and the like besides.


def with_pairs_at_ports(graph: GraphProto) -> frozenset[str]:
    """Put a pair behind each such input of ``graph`` and before each such output, in place.

    The pair has the scale and zero point of the one that the integers are part of, where one scale
    is stored. It makes no layer, as ``placer.qdq.integer_ports`` takes such a port for one that
    holds integers. Returns the names of the nodes that were put there.
    """
    return _Ports(graph).run()


class _Ports:
    def __init__(self, graph: GraphProto) -> None:
        self._graph = graph
        self._names = UnusedNames(tensor_names(graph))
        self._producer = {tensor: node for node in graph.node for tensor in node.output}
        self._readers: dict[str, list[NodeProto]] = {}
        for node in graph.node:
            for tensor in dict.fromkeys(node.input):
                self._readers.setdefault(tensor, []).append(node)
        constants = {t.name: t for t in graph.initializer}
        self._single: Mapping[str, bool] = {
            name: not [dim for dim in t.dims if dim != 1] for name, t in constants.items()
        }

    def run(self) -> frozenset[str]:
        """Rewrite the graph; the names of new nodes."""
        first, last = list[NodeProto](), list[NodeProto]()
        for value in self._graph.input:
            movers = [n for n in self._readers.get(value.name, ()) if _moves(n, value.name)]
            pair = self._behind(value.name) if _is_integer(value) and movers else None
            if pair is not None:
                first += self._pair(value.name, pair, self._names.unused(f"{value.name}/moved"))
                for node in movers:
                    _read(node, value.name, first[-1].output[0])
        for value in self._graph.output:
            writer = self._producer.get(value.name)
            if writer is None or writer.op_type not in MOVERS or not _is_integer(value):
                continue
            pair = self._before(writer) or self._behind(value.name)
            if pair is not None:
                moved = self._names.unused(f"{value.name}/moved")
                for node in (writer, *self._readers.get(value.name, ())):
                    _rename(node, value.name, moved)
                last += self._pair(moved, pair, value.name)
        nodes = [*first, *self._graph.node, *last]
        del self._graph.node[:]
        self._graph.node.extend(nodes)
        return frozenset(node.name for node in (*first, *last))

    def _pair(self, source: str, pair: NodeProto, target: str) -> Sequence[NodeProto]:
        """DQ of ``source`` and Q that writes ``target``, with what ``pair`` has."""
        floats, given = self._names.unused(f"{source}/float"), pair.input[1:]
        names = [self._names.unused(f"{source}/{op}") for op in (_DQ, _Q)]
        return (
            helper.make_node(_DQ, [source, *given], [floats], names[0]),
            helper.make_node(_Q, [floats, *given], [target], names[1]),
        )

    def _behind(self, tensor: str) -> NodeProto | None:
        """The first DQ of one scale that reads ``tensor`` or what nodes that move it write."""
        for node in self._readers.get(tensor, ()):
            if node.op_type == _DQ and node.input[0] == tensor:
                return node if self._has_one_scale(node) else None
            if _moves(node, tensor):
                found = self._behind(node.output[0])
                if found is not None:
                    return found
        return None

    def _before(self, node: NodeProto) -> NodeProto | None:
        """The Q of one scale whose integers ``node`` moves."""
        for tensor in node.input if node.op_type == _ALL_INPUTS else node.input[:1]:
            writer = self._producer.get(tensor)
            if writer is not None and writer.op_type == _Q and self._has_one_scale(writer):
                return writer
            found = self._before(writer) if writer is not None and _is_mover(writer) else None
            if found is not None:
                return found
        return None

    def _has_one_scale(self, node: NodeProto) -> bool:
        return len(node.input) > 2 and self._single.get(node.input[1], False)


def _is_mover(node: NodeProto) -> bool:
    return node.op_type in MOVERS and not node.domain


def _moves(node: NodeProto, tensor: str) -> bool:
    data = node.input if node.op_type == _ALL_INPUTS else node.input[:1]
    return _is_mover(node) and tensor in data


def _is_integer(value: ValueInfoProto) -> bool:
    return value.type.tensor_type.elem_type in _INTEGERS


def _read(node: NodeProto, old: str, new: str) -> None:
    for index, tensor in enumerate(node.input):
        node.input[index] = new if tensor == old else tensor


def _rename(node: NodeProto, old: str, new: str) -> None:
    rename_tensors(node, lambda tensor: new if tensor == old else tensor)
