"""Bring a float model into the one form that the rest of placer works on.

Local functions inlined, ONNX Runtime's fused operators taken apart, opset 17 to 27, Constant,
Identity, Dropout and other nodes that only copy gone, constant subgraphs folded, If, Loop and Scan
replaced by the nodes that run where the model fixes which, Transposes that others undo taken out,
Sums written as Adds, CastLikes as Casts and means over the places of maps as poolings,
BatchNormalization and constant per-channel Mul, Add and Sub folded into the weighted node before
them, nodes named and sorted. Outputs stay what they were.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx.defs
import onnx.inliner
import onnx.shape_inference
from onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    ValueInfoProto,
    helper,
)

from placer.common.ort_session import one_line
from placer.errors import InputError
from placer.graph.edit import (
    adopt,
    every_node,
    fix_input_shapes,
    reads,
    remove_dead_nodes,
    sort_nodes,
    standard_opset,
    subgraphs,
    without_large_tensors,
)
from placer.graph.node_names import node_title, unique_names
from placer.graph.operators import STANDARD_DOMAINS
from placer.model.inlined_nodes import operator_of
from placer.model.minimum_opset import (
    HALF_OPSET,
    MAX_OPSET,
    MIN_OPSET,
    lower_opset,
    raise_for_half,
    raise_opset,
)
from placer.model.named_dimensions import forget_placeholders
from placer.model.passes.absent_inputs import drop_absent_inputs
from placer.model.passes.affine_folding import FoldedWeight, fold_affine
from placer.model.passes.constant_folding import fold_repeatedly, may_fold
from placer.model.passes.constant_nodes import constants_to_initializers
from placer.model.passes.control_flow import MAX_UNROLLED_NODES, flatten_conditionals, unroll
from placer.model.passes.early_axes import name_axes
from placer.model.passes.early_norms import put_back
from placer.model.passes.fused_operators import replace_fused
from placer.model.passes.generated_names import rename_generated
from placer.model.passes.identities import remove_identities
from placer.model.passes.named_axes import write_out_axes
from placer.model.passes.plain_casts import has_cast_likes, write_casts
from placer.model.passes.plain_sums import add_sums
from placer.model.passes.pooled_means import pool_means
from placer.model.passes.redundant_views import bypass_redundant_views, may_have_redundant_views
from placer.model.passes.repeated_casts import bypass_repeated_casts, may_have_repeated_casts
from placer.model.passes.scalar_ranges import make_scalars
from placer.model.passes.sparse_initializers import write_out_sparse
from placer.model.passes.undone_transposes import take_out_undone
from placer.model.save import SOURCE_PROPERTY

MIN_IR_VERSION = 8
MAX_IR_VERSION = 11  # what ONNX Runtime 1.23 reads

_INFERENCE_ERRORS = (
    RuntimeError,
    onnx.shape_inference.InferenceError,
    onnx.checker.ValidationError,
)


def tidy(proto: ModelProto) -> None:
    """Undo what old or careless exporters write and ONNX Runtime accepts; computes nothing.

    The graph has a name, initializers are no graph inputs, nodes are sorted, the standard domain is
    called "", inferred types are dropped, dimensions called "?" have no name, and the IR version is
    one that ONNX Runtime reads. What is made of the model does not name the file of its source.
    """
    graph = proto.graph
    for entry in [one for one in proto.metadata_props if one.key == SOURCE_PROPERTY]:
        proto.metadata_props.remove(entry)
    graph.name = graph.name or "graph"
    _drop_initializer_inputs(graph)
    del graph.value_info[:]
    forget_placeholders(graph)
    proto.ir_version = min(max(proto.ir_version, MIN_IR_VERSION), MAX_IR_VERSION)
    _name_standard_domain(proto)
    sort_nodes(graph)


@dataclass(frozen=True, eq=False)
class Normalized:
    """``notes``: a sentence per kind of change. ``normalized``: see ``Graph``. ``folded``: see
    ``Folded.weights``.
    """

    proto: ModelProto
    notes: tuple[str, ...]
    normalized: frozenset[str]
    folded: Mapping[str, FoldedWeight]


def normalize(proto: ModelProto, base_dir: Path, path: Path) -> Normalized:
    """Return the normalised model; ``proto`` is used up.

    ``proto``: checked and tidy. Raises InputError if the opset cannot be raised to 17, naming the
    node where that is known, or if shapes contradict each other.
    """
    notes: list[str] = []
    if proto.functions:
        notes.append(f"inlined {len(proto.functions)} local functions")
        inline_functions(proto, path)
    graph = proto.graph
    _note(notes, constants_to_initializers(graph), "turned {} Constant nodes into initializers")
    _note(notes, write_out_sparse(graph), "wrote out {} sparse initializers")
    taken = _take_apart(proto, path)
    opset = standard_opset(proto)
    if opset < MIN_OPSET:
        raise_opset(proto, path)
        notes.append(f"opset {opset} raised to {MIN_OPSET}")
        constants_to_initializers(graph)  # The converter turns attributes into Constants.
        put_back(proto)
        taken += _take_apart(proto, path)  # What lower opsets lack, as LayerNormalization.
    elif lower_opset(proto):
        notes.append(f"opset {opset} lowered to {MAX_OPSET}, in which ONNX Runtime has pairs")
        constants_to_initializers(graph)
    _note(notes, add_sums(graph), "wrote {} Sum nodes as Adds")
    casts = _write_casts(proto, path)
    removed = remove_dead_nodes(graph) + _fold_constants(proto, base_dir, path)
    flattened, unrolled, casts_inside = _resolve_control_flow(proto, base_dir, path)
    _note(notes, casts + casts_inside, "wrote {} CastLike nodes as Casts")
    taken += _take_apart(proto, path) if flattened or unrolled else 0
    _note(notes, taken, "took {} fused nodes of ONNX Runtime apart")
    removed += flattened
    removed += remove_dead_nodes(graph) if removed else 0
    _note(notes, removed, "removed {} constant or unused nodes")
    _note(notes, unrolled, "unrolled {} Loop and Scan nodes whose trip count is fixed")
    _note(notes, remove_identities(graph), "removed {} Identity and Dropout nodes")
    _note(notes, _remove_copies(proto, path), "removed {} nodes that only copy what they read")
    _note(notes, take_out_undone(graph), "took out {} Transpose nodes that others undo")
    pooled = pool_means(graph, lambda: infer_values(proto, {}, path))
    _note(notes, pooled, "wrote {} ReduceMean nodes over the places of maps as GlobalAveragePool")
    written = write_out_axes(graph, lambda: infer_values(proto, {}, path))
    _note(notes, written, "gave {} Pad and Resize nodes that name axes numbers for all")
    folded = fold_affine(graph, base_dir)
    for op, count in folded.counts.items():
        notes.append(f"folded {count} {op} nodes into the weights before them")
    drop_unused_initializers(graph)
    drop_absent_inputs(graph)
    rename_generated(graph)
    opset = standard_opset(proto)
    if raise_for_half(proto, path):
        notes.append(f"opset {opset} raised to {HALF_OPSET}, which has pairs of half precision")
        constants_to_initializers(graph)
    _name_nodes(graph)
    return Normalized(proto, tuple(notes), folded.normalized, folded.weights)


def tidy_quantized(proto: ModelProto) -> None:
    """Prepare a model with Q/DQ pairs for reading: constants as initializers, nodes and axes named.

    Nothing else changes, so that nodes and tensors are found again in an engine's plan.
    """
    tidy(proto)
    constants_to_initializers(proto.graph)
    remove_identities(proto.graph)
    name_axes(proto)
    _name_nodes(proto.graph)


def tidy_named(proto: ModelProto) -> None:
    """Prepare any model for being cut: constants as initializers, nodes sorted and named."""
    tidy(proto)
    constants_to_initializers(proto.graph)
    _name_nodes(proto.graph)


def inline_functions(proto: ModelProto, path: Path) -> None:
    """Inline the local functions of ``proto``.

    Raises InputError if they do not fit their calls, or if the model's opset defines one of their
    operators otherwise: ONNX's checker refuses such a file, ONNX Runtime computes the operator as
    the model's opset defines it, and ONNX's converter as neither in some cases.
    """
    if not proto.functions:
        return
    stub, opset = without_large_tensors(proto), standard_opset(proto)
    text = f"{path}: its local functions cannot be inlined"
    for function in stub.functions:
        before = standard_opset(function)
        if (node := _changed_node(function, opset)) is not None:
            raise InputError(
                f"{text}: function '{function.name}' has opset {before}, whose {node_title(node)} "
                f"differs in the model's opset {opset}; export the model with one opset"
            )
        for entry in function.opset_import:
            if entry.domain in STANDARD_DOMAINS:
                entry.version = opset
    try:
        adopt(proto, _inlined(stub))
    except _INFERENCE_ERRORS as error:
        raise InputError(f"{text}: {one_line(error)}") from error


def _inlined(proto: ModelProto) -> ModelProto:
    """``proto`` with its local functions inlined, one level of calls after the other.

    From the outside in: what a function passes on but did not get has the default of the next.
    """
    inlined = ModelProto()
    inlined.CopyFrom(proto)
    del inlined.functions[:]
    for level in _levels([*proto.functions]):
        inlined.functions.extend(level)
        _give_defaults(inlined)
        inlined = onnx.inliner.inline_local_functions(inlined)
    return inlined


def _levels(functions: Sequence[FunctionProto]) -> Iterator[list[FunctionProto]]:
    """``functions``, none of which calls itself, each after all that call it."""
    while functions:
        called = {operator_of(node) for f in functions for node in every_node(f.node)}
        yield [f for f in functions if (f.domain, f.name) not in called]
        functions = [f for f in functions if (f.domain, f.name) in called]


def _give_defaults(proto: ModelProto) -> None:
    """Give calls of functions the attributes that they leave out; onnx 1.23's inliner drops them.

    What is inlined would have the defaults of its operators instead of those of the function.
    """
    defaults = {(f.domain, f.name, f.overload): f.attribute_proto for f in proto.functions}
    calls = itertools.chain(proto.graph.node, *(function.node for function in proto.functions))
    for node in every_node(calls):
        given = {attribute.name for attribute in node.attribute}
        own = defaults.get((node.domain, node.op_type, node.overload), ())
        node.attribute.extend(default for default in own if default.name not in given)


def _changed_node(function: FunctionProto, opset: int) -> NodeProto | None:
    """The first node of ``function`` that means something else in ``opset``."""
    before = standard_opset(function)
    nodes = (n for n in every_node(function.node) if n.domain in STANDARD_DOMAINS)
    return next((n for n in nodes if _changes(n.op_type, before, opset)), None)


def _changes(op: str, before: int, after: int) -> bool:
    """Whether both opsets have the operator with other inputs, attributes or defaults.

    Types that one of them adds change nothing.
    """
    try:
        schemas = [onnx.defs.get_schema(op, version) for version in (before, after)]
    except onnx.defs.SchemaError:
        return before != after
    return len({_signature(schema) for schema in schemas}) > 1


def _signature(schema: onnx.defs.OpSchema) -> tuple[object, ...]:
    attributes = (
        (name, attribute.required, attribute.default_value.SerializeToString())
        for name, attribute in sorted(schema.attributes.items())
    )
    counts = schema.min_input, schema.max_input, schema.min_output, schema.max_output
    return schema.deprecated, *counts, *attributes


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


def _take_apart(proto: ModelProto, path: Path) -> int:
    return replace_fused(proto, lambda stub: infer_values(stub, {}, path))


def _write_casts(proto: ModelProto, path: Path) -> int:
    if not has_cast_likes(proto.graph):
        return 0
    return write_casts(proto.graph, infer_values(proto, {}, path))


def _fold_constants(proto: ModelProto, base_dir: Path, path: Path) -> int:
    if not may_fold(proto):
        return 0
    return fold_repeatedly(proto, lambda: infer_values(proto, {}, path), base_dir)


def _remove_copies(proto: ModelProto, path: Path) -> int:
    graph = proto.graph
    if not (may_have_redundant_views(graph) or may_have_repeated_casts(graph)):
        return 0
    values = infer_values(proto, {}, path)
    if not bypass_repeated_casts(graph, values) + bypass_redundant_views(graph, values):
        return 0
    return remove_identities(graph) + remove_dead_nodes(graph)


def _resolve_control_flow(proto: ModelProto, base_dir: Path, path: Path) -> tuple[int, int, int]:
    """Put what runs in place of If, Loop and Scan nodes where the model fixes that.

    Returns how many constant nodes this removed, how many Loop and Scan nodes, and how many
    CastLike nodes of their bodies became Casts.
    """
    graph, removed, unrolled, casts, room = proto.graph, 0, 0, 0, MAX_UNROLLED_NODES
    while True:
        flattened = flatten_conditionals(graph)
        types = (
            infer_values(proto, {}, path) if any(n.op_type == "Scan" for n in graph.node) else {}
        )
        loops, added = unroll(graph, types, room)
        if not flattened and not loops:
            return removed, unrolled, casts
        unrolled, room = unrolled + loops, room - added
        removed += flattened + constants_to_initializers(graph)
        if any(node.op_type == "Range" for node in graph.node):
            make_scalars(graph, infer_values(proto, {}, path))
        casts += _write_casts(proto, path)
        removed += _fold_constants(proto, base_dir, path)


def _note(notes: list[str], count: int, sentence: str) -> None:
    if count:
        notes.append(sentence.format(count))


def _drop_initializer_inputs(graph: GraphProto) -> None:
    names = {t.name for t in graph.initializer}
    kept = [value for value in graph.input if value.name not in names]
    if len(kept) < len(graph.input):
        del graph.input[:]
        graph.input.extend(kept)


def _name_standard_domain(proto: ModelProto) -> None:
    """Call the standard domain "" everywhere; ONNX Runtime does not know all by "ai.onnx"."""
    if not any(entry.domain == "ai.onnx" for entry in proto.opset_import):
        return
    version = standard_opset(proto)
    others = [e for e in proto.opset_import if e.domain not in STANDARD_DOMAINS]
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


def drop_unused_initializers(graph: GraphProto) -> None:
    """Remove initializers that nothing reads."""
    used = {tensor for node in graph.node for tensor in reads(node)}
    used |= {value.name for value in graph.output}
    unused = [i for i, t in enumerate(graph.initializer) if t.name not in used]
    for index in reversed(unused):
        del graph.initializer[index]


def _name_nodes(graph: GraphProto) -> None:
    """Name unnamed nodes and rename repeated names, the same way for the same graph."""
    for node, name in zip(graph.node, unique_names(graph.node), strict=True):
        if node.name != name:
            node.name = name
