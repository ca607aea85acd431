"""How many nodes a model has once its local functions are inlined."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from onnx import FunctionProto, ModelProto, NodeProto

from placer.common.limits import Limits, how_to_lift
from placer.errors import InputError
from placer.graph.edit import every_node


def count_nodes(proto: ModelProto, path: Path, limits: Limits) -> int:
    """Nodes of ``proto`` with local functions inlined, subgraphs included.

    Counted without inlining: functions that call each other twice grow exponentially. Raises
    InputError for functions that call themselves or are nested deeper than the limit.
    """
    functions = {(f.domain, f.name): f for f in proto.functions}
    sizes: dict[tuple[str, str], int] = {}
    for start in functions:
        _measure(start, functions, sizes, path, limits)
    return _size(proto.graph.node, sizes)


def _measure(
    start: tuple[str, str],
    functions: Mapping[tuple[str, str], FunctionProto],
    sizes: dict[tuple[str, str], int],
    path: Path,
    limits: Limits,
) -> None:
    """Enter the inlined size of ``start`` and of what it calls into ``sizes``."""
    stack = [start]
    while stack:
        name = stack[-1]
        called = {operator_of(node) for node in every_node(functions[name].node)}
        waiting = [key for key in called if key in functions and key not in sizes]
        if not waiting:
            sizes[stack.pop()] = _size(functions[name].node, sizes)
            continue
        if waiting[0] in stack:
            raise InputError(f"{path}: function '{waiting[0][1]}' calls itself; export it again")
        if len(stack) >= limits.function_depth:
            raise InputError(
                f"{path}: functions call one another more than {limits.function_depth} deep; "
                f"{how_to_lift('function_depth', len(functions))}"
            )
        stack.append(waiting[0])


def _size(nodes: Iterable[NodeProto], sizes: Mapping[tuple[str, str], int]) -> int:
    return sum(sizes.get(operator_of(node), 1) for node in every_node(nodes))


def operator_of(node: NodeProto) -> tuple[str, str]:
    """Domain and type, by which a node calls an operator or a local function."""
    return node.domain, node.op_type
