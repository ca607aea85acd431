"""Operators that later opsets compute differently, rewritten so that a model keeps its meaning.

ONNX's version converter (1.23) raises the version of these, and leaves the rest as it was:

- Upsample, and Resize before opset 11, take places by ``asymmetric`` coordinates; later ones by
  ``half_pixel`` unless told otherwise. Nearest takes the place before when it enlarges and the one
  behind when it reduces (the tests of ONNX 1.5, and ONNX Runtime).
- Scan of opset 8 runs over axis 1 for each entry of axis 0, later ones over axis 0.
- Hardmax before opset 13 takes all axes from ``axis`` on as one, 1 by default; later ones take
  ``axis`` alone, the last by default.
- The mask of Dropout before opset 12 is not defined outside of training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from placer.errors import InputError
from placer.graph.edit import every_node, reads, replace_nodes, standard_opset, subgraphs
from placer.graph.external_data import is_external
from placer.graph.names import UnusedNames, tensor_names
from placer.graph.node_names import node_title
from placer.graph.operators import STANDARD_DOMAINS

_LAST_MASK = 11


@dataclass(frozen=True)
class Change:
    """An opset that changes operators.

    ``last``: up to this one they mean what ``rewrite`` keeps. ``at``: the opset that a model has
    when it is rewritten in place.
    """

    last: int
    at: int
    operators: frozenset[str]
    rewrite: Callable[[ModelProto, Path], None]

    def concerns(self, nodes: Iterable[NodeProto], opset: int, target: int) -> bool:
        """Whether one of ``nodes`` becomes another operator from ``opset`` to ``target``."""
        if not opset <= self.last < target:
            return False
        return any(_is_any(node, self.operators) for node in nodes)


def check_masks(proto: ModelProto, path: Path) -> None:
    """Raise InputError if something reads the mask of a Dropout that does not define it."""
    opset = standard_opset(proto)
    if opset > _LAST_MASK:
        return
    for graph in _every_graph(proto.graph):  # Branches may call tensors of theirs the same.
        masks = {n.output[1]: n for n in graph.node if _is_any(n, ("Dropout",)) and n.output[1:]}
        if not masks:
            continue
        read = {tensor for node in graph.node for tensor in reads(node)}
        read.update(value.name for value in graph.output)
        node = next((node for mask, node in masks.items() if mask in read - {""}), None)
        if node is not None:
            raise InputError(
                f"{path}: {node_title(node)} gives its mask to others, which opset {opset} does "
                "not define outside of training; export the model with opset "
                f"{_LAST_MASK + 1} or later"
            )


def check_lengths(proto: ModelProto, path: Path) -> None:
    """Raise InputError for a Scan with lengths of its sequences, which opset 8 alone has."""
    if standard_opset(proto) != 8:
        return
    for node in every_node(proto.graph.node):
        if _is_any(node, ("Scan",)) and node.input and node.input[0]:
            raise InputError(
                f"{path}: {node_title(node)} has lengths of its sequences ('{node.input[0]}'), "
                "which no opset after 8 has; export the model with opset 9 or later"
            )


def name_bilinear(proto: ModelProto) -> None:
    """Write ``linear`` for the mode ``bilinear``, which only Upsample before opset 7 has."""
    for node in every_node(proto.graph.node):
        for attribute in node.attribute if _is_any(node, ("Upsample",)) else ():
            if attribute.name == "mode" and attribute.s == b"bilinear":
                attribute.s = b"linear"


def _keep_places(proto: ModelProto, path: Path) -> None:
    """Write into Resize nodes of opset 10 which places they take; later opsets know how to say."""
    for graph, constants in _with_constants(proto.graph, {}):
        for node in graph.node:
            if _is_any(node, ("Resize",)):
                rounding = _rounding(node, constants, path)
                node.attribute.extend(
                    (
                        helper.make_attribute("coordinate_transformation_mode", "asymmetric"),
                        helper.make_attribute("nearest_mode", rounding),
                    )
                )


def _scan_each_entry(proto: ModelProto, _path: Path) -> None:
    """Put each Scan, of which the converter took the lengths, into a Scan over its batch."""
    for node in reversed(list(every_node(proto.graph.node))):  # Those in bodies first.
        if _is_any(node, ("Scan",)):
            node.CopyFrom(_over_batch(node))


def _over_batch(node: NodeProto) -> NodeProto:
    """A Scan over axis 0 of all inputs of ``node``, which is in its body."""
    inner = NodeProto.FromString(node.SerializeToString())
    attributes = {a.name: a for a in node.attribute}
    scanned = attributes["num_scan_inputs"].i
    states, body = len(node.input) - scanned, attributes["body"].g
    prefix = next(name for name in node.output if name)
    inputs = [
        _entry(value, f"{prefix}/entry/{value.name}", position >= states)
        for position, value in enumerate(body.input)
    ]
    outputs = [
        _entry(value, f"{prefix}/entry/out/{value.name}", position >= states)
        for position, value in enumerate(body.output)
    ]
    inner.input[:] = [value.name for value in inputs]
    inner.output[:] = [value.name for value in outputs]
    outer = helper.make_node(
        "Scan",
        list(node.input),
        [*node.output, *[""] * (len(outputs) - len(node.output))],
        node.name,
        body=helper.make_graph([inner], "entry", inputs, outputs),
        num_scan_inputs=len(node.input),
    )
    while not outer.output[-1]:
        outer.output.pop()
    return outer


def _entry(value: ValueInfoProto, name: str, is_sequence: bool) -> ValueInfoProto:
    """The type of one entry of the batch; ``value``: that of a step."""
    entry = ValueInfoProto.FromString(value.SerializeToString())
    entry.name = name
    if is_sequence and entry.type.tensor_type.HasField("shape"):
        dims = list(entry.type.tensor_type.shape.dim)
        entry.type.tensor_type.ClearField("shape")
        entry.type.tensor_type.shape.dim.add()
        entry.type.tensor_type.shape.dim.extend(dims)
    return entry


def _flatten_hardmax(proto: ModelProto, _path: Path) -> None:
    """Write the matrix that Hardmax takes its input for as Flatten and Reshape around it."""
    names = UnusedNames(tensor_names(proto.graph))
    for graph in _every_graph(proto.graph):
        nodes: list[NodeProto] = []
        for node in graph.node:
            axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
            if not _is_any(node, ("Hardmax",)) or axis == -1:
                nodes.append(node)
                continue
            source, target = node.input[0], node.output[0]
            shape, flat, chosen = (names.unused(f"{target}/{w}") for w in ("shape", "flat", "max"))
            nodes += [
                helper.make_node("Shape", [source], [shape]),
                helper.make_node("Flatten", [source], [flat], axis=axis),
                helper.make_node("Hardmax", [flat], [chosen], node.name, axis=-1),
                helper.make_node("Reshape", [chosen, shape], [target]),
            ]
        if len(nodes) > len(graph.node):
            replace_nodes(graph, nodes)


def _every_graph(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for body in subgraphs(node):
            yield from _every_graph(body)


def _with_constants(
    graph: GraphProto, outer: Mapping[str, TensorProto]
) -> Iterator[tuple[GraphProto, Mapping[str, TensorProto]]]:
    """``graph`` and its bodies, each with the initializers and Constants that it sees by name."""
    found = {**outer, **{tensor.name: tensor for tensor in graph.initializer}}
    for node in graph.node:
        if _is_any(node, ("Constant",)):
            found.update((node.output[0], a.t) for a in node.attribute if a.name == "value")
    yield graph, found
    for node in graph.node:
        for body in subgraphs(node):
            yield from _with_constants(body, found)


def _rounding(node: NodeProto, constants: Mapping[str, TensorProto], path: Path) -> str:
    """Which place the Resize takes as the nearest.

    Nearly all scales that are computed enlarge; where they do not, the comparison of the model with
    the file finds out. Raises InputError for a Resize that no single one replaces.
    """
    scales = constants.get(node.input[1])
    if scales is None or is_external(scales):
        return "floor"
    factors = numpy_helper.to_array(scales)
    if not (factors < 1).any():
        return "floor"
    mode = next((a.s for a in node.attribute if a.name == "mode"), b"nearest")
    if mode == b"nearest" and (factors > 1).any():
        raise InputError(
            f"{path}: {node_title(node)} enlarges and reduces at once by the nearest places, which "
            "no single Resize of later opsets does; export the model with opset 11 or later"
        )
    return "ceil"


def _is_any(node: NodeProto, operators: frozenset[str] | tuple[str, ...]) -> bool:
    return node.op_type in operators and node.domain in STANDARD_DOMAINS


CHANGES = (
    Change(8, 9, frozenset({"Scan"}), _scan_each_entry),
    Change(10, 10, frozenset({"Upsample", "Resize"}), _keep_places),
    Change(12, 12, frozenset({"Hardmax"}), _flatten_hardmax),
)
