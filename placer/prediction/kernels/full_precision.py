"""Tensors that stay in FP32 inside an FP16 engine, as what reads and writes them does.

Evidence: models of transformers that NVIDIA's builder of TensorRT-RTX 1.7.1 built after placer had
converted them to FP16 (``placer.qdq.base_types``), and 30 small graphs of norms.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, numpy_helper

from placer.graph import Graph, Node
from placer.graph.external_data import is_external
from placer.prediction.kernels.parts import is_square

_LARGEST = float(np.finfo(np.float16).max) / 2
# What passes on a mask's values, or adds them to scores.
_PASSES = frozenset(
    "Where Add Sub Mul Max Min Expand Unsqueeze Squeeze Reshape Transpose Slice Cast Concat".split()
)


def float32_tensors(graph: Graph) -> frozenset[str]:
    """Values of masks that FP16 does not hold, what is cast to FP32 for a power alone, and means.

    A mask is one of a number beyond FP16's: whether it is ever used, ranges tell, which a
    prediction does not know; it is taken to be.
    """
    powered = {t for node in graph.nodes if _casts_for_power(graph, node) for t in node.inputs}
    powered |= {t for node in graph.nodes if is_mean_of_squares(graph, node) for t in node.outputs}
    wide: set[str] = set()
    for node in graph.nodes:
        if node.op in _PASSES and _is_wide(graph, node, wide):
            wide.update(node.outputs)
    return frozenset(powered | wide)


def _is_wide(graph: Graph, node: Node, wide: set[str]) -> bool:
    if any(tensor in wide for tensor in node.inputs):
        return True
    constants = (graph.initializers.get(tensor) for tensor in node.inputs)
    return any(tensor is not None and _is_beyond(tensor) for tensor in constants)


def _is_beyond(constant: TensorProto) -> bool:
    """Whether a float constant has finite values that FP16 does not hold."""
    if constant.data_type != TensorProto.FLOAT or is_external(constant):
        return False
    values = numpy_helper.to_array(constant)
    return bool(np.abs(values[np.isfinite(values)]).max(initial=0.0) > _LARGEST)


def is_mean_of_squares(graph: Graph, node: Node) -> bool:
    """Whether it is the mean of powers or squares, as of a norm that is written out."""
    power = graph.producer.get(node.inputs[0]) if node.op == "ReduceMean" else None
    return power is not None and is_square(power)


def _casts_for_power(graph: Graph, node: Node) -> bool:
    """Whether a Cast of floats to floats alone reads a tensor, and a power the Cast."""
    if node.op != "Cast" or len(graph.edges_of(node.inputs[0])) > 1:
        return False
    given, made = (graph.type_of(tensor) for tensor in (node.inputs[0], node.outputs[0]))
    if not given.is_float or given.dtype != made.dtype:
        return False
    return any(
        e.node and graph.by_name[e.node].op == "Pow" for e in graph.edges_of(node.outputs[0])
    )
