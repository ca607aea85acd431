"""Run a model piece by piece on a few samples, so that tensors can be replaced on the way."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnx import ModelProto, NodeProto, TensorProto, helper

from placer.common.ort_session import create_session, run_once
from placer.errors import RunError
from placer.graph import Graph, TensorType
from placer.graph.edit import reads, without_initializers

_THREADS = 1
# Pairs round and cut off, and nodes compute in float between them: none turns into integer kernels
# or is removed.
FLOAT_KERNELS = {"session.disable_quant_qdq": "1"}

Tensors = Mapping[str, np.ndarray]


class Walk:
    """Values of chosen tensors of a model, in node order, each piece of it run once a sample.

    What comes behind a tensor is computed from its values as ``replace`` left them. Values are kept
    for all samples at once, and dropped with their last reader. ``base_dir``: where external data
    is. Raises RunError if ONNX Runtime refuses a piece or fails to run it, and for a sequence that
    one piece makes and a later one reads.
    """

    def __init__(
        self,
        model: ModelProto,
        base_dir: Path,
        stops: Collection[str],
        samples: Sequence[Tensors],
    ) -> None:
        """``stops``: tensors that nodes write, to be visited. ``samples``: inputs by name."""
        self._base_dir = base_dir
        self._initializers = {t.name: t for t in model.graph.initializer}
        self._shell = without_initializers(model, self._initializers.keys())
        for field in ("node", "input", "output"):
            self._shell.graph.ClearField(field)
        self._pieces = list(_pieces(model.graph.node, stops))
        self._last_read = {
            tensor: index
            for index, (nodes, _) in enumerate(self._pieces)
            for tensor in _needs(nodes)
        }
        self._values: list[dict[str, np.ndarray]] = [dict(sample) for sample in samples]

    def __iter__(self) -> Iterator[str]:
        """Visit the stops: yields a tensor once ``values`` has it."""
        for index, (piece, stop) in enumerate(self._pieces):
            self._run(piece, index, stop)
            yield stop
            for values in self._values:
                for name in [n for n in values if self._last_read.get(n, -1) <= index]:
                    del values[name]

    def values(self, tensor: str) -> list[np.ndarray]:
        """What a tensor that was just visited has, by sample."""
        return [values[tensor] for values in self._values]

    def replace(self, tensor: str, values: Sequence[np.ndarray]) -> None:
        """What a tensor that was just visited shall have, by sample."""
        for known, value in zip(self._values, values, strict=True):
            known[tensor] = value

    def _run(self, nodes: Sequence[NodeProto], index: int, stop: str) -> None:
        """Run the piece ``index`` on each sample; keep ``stop`` and what later pieces read."""
        written = {tensor for node in nodes for tensor in node.output if tensor}
        read = _needs(nodes)
        given = [name for name in self._values[0] if name in read]
        outputs = [t for t in sorted(written) if t == stop or self._last_read.get(t, -1) > index]
        session = create_session(
            self._piece(nodes, read, given, outputs).SerializeToString(),
            self._base_dir,
            threads=_THREADS,
            level=ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
            entries=FLOAT_KERNELS,
        )
        for values in self._values:
            computed = run_once(session, outputs, {name: values[name] for name in given})
            for name, value in zip(outputs, computed, strict=True):
                if not isinstance(value, np.ndarray):
                    raise RunError(f"'{name}' is a sequence, not a tensor, and has no one shape")
            values.update(zip(outputs, computed, strict=True))

    def _piece(
        self,
        nodes: Sequence[NodeProto],
        read: Collection[str],
        given: Sequence[str],
        outputs: Sequence[str],
    ) -> ModelProto:
        """The model of ``nodes``, which need ``read``, from tensors ``given`` to ``outputs``."""
        piece = ModelProto()
        piece.CopyFrom(self._shell)
        piece.graph.node.extend(nodes)
        constants = sorted(self._initializers.keys() & read)
        piece.graph.initializer.extend(self._initializers[name] for name in constants)
        for name in given:
            value = self._values[0][name]
            kind = helper.np_dtype_to_tensor_dtype(value.dtype)
            shape = [None] * value.ndim
            piece.graph.input.append(helper.make_tensor_value_info(name, kind, shape))
        for name in outputs:  # ONNX Runtime infers their types.
            piece.graph.output.add(name=name)
        return piece


def peak_bytes(graph: Graph) -> int:
    """The most that tensors of one sample take that are still to be read; unknown sizes count as 0.

    A ``Walk`` keeps no more of a sample, whatever its stops, but for what one piece computes.
    """
    last = {
        edge.tensor: graph.by_name[edge.node].index
        for node in graph.nodes
        for edge in graph.edges_into(node)
    }
    sizes = {tensor: _bytes(graph.type_of(tensor)) for tensor in last}
    live = sum(sizes.get(tensor, 0) for tensor in graph.inputs)
    peak = live
    for node in graph.nodes:
        live += sum(sizes.get(tensor, 0) for tensor in node.outputs)
        peak = max(peak, live)
        read = {edge.tensor for edge in graph.edges_into(node)} - graph.initializers.keys()
        live -= sum(sizes[tensor] for tensor in read if last[tensor] == node.index)
    return peak


def _bytes(known: TensorType) -> int:
    if known.dtype is None or known.shape is None or known.dtype == TensorProto.STRING:
        return 0
    return math.prod(known.shape) * helper.tensor_dtype_to_np_dtype(known.dtype).itemsize


def _pieces(
    nodes: Sequence[NodeProto], stops: Collection[str]
) -> Iterator[tuple[list[NodeProto], str]]:
    """The nodes up to and with each that writes a stop; those behind the last are left out."""
    piece: list[NodeProto] = []
    for node in nodes:
        piece.append(node)
        for stop in (tensor for tensor in node.output if tensor in stops):
            yield piece, stop
            piece = []


def _needs(nodes: Sequence[NodeProto]) -> set[str]:
    return {tensor for node in nodes for tensor in reads(node) if tensor}
