"""Take out Transposes that others undo, behind operators that work in any order of axes.

Where channels come last, as in TensorFlow, exporters put Transposes around each Conv, and those
that their own optimizers leave keep biases and activations away from their Convs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from onnx import GraphProto, NodeProto, helper, numpy_helper

from placer.graph.edit import reads, remove_dead_nodes, rename_tensors, sort_nodes
from placer.graph.names import UnusedNames, tensor_names
from placer.model.passes.transposed_operators import Order, Transposed, transposed


@dataclass
class _Region:
    """Nodes between Transposes of one ``order`` and others that undo it.

    ``transposed``: its nodes, by index. ``entries``: the Transposes before it, by what they write.
    ``exits``: by what the region writes, the Transposes that undo it. ``kept``: what others read as
    it is.
    """

    order: Order
    transposed: dict[int, Transposed] = field(default_factory=dict)
    entries: dict[str, int] = field(default_factory=dict)
    exits: dict[str, list[int]] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)

    @property
    def nodes(self) -> frozenset[int]:
        """All that it consists of, by index."""
        exits = (index for indices in self.exits.values() for index in indices)
        return frozenset([*self.transposed, *self.entries.values(), *exits])


def take_out_undone(graph: GraphProto) -> int:
    """Rewrite such regions of a sorted graph; return how many Transposes there are fewer.

    What graph outputs and subgraphs read stays as it is, behind a Transpose if need be. The values
    that are left are the same numbers in another order; tensors in another order have new names.
    Takes time for the nodes and, of each order, those that work in any.
    """
    before = left = _count(graph)
    while left > 1:
        for region in list(_Finder(graph).regions()):
            _Rewriting(graph, region).run()
        sort_nodes(graph)
        remove_dead_nodes(graph)
        if _count(graph) >= left:
            break
        left = _count(graph)
    return before - left


def _count(graph: GraphProto) -> int:
    return sum(_order(node) is not None for node in graph.node)


def _order(node: NodeProto) -> Order | None:
    if node.op_type != "Transpose" or node.domain:
        return None
    return next((tuple(a.ints) for a in node.attribute if a.name == "perm"), None)


def _inverse(order: Order) -> Order:
    return tuple(int(axis) for axis in np.argsort(order))


class _Finder:
    def __init__(self, graph: GraphProto) -> None:
        self._nodes = list(graph.node)
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        self._producer = {t: i for i, node in enumerate(self._nodes) for t in node.output if t}
        self._readers: dict[str, list[int]] = defaultdict(list)
        self._fixed = {value.name for value in graph.output}
        for index, node in enumerate(self._nodes):
            for tensor in dict.fromkeys(node.input):
                self._readers[tensor].append(index)
            self._fixed.update(set(reads(node)) - set(node.input))

    def regions(self) -> Iterator[_Region]:
        """Those that get by with fewer Transposes; no two share a node or a Transpose."""
        taken: set[int] = set()
        seen: set[tuple[Order, int]] = set()
        for index, node in enumerate(self._nodes):
            order = _order(node)
            if order is None or (order, index) in seen:
                continue
            region = self._region(order, index)
            seen.update((order, i) for i in region.entries.values())
            if taken.isdisjoint(region.nodes) and self._gain(region) > 0:
                taken |= region.nodes
                yield region

    def _region(self, order: Order, start: int) -> _Region:
        waiting = [self._nodes[start].output[0]]
        region = _Region(order, entries={waiting[0]: start})
        while waiting:
            for index in self._readers[tensor := waiting.pop()]:
                if _order(self._nodes[index]) == _inverse(order):
                    region.exits.setdefault(tensor, []).append(index)
                elif index not in region.transposed:
                    waiting += self._enter(region, index)
            if tensor in self._fixed and tensor not in region.entries:
                region.kept.add(tensor)
        # What was not let in reads what it read.
        for tensor in self._written(region):
            others = [i for i in self._readers[tensor] if i not in region.transposed]
            if any(i not in region.exits.get(tensor, ()) for i in others):
                region.kept.add(tensor)
        return region

    def _written(self, region: _Region) -> Iterator[str]:
        for index, operator in region.transposed.items():
            yield from () if operator.leaves else (t for t in self._nodes[index].output if t)

    def _enter(self, region: _Region, index: int) -> list[str]:
        """Let a node in with all that it reads; returns the tensors to look at then."""
        known: dict[int, Transposed] = {}
        entries: dict[str, int] = {}
        waiting = [index]
        while waiting:
            place = waiting.pop()
            if place in known or place in region.transposed:
                continue
            node = self._nodes[place]
            operator = transposed(node, region.order, self._constants)
            if operator is None or (place != index and operator.leaves):
                return []
            known[place] = operator
            for position in operator.data:
                tensor = node.input[position]
                before = self._producer.get(tensor)
                if before is None:
                    return []
                if _order(self._nodes[before]) == region.order:
                    entries[tensor] = before
                else:
                    waiting.append(before)
        new = [tensor for tensor in entries if tensor not in region.entries]
        region.transposed |= known
        region.entries |= entries
        written = [t for i in known if not known[i].leaves for t in self._nodes[i].output if t]
        return [*written, *new]

    def _gain(self, region: _Region) -> int:
        gone = sum(len(indices) for indices in region.exits.values())
        fixed = [i for indices in region.exits.values() for i in indices]
        if any(self._nodes[i].output[0] in self._fixed for i in fixed):
            return 0
        for tensor in region.entries:
            away = {*region.transposed, *region.exits.get(tensor, ())}
            gone += tensor not in self._fixed and away.issuperset(self._readers[tensor])
        return gone - len(region.kept)


class _Rewriting:
    def __init__(self, graph: GraphProto, region: _Region) -> None:
        self._graph = graph
        self._region = region
        self._nodes = list(graph.node)
        self._unused = UnusedNames(tensor_names(graph))

    def run(self) -> None:
        """Rewrite the region in place; nodes that are added come last."""
        names = self._names()
        for index, change in self._region.transposed.items():
            self._transpose(self._nodes[index], change, names)
        alias = {
            self._nodes[index].output[0]: names[tensor]
            for tensor, indices in self._region.exits.items()
            for index in indices
        }

        def resolve(tensor: str) -> str:
            while tensor in alias:
                tensor = alias[tensor]
            return tensor

        for node in self._nodes:
            undoes = bool(node.output) and node.output[0] in alias  # Nothing reads it any more.
            if not undoes and not alias.keys().isdisjoint(reads(node)):
                rename_tensors(node, resolve)
        order = list(self._region.order)
        for tensor in sorted(self._region.kept):
            self._graph.node.append(
                helper.make_node("Transpose", [names[tensor]], [tensor], perm=order)
            )

    def _names(self) -> Mapping[str, str]:
        """What each tensor of the region is called in the other order."""
        entries = self._region.entries.items()
        names = {tensor: self._nodes[index].input[0] for tensor, index in entries}
        for index, change in self._region.transposed.items():
            for tensor in self._nodes[index].output:
                if tensor and not change.leaves:
                    names[tensor] = self._unused.unused(f"{tensor}/turned")
        return names

    def _transpose(self, node: NodeProto, change: Transposed, names: Mapping[str, str]) -> None:
        for position in change.data:
            node.input[position] = names[node.input[position]]
        for position, array in change.inputs.items():
            name = self._unused.unused(f"{node.input[position]}/turned")
            self._graph.initializer.append(numpy_helper.from_array(array, name))
            node.input[position] = name
        changed = [a for a in node.attribute if a.name not in change.attributes]
        changed += [helper.make_attribute(key, value) for key, value in change.attributes.items()]
        kept = [type(a).FromString(a.SerializeToString()) for a in changed]
        del node.attribute[:]
        node.attribute.extend(kept)
        if not change.leaves:
            for position, tensor in enumerate(node.output):
                node.output[position] = names.get(tensor, tensor)
