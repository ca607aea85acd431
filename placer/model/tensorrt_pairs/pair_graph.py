"""The graph around Q/DQ pairs: who writes and reads a tensor, constants, and types."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

from placer.graph.edit import readers_by_tensor, standard_opset
from placer.graph.external_data import check_tensors, read_tensor
from placer.model.quantized.operators import DEQUANTIZE, QUANTIZE, input_at, integer

FP4_QUANTIZER = "TRT_FP4DynamicQuantize"
# What moves the values of a constant.
MOVES = frozenset("Clip Reshape Transpose Gather Slice Flatten Squeeze Unsqueeze Identity".split())


# Of an image: kernels of their own read so few.
_CHANNELS_OF_IMAGE = 4


def reads_image(weight: Sequence[int], group: int) -> bool:
    """Whether a Conv with a weight of dimensions ``weight`` reads no more channels than images."""
    return len(weight) > 2 and weight[1] * group <= _CHANNELS_OF_IMAGE


class PairGraph:
    """Look-ups in a model with Q/DQ pairs.

    ``nodes``: in the model's order. ``opset``: of the standard domain. ``constants``: initializers
    by name. ``input_types``: element types of graph inputs. ``types``: those of all tensors where
    they are known, and ``dims`` their dimensions, None for open ones. ``dequantized``: what DQ
    nodes read. ``outputs``: of the graph.
    """

    def __init__(
        self,
        proto: ModelProto,
        base_dir: Path,
        path: Path,
        values: Mapping[str, ValueInfoProto] | None = None,
    ) -> None:
        """Index ``proto``, whose external data lies in ``base_dir``; ``path`` is for messages.

        ``values``: what is inferred of tensors, where anything is.
        """
        inferred = {name: value.type.tensor_type for name, value in (values or {}).items()}
        types = {name: one.elem_type for name, one in inferred.items()}
        self.dims: Mapping[str, Sequence[int | None]] = {
            name: [d.dim_value if d.dim_value > 0 else None for d in one.shape.dim]
            for name, one in inferred.items()
            if one.HasField("shape")
        }
        self._base_dir, self._path = base_dir, path
        self.nodes: Sequence[NodeProto] = list(proto.graph.node)
        self.outputs = frozenset(value.name for value in proto.graph.output)
        self.opset = standard_opset(proto)
        self.constants: Mapping[str, TensorProto] = {t.name: t for t in proto.graph.initializer}
        self.input_types = {v.name: v.type.tensor_type.elem_type for v in proto.graph.input}
        of_constants = {name: tensor.data_type for name, tensor in self.constants.items()}
        self.types = {**types, **self.input_types, **of_constants}
        self._producer = {t: node for node in self.nodes for t in node.output}
        self._readers = readers_by_tensor(self.nodes)
        self.dequantized = {node.input[0] for node in self.nodes if node.op_type in DEQUANTIZE}

    def producer(self, tensor: str) -> NodeProto | None:
        """The node that writes ``tensor``; None for graph inputs and constants."""
        return self._producer.get(tensor)

    def readers(self, tensor: str) -> Sequence[NodeProto]:
        """The nodes that read ``tensor``, once for each of its inputs that does."""
        return self._readers.get(tensor, ())

    def only_reader(self, tensor: str, ops: Collection[str] | None = None) -> NodeProto | None:
        """What alone reads ``tensor``, no graph output, if it is of ``ops`` (None: of any)."""
        readers = self.readers(tensor)
        if len(readers) != 1 or tensor in self.outputs:
            return None
        return readers[0] if ops is None or readers[0].op_type in ops else None

    def written_by(self, tensor: str, ops: Collection[str]) -> NodeProto | None:
        """What writes ``tensor`` if it is of ``ops``."""
        node = self.producer(tensor)
        return node if node is not None and node.op_type in ops else None

    def quantized_weight(self, conv: NodeProto) -> Sequence[int]:
        """Dimensions of the constant weight of ``conv`` behind its pair; none without either."""
        pair = self.written_by(input_at(conv, 1), DEQUANTIZE)
        constant = self.constants.get(self.source(pair)) if pair is not None else None
        return [] if constant is None else list(constant.dims)

    def array(self, tensor: str) -> np.ndarray | None:
        """Values of a constant; None for other tensors. Raises InputError without its file."""
        if tensor not in self.constants:
            return None
        check_tensors([self.constants[tensor]], self._base_dir, self._path)
        return read_tensor(self.constants[tensor], self._base_dir)

    def is_constant(self, tensor: str) -> bool:
        """Whether ``tensor`` is a constant, through pairs and what moves its values."""
        passed = QUANTIZE | DEQUANTIZE | MOVES
        while tensor in self._producer and self._producer[tensor].op_type in passed:
            tensor = self._producer[tensor].input[0]
        return tensor in self.constants

    def source(self, node: NodeProto) -> str:
        """What ``node`` reads, or the Q before it if it is a DQ: both have the same shape."""
        writer = self._producer.get(node.input[0])
        if node.op_type in DEQUANTIZE and writer is not None and writer.op_type in QUANTIZE:
            return str(writer.input[0])
        return str(node.input[0])

    def quantizer_behind(self, node: NodeProto) -> str:
        """Name of the QuantizeLinear behind ``node``, through first inputs; empty if none is."""
        while node.input and node.input[0] in self._producer:
            node = self._producer[node.input[0]]
            if node.op_type in QUANTIZE:
                return str(node.name)
            if node.op_type in DEQUANTIZE:
                return ""
        return ""

    def quantized_type(self, node: NodeProto) -> int:
        """Element type of what a Q writes or a DQ reads."""
        name = node.input[2] if len(node.input) > 2 else ""
        if self.types.get(name):
            return int(self.types[name])
        if node.op_type in DEQUANTIZE:
            source = node.input[0]
            if source in self.constants:
                return int(self.constants[source].data_type)
            return int(self.input_types.get(source, TensorProto.INT8))
        if "FP8" in node.op_type:
            return int(TensorProto.FLOAT8E4M3FN)
        default = TensorProto.INT8 if node.domain == "trt" else TensorProto.UINT8
        return integer(node, "output_dtype") or int(default)
