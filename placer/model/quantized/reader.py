"""Read a quantized model: prepare it, take it apart, put the float model together."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import onnx
import onnx.shape_inference
from onnx import ModelProto, NodeProto, ValueInfoProto

from placer.common.listed import in_quotes
from placer.errors import InputError
from placer.graph.edit import every_node, subgraphs, without_initializers, without_large_tensors
from placer.graph.flat import flatten, nest
from placer.graph.scopes import Scopes
from placer.model.normalize import infer_values, inline_functions, tidy_quantized
from placer.model.passes.constant_folding import fold_constants
from placer.model.quantized.dequantizer import dequantize_graph
from placer.model.quantized.imported import Imported
from placer.model.quantized.operators import (
    DEQUANTIZE,
    FAKE_QUANTIZE,
    QUANTIZE,
    is_fake_quantize,
)
from placer.model.quantized.quantized_tensors import FLOATS
from placer.model.quantized.scales import type_name
from placer.model.quantized.state import ImportState

_OPERATORS = re.compile(
    r"(TRT_INT8|TRT_FP8|Vitis|Extended)?(Quantize|Dequantize)Linear|DynamicQuantize(Linear|MatMul|LSTM)|QLinear\w+|QGemm|"
    r"(MatMul|Conv)Integer|MatMulIntegerToFloat|MatMul(NBits|Bnb4)|GatherBlockQuantized"
)
# Folding these would lose the scales.
_KEPT = QUANTIZE | DEQUANTIZE | FAKE_QUANTIZE


def is_quantized(proto: ModelProto) -> bool:
    """Whether a node of ``proto``, of its subgraphs or of one of its functions quantizes."""
    nodes = every_node([*proto.graph.node, *(node for f in proto.functions for node in f.node)])
    return any(map(_is_quantizing, nodes))


def _is_quantizing(node: NodeProto) -> bool:
    return is_fake_quantize(node) or _OPERATORS.fullmatch(str(node.op_type)) is not None


def take_apart(
    proto: ModelProto, base_dir: Path, path: Path, kept: Collection[str] = ()
) -> Imported:
    """Take a quantized model apart into its float model, scales and placement; uses ``proto`` up.

    ``base_dir`` is where external data lies, ``path`` is for messages. Q/DQ pairs go, whatever
    stands between Q and DQ; QOperator nodes and integer products become float nodes; quantized
    constants become float ones. Graph inputs and outputs keep names and types. ``kept``: what those
    QuantizeLinear nodes write whose rounding stays, as arithmetic. Raises InputError, naming the
    node, for what cannot be taken apart.
    """
    inline_functions(proto, path)
    scopes = flatten(proto.graph) if _quantizes_in_bodies(proto) else {}
    tidy_quantized(proto)
    values = infer_values(proto, {}, path)
    fold_constants(proto, values, keep=_KEPT, base_dir=base_dir)
    types = {name: value.type.tensor_type.elem_type for name, value in values.items()}
    state = dequantize_graph(proto, types, _shapes(values.values()), base_dir, path, kept)
    floats = without_initializers(proto, [t.name for t in proto.graph.initializer])
    del floats.graph.node[:]
    state.draft.move_to(floats.graph)
    _check_added(state, scopes, {node.name for node in proto.graph.node})
    made = {name: scopes[origin] for name, origin in state.origins.items() if origin in scopes}
    nest(floats.graph, made, emptied=bool(scopes))
    records = state.records
    records.notes.extend(_declare_outputs(floats))
    for op, tensors in records.clamped.items():
        records.notes.append(
            f"{op} put behind {in_quotes(tensors)}, where the source's zero points clamp at zero"
        )
    if records.narrow:
        records.notes.append(
            f"{in_quotes(records.narrow)} quantize{'s' * (len(records.narrow) == 1)} to fewer than "
            "7 bits, which no pair of 8 bits does: ranges are kept, in finer steps"
        )
    return Imported(
        proto=floats,
        source=", ".join(records.seen),
        activations=records.activations,
        weights=records.weights,
        placement=state.draft.placement,
        notes=tuple(dict.fromkeys(records.notes)),
    )


def _shapes(values: Iterable[ValueInfoProto]) -> dict[str, tuple[int | None, ...]]:
    """Sizes by tensor, None for those that are not fixed; without tensors of unknown rank."""
    kinds = {value.name: value.type.tensor_type for value in values}
    return {
        name: tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim)
        for name, kind in kinds.items()
        if kind.HasField("shape")
    }


def _declare_outputs(proto: ModelProto) -> Iterator[str]:
    """Give graph outputs the type that they have, with a note, where another is declared.

    Scales of half precision make DequantizeLinear write it, which tools overlook that write them.
    """
    bare = without_large_tensors(proto)
    for value in bare.graph.output:
        value.type.Clear()
    for value, inferred in zip(proto.graph.output, _inferred_outputs(bare), strict=True):
        declared = value.type.tensor_type.elem_type
        if inferred in FLOATS and declared not in (0, inferred):
            value.type.tensor_type.elem_type = inferred
            told = f"is {type_name(inferred)}, not {type_name(declared)} as the file declares"
            yield f"output '{value.name}' {told}"


def _inferred_outputs(proto: ModelProto) -> list[int]:
    try:
        proto = onnx.shape_inference.infer_shapes(proto)
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        return [0] * len(proto.graph.output)  # The checks to come tell why.
    return [int(value.type.tensor_type.elem_type) for value in proto.graph.output]


def _quantizes_in_bodies(proto: ModelProto) -> bool:
    bodies = (body for node in proto.graph.node for body in subgraphs(node))
    return any(_is_quantizing(node) for body in bodies for node in every_node(body.node))


def _check_added(state: ImportState, scopes: Scopes, known: Collection[str]) -> None:
    """Refuse nodes that came beside others in bodies: what else reads them may be elsewhere."""
    inside = {*scopes, *(body.owner for scope in scopes.values() for body in scope)}
    for name, origin in state.origins.items():
        if origin in inside and name not in known:
            raise InputError(
                f"{state.path}: node '{origin}' in a body of If, Loop or Scan, or what it reads, "
                "is quantized in a way that placer takes apart outside of bodies only; "
                "give the float model"
            )
