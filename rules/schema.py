"""The rule language, version 1: what a rule file and a pack manifest may say.

A rule is pure data. ``placer rules schema`` prints the JSON Schema of these models and
``docs/rules.md`` explains them with examples.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)

from placer.scheme import Scheme

TensorName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
InputName = Annotated[str, Field(pattern=r"^([a-z][a-z0-9_]*|_)[?*]?$")]
Reference = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*\.([a-z][a-z0-9_]*|\*)$")]
RuleId = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]


def _one_or_many(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    if len(text) < 10:
        raise ValueError("say why in a sentence")
    return text


def _version_range(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier as error:
        raise ValueError(f"'{text}' is no version range; write e.g. '>=1.18,<2'") from error
    return text


Names = Annotated[
    list[str],
    BeforeValidator(_one_or_many),
    Field(min_length=1),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
            ]
        }
    ),
]
Why = Annotated[str, AfterValidator(_sentence)]


class Strict(BaseModel):
    """Base of all models: unknown fields are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NodePattern(Strict):
    """One node of a pattern.

    ``op``: the operator, or a list of alternatives.
    ``inputs``: a tensor name per input. ``b?`` is an input that may be absent, ``xs*`` takes all
    that remain, ``_`` (also ``_?`` and ``_*``) matches anything and binds nothing. Writing one
    name at two nodes says that both read, or one reads what the other wrote.
    ``output``: name of the first output.
    ``optional``: where the node is absent its output is its first input.
    ``commutative``: the first two inputs match in either order.
    """

    op: Names
    inputs: list[InputName] = Field(min_length=1)
    output: TensorName
    optional: bool = False
    commutative: bool = False


class AttributeIs(Strict):
    """The attribute ``name`` of ``node``, or ``default`` where absent, equals ``equals``."""

    node: str
    name: str
    equals: int | float | str | list[int]
    default: int | float | str | list[int] | None = None


class RankIs(Strict):
    """The tensor's rank is known and one of ``one_of``."""

    tensor: TensorName
    one_of: list[int] = Field(min_length=1)


class DimIs(Strict):
    """Dimension ``axis`` of the tensor is known and within the given limits."""

    tensor: TensorName
    axis: int
    at_least: int | None = None
    at_most: int | None = None
    multiple_of: int | None = None


class Predicate(Strict):
    """One condition; exactly one field is set. All conditions of a rule must hold.

    ``is_initializer`` / ``is_activation``: the tensor is a constant / is computed at run time.
    ``scalar``: the tensor has one element.
    ``attribute``, ``rank``, ``dim``: see their models.
    ``same_shape``: the tensors' shapes are known and equal (variadic names count all theirs).
    ``depthwise``: the Conv's group count equals its input channels and is above 1.
    ``sole_consumer``: the tensor is read once and is no graph output.
    ``never``: a nested condition that must not hold.
    """

    is_initializer: TensorName | None = None
    is_activation: TensorName | None = None
    scalar: TensorName | None = None
    attribute: AttributeIs | None = None
    rank: RankIs | None = None
    dim: DimIs | None = None
    same_shape: list[TensorName] | None = Field(default=None, min_length=1)
    depthwise: str | None = None
    sole_consumer: TensorName | None = None
    never: Predicate | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Predicate:
        if len(self.model_fields_set) != 1:
            raise ValueError("a condition has exactly one predicate")
        return self


class Fusion(Strict):
    """The engine's layer that a layout yields: pattern nodes, its operator and types.

    ``op``: the layer's operator in the engine's words, or a list where it depends on the node.
    ``inputs`` is the type of the layer's activations, ``outputs`` of its first output.
    """

    nodes: list[str] = Field(min_length=1)
    op: Names
    inputs: str
    outputs: str


class Layout(Strict):
    """One choice at a site.

    ``quantize``: edges that carry a pair: ``conv.x`` is the edge on which node ``conv`` reads
    ``x``; ``y.*`` is every edge on which ``y`` is read, graph outputs included.
    ``share_scale``: sets of tensors whose pairs share one scale.
    ``keep_float``: edges that stay float whatever other sites choose.
    ``requires``: edges that other sites must have quantized, else the layout does nothing.
    ``default``: the choice of the pack's default placement.
    ``fuses``: the layers that the engine is known to build from it.
    """

    quantize: list[Reference] = []
    share_scale: list[list[TensorName]] = []
    keep_float: list[Reference] = []
    requires: list[Reference] = []
    default: bool = False
    fuses: list[Fusion] = []


