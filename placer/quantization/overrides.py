"""What a user pins of single tensors: method or range of activations, granularity of weights."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from placer.common.names import near, unknown
from placer.errors import InputError
from placer.graph import Edge, Graph
from placer.graph.selection import selected_nodes
from placer.graph.weights import weight_input
from placer.quantization.numerics import symmetric_limit
from placer.quantization.placement_file import Pin
from placer.quantization.ranges import Range, Ranges
from placer.quantization.scheme import Scheme

Method = Literal["minmax", "percentile", "entropy", "mse"]
_KEYS = ("tensor", "node", "method", "range", "scale", "zero_point", "weights")
_NEXT = re.compile(rf",(?=(?:{'|'.join(_KEYS)})=)")


class Override(BaseModel):
    """What is pinned, of tensors by name or glob, or of the inputs of nodes named as in exclude."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tensor: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="Name of a tensor, or a glob."
    )
    node: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="Nodes whose inputs are meant, named as for exclude."
    )
    method: Method | None = Field(default=None, description="Calibration method of activations.")
    range: tuple[FiniteFloat, FiniteFloat] | None = Field(
        default=None, description="Range of activations; it holds zero."
    )
    scale: Annotated[FiniteFloat, Field(gt=0)] | None = Field(
        default=None, description="Scale of activations, instead of a range."
    )
    zero_point: int | None = Field(
        default=None, description="With a scale, where the scheme is not symmetric."
    )
    weights: Literal["per-tensor", "per-channel"] | None = Field(
        default=None, description="One scale for each weight, or one for each of its channels."
    )

    @model_validator(mode="after")
    def _check(self) -> Override:
        if (self.tensor is None) == (self.node is None):
            raise ValueError("give either tensor or node")
        values = [name for name in ("method", "range", "scale") if getattr(self, name) is not None]
        if len(values) > 1:
            raise ValueError(f"{values[0]} and {values[1]} exclude each other; give one of them")
        if not values and self.weights is None:
            raise ValueError("nothing is pinned; give method, range, scale or weights")
        if self.zero_point is not None and self.scale is None:
            raise ValueError("zero_point goes with scale; give both or neither")
        if self.range is not None:
            low, high = self.range
            if not low <= 0 <= high or low == high:
                raise ValueError(
                    f"range [{low:g}, {high:g}] does not hold zero or is empty; "
                    "give a low end of at most 0 and a high end of at least 0"
                )
        return self

    @property
    def pattern(self) -> str:
        """What it is about, as the user wrote it."""
        return f"tensor {self.tensor}" if self.node is None else f"node {self.node}"

    def __str__(self) -> str:
        """As ``--override`` takes it."""
        given = {name: getattr(self, name) for name in _KEYS}
        if self.range is not None:
            given["range"] = ":".join(repr(float(end)) for end in self.range)
        return ",".join(f"{name}={value}" for name, value in given.items() if value is not None)

    @staticmethod
    def of(given: Override | Mapping[str, Any] | str) -> Override:
        """An override from ``KEY=VALUE,...`` or a mapping; InputError names what is wrong."""
        if isinstance(given, Override):
            return given
        values: Any = dict(_parts(given)) if isinstance(given, str) else given
        try:
            return Override.model_validate(values)
        except ValidationError as error:
            errors = error.errors(include_url=False)
            first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
            field_name = ".".join(str(part) for part in first["loc"])
            message = first["msg"].removeprefix("Value error, ")
            where = f"{field_name}: " if field_name else ""
            if first["type"] == "extra_forbidden":
                where, message = "", unknown("key", field_name, _KEYS)
            raise InputError(f"`overrides` {_shown(given)}: {where}{message}") from error


def _shown(given: object) -> str:
    return f"'{given}'" if isinstance(given, str) else str(given)


def _parts(text: str) -> Iterator[tuple[str, Any]]:
    for part in _NEXT.split(text):
        key, equals, value = part.partition("=")
        if not equals:
            raise InputError(
                f"`overrides` '{text}': '{part}' is not KEY=VALUE; write e.g. "
                "tensor=conv1*,method=percentile"
            )
        yield key, tuple(value.split(":")) if key == "range" else value


@dataclass(frozen=True)
class Pins:
    """What overrides come to on one model, by tensor.

    ``per_tensor``: edges of weights with one scale.
    """

    methods: Mapping[str, Method] = field(default_factory=dict)
    ranges: Ranges = field(default_factory=dict)
    per_tensor: frozenset[Edge] = frozenset()

    @cached_property
    def by_tensor(self) -> Mapping[str, Pin]:
        """As placement.yaml says it."""
        return {**self.methods, **dict.fromkeys(self.ranges, "range")}

    def sentences(self) -> list[str]:
        """One for each tensor and weight, for reading."""
        ranges = {t: f"range {low:g} to {high:g}" for t, (low, high) in self.ranges.items()}
        weights = {edge.tensor: "one scale for the weight" for edge in self.per_tensor}
        text_of = {**self.methods, **ranges, **weights}
        return [f"{tensor}: {text}" for tensor, text in sorted(text_of.items())]


