"""Types of the inputs of Loop and Scan bodies in a flat graph, which no node writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from onnx import GraphProto, NodeProto, TensorProto, TypeProto, ValueInfoProto

from placer.graph.flat import entered_bodies, states
from placer.graph.scan_form import ScanForm

_Dims = tuple[int | None, ...] | None  # None in it: a dimension that is not known.


class _State(NamedTuple):
    """A state variable: an input of a body, where it starts, and what a trip hands on."""

    name: str
    start: str
    returned: str


class _Slice(NamedTuple):
    """An input of a Scan's body: a slice of the tensor ``whole`` along ``axis``."""

    name: str
    whole: str
    axis: int


class BodyTypes:
    """The inputs of bodies as inputs of ``graph``, a flat one, with the types of every trip.

    A dimension of a state variable is known where it is the same at the start and after any trip.
    """

    def __init__(self, graph: GraphProto) -> None:
        self._states: list[_State] = []
        self._slices: list[_Slice] = []
        self._constants = {t.name: (t.data_type, tuple(t.dims)) for t in graph.initializer}
        self._declared: dict[str, ValueInfoProto] = {}
        self._open: set[str] = set()  # State variables that have dimensions, for all that is known.
        self._closed: set[str] = set()  # Those of which nothing more will be known.
        for node in list(graph.node):
            for body in entered_bodies(node).values():
                self._add(graph, node, body)

    def _add(self, graph: GraphProto, node: NodeProto, body: GraphProto) -> None:
        if not body.input:
            return
        for value in body.input:
            declared = graph.input.add(name=value.name)
            if value.type.HasField("tensor_type"):
                declared.type.tensor_type.elem_type = value.type.tensor_type.elem_type
            self._declared[value.name] = declared
        carried = states(node)
        if node.op_type == "Loop":
            kinds = TensorProto.INT64, TensorProto.BOOL
            for value, kind in zip(body.input[:2], kinds, strict=True):
                given = value.type.tensor_type
                dims = (1,) * len(given.shape.dim)  # Bodies may declare them of one dimension.
                _write(self._declared[value.name], kind, dims)
        starts = node.input[carried]
        returned = body.output[1 if node.op_type == "Loop" else 0 :][: len(starts)]
        for value, start, after in zip(body.input[carried], starts, returned, strict=True):
            self._states.append(_State(value.name, start, after.name))
        if node.op_type == "Scan":
            self._slices += _slices(node, body)

    def update(self, values: Mapping[str, ValueInfoProto]) -> bool:
        """Take over what ``values``, which were inferred, tell; whether that changed a type."""
        changed = [self._update_slice(s, values) for s in self._slices]
        changed += [self._update_state(s, values) for s in self._states]
        return any(changed)

    def give_up(self, values: Mapping[str, ValueInfoProto]) -> bool:
        """Forget dimensions of state variables where nothing tells those after a trip.

        To be called once nothing changes any more; whether that changed a type.
        """
        changed = [self._give_up(state, values) for state in self._states]
        return any(changed)

    def _update_slice(self, part: _Slice, values: Mapping[str, ValueInfoProto]) -> bool:
        kind, dims = self._known(part.whole, values)
        if dims is not None and -len(dims) <= part.axis < len(dims):
            dims = tuple(d for i, d in enumerate(dims) if i != part.axis % len(dims))
        return _write(self._declared[part.name], kind, dims)

    def _update_state(self, state: _State, values: Mapping[str, ValueInfoProto]) -> bool:
        declared = self._declared[state.name]
        start = values.get(state.start)
        if start is not None and not start.type.HasField("tensor_type"):
            return copy_type(start, declared)
        kind, dims = self._known(state.start, values)
        if state.name not in self._open:
            if dims is None or state.name in self._closed:
                return _write(declared, kind, _dims(declared.type))
            self._open.add(state.name)
            return _write(declared, kind, dims)
        after = self._known(state.returned, values)[1]
        now = _dims(declared.type)
        return after is not None and _write(declared, kind, _common(now, after))

    def _give_up(self, state: _State, values: Mapping[str, ValueInfoProto]) -> bool:
        if state.name not in self._open or self._known(state.returned, values)[1] is not None:
            return False
        self._open.discard(state.name)
        self._closed.add(state.name)
        now = _dims(self._declared[state.name].type)
        unknown = None if now is None else (None,) * len(now)
        return _write(self._declared[state.name], 0, unknown)

    def forget(self) -> bool:
        """Forget all dimensions of state variables, which contradict each other; false if none."""
        known = [state.name for state in self._states if state.name in self._open]
        for name in known:
            _write(self._declared[name], 0, None)
        self._closed.update(state.name for state in self._states)
        self._open.clear()
        return bool(known)

    def _known(self, tensor: str, values: Mapping[str, ValueInfoProto]) -> tuple[int, _Dims]:
        """Element type, 0 if that is not known, and dimensions of ``tensor``."""
        if tensor in self._constants:
            return self._constants[tensor]
        if tensor not in values:
            return 0, None
        return values[tensor].type.tensor_type.elem_type, _dims(values[tensor].type)


def copy_type(source: ValueInfoProto, target: ValueInfoProto) -> bool:
    """Give ``target`` the type of ``source``; whether that changed it."""
    if source.type.HasField("tensor_type"):  # Unknown dimensions have another name each time.
        return _write(target, source.type.tensor_type.elem_type, _dims(source.type))
    changed = source.type != target.type
    target.type.CopyFrom(source.type)
    return changed


def _slices(node: NodeProto, body: GraphProto) -> Iterator[_Slice]:
    form = ScanForm.of(node)
    whole = node.input[form.states :]
    for position, value in enumerate(body.input[form.states :]):
        yield _Slice(value.name, whole[position], form.axis("input", position))


def _dims(kind: TypeProto) -> _Dims:
    tensor = kind.tensor_type
    if not tensor.HasField("shape"):
        return None
    return tuple(d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim)


def _common(first: _Dims, second: _Dims) -> _Dims:
    """What is the same in both."""
    if first is None or second is None or len(first) != len(second):
        return None
    return tuple(a if a == b else None for a, b in zip(first, second, strict=True))


def _write(value: ValueInfoProto, kind: int, dims: Sequence[int | None] | None) -> bool:
    """Give ``value`` a type, 0 for the one that it has, and ``dims``; whether it changed."""
    before = value.SerializeToString()
    tensor = value.type.tensor_type
    tensor.elem_type = kind or tensor.elem_type
    tensor.ClearField("shape")
    if dims is not None:
        tensor.shape.SetInParent()
        for size in dims:
            dim = tensor.shape.dim.add()
            if size is not None:
                dim.dim_value = size
    return value.SerializeToString() != before
