"""Which type each tensor of a model has in a base precision, by what its readers can take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import onnx.defs
from onnx import TensorProto, helper, numpy_helper

from placer.graph import Edge, Node
from placer.graph.edit import standard_opset, subgraphs
from placer.graph.external_data import read_tensor
from placer.graph.operators import STANDARD_DOMAINS
from placer.model import Model
from placer.qdq.bases import InputOutputTypes
from placer.quantization import Ranges

_SMALLEST_NORMAL = {"float16": 2.0**-14, "bfloat16": 2.0**-126}
_DTYPES = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}

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


@dataclass(eq=False)
class TensorTypes:
    """The type of every float32 tensor of ``model``, ONNX's number, once it is in ``base``.

    ``kept``: nodes that stay float32. ``wanted``: what a node needs at an input, None for any
    type. ``homes``: what each tensor's producer writes. ``outputs``: types of graph outputs.
    ``halves``: initializers that fit into ``base``, converted. ``notes``: nodes whose weights do
    not fit.
    """

    model: Model
    base: str
    io: InputOutputTypes
    keep_float: frozenset[str]
    ranges: Ranges
    notes: list[str] = field(default_factory=list)
    halves: dict[str, TensorProto] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.graph = self.model.graph
        self.dtype: int = _DTYPES[self.base]
        self._numpy: np.dtype[Any] = helper.tensor_dtype_to_np_dtype(self.dtype)
        self._opset = standard_opset(self.model.proto)
        self._large = self._too_large()
        self.kept = {node.name for node in self.graph.nodes if self._stays_float(node)}
        self.wanted = {
            (node.name, index): self._wanted(node, index)
            for node in self.graph.nodes
            for index, tensor in enumerate(node.inputs)
            if self.is_float32(tensor)
        }
        self.homes = self._homes()
        self.outputs = self._outputs()

    def is_float32(self, tensor: str) -> bool:
        """Whether the model has ``tensor`` in float32."""
        return self.graph.type_of(tensor).dtype == TensorProto.FLOAT

    def _too_large(self) -> frozenset[str]:
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
        if not any(map(self.is_float32, tensors)):
            return False
        return (
            node.name in self.keep_float
            or node.domain not in STANDARD_DOMAINS
            or node.op in _FLOAT_OPS_OF[self.base]
            or any(True for _ in subgraphs(node.proto))
            or any(self.graph.type_of(t).dtype is None for t in tensors)
            or not self._large.isdisjoint(tensors)
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
            if tensor not in self.graph.initializers or not self.is_float32(tensor):
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
            half = values.astype(self._numpy)
        magnitude = np.abs(values[np.isfinite(values)]).max(initial=0.0)
        if (np.isinf(half) & np.isfinite(values)).any():
            return False
        if 0 < magnitude < _SMALLEST_NORMAL[self.base]:
            return False
        self.halves[initializer] = numpy_helper.from_array(half, initializer)
        return True

    def _takes_base(self, node: Node, index: int, side: Literal["inputs", "outputs"]) -> bool:
        """Whether the operator's schema lets this input or output have the base type."""
        schema = onnx.defs.get_schema(node.op, self._opset, "")
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
        floats = [t for t in (*node.inputs, *node.outputs) if self.is_float32(t)]
        return self.dtype if len(floats) > 1 else None  # Shape, for example.

    def _homes(self) -> dict[str, int]:
        """Type in which each float32 tensor comes into being."""
        homes: dict[str, int] = {}
        for tensor in filter(self.is_float32, self.graph.inputs):
            stays = self.io == "keep" or tensor in self._large
            homes[tensor] = TensorProto.FLOAT if stays else self.dtype
        for tensor in filter(self.is_float32, self.graph.initializers):
            homes[tensor] = self._home_of_initializer(tensor)
        for node in self.graph.nodes:
            for index, tensor in enumerate(node.outputs):
                if self.is_float32(tensor):
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
        for tensor in filter(self.is_float32, self.graph.outputs):
            if tensor not in self.graph.producer or tensor in self._large:
                types[tensor] = self.homes[tensor]
            else:
                types[tensor] = TensorProto.FLOAT if self.io == "keep" else self.dtype
        return types
