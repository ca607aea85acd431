"""A plan from OpenVINO's runtime model: what the CPU plugin executes after all its fusions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from placer.engines.openvino.node_assignment import assign_nodes, is_pair
from placer.engines.openvino.operations import (
    INTEGERS,
    RECURRENT_KINDS,
    Operation,
    read_operations,
)
from placer.engines.openvino.tags import Tags
from placer.plan import Kind, Layer, Plan

_QUANTITIES = (*INTEGERS, "float", "float16", "bfloat16", "double")
_REMOVED = "Removed"


def read_plan(runtime: Any, tags: Tags, times: Mapping[str, float], source: str) -> Plan:
    """The executed layers in order; constants and what is made of constants alone are left out.

    Each node is in one layer. OpenVINO forgets the names of some that it fuses (a Relu that the
    quantization behind it implies, the Sigmoid of a Swish): they belong to the layer that holds
    what reads them. Nodes of which nothing is left are a no-op layer of their own, which takes no
    time. ``times``: microseconds by the name of the operation; empty if none were measured.
    """
    operations = read_operations(runtime, tags)
    homes = assign_nodes(operations, tags)
    numbers_in = defaultdict[str, list[int]](list)
    for number, home in sorted(homes.items()):
        if not is_pair(tags, number):
            numbers_in[home].append(number)
    layers = []
    for op in operations:
        numbers = numbers_in[op.name] or [n for n in op.nodes if op.kind in RECURRENT_KINDS]
        names = [tags.nodes[number].name for number in numbers]
        layers.append(_layer(op, names, _kind(op, bool(names)), times.get(op.name)))
    for number, node in enumerate(tags.nodes):
        if number not in homes and not is_pair(tags, number):
            gone = Layer(node.name, _REMOVED, (node.name,), kind="no-op")
            layers.append(replace(gone, time_us=0.0) if times else gone)
    return Plan(tuple(layers), source)


def _layer(op: Operation, nodes: Sequence[str], kind: Kind, time_us: float | None) -> Layer:
    return Layer(
        name="+".join(nodes) or f"{kind} {op.outputs[0].tensor}",
        op=op.kind,
        nodes=tuple(nodes),
        inputs=op.inputs,
        outputs=op.outputs,
        kind=kind,
        kernel=op.kernel,
        time_us=time_us,
    )


def _kind(op: Operation, computes: bool) -> Kind:
    if op.kernel.startswith("unknown") and (
        op.kind == "Reshape" or (op.kind == "Split" and not op.nodes)
    ):
        return "no-op"  # It gives the memory another shape, or hands out parts of it.
    if computes:
        return "compute"
    if all(port.dtype not in _QUANTITIES for port in op.outputs):
        return "reformat"
    if op.inputs[0].dtype not in _QUANTITIES:
        return "reformat"
    before = op.inputs[0].dtype in INTEGERS
    # What quantizes may write floats besides, and what dequantizes integers.
    after = any((port.dtype in INTEGERS) is not before for port in op.outputs) is not before
    if before and after:
        return "requantize" if op.nodes else "reformat"
    if before == after:
        return "reformat"
    return "quantize" if after else "dequantize"
