"""Layers with a constant weight as products of a matrix and what they read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from placer.common.ort_session import create_session, run_once
from placer.graph import Edge, Graph, Node
from placer.graph.weights import bias_input, weight_input
from placer.model import Model


@dataclass(frozen=True)
class Product:
    """A Conv, Gemm or MatMul whose weight is its own.

    ``bias``: an initializer of its own with a value for each output; None without one.
    """

    node: Node
    weight: str
    bias: str | None

    @property
    def edge(self) -> Edge:
        """Where the weight is read."""
        return Edge(self.weight, self.node.name, 1)

    @property
    def groups(self) -> int:
        """Of a Conv; 1 elsewhere."""
        return int(self.node.attributes.get("group", 1)) if self.node.op == "Conv" else 1

    @property
    def is_transposed(self) -> bool:
        """Whether the weight is (k, outputs)."""
        return self.node.op != "Conv" and not self.node.attributes.get("transB", 0)

    def weights(self, model: Model) -> int:
        """How many weights an output has."""
        sizes = list(model.graph.initializers[self.weight].dims)
        return math.prod(sizes[1:]) if not self.is_transposed else int(sizes[0])

    def matrix(self, weight: np.ndarray) -> np.ndarray:
        """``weight`` as (groups, outputs of a group, weights of an output), float64."""
        rows = weight.T if self.is_transposed else weight
        flat = rows.reshape(len(rows), -1).astype(np.float64)
        return np.asarray(flat.reshape(self.groups, -1, flat.shape[1]))

    def kernel(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The sizes that the weights of an output are flattened from; ``shape``: of the weight."""
        return shape[:1] if self.is_transposed else shape[1:]

    def tensor(self, matrix: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """The weight of ``shape`` that ``matrix`` is of."""
        flat = matrix.reshape(-1, matrix.shape[-1])
        return np.asarray(flat.T if self.is_transposed else flat.reshape(shape))

    def rows(self, read: np.ndarray, at: np.ndarray, kernel: tuple[int, ...]) -> np.ndarray:
        """What is read at the output positions ``at``: (positions, groups, weights of an output).

        ``kernel``: sizes of a Conv's weight behind the first two.
        """
        if self.node.op != "Conv":
            return np.asarray(read.reshape(-1, 1, read.shape[-1])[at])
        windows = self._windows(read, kernel)
        spatial = len(kernel)
        positions = (windows.shape[0], *windows.shape[2 : 2 + spatial])
        first, *places = np.unravel_index(at, positions)
        # Advanced indices on both sides of the channels come first in the result.
        where: tuple[Any, ...] = (first, slice(None), *places)
        chosen = windows[where]
        return np.asarray(chosen.reshape(len(at), self.groups, -1))

    def given(self, values: np.ndarray, at: np.ndarray) -> np.ndarray:
        """``values`` of the output at ``at``: (positions, groups, outputs of a group)."""
        moved = np.moveaxis(values, 1, -1) if self.node.op == "Conv" else values
        return np.asarray(moved.reshape(-1, self.groups, moved.shape[-1] // self.groups)[at])

    def positions(self, values: np.ndarray) -> int:
        """How many positions an output has."""
        channels = values.shape[1] if self.node.op == "Conv" else values.shape[-1]
        return int(values.size) // max(1, int(channels))

    def apply(
        self, weight: np.ndarray, bias: np.ndarray, reads: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """What the layer gives with ``weight`` and ``bias`` (outputs,) for each of ``reads``.

        Raises RunError if ONNX Runtime fails.
        """
        kept = {"transB"} if self.node.op == "Gemm" else set(self.node.attributes)
        attributes = {k: v for k, v in self.node.attributes.items() if k in kept}
        matmul = self.node.op == "MatMul"
        node = helper.make_node(
            self.node.op,
            ["x", "w"] if matmul else ["x", "w", "b"],
            ["p" if matmul else "y"],
            **attributes,
        )
        nodes = [node, helper.make_node("Add", ["p", "b"], ["y"])] if matmul else [node]
        rank = [None] * reads[0].ndim
        graph = helper.make_graph(
            nodes,
            "layer",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, rank)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [
                numpy_helper.from_array(np.ascontiguousarray(values, np.float32), name)
                for name, values in (("w", weight), ("b", bias))
            ],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        session = create_session(
            model.SerializeToString(),
            Path(),
            threads=1,
            level=ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
        )
        what = f"the layer of '{self.node.name}'"
        return [run_once(session, ["y"], {"x": x.astype(np.float32)}, what)[0] for x in reads]

    def _windows(self, read: np.ndarray, kernel: tuple[int, ...]) -> np.ndarray:
        """A view (batch, channels, output sizes..., kernel...)."""
        attributes, n = self.node.attributes, len(kernel)
        strides = attributes.get("strides") or [1] * n
        dilations = attributes.get("dilations") or [1] * n
        extents = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
        pads = _pads(attributes, read.shape[2:], strides, extents)
        padded = np.pad(read, [(0, 0), (0, 0), *pads])
        axes = tuple(range(2, 2 + n))
        windows = np.lib.stride_tricks.sliding_window_view(padded, tuple(extents), axis=axes)
        steps = tuple(slice(None, None, int(s)) for s in strides)
        taps = tuple(slice(None, None, int(d)) for d in dilations)
        where = (slice(None), slice(None), *steps, *taps)
        return np.asarray(windows[where])


def _pads(
    attributes: Mapping[str, Any],
    sizes: Sequence[int],
    strides: Sequence[int],
    extents: Sequence[int],
) -> list[tuple[int, int]]:
    """Zeros before and behind each spatial axis, as ONNX's Conv defines ``auto_pad``."""
    auto = attributes.get("auto_pad", "NOTSET")
    auto = auto.decode() if isinstance(auto, bytes) else auto
    n = len(sizes)
    if auto in ("", "NOTSET"):
        pads = attributes.get("pads") or [0] * 2 * n
        return [(int(a), int(b)) for a, b in zip(pads[:n], pads[n:], strict=True)]
    if auto == "VALID":
        return [(0, 0)] * n
    sides = []
    for size, stride, extent in zip(sizes, strides, extents, strict=True):
        total = max(0, (-(-size // stride) - 1) * stride + extent - size)
        small, large = total // 2, total - total // 2
        sides.append((small, large) if auto == "SAME_UPPER" else (large, small))
    return sides


def products_of(model: Model) -> list[Product]:
    """The layers whose weights can change, in node order: each is read once, by this layer."""
    graph = model.graph
    read_once = {name for name in graph.initializers if len(graph.edges_of(name)) == 1}
    read_once -= set() if model.imported is None else model.imported.weights.keys()
    products = (_product(graph, node, read_once) for node in graph.nodes)
    return [product for product in products if product is not None]


def _product(graph: Graph, node: Node, read_once: set[str]) -> Product | None:
    weight, index, attributes = weight_input(graph, node), bias_input(node), node.attributes
    if weight is None or weight.axis is None or weight.index != 1 or weight.tensor not in read_once:
        return None
    if node.op == "ConvTranspose" or attributes.get("transA", 0):
        return None
    if node.op == "Gemm" and (attributes.get("alpha", 1.0), attributes.get("beta", 1.0)) != (1, 1):
        return None
    if node.inputs[0] in graph.initializers or not graph.type_of(node.outputs[0]).is_float:
        return None
    sizes = list(graph.initializers[weight.tensor].dims)
    if node.op != "Conv" and len(sizes) != 2:
        return None
    if index is None:
        return Product(node, weight.tensor, None)
    bias = node.inputs[index]
    is_own = bias in read_once and list(graph.initializers[bias].dims) == [sizes[weight.axis]]
    # A bias that cannot change would have to be taken from the target.
    return Product(node, weight.tensor, bias) if is_own else None