class RuleTest(Strict):
    """An ONNX text graph and what the rule makes of it.

    ``model``: ONNX text; a float initializer with a single value is filled with it.
    ``matches``: per expected match, in node order, the graph node bound to each pattern node
    (absent optional nodes left out). ``quantized``: per layout, the edges it quantizes on the
    first match, written ``tensor->node[index]`` (``tensor->output`` for a graph output).
    """

    model: str
    matches: list[dict[str, str]]
    quantized: dict[str, list[str]] = {}


class Rule(Strict):
    """A rule document: a pattern, the layouts it allows there, why, and its own tests.

    ``source`` names where the claim of ``why`` comes from. Where matches overlap, the higher
    ``priority`` wins, then the larger match, then the one whose first node comes last.
    """

    id: RuleId
    why: Why
    source: str = Field(min_length=3)
    priority: int = 0
    pattern: dict[TensorName, NodePattern] = Field(min_length=1)
    where: list[Predicate] = []
    layouts: dict[RuleId, Layout] = Field(min_length=1)
    tests: list[RuleTest] = []

    @model_validator(mode="after")
    def _consistent(self) -> Rule:
        if any(node.optional for node in list(self.pattern.values())[:1]):
            raise ValueError("the first node of a pattern cannot be optional")
        if sum(layout.default for layout in self.layouts.values()) != 1:
            raise ValueError("exactly one layout has 'default: true'")
        names = self.tensor_names
        for layout_name, layout in self.layouts.items():
            self._check_layout(layout_name, layout, names)
        for predicate in self.where:
            self._check_predicate(predicate, names)
        return self

    @property
    def tensor_names(self) -> frozenset[str]:
        """Tensor names that the pattern binds."""
        written = {node.output for node in self.pattern.values()}
        read = {re.sub(r"[?*]$", "", i) for node in self.pattern.values() for i in node.inputs}
        return frozenset(written | (read - {"_"}))

    @property
    def default_layout(self) -> str:
        """Name of the layout marked as default."""
        return next(name for name, layout in self.layouts.items() if layout.default)

    def _check_layout(self, name: str, layout: Layout, tensors: frozenset[str]) -> None:
        for reference in (*layout.quantize, *layout.keep_float, *layout.requires):
            self._check_reference(f"layout '{name}'", reference, tensors)
        for tensor in (t for shared in layout.share_scale for t in shared):
            if tensor not in tensors:
                raise ValueError(f"layout '{name}': share_scale names unknown tensor '{tensor}'")
        for node in (n for fusion in layout.fuses for n in fusion.nodes):
            if node not in self.pattern:
                raise ValueError(f"layout '{name}': fuses names unknown node '{node}'")

    def _check_reference(self, where: str, reference: str, tensors: frozenset[str]) -> None:
        owner, _, tensor = reference.partition(".")
        if tensor == "*":
            if owner not in tensors:
                raise ValueError(f"{where}: '{reference}' names unknown tensor '{owner}'")
            return
        if owner not in self.pattern:
            raise ValueError(f"{where}: '{reference}' names unknown node '{owner}'")
        inputs = [re.sub(r"[?*]$", "", i) for i in self.pattern[owner].inputs]
        if tensor not in inputs:
            raise ValueError(f"{where}: node '{owner}' has no input '{tensor}'")

    def _check_predicate(self, predicate: Predicate, tensors: frozenset[str]) -> None:
        if predicate.never is not None:
            return self._check_predicate(predicate.never, tensors)
        used = [predicate.is_initializer, predicate.is_activation, predicate.scalar]
        used += [predicate.sole_consumer, *(predicate.same_shape or [])]
        used += [sub.tensor for sub in (predicate.rank, predicate.dim) if sub is not None]
        for tensor in used:
            if tensor is not None and tensor not in tensors:
                raise ValueError(f"where: unknown tensor '{tensor}'")
        nodes = [predicate.depthwise, predicate.attribute and predicate.attribute.node]
        for node in nodes:
            if node is not None and node not in self.pattern:
                raise ValueError(f"where: unknown node '{node}'")
        return None


class Manifest(Strict):
    """``pack.yaml``: what a rule pack is and for which engine."""

    name: RuleId
    version: Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+$")]
    engine: Literal["tensorrt", "onnxruntime"]
    engine_versions: Annotated[str, AfterValidator(_version_range)]
    scheme: Scheme
    licence: str
    maintainers: list[str] = Field(min_length=1)
