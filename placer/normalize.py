"""Bring a float model into the one form that the rest of placer works on.

Local functions inlined, opset at least 17, Constant, Identity and Dropout nodes gone, constant
subgraphs folded, BatchNormalization and constant per-channel Mul and Add folded into the weighted
node before them, nodes named and sorted. Outputs stay what they were.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
import onnx
import onnx.inliner
import onnx.version_converter
import onnx_graphsurgeon as gs
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    helper,
    numpy_helper,
)

from placer.errors import InputError
from placer.external import is_external, tensor_bytes
from placer.fold import fold_affine
from placer.graph import captured_tensors

MIN_OPSET = 17
MIN_IR_VERSION = 8
# Above this size a tensor holds weights, not shapes: passes in C++ see its type only.
LARGE_BYTES = 4096


def normalize(proto: ModelProto, base_dir: Path, path: Path) -> tuple[ModelProto, tuple[str, ...]]:
    """Return the normalised model and a sentence per kind of change; ``proto`` is used up.

    Raises InputError if the opset cannot be raised to 17, naming the node where that is known.
    """
    notes: list[str] = []
    if proto.functions:
        notes.append(f"inlined {len(proto.functions)} local functions")
        proto = onnx.inliner.inline_local_functions(proto)
    graph = proto.graph
    _drop_initializer_inputs(graph)
    del graph.value_info[:]
    proto.ir_version = max(proto.ir_version, MIN_IR_VERSION)
    _note(notes, _constants_to_initializers(graph), "turned {} Constant nodes into initializers")
    opset = _opset(proto)
    if opset < MIN_OPSET:
        proto = _convert(proto, path)
        notes.append(f"opset {opset} raised to {MIN_OPSET}")
        _constants_to_initializers(proto.graph)  # The converter turns attributes into Constants.
    before = len(proto.graph.node)
    proto = _fold_constants(proto)
    _note(notes, before - len(proto.graph.node), "removed {} constant or unused nodes")
    _note(notes, _remove_identities(proto.graph), "removed {} Identity and Dropout nodes")
    for op, count in fold_affine(proto.graph, base_dir).items():
        notes.append(f"folded {count} {op} nodes into the weights before them")
    _drop_unused_initializers(proto.graph)
    _name_nodes(proto.graph)
    return proto, tuple(notes)


def without_large_tensors(proto: ModelProto) -> ModelProto:
    """Copy ``proto`` with large and external initializers as graph inputs of the same type.

    What C++ passes need not see they need not copy, and no message outgrows 2 GiB.
    """
    large = {t.name for t in proto.graph.initializer if _is_large(t)}
    stub = without_initializers(proto, large)
    for tensor in proto.graph.initializer:
        if tensor.name in large:
            stub.graph.input.append(
                helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
    return stub


def without_initializers(proto: ModelProto, names: Collection[str]) -> ModelProto:
    """Copy ``proto`` without the initializers called ``names``, whose values are not copied."""
    copy = ModelProto(ir_version=proto.ir_version, producer_name=proto.producer_name)
    copy.opset_import.extend(proto.opset_import)
    copy.functions.extend(proto.functions)
    copy.metadata_props.extend(proto.metadata_props)
    source, graph = proto.graph, copy.graph
    graph.name = source.name
    graph.node.extend(source.node)
    graph.input.extend(source.input)
    graph.output.extend(source.output)
    graph.initializer.extend(t for t in source.initializer if t.name not in names)
    return copy


def _is_large(tensor: TensorProto) -> bool:
    return is_external(tensor) or tensor_bytes(tensor) > LARGE_BYTES


def _put_back(proto: ModelProto, tensors: list[TensorProto]) -> None:
    """Undo ``without_large_tensors``."""
    names = {t.name for t in tensors}
    kept = [value for value in proto.graph.input if value.name not in names]
    del proto.graph.input[:]
    proto.graph.input.extend(kept)
    proto.graph.initializer.extend(tensors)


def _note(notes: list[str], count: int, sentence: str) -> None:
    if count:
        notes.append(sentence.format(count))


def _opset(proto: ModelProto) -> int:
    return max((e.version for e in proto.opset_import if e.domain in ("", "ai.onnx")), default=0)


def _drop_initializer_inputs(graph: GraphProto) -> None:
    names = {t.name for t in graph.initializer}
    kept = [value for value in graph.input if value.name not in names]
    if len(kept) < len(graph.input):
        del graph.input[:]
        graph.input.extend(kept)


def _constants_to_initializers(graph: GraphProto) -> int:
    kept: list[NodeProto] = []
    for node in graph.node:
        tensor = _constant(node) if node.op_type == "Constant" else None
        if tensor is None:
            kept.append(node)
        else:
            graph.initializer.append(tensor)
    count = len(graph.node) - len(kept)
    _replace_nodes(graph, kept)
    return count


def _constant(node: NodeProto) -> TensorProto | None:
    """The value of a Constant node as an initializer; None for sparse tensors and strings."""
    attribute = node.attribute[0]
    tensor: TensorProto
    if attribute.name == "value":
        tensor = attribute.t
    elif attribute.name in ("value_float", "value_floats", "value_int", "value_ints"):
        value = helper.get_attribute_value(attribute)
        floats = attribute.type in (AttributeProto.FLOAT, AttributeProto.FLOATS)
        tensor = numpy_helper.from_array(np.array(value, np.float32 if floats else np.int64))
    else:
        return None
    tensor.name = node.output[0]
    return tensor


def _replace_nodes(graph: GraphProto, nodes: list[NodeProto]) -> None:
    if len(nodes) < len(graph.node):
        copies = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(copies)


def _convert(proto: ModelProto, path: Path) -> ModelProto:
    large = [t for t in proto.graph.initializer if _is_large(t)]
    stub = without_large_tensors(proto)
    try:
        converted = onnx.version_converter.convert_version(stub, MIN_OPSET)
    except (RuntimeError, onnx.version_converter.ConvertError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"{path}: opset {_opset(proto)} cannot be raised to {MIN_OPSET}"
            f"{_culprit(stub)}: {reason}; export the model with opset {MIN_OPSET} or later"
        ) from error
    _put_back(converted, large)
    return converted


def _culprit(stub: ModelProto) -> str:
    """Name the first node whose operator alone makes the converter fail."""
    for node in stub.graph.node:
        alone = without_initializers(stub, ())
        del alone.graph.node[:]
        alone.graph.node.append(node)
        bound = {v.name for v in alone.graph.input} | {t.name for t in alone.graph.initializer}
        for tensor in node.input:
            if tensor and tensor not in bound:
                alone.graph.input.append(
                    helper.make_tensor_value_info(tensor, TensorProto.FLOAT, None)
                )
        del alone.graph.output[:]
        for tensor in node.output:
            alone.graph.output.append(
                helper.make_tensor_value_info(tensor, TensorProto.FLOAT, None)
            )
        try:
            onnx.version_converter.convert_version(alone, MIN_OPSET)
        except (RuntimeError, onnx.version_converter.ConvertError):
            return f" at node '{node.name or node.output[0]}' ({node.op_type})"
    return ""


def _fold_constants(proto: ModelProto) -> ModelProto:
    large = [t for t in proto.graph.initializer if _is_large(t)]
    stub = without_large_tensors(proto)
    gs.logger.G_LOGGER.severity = logging.CRITICAL
    graph = gs.import_onnx(stub)
    # cleanup() compares every tensor with every graph input; weights need not be inputs for it.
    names = {t.name for t in large}
    graph.inputs = [tensor for tensor in graph.inputs if tensor.name not in names]
    graph.fold_constants(size_threshold=LARGE_BYTES).cleanup().toposort()
    folded = gs.export_onnx(graph, do_type_check=False)
    outputs = list(proto.graph.output)
    stub.graph.ClearField("node")
    stub.graph.ClearField("initializer")
    stub.graph.node.extend(folded.graph.node)
    stub.graph.initializer.extend(folded.graph.initializer)
    stub.graph.ClearField("output")
    stub.graph.output.extend(outputs)
    _put_back(stub, large)
    return stub


def _remove_identities(graph: GraphProto) -> int:
    """Remove Identity nodes, and Dropout nodes whose mask is unused, by renaming tensors."""
    outputs = {value.name for value in graph.output}
    sources = {value.name for value in graph.input} | {t.name for t in graph.initializer}
    read = {tensor for node in graph.node for tensor in _reads(node)} | outputs
    kept: list[NodeProto] = []
    new_name: dict[str, str] = {}

    def resolve(tensor: str) -> str:
        while tensor in new_name:
            tensor = new_name[tensor]
        return tensor

    for node in graph.node:
        if not _is_identity(node, read):
            kept.append(node)
            continue
        source, target = resolve(node.input[0]), node.output[0]
        if target not in outputs:
            new_name[target] = source
        elif source in outputs or source in sources:
            kept.append(node)  # Two names that must both survive.
        else:
            new_name[source] = target
    for node in kept:
        rename_tensors(node, resolve)
    count = len(graph.node) - len(kept)
    _replace_nodes(graph, kept)
    return count


def _is_identity(node: NodeProto, read: Collection[str]) -> bool:
    if node.op_type == "Identity":
        return True
    training = len(node.input) > 2 and node.input[2] != ""
    mask = len(node.output) > 1 and node.output[1] in read
    return node.op_type == "Dropout" and not training and not mask


def _reads(node: NodeProto) -> tuple[str, ...]:
    return (*node.input, *captured_tensors(node))


def rename_tensors(node: NodeProto, resolve: Callable[[str], str]) -> None:
    """Rename tensors in ``node`` and its subgraphs; ONNX forbids shadowing, so names suffice."""
    for names in (node.input, node.output):
        for i, name in enumerate(names):
            names[i] = resolve(name)
    for attribute in node.attribute:
        for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
            for inner in graph.node:
                rename_tensors(inner, resolve)
            for value in graph.output:
                value.name = resolve(value.name)


def _drop_unused_initializers(graph: GraphProto) -> None:
    used = {tensor for node in graph.node for tensor in _reads(node)}
    used |= {value.name for value in graph.output}
    if any(t.name not in used for t in graph.initializer):
        kept = [
            TensorProto.FromString(t.SerializeToString())
            for t in graph.initializer
            if t.name in used
        ]
        del graph.initializer[:]
        graph.initializer.extend(kept)


def _name_nodes(graph: GraphProto) -> None:
    """Name unnamed nodes and rename repeated names, the same way for the same graph."""
    count = Counter(node.name for node in graph.node)
    taken = set(count)
    seen: set[str] = set()
    for index, node in enumerate(graph.node):
        if node.name and node.name not in seen:
            seen.add(node.name)
            continue
        name = base = f"{node.name or node.op_type}_{index}"
        suffix = 0
        while name in taken:
            suffix += 1
            name = f"{base}_{suffix}"
        taken.add(name)
        seen.add(name)
        node.name = name
