"""Convert a float model to FP16 or BF16, the types that strongly typed engines run at full speed.

ONNX Runtime's float16 converter knows no BF16, loses external data and cuts off weights that are
too large; hence this module. It asks ONNX's operator schemas what may have the lower type, and
converts a model tensor by tensor.

Every tensor keeps its name in the type that its producer writes. What needs it in another type
reads a Cast of it called ``T/float16``, ``T/bfloat16`` or ``T/float32``. Graph outputs keep their
names too: where a Cast makes one, its producer writes ``T/float16``. Nodes and the indices of their
inputs stay, so that ``placer.qdq.translation`` can carry placements and ranges over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import onnx.defs
import onnx.version_converter
from onnx import NodeProto, TensorProto, helper, numpy_helper

from placer.common.names import unknown
from placer.common.ort_session import one_line
from placer.errors import InputError
from placer.graph import Edge, Node, index_graph, tensor_type
from placer.graph.edit import (
    adopt,
    rename_tensors,
    standard_opset,
    subgraphs,
    without_initializers,
    without_large_tensors,
)
from placer.graph.external_data import MAX_INLINE_BYTES, is_external, read_tensor, tensor_bytes
from placer.model import Model
from placer.model.normalize import infer_values, tidy_quantized
from placer.quantization import Ranges

Base = Literal["float16", "bfloat16", "float"]
InputOutputTypes = Literal["keep", "convert"]
BASES: tuple[Base, ...] = ("float16", "bfloat16", "float")
FLOAT8_OPSET = 19  # From here on QuantizeLinear takes FP8.
# What the name of a tensor ends in where a Cast makes another type of it.
CAST_SUFFIXES: dict[int, str] = {
    TensorProto.FLOAT: "float32",
    TensorProto.FLOAT16: "float16",
    TensorProto.BFLOAT16: "bfloat16",
}

# QuantizeLinear takes FP16 and BF16 from opset 19 on; Conv and pooling take BF16 from 22 on.
_OPSETS = {"float16": 19, "bfloat16": 22}
_SMALLEST_NORMAL = {"float16": 2.0**-14, "bfloat16": 2.0**-126}
_DTYPES = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}
_STANDARD = ("", "ai.onnx")

# Sums, powers and exponentials leave FP16's range or digits: PyTorch's autocast runs them in FP32,
# and TensorRT advises it for Reduce and Pow. Softmax and the normalization operators are not here:
# kernels accumulate in FP32 inside them, and casts around them would break attention fusions.
_ACCUMULATING = frozenset(
    "Exp Pow ReduceSum ReduceSumSquare ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceProd "
    "CumSum DFT STFT".split()
)
# From the block list of onnxruntime.transformers.float16: coordinates, ranks and ramps. Its Min
# and Max are not here: they lack a kernel there, not range.
_EXACT = frozenset("NonMaxSuppression TopK RoiAlign Range Upsample".split())
# Their output type is an attribute's or float32 by default.
_TYPED_BY_ATTRIBUTE = frozenset(
    "ConstantOfShape EyeLike RandomNormal RandomUniform RandomNormalLike RandomUniformLike "
    "Bernoulli Multinomial HannWindow HammingWindow BlackmanWindow MelWeightMatrix".split()
)
_FLOAT_OPS = _ACCUMULATING | _EXACT | _TYPED_BY_ATTRIBUTE
# TensorRT-RTX 1.7 builds no engine with a BF16 deconvolution: "Could not infer output types".
_FLOAT_OPS_OF = {"float16": _FLOAT_OPS, "bfloat16": _FLOAT_OPS | {"ConvTranspose"}}


def parse_base(text: str) -> Base:
    """The type that ``text`` names; InputError for any other."""
    for base in BASES:
        if text == base:
            return base
    raise InputError(unknown("base", text, BASES))


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
    changes nothing more. Raises InputError for an unknown node, nodes in branches of an If, an
    opset that cannot be raised, or more converted weights than one message holds.
    """
    for name in keep_float:
        if name not in model.graph.by_name:
            raise InputError(f"keep_float names node '{name}', which {model.path} does not have")
    if base == "float":
        return model
    if model.graph.scopes:
        raise InputError(
            f"{model.path} has nodes in branches of an If, which are not converted to {base}; "
            "give `base` float"
        )
    model = with_opset(model, _OPSETS[base])
    _check_size(model, base)
    return _Conversion(model, base, io, frozenset(keep_float), ranges or {}).run()


