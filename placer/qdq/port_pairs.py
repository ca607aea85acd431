"""Graph inputs and outputs that are integers, read and written as such by a candidate.

An imported model dequantizes and quantizes them by arithmetic. In a candidate that is one
DequantizeLinear or QuantizeLinear, and none where a pair with the same scale is beside it: a kernel
then reads what comes in, or writes what goes out, as in the file that was imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from placer.graph.names import UnusedNames, tensor_names
from placer.graph.port_arithmetic import IntegerPort
from placer.quantization import Scheme

_Q, _DQ = "QuantizeLinear", "DequantizeLinear"


def written_as_pairs(ports: Iterable[IntegerPort], scheme: Scheme) -> tuple[IntegerPort, ...]:
    """Those of ``ports`` that engines of ``scheme`` take in DequantizeLinear and QuantizeLinear.

    TensorRT, whose pairs are symmetric, takes int8 with zero point 0 alone.
    """
    return tuple(
        port
        for port in ports
        if not scheme.symmetric or (port.dtype == TensorProto.INT8 and port.zero_point == 0)
    )


def write_ports(graph: GraphProto, ports: Sequence[IntegerPort]) -> None:
    """Replace the arithmetic of ``ports`` in ``graph``, a candidate whose bodies are flat."""
    if not ports:
        return
    writer = _Writer(graph)
    for port in ports:
        if port.is_input:
            writer.enter(port)
        else:
            writer.leave(port)
    writer.finish()


class _Writer:
    def __init__(self, graph: GraphProto) -> None:
        self._graph = graph
        self._nodes = {node.name: node for node in graph.node}
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        self._names = UnusedNames(tensor_names(graph))
        self._outputs = {value.name for value in graph.output}
        self._gone = set[str]()
        self._touched = set[str]()

    def enter(self, port: IntegerPort) -> None:
        """Dequantize a graph input by one node, and let what reads its integers read them."""
        self._replace(port, _DQ, port.nodes[-1].name, port.integers, port.floats)
        for node in self._readers(port.floats):
            if node.op_type == _Q and self._is_same(node, port):
                self._rename(node.output[0], port.integers)
                self._drop(node)
        self._drop_unread(self._nodes[port.nodes[-1].name])

    def leave(self, port: IntegerPort) -> None:
        """Quantize a graph output by one node, or let what writes such integers write it."""
        source = self._nodes[port.nodes[0].name].input[0]
        name = port.nodes[-1].name
        self._replace(port, _Q, name, source, port.integers)
        dequantize = self._writer(source)
        if dequantize is None or dequantize.op_type != _DQ or not self._is_same(dequantize, port):
            return
        integers = dequantize.input[0]
        quantize = self._writer(integers)
        if quantize is None or quantize.op_type != _Q or integers in self._outputs:
            return
        self._drop(self._nodes[name])
        quantize.output[0] = port.integers
        self._rename(integers, port.integers)
        self._drop_unread(dequantize)

    def finish(self) -> None:
        """Take out the nodes that are gone and the constants that only these read."""
        kept = [node for node in self._graph.node if node.name not in self._gone]
        read = {tensor for node in kept for tensor in node.input}
        del self._graph.node[:]
        self._graph.node.extend(kept)
        idle = self._touched - read
        constants = [t for t in self._constants.values() if t.name not in idle]
        del self._graph.initializer[:]
        self._graph.initializer.extend(constants)

    def _replace(self, port: IntegerPort, op: str, name: str, source: str, target: str) -> None:
        """Put one node of ``op`` in the place of the port's node called ``name``."""
        for node in port.nodes:
            self._touched.update(self._nodes[node.name].input)
            if node.name != name:
                self._gone.add(node.name)
        scale = self._add(f"{name}/scale", port.scale)
        kind = helper.tensor_dtype_to_np_dtype(port.dtype)
        zero_point = self._add(f"{name}/zero_point", np.array(port.zero_point, kind))
        made = helper.make_node(op, [source, scale, zero_point], [target], name)
        self._nodes[name].CopyFrom(made)

    def _add(self, name: str, values: np.ndarray) -> str:
        name = self._names.unused(name)
        self._constants[name] = numpy_helper.from_array(values, name)
        self._touched.add(name)
        return name

    def _is_same(self, node: NodeProto, port: IntegerPort) -> bool:
        """Whether a Q or DQ has the scale, zero point and type of ``port``."""
        known = [self._constants[name] for name in node.input[1:] if name in self._constants]
        if len(node.input) != 3 or len(known) != 2:
            return False
        scale, zero_point = (numpy_helper.to_array(tensor) for tensor in known)
        return bool(
            known[1].data_type == port.dtype
            and scale.size == 1
            and scale.ravel()[0] == port.scale
            and zero_point.ravel()[0] == port.zero_point
        )

    def _left(self) -> list[NodeProto]:
        return [node for node in self._graph.node if node.name not in self._gone]

    def _readers(self, tensor: str) -> list[NodeProto]:
        return [node for node in self._left() if tensor in node.input]

    def _writer(self, tensor: str) -> NodeProto | None:
        return next((node for node in self._left() if tensor in node.output), None)

    def _rename(self, old: str, new: str) -> None:
        for node in self._readers(old):
            for index, tensor in enumerate(node.input):
                if tensor == old:
                    node.input[index] = new

    def _drop(self, node: NodeProto) -> None:
        self._gone.add(node.name)
        self._touched.update(node.input)

    def _drop_unread(self, node: NodeProto) -> None:
        (made,) = node.output
        if made not in self._outputs and not self._readers(made):
            self._drop(node)
