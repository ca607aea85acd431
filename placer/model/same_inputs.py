"""Whether models that are run on the same data read the same inputs."""

from __future__ import annotations

from onnx import TensorProto, ValueInfoProto, helper

from placer.errors import InputError
from placer.graph.edit import rename_tensors
from placer.graph.names import UnusedNames, tensor_names
from placer.model.fixed_inputs import fixed_values
from placer.model.load import Model
from placer.model.quantized.scales import type_name

_FLOATS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16})


def has_bfloat16_inputs(model: Model) -> bool:
    """Whether an input is of the float type that NumPy lacks."""
    graph = model.graph
    return any(graph.type_of(name).dtype == TensorProto.BFLOAT16 for name in graph.inputs)


def check_same_inputs(first: Model, other: Model, *, converted: bool) -> None:
    """Raise InputError unless ``other`` can be given what ``first`` is.

    It may lack inputs of ``first`` that were fixed in it. ``converted``: whether floats are
    converted to the float type that a model reads, as engines do for files of ``io_type`` convert.
    """
    mine = {name: first.graph.type_of(name).dtype or 0 for name in first.graph.inputs}
    theirs = {name: other.graph.type_of(name).dtype or 0 for name in other.graph.inputs}
    same = "give models that read the same inputs"
    if more := sorted(theirs.keys() - mine.keys()):
        raise InputError(f"{other.path} reads '{more[0]}', which {first.path} does not; {same}")
    if less := sorted(mine.keys() - theirs.keys() - fixed_values(other.proto).keys()):
        raise InputError(f"{other.path} does not read '{less[0]}', as {first.path} does; {same}")
    for name, dtype in theirs.items():
        if dtype != mine[name] and not (converted and {dtype, mine[name]} <= _FLOATS):
            raise InputError(
                f"{other.path} reads '{name}' as {type_name(dtype)}, {first.path} as "
                f"{type_name(mine[name])}; {same}"
            )
    for value in other.proto.graph.input:
        if value.name in theirs and value.type.tensor_type.HasField("shape"):
            _check_shape(first, other, value)


def _check_shape(first: Model, other: Model, value: ValueInfoProto) -> None:
    """Raise InputError if the input ``value`` of ``other`` takes no shape that ``first`` takes."""
    shape = first.input_shapes[value.name]
    sizes = [
        dim.dim_value if dim.dim_value > 0 else None for dim in value.type.tensor_type.shape.dim
    ]
    fits = len(sizes) == len(shape) and all(
        size in (None, given) for size, given in zip(sizes, shape, strict=True)
    )
    if not fits:
        declared = "x".join(str(size or "N") for size in sizes)
        raise InputError(
            f"{other.path} reads '{value.name}' with shape {declared}, {first.path} with "
            f"{'x'.join(map(str, shape))}; give models of one shape, or `shapes` for what "
            "they leave open"
        )


def cast_inputs(first: Model, other: Model) -> list[str]:
    """Let the file ``other`` take the float types of ``first``, by a Cast behind each other input.

    For engines that convert no inputs. Changes ``other.proto``; returns what changed, a sentence
    for each input.
    """
    graph = other.proto.graph
    names = UnusedNames(tensor_names(graph) | {node.name for node in graph.node})
    renamed: dict[str, str] = {}
    casts, notes = [], list[str]()
    for value in graph.input:
        mine, theirs = first.graph.type_of(value.name).dtype, value.type.tensor_type.elem_type
        if mine is None or mine == theirs or not {mine, theirs} <= _FLOATS:
            continue
        value.type.tensor_type.elem_type = mine
        renamed[value.name] = names.unused(f"{value.name}/{type_name(theirs)}")
        target = renamed[value.name]
        casts.append(
            helper.make_node("Cast", [value.name], [target], names.unused("Cast"), to=theirs)
        )
        notes.append(
            f"{other.path} reads '{value.name}' as {type_name(theirs)}: it is measured with a Cast "
            f"from the {type_name(mine)} of {first.path}"
        )
    for node in graph.node:
        rename_tensors(node, lambda tensor: renamed.get(tensor, tensor))
    nodes = [*casts, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    return notes