def with_opset(model: Model, opset: int) -> Model:
    """Return ``model`` raised to ``opset`` of ONNX's operators, itself if it is there already.

    Raises InputError if ONNX's version converter cannot do it.
    """
    old = standard_opset(model.proto)
    if old >= opset:
        return model
    try:
        raised = onnx.version_converter.convert_version(without_large_tensors(model.proto), opset)
    except (RuntimeError, onnx.version_converter.ConvertError) as error:
        raise InputError(
            f"{model.path}: opset {old} cannot be raised to {opset}: {one_line(error)}; "
            f"export the model with opset {opset} or later"
        ) from error
    tidy_quantized(raised)  # The converter turns attributes into Constants.
    proto = without_initializers(model.proto, ())
    adopt(proto, raised)
    return _with_proto(model, proto, [f"opset {old} raised to {opset}"])


def _with_proto(model: Model, proto: onnx.ModelProto, notes: Collection[str]) -> Model:
    minimum: int = helper.find_min_ir_version_for(proto.opset_import, ignore_unknown=True)
    proto.ir_version = max(proto.ir_version, minimum)
    values = infer_values(proto, model.input_shapes, model.path)
    types = {name: tensor_type(value) for name, value in values.items()}
    all_notes = tuple(dict.fromkeys((*model.notes, *notes)))
    return replace(model, proto=proto, graph=index_graph(proto.graph, types), notes=all_notes)


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


