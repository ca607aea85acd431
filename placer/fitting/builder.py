"""Networks with random weights, written node by node."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_OPSET = 17


class NetworkBuilder:
    """Nodes and weights of a network in the making; methods that add return a tensor's name.

    ``input``: name of the network's input, FP32 of ``shape``; ``rng``: where weights come from.
    """

    def __init__(self, input: str, shape: tuple[int, ...], seed: int) -> None:
        self.input = input
        self.rng = np.random.default_rng(seed)
        self._input_shape = shape
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Append a node; return the name of its output."""
        return self.add_many(op, inputs, 1, **attributes)[0]

    def add_many(
        self, op: str, inputs: tuple[str, ...], outputs: int, **attributes: Any
    ) -> tuple[str, ...]:
        """Append a node of several outputs; return their names."""
        name = f"{op}_{len(self._nodes)}"
        made = (f"{name}_out", *(f"{name}_out{i}" for i in range(1, outputs)))
        self._nodes.append(helper.make_node(op, inputs, made, name, **attributes))
        return made

    def constant(self, values: np.ndarray) -> str:
        """Append an initializer; return its name."""
        name = f"w{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(values, name))
        return name

    def same_conv(
        self, x: str, weight: str, stride: int = 1, group: int = 1, dilation: int = 1
    ) -> str:
        """Convolution with a random bias, padded so that the size stays but for the stride."""
        outputs, _, *kernel = self._dims(weight)
        bias = self.constant(self.rng.normal(0, 0.1, outputs).astype(np.float32))
        wide = {"dilations": [dilation] * len(kernel)} if dilation > 1 else {}
        return self.add(
            "Conv", x, weight, bias, kernel_shape=kernel,
            pads=[k // 2 * dilation for k in kernel] * 2, strides=[stride] * len(kernel),
            group=group, **wide,
        )  # fmt: skip

    def model(self, *outputs: str) -> onnx.ModelProto:
        """The finished model, with the shapes of its tensors."""
        image = helper.make_tensor_value_info(self.input, TensorProto.FLOAT, self._input_shape)
        results = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
        graph = helper.make_graph(self._nodes, "network", [image], results, self._weights)
        opsets = [helper.make_opsetid("", _OPSET)]
        proto = helper.make_model(graph, opset_imports=opsets, ir_version=9)
        return onnx.shape_inference.infer_shapes(proto)

    def _dims(self, weight: str) -> list[int]:
        return next(list(w.dims) for w in reversed(self._weights) if w.name == weight)
