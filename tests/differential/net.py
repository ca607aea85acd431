"""A graph that grows node by node, with the shapes of its tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
import onnx.shape_inference
from onnx import ModelProto, TensorProto, helper, numpy_helper

_OPSETS = [helper.make_opsetid("", 17)]
_LARGEST = 1 << 18  # Elements of a tensor: a case is to be built in a moment.


class Misfit(Exception):
    """An operator does not fit the tensors that there are."""


class Net:
    """Nodes, weights, and ``shapes``: of the float tensors, in the order they were made."""

    def __init__(self, random: Random, model: ModelProto | None = None) -> None:
        self.random = random
        self._rng = np.random.default_rng(random.randrange(2**32))
        self._model = model or helper.make_model(
            helper.make_graph([], "net", [], []), opset_imports=_OPSETS, ir_version=9
        )
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._count = 0
        if model is not None:
            self._fill()
            self.infer()

    @property
    def graph(self) -> onnx.GraphProto:
        """The graph as it is."""
        return self._model.graph

    def input(self, *shape: int) -> str:
        """A new graph input."""
        name = self._name("x")
        self.graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        self.shapes[name] = shape
        return name

    def const(self, values: Any, dtype: str = "float32") -> str:
        """A constant."""
        name = self._name("k")
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def weight(self, *shape: int, around: float = 0.0) -> str:
        """A random weight of its own."""
        scale = 1 / math.sqrt(max(1, math.prod(shape[1:])))
        return self.const(around + scale * self._rng.standard_normal(shape))

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Append a node; its first output, others end in ``_1``, ``_2``. Raises Misfit."""
        name = self._name(op.lower())
        made = [f"{name}_out", *(f"{name}_out_{i}" for i in range(1, outputs))]
        self.graph.node.append(helper.make_node(op, inputs, made, name, **attributes))
        self.infer()
        if made[0] not in self.shapes:
            raise Misfit(op)
        return made[0]

    def infer(self) -> None:
        """Infer the shapes of what the latest nodes write. Raises Misfit."""
        try:
            inferred = onnx.shape_inference.infer_shapes(
                self._model, check_type=True, strict_mode=True, data_prop=True
            )
        except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
            raise Misfit(str(error)) from error
        graph = inferred.graph
        found = {}
        for value in (*graph.input, *graph.value_info, *graph.output):
            tensor = value.type.tensor_type
            shape = tuple(dim.dim_value for dim in tensor.shape.dim)
            if tensor.elem_type == TensorProto.FLOAT and shape and all(shape):
                found[value.name] = shape
        if any(math.prod(shape) > _LARGEST for shape in found.values()):
            raise Misfit("a tensor is too large")
        self.shapes = {t: s for t, s in found.items() if t not in self._constants()}

    def pick(self, *ranks: int) -> str:
        """A tensor of one of ``ranks``, mostly the latest. Raises Misfit without any."""
        known = [t for t, s in self.shapes.items() if not ranks or len(s) in ranks]
        if not known:
            raise Misfit(f"no tensor of rank {ranks}")
        return known[-1] if self.random.random() < 0.7 else self.random.choice(known)

    def alike(self, x: str) -> str:
        """Another tensor of the shape of ``x``. Raises Misfit without any."""
        same = [t for t, s in self.shapes.items() if s == self.shapes[x] and t != x]
        if not same:
            raise Misfit("no tensor of that shape")
        return self.random.choice(same)

    def mark(self) -> tuple[int, int, Mapping[str, tuple[int, ...]]]:
        """What ``reset`` goes back to."""
        return len(self.graph.node), len(self.graph.initializer), dict(self.shapes)

    def reset(self, mark: tuple[int, int, Mapping[str, tuple[int, ...]]]) -> None:
        """Take away what was appended since ``mark``."""
        nodes, weights, shapes = mark
        del self.graph.node[nodes:], self.graph.initializer[weights:]
        self.shapes = dict(shapes)

    def finished(self, extra: Sequence[str] = ()) -> ModelProto:
        """The model; what nothing reads is an output, and ``extra`` besides."""
        read = {t for node in self.graph.node for t in node.input}
        made = [t for node in self.graph.node for t in node.output]
        known = {value.name for value in self.graph.output}
        outputs = [t for t in made if t in known or t in extra or t not in read]
        del self.graph.output[:]
        for tensor in outputs:
            value = helper.make_tensor_value_info(tensor, TensorProto.FLOAT, None)
            self.graph.output.append(value)
        used = read | set(outputs)
        inputs = [value for value in self.graph.input if value.name in used]
        del self.graph.input[:]
        self.graph.input.extend(inputs)
        return onnx.shape_inference.infer_shapes(self._model, strict_mode=True, data_prop=True)

    def _constants(self) -> set[str]:
        return {tensor.name for tensor in self.graph.initializer}

    def _name(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}_"

    def _fill(self) -> None:
        """Random values for the float weights of a given model, which may all be the same."""
        for tensor in self.graph.initializer:
            if tensor.data_type == TensorProto.FLOAT and math.prod(tensor.dims) > 1:
                values = np.abs(self._rng.normal(0.1, 0.05, tuple(tensor.dims))) + 0.01
                tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float32), tensor.name))
