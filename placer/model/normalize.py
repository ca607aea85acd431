"""Bring a float model into the one form that the rest of placer works on.

Local functions inlined, opset at least 17, Constant, Identity and Dropout nodes gone, constant
subgraphs folded, BatchNormalization and constant per-channel Mul and Add folded into the weighted
node before them, nodes named and sorted. Outputs stay what they were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx.inliner
import onnx.shape_inference
import onnx.version_converter
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from placer.common.ort_session import one_line
from placer.errors import InputError
from placer.graph.edit import (
    adopt,
    fix_input_shapes,
    reads,
    remove_dead_nodes,
    rename_tensors,
    replace_nodes,
    sort_nodes,
    standard_opset,
    subgraphs,
    without_initializers,
    without_large_tensors,
)
from placer.graph.external_data import is_external
from placer.model.affine_folding import fold_affine
from placer.model.constant_folding import fold_constants, may_fold

MIN_OPSET = 17
MIN_IR_VERSION = 8
MAX_IR_VERSION = 11  # what ONNX Runtime 1.23 reads

_CONVERTER_ERRORS = (
    RuntimeError,
    onnx.version_converter.ConvertError,
    onnx.shape_inference.InferenceError,
)
_INFERENCE_ERRORS = (
    RuntimeError,
    onnx.shape_inference.InferenceError,
    onnx.checker.ValidationError,
)


def tidy(proto: ModelProto) -> None:
    """Undo what old or careless exporters write and ONNX Runtime accepts; computes nothing.

    Initializers are no graph inputs, nodes are sorted, the standard domain is called "", inferred
    types are dropped, and the IR version is one that ONNX Runtime reads.
    """
    graph = proto.graph
    _drop_initializer_inputs(graph)
    del graph.value_info[:]
    proto.ir_version = min(max(proto.ir_version, MIN_IR_VERSION), MAX_IR_VERSION)
    _name_standard_domain(proto)
    sort_nodes(graph)


def normalize(proto: ModelProto, base_dir: Path, path: Path) -> tuple[ModelProto, tuple[str, ...]]:
    """Return the normalised model and a sentence per kind of change; ``proto`` is used up.

    ``proto``: checked and tidy. Raises InputError if the opset cannot be raised to 17, naming the
    node where that is known, or if shapes contradict each other.
    """
    notes: list[str] = []
    if proto.functions:
        notes.append(f"inlined {len(proto.functions)} local functions")
        stub = without_large_tensors(proto)
        adopt(proto, inlined(stub, path))
    graph = proto.graph
    _note(notes, _constants_to_initializers(graph), "turned {} Constant nodes into initializers")
    opset = standard_opset(proto)
    if opset < MIN_OPSET:
        _raise_opset(proto, path)
        notes.append(f"opset {opset} raised to {MIN_OPSET}")
        _constants_to_initializers(graph)  # The converter turns attributes into Constants.
    removed = remove_dead_nodes(graph) + _fold_constants(proto, path)
    while flattened := _flatten_conditionals(graph):
        removed += flattened + _constants_to_initializers(graph)
        removed += _fold_constants(proto, path)
    removed += remove_dead_nodes(graph) if removed else 0
    _note(notes, removed, "removed {} constant or unused nodes")
    _note(notes, _remove_identities(graph), "removed {} Identity and Dropout nodes")
    for op, count in fold_affine(graph, base_dir).items():
        notes.append(f"folded {count} {op} nodes into the weights before them")
    _drop_unused_initializers(graph)
    _name_nodes(graph)
    return proto, tuple(notes)


def tidy_quantized(proto: ModelProto) -> None:
    """Prepare a model with Q/DQ pairs for reading: constants as initializers, nodes named.

    Nothing else changes, so that nodes and tensors are found again in an engine's plan.
    """
    tidy(proto)
    _constants_to_initializers(proto.graph)
    _remove_identities(proto.graph)
    _name_nodes(proto.graph)


def tidy_named(proto: ModelProto) -> None:
    """Prepare any model for being cut: constants as initializers, nodes sorted and named."""
    tidy(proto)
    _constants_to_initializers(proto.graph)
    _name_nodes(proto.graph)


def inlined(proto: ModelProto, path: Path) -> ModelProto:
    """``proto`` with its local functions inlined; InputError if they do not fit their calls."""
    try:
        return onnx.inliner.inline_local_functions(proto, convert_version=True)
    except _INFERENCE_ERRORS as error:
        raise InputError(
            f"{path}: its local functions cannot be inlined: {one_line(error)}"
        ) from error


def infer_values(
    proto: ModelProto,
    input_shapes: Mapping[str, tuple[int, ...]],
    path: Path,
    seen: Iterable[ValueInfoProto] = (),
) -> dict[str, ValueInfoProto]:
    """Types of tensors by ONNX's inference, graph inputs fixed to ``input_shapes`` where given.

    ``seen``: types that are known otherwise. Small initializers are not among them. Raises
    InputError if shapes contradict each other.
    """
    fixed = without_large_tensors(proto)
    fix_input_shapes(fixed, input_shapes)
    fixed.graph.value_info.extend(seen)
    for value in fixed.graph.output:  # Declared dynamic dimensions would hide inferred ones.
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    try:
        graph = onnx.shape_inference.infer_shapes(fixed, data_prop=True).graph
    except (*_INFERENCE_ERRORS, ValueError) as error:  # Of C++: a vector of impossible length.
        raise InputError(f"{path}: shapes do not fit: {one_line(error)}") from error
    return {v.name: v for v in (*graph.input, *graph.value_info, *graph.output)}


def _fold_constants(proto: ModelProto, path: Path) -> int:
    return fold_constants(proto, infer_values(proto, {}, path)) if may_fold(proto) else 0


def _note(notes: list[str], count: int, sentence: str) -> None:
    if count:
        notes.append(sentence.format(count))


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
    if count:
        replace_nodes(graph, kept)
    return count


def _constant(node: NodeProto) -> TensorProto | None:
    """The value of a Constant node as an initializer; None for sparse tensors and strings."""
    if len(node.attribute) != 1:
        return None
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


def _name_standard_domain(proto: ModelProto) -> None:
    """Call the standard domain "" everywhere; ONNX Runtime does not know all by "ai.onnx"."""
    if not any(entry.domain == "ai.onnx" for entry in proto.opset_import):
        return
    version = standard_opset(proto)
    others = [e for e in proto.opset_import if e.domain not in ("", "ai.onnx")]
    del proto.opset_import[:]
    proto.opset_import.extend([helper.make_opsetid("", version), *others])
    for node in proto.graph.node:
        _name_domain(node)


def _name_domain(node: NodeProto) -> None:
    if node.domain == "ai.onnx":
        node.domain = ""
    for graph in subgraphs(node):
        for inner in graph.node:
            _name_domain(inner)


def _raise_opset(proto: ModelProto, path: Path) -> None:
    if standard_opset(proto) == 0:  # Operators of other domains alone: there is nothing to raise.
        proto.opset_import.append(helper.make_opsetid("", MIN_OPSET))
        return
    stub = without_large_tensors(proto)
    try:
        adopt(proto, onnx.version_converter.convert_version(stub, MIN_OPSET))
    except _CONVERTER_ERRORS as error:
        raise InputError(
            f"{path}: opset {standard_opset(proto)} cannot be raised to {MIN_OPSET}"
            f"{_culprit(stub)}: {one_line(error)}; "
            f"export the model with opset {MIN_OPSET} or later"
        ) from error


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
        except _CONVERTER_ERRORS:
            return f" at node '{node.name or node.output[0]}' ({node.op_type})"
    return ""


def _flatten_conditionals(graph: GraphProto) -> int:
    """Put the branch that runs in place of each If whose condition is constant."""
    constants = {t.name: t for t in graph.initializer if not is_external(t)}
    nodes: list[NodeProto] = []
    count = 0
    for node in graph.node:
        if node.op_type != "If" or node.domain or node.input[0] not in constants:
            nodes.append(node)
            continue
        condition = numpy_helper.to_array(constants[node.input[0]]).item()
        chosen = "then_branch" if condition else "else_branch"
        branch = next(a.g for a in node.attribute if a.name == chosen)
        nodes += _unwrap(branch, node, graph)
        count += 1
    if count:
        replace_nodes(graph, nodes)
    return count


def _unwrap(branch: GraphProto, node: NodeProto, graph: GraphProto) -> list[NodeProto]:
    """Nodes of ``branch`` for the outer graph, its initializers moved there.

    Names that are local to the branch get the If's first output as prefix: two branches may use
    the same names.
    """
    local = [t.name for t in branch.initializer]
    local += [tensor for inner in branch.node for tensor in inner.output if tensor]
    names = {tensor: f"{node.output[0]}/{tensor}" for tensor in local}
    nodes = [NodeProto.FromString(inner.SerializeToString()) for inner in branch.node]
    for inner in nodes:
        rename_tensors(inner, lambda tensor: names.get(tensor, tensor))
    for tensor in branch.initializer:
        moved = graph.initializer.add()
        moved.CopyFrom(tensor)
        moved.name = names[tensor.name]
    for value, output in zip(branch.output, node.output, strict=True):
        if output:
            source = names.get(value.name, value.name)
            nodes.append(helper.make_node("Identity", [source], [output]))
    return nodes


def _remove_identities(graph: GraphProto) -> int:
    """Remove Identity nodes, and Dropout nodes whose mask is unused, by renaming tensors."""
    outputs = {value.name for value in graph.output}
    sources = {value.name for value in graph.input} | {t.name for t in graph.initializer}
    sources |= {t.values.name for t in graph.sparse_initializer}
    false = {t.name for t in graph.initializer if _is_false(t)}
    read = {tensor for node in graph.node for tensor in reads(node)} | outputs
    kept: list[NodeProto] = []
    new_name: dict[str, str] = {}

    def resolve(tensor: str) -> str:
        while tensor in new_name:
            tensor = new_name[tensor]
        return tensor

    for node in graph.node:
        if not _is_identity(node, read, false):
            kept.append(node)
            continue
        source, target = resolve(node.input[0]), node.output[0]
        if target not in outputs:
            new_name[target] = source
        elif source in outputs or source in sources:
            kept.append(node)  # Two names that must both survive.
        else:
            new_name[source] = target
    for node in kept if new_name else ():
        rename_tensors(node, resolve)
    count = len(graph.node) - len(kept)
    if count:
        replace_nodes(graph, kept)
    return count


def _is_identity(node: NodeProto, read: Collection[str], false: Collection[str]) -> bool:
    if node.domain:
        return False
    training = len(node.input) > 2 and node.input[2] != "" and node.input[2] not in false
    mask = len(node.output) > 1 and node.output[1] in read
    return node.op_type == "Identity" or (node.op_type == "Dropout" and not training and not mask)


def _is_false(tensor: TensorProto) -> bool:
    if tensor.data_type != TensorProto.BOOL or is_external(tensor):
        return False
    return not numpy_helper.to_array(tensor).any()


def _drop_unused_initializers(graph: GraphProto) -> None:
    used = {tensor for node in graph.node for tensor in reads(node)}
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
