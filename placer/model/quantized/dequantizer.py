"""Take a quantized graph apart, node by node, into the float graph that it stands for.

Every integer tensor is remembered as the float tensor it stands for and its scale, however it came
about: by QuantizeLinear, by a QOperator node, or by moving the values of another one (Cast,
Reshape, Transpose, MaxPool ...). A DequantizeLinear, or another reader of integers, then reads the
float tensor instead, and the edge is marked as quantized. What reads integers as such gets them
computed by float operators, so that the model stays what it was.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from onnx import ModelProto, NodeProto

from placer.errors import InputError
from placer.graph.edit import reads
from placer.model.quantized import qoperator
from placer.model.quantized.constants import move_weight
from placer.model.quantized.copies import casts_to_same_type, copy_node, skip_node
from placer.model.quantized.expansion import expand_quantize
from placer.model.quantized.float_casts import visit_cast_behind_pair
from placer.model.quantized.integer_products import visit_run_time
from placer.model.quantized.lstm import OPERATOR as QUANTIZED_LSTM
from placer.model.quantized.lstm import visit_lstm
from placer.model.quantized.movers import visit_reader_of_integers
from placer.model.quantized.operators import DEQUANTIZE, QUANTIZE, is_fake_quantize
from placer.model.quantized.packed_floats import OPERATOR as PRODUCT_OF_FLOATS
from placer.model.quantized.packed_floats import visit_packed_floats
from placer.model.quantized.packed_tables import OPERATOR as PACKED_TABLE
from placer.model.quantized.packed_tables import visit_packed_table
from placer.model.quantized.packed_weights import OPERATOR as PACKED_PRODUCT
from placer.model.quantized.packed_weights import visit_packed
from placer.model.quantized.pairs import (
    visit_dequantize_linear,
    visit_fake_quantize,
    visit_quantize_linear,
)
from placer.model.quantized.qoperator_nodes import visit_qoperator
from placer.model.quantized.state import ImportState

_NODE_SUFFIX = "_quant"  # ONNX Runtime's, of nodes that it replaces.
_VISIT_BY_OPERATOR = {
    QUANTIZED_LSTM: visit_lstm,
    PACKED_PRODUCT: visit_packed,
    PRODUCT_OF_FLOATS: visit_packed_floats,
    PACKED_TABLE: visit_packed_table,
}


def dequantize_graph(
    proto: ModelProto,
    types: Mapping[str, int],
    shapes: Mapping[str, tuple[int | None, ...]],
    base_dir: Path,
    path: Path,
    kept: Collection[str],
) -> ImportState:
    """Take a quantized model apart whose nodes are sorted and named.

    Arguments as of ImportState. Raises InputError, naming the node, for what cannot be taken apart.
    """
    state = ImportState(proto, types, shapes, base_dir, path, kept)
    for node in proto.graph.node:
        name, first, state.visiting = node.name, len(state.draft.nodes), node
        try:
            _visit(state, node)
        except InputError as error:
            if str(error).startswith(str(path)):
                raise
            raise InputError(f"{path}: node '{name}' ({node.op_type}): {error}") from error
        state.origins.update((made.name, name) for made in state.draft.nodes[first:])
    _finish(state)
    return state


def _visit(state: ImportState, node: NodeProto) -> None:
    if node.name.endswith(_NODE_SUFFIX):
        node.name = state.draft.node_names.plain(node.name, _NODE_SUFFIX)
    made = qoperator.decompose(node, state.draft.opset)
    if node.op_type in QUANTIZE:
        visit_quantize_linear(state, node)
    elif node.op_type in DEQUANTIZE and node.input[0] not in state.products:
        visit_dequantize_linear(state, node)
    elif is_fake_quantize(node):
        visit_fake_quantize(state, node)
    elif made is not None:
        visit_qoperator(state, node, made)
    elif node.op_type in _VISIT_BY_OPERATOR:
        _VISIT_BY_OPERATOR[node.op_type](state, node)
    elif not visit_run_time(state, node):
        _visit_other(state, node)


def _visit_other(state: ImportState, node: NodeProto) -> None:
    moves = node.op_type in ("Transpose", "Reshape", "Cast") and node.input[0] in state.pairs
    if any(t in state.quantized for t in reads(node)):
        visit_reader_of_integers(state, node)
    elif casts_to_same_type(state, node):
        skip_node(state, node)
    elif node.op_type == "Cast" and visit_cast_behind_pair(state, node):
        pass
    elif not (moves and move_weight(state, node)):
        copy_node(state, node)


def _finish(state: ImportState) -> None:
    """Give the graph's outputs their names back."""
    draft = state.draft
    if state.casts:
        state.records.notes.append(f"{state.casts} Cast nodes between Q and DQ dropped")
    new_name: dict[str, str] = {}
    fixed = {*draft.inputs, *draft.outputs, *draft.constants}
    for index, output in enumerate(draft.outputs):
        state.refuse_run_time(output, "the graph returns")
        if output in state.quantized:
            expand_quantize(state, NodeProto(name=f"graph output '{output}'"), output)
        elif output in state.alias:
            source = state.alias[output]
            if output in state.pairs:
                draft.mark(state.pairs[output], "", index)
            if source == output:
                continue
            if source in fixed or source in new_name:  # Two names that must both survive.
                inner = new_name.get(source, source)
                draft.emit("Identity", f"{output}/Identity", [inner], output)
            else:
                new_name[source] = output
    draft.rename(new_name)
    state.records.rename(new_name)
