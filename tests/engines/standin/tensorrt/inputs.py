"""Inputs of the stand-in's networks and what an optimization profile says of them."""

import onnx


class Tensor:
    """An input or output."""

    def __init__(self, value: onnx.ValueInfoProto, is_shape: bool = False) -> None:
        self.name = value.name
        dims = value.type.tensor_type.shape.dim
        self.shape = tuple(d.dim_value if d.HasField("dim_value") else -1 for d in dims)
        self.is_shape_tensor = is_shape


def shape_inputs(model: onnx.ModelProto) -> set[str]:
    """Inputs whose values are shapes, which are read from host memory."""
    shaping = {node.input[1] for node in model.graph.node if node.op_type == "Reshape"}
    return {value.name for value in model.graph.input if value.name in shaping}


class Profile:
    """Ranges of shapes by input, and of values by input whose values are a shape."""

    def __init__(self) -> None:
        self.shapes: dict[str, tuple[tuple[int, ...], ...]] = {}
        self.values: dict[str, tuple[tuple[int, ...], ...]] = {}

    def set_shape(self, name: str, *shapes: tuple[int, ...]) -> None:
        if not all(0 <= a <= b <= c for a, b, c in zip(*shapes, strict=True)):
            raise ValueError("Shape provided for min is inconsistent with other shapes.")
        self.shapes[name] = tuple(map(tuple, shapes))

    def set_shape_input(self, name: str, *values: tuple[int, ...]) -> None:
        if not all(a <= b <= c for a, b, c in zip(*values, strict=True)):
            raise ValueError(f"values of {name} are not in order")
        self.values[name] = tuple(map(tuple, values))