@dataclass(eq=False)
class _Conversion:
    """One conversion: decides the type of every tensor for every reader, then writes."""

    model: Model
    base: str
    io: InputOutputTypes
    keep_float: frozenset[str]
    ranges: Ranges
    notes: list[str] = field(default_factory=list)
    halves: dict[str, TensorProto] = field(default_factory=dict)  # initializers, once converted

    def __post_init__(self) -> None:
        self.graph = self.model.graph
        self.dtype: int = _DTYPES[self.base]
        self.numpy: np.dtype[Any] = helper.tensor_dtype_to_np_dtype(self.dtype)
        self.opset = standard_opset(self.model.proto)
        self.large = self._large()
        self.kept = {node.name for node in self.graph.nodes if self._stays_float(node)}
        self.wanted = {
            (node.name, index): self._wanted(node, index)
            for node in self.graph.nodes
            for index, tensor in enumerate(node.inputs)
            if self._is_float32(tensor)
        }
        self.homes = self._homes()
        self.outputs = self._outputs()
        self.names: dict[tuple[str, int], str] = {}
        self.taken = {*self.graph.types, *self.graph.producer, *self.graph.by_name}

    def _is_float32(self, tensor: str) -> bool:
        return self.graph.type_of(tensor).dtype == TensorProto.FLOAT

    def _large(self) -> frozenset[str]:
        """Activations that FP16 cannot hold with a factor of two to spare."""
        if self.base != "float16":
            return frozenset()
        limit = float(np.finfo(np.float16).max) / 2
        return frozenset(
            tensor
            for tensor, (low, high) in self.ranges.items()
            if tensor not in self.graph.initializers and max(-low, high) > limit
        )

    def _stays_float(self, node: Node) -> bool:
        tensors = [t for t in (*node.inputs, *node.outputs) if t]
        if not any(map(self._is_float32, tensors)):
            return False
        return (
            node.name in self.keep_float
            or node.domain not in _STANDARD
            or node.op in _FLOAT_OPS_OF[self.base]
            or any(True for _ in subgraphs(node.proto))
            or any(self.graph.type_of(t).dtype is None for t in tensors)
            or not self.large.isdisjoint(tensors)
            or self._averages_squares(node)
            or not self._weights_fit(node)
        )

    def _averages_squares(self, node: Node) -> bool:
        """The variance inside a LayerNormalization that was exported in parts."""
        source = self.graph.producer.get(node.inputs[0]) if node.inputs else None
        if node.op != "ReduceMean" or source is None:
            return False
        return source.op == "Pow" or (source.op == "Mul" and source.inputs[0] == source.inputs[1])

    def _weights_fit(self, node: Node) -> bool:
        for index, tensor in enumerate(node.inputs):
            if tensor not in self.graph.initializers or not self._is_float32(tensor):
                continue
            if self._takes_base(node, index, "inputs") and not self._fits(tensor):
                self.notes.append(
                    f"node '{node.name}' stays float: '{tensor}' is out of the range of {self.base}"
                )
                return False
        return True

    def _fits(self, initializer: str) -> bool:
        """Whether no value overflows and the largest is a normal number in the base type."""
        if initializer in self.halves:
            return True
        values = read_tensor(self.graph.initializers[initializer], self.model.base_dir)
        with np.errstate(over="ignore"):
            half = values.astype(self.numpy)
        magnitude = np.abs(values[np.isfinite(values)]).max(initial=0.0)
        if (np.isinf(half) & np.isfinite(values)).any():
            return False
        if 0 < magnitude < _SMALLEST_NORMAL[self.base]:
            return False
        self.halves[initializer] = numpy_helper.from_array(half, initializer)
        return True

    def _takes_base(self, node: Node, index: int, side: Literal["inputs", "outputs"]) -> bool:
        """Whether the operator's schema lets this input or output have the base type."""
        schema = onnx.defs.get_schema(node.op, self.opset, "")
        formal = getattr(schema, side)
        kind = formal[min(index, len(formal) - 1)].type_str
        allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
        return f"tensor({self.base})" in allowed.get(kind, [kind])

    def _wanted(self, node: Node, index: int) -> int | None:
        """Type that the node needs at this float32 input; None if any type will do."""
        if node.op == "Cast":
            return None
        if node.name in self.kept or not self._takes_base(node, index, "inputs"):
            return TensorProto.FLOAT
        floats = [t for t in (*node.inputs, *node.outputs) if self._is_float32(t)]
        return self.dtype if len(floats) > 1 else None  # Shape, for example.

    def _homes(self) -> dict[str, int]:
        """Type in which each float32 tensor comes into being."""
        homes: dict[str, int] = {}
        for tensor in filter(self._is_float32, self.graph.inputs):
            stays = self.io == "keep" or tensor in self.large
            homes[tensor] = TensorProto.FLOAT if stays else self.dtype
        for tensor in filter(self._is_float32, self.graph.initializers):
            homes[tensor] = self._home_of_initializer(tensor)
        for node in self.graph.nodes:
            for index, tensor in enumerate(node.outputs):
                if self._is_float32(tensor):
                    homes[tensor] = self._home_of_output(node, index)
        return homes

    def _home_of_initializer(self, tensor: str) -> int:
        wanted = {self._wanted_by(edge) for edge in self.graph.edges_of(tensor)}
        return self.dtype if wanted == {self.dtype} and self._fits(tensor) else TensorProto.FLOAT

    def _wanted_by(self, edge: Edge) -> int | None:
        if edge.is_graph_output:
            return TensorProto.FLOAT if self.io == "keep" else self.dtype
        # What subgraphs read from outside is not among the node's own inputs.
        return self.wanted.get((edge.node, edge.input_index), TensorProto.FLOAT)

    def _home_of_output(self, node: Node, index: int) -> int:
        if node.op == "Cast" or node.name in self.kept:
            return TensorProto.FLOAT
        return self.dtype if self._takes_base(node, index, "outputs") else TensorProto.FLOAT

    def _outputs(self) -> dict[str, int]:
        """Type of each float32 graph output."""
        types: dict[str, int] = {}
        for tensor in filter(self._is_float32, self.graph.outputs):
            if tensor not in self.graph.producer or tensor in self.large:
                types[tensor] = self.homes[tensor]
            else:
                types[tensor] = TensorProto.FLOAT if self.io == "keep" else self.dtype
        return types

    def run(self) -> Model:
        """Write the converted model; the model itself if there is nothing to convert."""
        if all(home == TensorProto.FLOAT for home in self.homes.values()):
            return self.model
        shell = without_initializers(self.model.proto, self.graph.initializers)
        del shell.graph.node[:]
        for value in (*shell.graph.input, *shell.graph.output):
            new = self.outputs.get(value.name) or self.homes.get(value.name)
            if new is not None:
                value.type.tensor_type.elem_type = new
        bodies = [self._write_node(node) for node in self.graph.nodes]
        nodes = [cast for tensor in self.graph.inputs for cast in self._casts(tensor)]
        for node, body in zip(self.graph.nodes, bodies, strict=True):
            nodes.append(body)
            nodes += [cast for tensor in node.outputs for cast in self._casts(tensor)]
        shell.graph.node.extend(nodes)
        shell.graph.initializer.extend(self._initializers())
        floats = len(self.kept)
        summary = f"converted to {self.base}; {floats} of {len(bodies)} nodes stay float"
        return _with_proto(self.model, shell, [summary, *self.notes])

    def _name(self, tensor: str, dtype: int) -> str:
        """Name of ``tensor`` in the type ``dtype``."""
        if dtype == self.outputs.get(tensor, self.homes[tensor]):
            return tensor
        if (tensor, dtype) not in self.names:
            self.names[tensor, dtype] = self._claim(f"{tensor}/{CAST_SUFFIXES[dtype]}")
        return self.names[tensor, dtype]

    def _claim(self, name: str) -> str:
        number, free = 0, name
        while free in self.taken:
            number += 1
            free = f"{name}_{number}"
        self.taken.add(free)
        return free

    def _write_node(self, node: Node) -> NodeProto:
        body = NodeProto()
        body.CopyFrom(node.proto)
        if any(True for _ in subgraphs(body)):
            rename_tensors(body, self._name_in_float)
        for index, tensor in enumerate(node.inputs):
            if self._is_float32(tensor):
                dtype = self.wanted[node.name, index] or self.homes[tensor]
                body.input[index] = self._name(tensor, dtype)
        for index, tensor in enumerate(node.outputs):
            if self._is_float32(tensor):
                body.output[index] = self._name(tensor, self.homes[tensor])
        return body

    def _name_in_float(self, tensor: str) -> str:
        return self._name(tensor, TensorProto.FLOAT) if tensor in self.homes else tensor

    def _casts(self, tensor: str) -> Iterator[NodeProto]:
        home = self.homes.get(tensor)
        if home is None:
            return
        source = self._name(tensor, home)
        for dtype in (TensorProto.FLOAT, self.dtype):
            made = dtype == self.outputs.get(tensor) or (tensor, dtype) in self.names
            if dtype != home and made:
                target = self._name(tensor, dtype)
                name = self._claim(f"{target}/Cast")
                yield helper.make_node("Cast", [source], [target], name, to=dtype)

    def _initializers(self) -> Iterator[TensorProto]:
        """Initializers in the types that are read; those of mixed use in both."""
        for name, tensor in self.graph.initializers.items():
            home = self.homes.get(name)
            if home == self.dtype:
                yield self.halves[name]
                continue
            yield tensor
            if (name, self.dtype) in self.names:
                copy = TensorProto()
                copy.CopyFrom(self.halves[name])
                copy.name = self.names[name, self.dtype]
                yield copy
