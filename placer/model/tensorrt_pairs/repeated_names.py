"""Names that several nodes of pairs have, which TensorRT's parser takes once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from onnx import FunctionProto, ModelProto, NodeProto

from placer.graph.edit import every_node
from placer.graph.operators import PAIR_OPS
from placer.model.tensorrt_pairs.finding import Finding

_Node = tuple[str, str, str]  # Its name, its operator and what it reads.
_Key = tuple[str, str, str]  # Domain, name and overload of a function.
_Functions = Mapping[_Key, FunctionProto]


def repeated_names(proto: ModelProto) -> Iterator[Finding]:
    """Pairs in ``proto``, as the file has them, with a node whose name another one has, too.

    TensorRT-RTX 1.7.1 refuses the second one, as its parser inlines functions and gives Q and DQ
    the names of the file, or of what they write; names of other nodes may repeat (small graphs put
    to it).
    """
    functions = {(one.domain, one.name, one.overload): one for one in proto.functions}
    counts, first = Counter[str](), dict[str, _Node]()
    for node, count in _pairs(proto.graph.node, functions, {}).items():
        counts[node[0]] += count
        first.setdefault(node[0], node)
    for name, count in counts.items():
        if count > 1:
            reason = f"{count} nodes of pairs have its name, of which TensorRT takes one"
            fix = "give each a name of its own, and inline functions before"
            yield Finding(*first[name], "refused", reason, fix)


def _pairs(
    nodes: Iterable[NodeProto],
    functions: _Functions,
    known: dict[_Key, Counter[_Node]],
) -> Counter[_Node]:
    """How often each node of a pair is there once functions are inlined; ``known``: in them."""
    found = Counter[_Node]()
    for node in every_node(nodes):
        called = node.domain, node.op_type, node.overload
        if called in functions:
            if called not in known:
                known[called] = _pairs(functions[called].node, functions, known)
            found.update(known[called])
        elif node.op_type in PAIR_OPS:
            name = node.name or f"node_of_{node.output[0]}"
            found[name, node.op_type, node.input[0] if node.input else ""] += 1
    return found
