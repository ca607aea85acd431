"""Sizes of dimensions by the names that the model has for them, e.g. ``past_sequence_length``."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Mapping
from pathlib import Path

from onnx import GraphProto, ModelProto, TensorShapeProto

from placer.common.shapes import Shape, ShapeRange, optima
from placer.errors import InputError
from placer.model.validate import parse_model

Dimensions = list[TensorShapeProto.Dimension]
# Not `?` and the like, and not what exporters call all that they do not know.
_NAME = re.compile(r"(?i:(?!(none|unknown|dynamic)$))[A-Za-z_][\w./]*(-[A-Za-z_][\w./]*)*")
# What PyTorch writes where one size follows from others, as ``2*s0 + 1`` and ``s0//2``.
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
_LONGEST = 200  # characters of an expression
# What several dimensions of one input are called though they differ.
_PLACEHOLDER = re.compile(r"(?i:none|unknown|dynamic|\?+|\*|-1)")
# What may stand behind axis 0, as in states of LSTM, and has no other size than the inputs' batch.
_BATCH = re.compile(r"(?i:batch(_?size)?)")


def with_named_dimensions(
    model: Path | ModelProto, ranges: Mapping[str, ShapeRange]
) -> dict[str, ShapeRange]:
    """``ranges``, those that name a dimension replaced by shapes of the inputs that have it.

    A dimension is named by what is no input of ``model`` but a dimension of one, and has one size
    in each shape. What is computed of names (``past_sequence_length + 1`` of Optimum,
    ``2*s0`` of PyTorch) follows from them. An input that is in ``ranges`` keeps its shape, and a
    batch without a size is 1.

    Raises InputError where the size of another dimension of such an input is missing.
    """
    if all(len(one.optimum) > 1 for one in ranges.values()):
        return dict(ranges)  # Nothing is read in vain.
    inputs = dimensions_of(parse_model(model) if isinstance(model, Path) else model)
    names = {part for dims in inputs.values() for dim in dims for part in parts_of(dim)}
    named = {
        name: one
        for name, one in ranges.items()
        if name in names and name not in inputs and len(one.optimum) == 1
    }
    if not named:
        return dict(ranges)
    shapes = {name: one for name, one in ranges.items() if name not in named}
    return shapes | _shapes_by_name(inputs, shapes, named)


def _shapes_by_name(
    inputs: Mapping[str, Dimensions],
    shapes: Mapping[str, ShapeRange],
    named: Mapping[str, ShapeRange],
) -> dict[str, ShapeRange]:
    """Shapes of those ``inputs`` that have none and that have dimensions of the names ``named``."""
    known = shapes.keys() & inputs.keys()
    ends = tuple(
        sizes_by_name(inputs, {name: getattr(shapes[name], end) for name in known})
        | {name: getattr(one, end)[0] for name, one in named.items()}
        for end in ("minimum", "optimum", "maximum")
    )
    return {
        name: ShapeRange(*(_shape(name, dims, sizes) for sizes in ends))
        for name, dims in inputs.items()
        if name not in shapes and any(part in named for dim in dims for part in parts_of(dim))
    }


def with_named_sizes(model: Path | ModelProto, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """``with_named_dimensions`` of one shape for each input."""
    ranges = {name: ShapeRange.fixed(shape) for name, shape in shapes.items()}
    return optima(with_named_dimensions(model, ranges))


def sizes_by_name(inputs: Mapping[str, Dimensions], shapes: Mapping[str, Shape]) -> dict[str, int]:
    """Sizes of dimensions by the names that ``shapes`` of inputs tell; other batches are 1.

    A batch comes first in each input that has it, or is called so.
    """
    known = {
        dim.dim_param: size
        for name, shape in shapes.items()
        for dim, size in zip(inputs[name], shape, strict=False)
        if parts_of(dim) == [dim.dim_param]
    }
    first = {part for dims in inputs.values() for dim in dims[:1] for part in parts_of(dim)}
    later = {part for dims in inputs.values() for dim in dims[1:] for part in parts_of(dim)}
    batches = (name for name in first if name not in later or _BATCH.fullmatch(name))
    return dict.fromkeys(batches, 1) | known


def with_ones(proto: ModelProto, known: Mapping[str, Shape]) -> dict[str, Shape]:
    """``known`` shapes of inputs, and those of others, of which 1 stands for open dimensions.

    Dimensions of the name of one in ``known`` are not open. Inputs without a rank are left out.
    """
    inputs = dimensions_of(proto)
    ranked = {value.name for value in proto.graph.input if value.type.tensor_type.HasField("shape")}
    sizes = sizes_by_name(inputs, {name: known[name] for name in known if name in inputs})
    others = {
        name: tuple(size_of(dim, sizes) or 1 for dim in dims)
        for name, dims in inputs.items()
        if name not in known and name in ranked
    }
    return {**known, **others}


def parts_of(dim: TensorShapeProto.Dimension) -> list[str]:
    """The names of which a dimension that is not known is computed; empty if it has none."""
    if dim.dim_value > 0:
        return []
    expression = _expression(dim.dim_param)
    if expression is not None:
        return [node.id for node in ast.walk(expression) if isinstance(node, ast.Name)]
    parts = [part for part in _parts(dim) if not part.isdecimal()]
    return parts if all(_NAME.fullmatch(part) for part in parts) else []


def size_of(dim: TensorShapeProto.Dimension, sizes: Mapping[str, int]) -> int | None:
    """The size of ``dim``, by itself or by ``sizes`` of names; None if they do not tell."""
    if dim.dim_value > 0:
        return int(dim.dim_value)
    expression = _expression(dim.dim_param)
    if expression is not None:
        size = _value(expression, sizes)
        return size if size is None or size >= 0 else None
    known = [int(part) if part.isdecimal() else sizes.get(part) for part in _parts(dim)]
    return None if None in known else sum(size for size in known if size is not None)


def forget_placeholders(graph: GraphProto) -> None:
    """Leave dimensions of inputs and outputs without a name where what they have is none.

    Exporters that call all unknown sizes ``?`` do not mean that they are equal, as TensorRT, which
    refuses other sizes, takes dimensions of one name to be.
    """
    for value in (*graph.input, *graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if _PLACEHOLDER.fullmatch(dim.dim_param):
                dim.ClearField("dim_param")


def dimensions_of(proto: ModelProto) -> dict[str, Dimensions]:
    """Dimensions of each input of ``proto``; none where it does not even have a rank."""
    weights = {tensor.name for tensor in proto.graph.initializer}
    return {
        value.name: list(value.type.tensor_type.shape.dim)
        for value in proto.graph.input
        if value.name not in weights
    }


def _expression(text: str) -> ast.BinOp | None:
    """What ``text`` computes of names and numbers; None if it is a name or something else.

    ``seq-len`` is a name: exporters write differences with spaces.
    """
    if len(text) > _LONGEST or ("-" in text and _NAME.fullmatch(text)):
        return None
    try:
        found = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return None
    return found if isinstance(found, ast.BinOp) and _is_computed(found) else None


def _is_computed(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return type(node.op) in _OPERATORS and _is_computed(node.left) and _is_computed(node.right)
    if isinstance(node, ast.Name):
        return _NAME.fullmatch(node.id) is not None
    return isinstance(node, ast.Constant) and type(node.value) is int


def _value(node: ast.expr, sizes: Mapping[str, int]) -> int | None:
    """The size that an expression has by the ``sizes`` of names; None if that is none."""
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, sizes), _value(node.right, sizes)
        divides = isinstance(node.op, ast.FloorDiv)
        if left is None or right is None or (divides and right == 0):
            return None
        return int(_OPERATORS[type(node.op)](left, right))
    return sizes.get(node.id) if isinstance(node, ast.Name) else ast.literal_eval(node)


def _parts(dim: TensorShapeProto.Dimension) -> list[str]:
    return [part.strip() for part in dim.dim_param.split("+")]


def _shape(name: str, dims: Dimensions, given: Mapping[str, int]) -> Shape:
    sizes = [size_of(dim, given) for dim in dims]
    if sizes[0] is None and not parts_of(dims[0]):
        sizes[0] = 1
    if None in sizes:
        missing = dims[sizes.index(None)].dim_param or "?"
        raise InputError(
            f"`shapes`: dimension '{missing}' of input '{name}' has no size",
            "give it as well, or the shape of this input",
        )
    return tuple(size for size in sizes if size is not None)