def resolve(
    overrides: Sequence[Override],
    graph: Graph,
    edges: Collection[Edge],
    scheme: Scheme,
    joined: Iterable[Collection[str]],
) -> Pins:
    """What ``overrides`` pin of ``edges``, those that some layout quantizes; a later one counts.

    ``joined``: sets of tensors that may have to share a scale. Raises InputError, naming override
    and field, for one that is about nothing that is quantized, a scale that ``scheme`` does not
    have, and for a range that tensors of one scale do not all have.
    """
    weights = {edge for edge in edges if _is_weight(graph, edge)}
    activations = {e for e in edges if e not in weights and e.tensor not in graph.initializers}
    pins: dict[str, Method | Range] = {}
    per_tensor: set[Edge] = set()
    by: dict[str, Override] = {}
    for override in overrides:
        chosen = _chosen(override, graph, edges)
        if override.weights is not None:
            selected = _weights(override, chosen & weights, scheme)
            per_tensor -= selected
            if override.weights == "per-tensor":
                per_tensor |= selected
        pin = override.method or _range(override, scheme)
        if pin is not None:
            name = "method" if override.method else "scale" if override.scale else "range"
            selected = _some(chosen & activations, override, name, "a quantized activation")
            pins.update({edge.tensor: pin for edge in selected})
            by.update({edge.tensor: override for edge in selected})
    ranges = {tensor: pin for tensor, pin in pins.items() if isinstance(pin, Range)}
    _check_joined(ranges, by, joined, graph)
    methods = {tensor: pin for tensor, pin in pins.items() if not isinstance(pin, Range)}
    return Pins(methods, ranges, frozenset(per_tensor))


def _is_weight(graph: Graph, edge: Edge) -> bool:
    node = graph.by_name.get(edge.node)
    weight = None if node is None else weight_input(graph, node)
    return weight is not None and weight.index == edge.input_index


def _weights(override: Override, chosen: set[Edge], scheme: Scheme) -> set[Edge]:
    """``chosen``, if there are any and their scales can be decided."""
    selected = _some(chosen, override, "weights", "a quantized weight")
    if not scheme.per_channel:
        raise _refused(override, "weights", "all weights of this pack have one scale")
    return selected


def _chosen(override: Override, graph: Graph, edges: Collection[Edge]) -> set[Edge]:
    if override.node is not None:
        nodes = selected_nodes(graph, [override.node], "overrides")
        return {edge for edge in edges if edge.node in nodes}
    pattern = override.tensor or ""
    known = {edge.tensor for edge in edges}
    names = {pattern} if pattern in known else {n for n in known if fnmatchcase(n, pattern)}
    if not names:
        hint = near(pattern, known)
        raise _refused(override, "tensor", f"no rule quantizes such a tensor{hint}")
    return {edge for edge in edges if edge.tensor in names}


def _some(edges: set[Edge], override: Override, name: str, what: str) -> set[Edge]:
    if not edges:
        raise _refused(override, name, f"it is about {what}, and this names none")
    return edges


def _refused(override: Override, name: str, reason: str) -> InputError:
    return InputError(f"`overrides` '{override.pattern}', field '{name}': {reason}")


def _range(override: Override, scheme: Scheme) -> Range | None:
    """The range that ``override`` gives; of a scale, what ``scheme`` represents with it."""
    if override.range is not None:
        return Range(*override.range)
    scale, zero_point = override.scale, override.zero_point
    if scale is None:
        return None
    if scheme.symmetric:
        if zero_point is not None:
            raise _refused(override, "zero_point", "this pack's activations have a fixed one")
        limit = scale * symmetric_limit(scheme)
        return Range(-limit, limit)
    lowest = 0 if scheme.activation == "uint8" else -128
    if zero_point is None or not lowest <= zero_point <= lowest + 255:
        raise _refused(
            override, "zero_point", f"with a scale give one of {lowest} to {lowest + 255}"
        )
    return Range(scale * (lowest - zero_point), scale * (lowest + 255 - zero_point))


def _check_joined(
    ranges: Ranges,
    by: Mapping[str, Override],
    joined: Iterable[Collection[str]],
    graph: Graph,
) -> None:
    """Raise InputError where a pinned range would have to give way to another tensor's."""
    for tensors in joined:
        free = sorted(set(tensors) - graph.initializers.keys())
        for tensor in free:
            other = next((t for t in free if ranges.get(t) != ranges.get(tensor)), None)
            if tensor in ranges and other is not None:
                name = "range" if by[tensor].range is not None else "scale"
                raise _refused(
                    by[tensor],
                    name,
                    f"tensor '{tensor}' shares its scale with '{other}'; pin both alike, or "
                    "exclude the node that joins them",
                )
