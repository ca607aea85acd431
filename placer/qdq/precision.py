"""Convert a float model to FP16 or BF16, the types that strongly typed engines run at full speed.

ONNX Runtime's float16 converter knows no BF16, loses external data and cuts off weights that are
too large; hence this module. ``base_types`` asks ONNX's operator schemas what may have the lower
type; here a model is converted tensor by tensor.

Every tensor keeps its name in the type that its producer writes. What needs it in another type
reads a Cast of it called ``T/float16``, ``T/bfloat16`` or ``T/float32``. Graph outputs keep their
names too: where a Cast makes one, its producer writes ``T/float16``. Nodes and the indices of their
inputs stay, so that ``placer.qdq.translation`` can carry placements and ranges over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from onnx import NodeProto, TensorProto, helper

from placer.errors import InputError
from placer.graph import Node
from placer.graph.edit import rename_tensors, subgraphs, without_initializers
from placer.graph.external_data import MAX_INLINE_BYTES, is_external, tensor_bytes
from placer.model import Model
from placer.qdq.base_types import TensorTypes
from placer.qdq.bases import Base, InputOutputTypes
from placer.qdq.opset import with_opset, with_proto
from placer.qdq.parts import all_names
from placer.quantization import Ranges

# What the name of a tensor ends in where a Cast makes another type of it.
CAST_SUFFIXES: dict[int, str] = {
    TensorProto.FLOAT: "float32",
    TensorProto.FLOAT16: "float16",
    TensorProto.BFLOAT16: "bfloat16",
}

# QuantizeLinear takes FP16 and BF16 from opset 19 on; Conv and pooling take BF16 from 22 on.
_OPSETS = {"float16": 19, "bfloat16": 22}


def convert(
    model: Model,
    base: Base,
    io: InputOutputTypes,
    keep_float: Collection[str] = (),
    ranges: Ranges | None = None,
) -> Model:
    """Return ``model`` with its float32 tensors in the type ``base``; ``float`` changes nothing.

    ``io``: whether graph inputs and outputs stay float32 behind Casts or are converted too.
    In float32 stay: nodes whose operator sums, exponentiates or does not take ``base``, those with
    subgraphs, those called in ``keep_float``, those whose weights do not fit into ``base`` (see
    ``Model.notes``), and the producer and consumers of a tensor that ``ranges`` shows to exceed
    half of the largest FP16 value. The opset is raised to 19 (FP16) or 22 (BF16). Converting twice
    changes nothing more. Raises InputError for an unknown node, nodes in the bodies of others, an
    opset that cannot be raised, or more converted weights than one message holds.
    """
    for name in keep_float:
        if name not in model.graph.by_name:
            raise InputError(f"keep_float names node '{name}', which {model.path} does not have")
    if base == "float":
        return model
    if model.graph.scopes:
        raise InputError(
            f"{model.path} has nodes in bodies of If, Loop or Scan, which are not converted to "
            f"{base}; give `base` float"
        )
    model = with_opset(model, _OPSETS[base])
    _check_size(model, base)
    types = TensorTypes(model, base, io, frozenset(keep_float), ranges or {})
    return _Writer(types).run()


def _check_size(model: Model, base: str) -> None:
    total = 0
    for tensor in model.graph.initializers.values():
        if tensor.data_type == TensorProto.FLOAT:
            total += tensor_bytes(tensor) // 2
        elif not is_external(tensor):
            total += tensor_bytes(tensor)
    if total > MAX_INLINE_BYTES:
        raise InputError(
            f"{model.path} holds {total / 1e9:.1f} GB of weights in {base}, more than placer "
            "converts in memory; give `base` float, or export the model in that type"
        )


class _Writer:
    """Writes a model whose tensors have the types of ``types``."""

    def __init__(self, types: TensorTypes) -> None:
        self._types = types
        self._model = types.model
        self._graph = types.graph
        self._names: dict[tuple[str, int], str] = {}
        self._taken = all_names(self._graph)

    def run(self) -> Model:
        """Write the converted model; the model itself if there is nothing to convert."""
        if all(home == TensorProto.FLOAT for home in self._types.homes.values()):
            return self._model
        shell = without_initializers(self._model.proto, self._graph.initializers)
        del shell.graph.node[:]
        for value in (*shell.graph.input, *shell.graph.output):
            new = self._types.outputs.get(value.name) or self._types.homes.get(value.name)
            if new is not None:
                value.type.tensor_type.elem_type = new
        bodies = [self._write_node(node) for node in self._graph.nodes]
        nodes = [cast for tensor in self._graph.inputs for cast in self._casts(tensor)]
        for node, body in zip(self._graph.nodes, bodies, strict=True):
            nodes.append(body)
            nodes += [cast for tensor in node.outputs for cast in self._casts(tensor)]
        shell.graph.node.extend(nodes)
        shell.graph.initializer.extend(self._initializers())
        floats = len(self._types.kept)
        summary = f"converted to {self._types.base}; {floats} of {len(bodies)} nodes stay float"
        return with_proto(self._model, shell, [summary, *self._types.notes])

    def _name(self, tensor: str, dtype: int) -> str:
        """Name of ``tensor`` in the type ``dtype``."""
        if dtype == self._types.outputs.get(tensor, self._types.homes[tensor]):
            return tensor
        if (tensor, dtype) not in self._names:
            self._names[tensor, dtype] = self._claim(f"{tensor}/{CAST_SUFFIXES[dtype]}")
        return self._names[tensor, dtype]

    def _claim(self, name: str) -> str:
        number, free = 0, name
        while free in self._taken:
            number += 1
            free = f"{name}_{number}"
        self._taken.add(free)
        return free

    def _write_node(self, node: Node) -> NodeProto:
        body = NodeProto()
        body.CopyFrom(node.proto)
        if any(True for _ in subgraphs(body)):
            rename_tensors(body, self._name_in_float)
        for index, tensor in enumerate(node.inputs):
            if self._types.is_float32(tensor):
                dtype = self._types.wanted[node.name, index] or self._types.homes[tensor]
                body.input[index] = self._name(tensor, dtype)
        for index, tensor in enumerate(node.outputs):
            if self._types.is_float32(tensor):
                body.output[index] = self._name(tensor, self._types.homes[tensor])
        return body

    def _name_in_float(self, tensor: str) -> str:
        return self._name(tensor, TensorProto.FLOAT) if tensor in self._types.homes else tensor

    def _casts(self, tensor: str) -> Iterator[NodeProto]:
        home = self._types.homes.get(tensor)
        if home is None:
            return
        source = self._name(tensor, home)
        for dtype in (TensorProto.FLOAT, self._types.dtype):
            made = dtype == self._types.outputs.get(tensor) or (tensor, dtype) in self._names
            if dtype != home and made:
                target = self._name(tensor, dtype)
                name = self._claim(f"{target}/Cast")
                yield helper.make_node("Cast", [source], [target], name, to=dtype)

    def _initializers(self) -> Iterator[TensorProto]:
        """Initializers in the types that are read; those of mixed use in both."""
        for name, tensor in self._graph.initializers.items():
            home = self._types.homes.get(name)
            if home == self._types.dtype:
                yield self._types.halves[name]
                continue
            yield tensor
            if (name, self._types.dtype) in self._names:
                copy = TensorProto()
                copy.CopyFrom(self._types.halves[name])
                copy.name = self._names[name, self._types.dtype]
                yield copy
