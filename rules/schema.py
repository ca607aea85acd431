"""The rule language, version 1: what a rule file and a pack manifest may say.

A rule is pure data. ``placer rules schema`` prints the JSON Schema of these models and
``docs/rules.md`` explains them with examples.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
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
OutputName = Annotated[str, Field(pattern=r"^([a-z][a-z0-9_]*\*?|_)$")]
Reference = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*\.([a-z][a-z0-9_]*|\*)$")]
RuleId = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
EngineName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]


def _one_or_many(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    if len(text) < 10:
        raise ValueError("say why in a sentence")
    return text


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _version_range(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier as error:
        raise ValueError(f"'{text}' is no version range; write e.g. '>=1.18,<2'") from error
    return text


_STRING_OR_STRINGS = WithJsonSchema(
    {
        "anyOf": [
            {"type": "string"},
            {"type": "array", "items": {"type": "string"}, "minItems": 1},
        ]
    }
)
Names = Annotated[list[str], BeforeValidator(_one_or_many), Field(min_length=1), _STRING_OR_STRINGS]
OutputNames = Annotated[
    list[OutputName], BeforeValidator(_one_or_many), Field(min_length=1), _STRING_OR_STRINGS
]


def plain(written: str) -> str:
    """A tensor's name without the mark behind it: ``b?`` is ``b``, ``xs*`` is ``xs``."""
    return written.rstrip("?*")


Why = Annotated[str, AfterValidator(_sentence)]
Source = Annotated[str, AfterValidator(_one_line), Field(min_length=3)]
Versions = Annotated[str, AfterValidator(_version_range)]


@dataclass(frozen=True)
class PackRequirement:
    """A pack by its name and the versions that will do."""

    name: str
    versions: SpecifierSet

    def __str__(self) -> str:
        return f"{self.name}@{self.versions}" if str(self.versions) else self.name


def parse_requirement(text: str) -> PackRequirement:
    """Read ``NAME``, ``NAME@1.2.0`` (that version) or ``NAME@>=1.2,<2``.

    Raises ValueError for anything else.
    """
    name, at, versions = text.partition("@")
    if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
        raise ValueError(f"'{text}' names no pack; write e.g. 'team-pack@>=0.2'")
    if at and re.fullmatch(r"[0-9.]+", versions):
        versions = f"=={versions}"
    if at and not versions.strip():
        raise ValueError(f"'{text}' has no version behind '@'; write e.g. '{name}@>=0.2'")
    return PackRequirement(name, SpecifierSet(_version_range(versions)))


def _requirement(text: str) -> str:
    return str(parse_requirement(text))


def _without_control_characters(data: object) -> object:
    """Texts of a pack are printed; an escape sequence in one could rewrite the terminal."""
    for text in _strings(data):
        if any(unicodedata.category(c) == "Cc" and c not in "\n\t" for c in text):
            raise ValueError(f"control characters are not allowed; remove them from {text[:40]!r}")
    return data


def _strings(data: object) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from _strings(key)
            yield from _strings(value)
    elif isinstance(data, list):
        for value in data:
            yield from _strings(value)


class Strict(BaseModel):
    """Base of all models: unknown fields are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NodePattern(Strict):
    """One node of a pattern.

    ``op``: the operator, or a list of alternatives.
    ``inputs``: a tensor name per input. ``b?`` is an input that may be absent, ``xs*`` takes all
    that remain, ``_`` (also ``_?`` and ``_*``) matches anything and binds nothing. Writing one
    name at two nodes says that both read, or one reads what the other wrote.
    ``output``: name of the first output, or a list of names, one per output: ``_`` binds nothing,
    ``ys*`` takes all that remain (Split).
    ``optional``: where the node is absent its output is its first input.
    ``commutative``: the first two inputs match in either order.
    """

    op: Names
    inputs: list[InputName] = Field(min_length=1)
    output: OutputNames
    optional: bool = False
    commutative: bool = False


class AttributeIs(Strict):
    """The attribute ``name`` of ``node``, or ``default`` where absent, equals ``equals``, or is a
    number (each number of a list) within the limits given.
    """

    node: str
    name: str
    equals: int | float | str | list[int] | None = None
    at_least: float | None = None
    at_most: float | None = None
    default: int | float | str | list[int] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> AttributeIs:
        if {"equals", "at_least", "at_most"}.isdisjoint(self.model_fields_set):
            raise ValueError("give equals, at_least or at_most")
        return self


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


class ConsumersAre(Strict):
    """The number of edges on which the tensor is read, graph outputs included, is within limits."""

    tensor: TensorName
    at_least: int = 0
    at_most: int | None = None


class ValuesAre(Strict):
    """The tensor is a constant of at most 64 elements, and each is within the given limits."""

    tensor: TensorName
    at_least: float | None = None
    at_most: float | None = None


class Predicate(Strict):
    """One condition; exactly one field is set. All conditions of a rule must hold.

    ``is_initializer`` / ``is_activation``: the tensor is a constant / is computed at run time.
    ``scalar``: the tensor has one element.
    ``attribute``, ``rank``, ``dim``, ``consumers``, ``values``: see their models.
    ``is_graph_input`` / ``is_graph_output``: the tensor enters / leaves the graph.
    ``same_shape``: the tensors' shapes are known and equal (variadic names count all theirs).
    ``depthwise``: the Conv's group count equals its input channels and is above 1.
    ``sole_consumer``: the tensor is read once and is no graph output.
    ``any_of``: nested conditions of which at least one holds.
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
    consumers: ConsumersAre | None = None
    values: ValuesAre | None = None
    is_graph_input: TensorName | None = None
    is_graph_output: TensorName | None = None
    any_of: list[Predicate] | None = Field(default=None, min_length=1)
    never: Predicate | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Predicate:
        if len(self.model_fields_set) != 1:
            raise ValueError("a condition has exactly one predicate")
        return self


class Condition(Strict):
    """On which engines something holds; what is not given is not asked.

    ``engine_versions``: version range, e.g. ``>=8.5,<11``.
    ``compute_capability``: range of the GPU's compute capability, e.g. ``>=7.2``.
    ``typing``: ``strong`` (types as the graph says) or ``weak`` (the engine chooses among FP32 and
    FP16).
    """

    engine_versions: Versions | None = None
    compute_capability: Versions | None = None
    typing: Literal["strong", "weak"] | None = None


class Fusion(Strict):
    """A layer that the engine builds when the layout's edges into it are quantized.

    ``nodes``: the pattern nodes that become one layer (absent optional ones left out).
    ``op``: the layer's operator in the engine's words, or a list where it depends on the node.
    ``inputs``: type of the quantized edges that it reads; all others are read in float.
    ``reads``: those edges, by default the ones into its nodes that the layout quantizes.
    ``outputs``: type of the first output: an integer type says that the layer exists only if every
    reader of its output is quantized with one scale; ``float`` that it never writes integers;
    ``readers`` that it writes integers if every reader is quantized with one scale, else float;
    ``same`` that it writes what it reads, in the same scale.
    ``absorbs``: quantized edges inside the layer; an edge inside a layer is float otherwise.
    ``float_type``: the float type written where it is not the model's (``float`` is FP32).
    ``float_like``: the edge whose float type the layer writes.
    ``when``: engines on which it is so.
    """

    nodes: list[str] = Field(min_length=1)
    op: Names
    inputs: str
    outputs: str
    reads: list[Reference] | None = None
    absorbs: list[Reference] = []
    float_type: Literal["float", "float16"] | None = None
    float_like: Reference | None = None
    when: Condition = Condition()


class Motion(Strict):
    """Q moves backward and DQ forward past the node when all edges involved have one scale.

    ``before`` and ``after`` name the tensors on either side; all their edges must agree.
    """

    before: TensorName
    after: TensorName


class Layout(Strict):
    """One choice at a site.

    ``quantize``: edges that carry a pair: ``conv.x`` is the edge on which node ``conv`` reads
    ``x``; ``y.*`` is every edge on which ``y`` is read, graph outputs included.
    ``share_scale``: sets of tensors whose pairs share one scale.
    ``keep_float``: edges that stay float whatever other sites choose.
    ``requires``: edges that other sites must have quantized, else the layout does nothing.
    ``all_or_none``: sets of edges; if one of a set ends up float, this layout quantizes none of it.
    ``default``: the choice of the pack's default placement.
    ``fuses``: the layers that the engine is known to build from it.
    ``when``: engines on which the layout is offered.
    """

    quantize: list[Reference] = []
    share_scale: list[list[TensorName]] = []
    keep_float: list[Reference] = []
    requires: list[Reference] = []
    all_or_none: list[list[Reference]] = []
    default: bool = False
    fuses: list[Fusion] = []
    when: Condition = Condition()


class RuleTest(Strict):
    """An ONNX text graph and what the rule makes of it.

    ``model``: ONNX text; a float initializer with a single value is filled with it.
    ``matches``: per expected match, in node order, the graph node bound to each pattern node
    (absent optional nodes left out). ``quantized``: per layout, the edges it quantizes on the
    first match, written ``tensor->node[index]`` (``tensor->output`` for a graph output).
    ``layers``: per layout, the plan predicted where every match has it, a layer per line:
    ``conv1+relu1: int8, float -> int8`` or ``quantize x: float -> int8``. ``pairs``: edges that
    carry a pair there besides, with one scale for each tensor.
    """

    model: str
    matches: list[dict[str, str]]
    quantized: dict[str, list[str]] = {}
    layers: dict[str, list[str]] = {}
    pairs: list[str] = []


class Rule(Strict):
    """A rule document: a pattern, the layouts it allows there, why, and its own tests.

    ``source`` names where the claim of ``why`` comes from. Where matches overlap, the higher
    ``priority`` wins, then the larger match, then the one whose first node comes last.
    ``motion``: the pattern's nodes let Q and DQ pass. ``when``: engines on which the rule holds.
    """

    id: RuleId
    why: Why
    source: Source
    priority: int = 0
    pattern: dict[TensorName, NodePattern] = Field(min_length=1)
    where: list[Predicate] = []
    layouts: dict[RuleId, Layout] = Field(min_length=1)
    motion: Motion | None = None
    when: Condition = Condition()
    tests: list[RuleTest] = []

    @model_validator(mode="before")
    @classmethod
    def _is_printable(cls, data: object) -> object:
        return _without_control_characters(data)

    @model_validator(mode="after")
    def _consistent(self) -> Rule:
        if any(node.optional for node in list(self.pattern.values())[:1]):
            raise ValueError("the first node of a pattern cannot be optional")
        if sum(layout.default for layout in self.layouts.values()) != 1:
            raise ValueError("exactly one layout has 'default: true'")
        if self.layouts[self.default_layout].when != Condition():
            raise ValueError("the default layout must be offered on all engines; remove its 'when'")
        names = self.tensor_names
        for layout_name, layout in self.layouts.items():
            self._check_layout(layout_name, layout, names)
        for predicate in self.where:
            self._check_predicate(predicate, names)
        for tensor in (self.motion.before, self.motion.after) if self.motion else ():
            if tensor not in names:
                raise ValueError(f"motion: unknown tensor '{tensor}'")
        return self

    @property
    def tensor_names(self) -> frozenset[str]:
        """Tensor names that the pattern binds."""
        nodes = self.pattern.values()
        names = {plain(n) for node in nodes for n in (*node.inputs, *node.output)}
        return frozenset(names - {"_"})

    @property
    def default_layout(self) -> str:
        """Name of the layout marked as default."""
        return next(name for name, layout in self.layouts.items() if layout.default)

    def _check_layout(self, name: str, layout: Layout, tensors: frozenset[str]) -> None:
        grouped = [r for group in layout.all_or_none for r in group]
        for reference in (*layout.quantize, *layout.keep_float, *layout.requires, *grouped):
            self._check_reference(f"layout '{name}'", reference, tensors)
        for reference in grouped:
            if reference not in layout.quantize:
                raise ValueError(
                    f"layout '{name}': all_or_none names '{reference}', which it does not quantize"
                )
        for tensor in (t for shared in layout.share_scale for t in shared):
            if tensor not in tensors:
                raise ValueError(f"layout '{name}': share_scale names unknown tensor '{tensor}'")
        for fusion in layout.fuses:
            self._check_fusion(name, fusion, tensors)

    def _check_fusion(self, name: str, fusion: Fusion, tensors: frozenset[str]) -> None:
        for node in fusion.nodes:
            if node not in self.pattern:
                raise ValueError(f"layout '{name}': fuses names unknown node '{node}'")
        like = [fusion.float_like] if fusion.float_like else []
        for reference in (*fusion.absorbs, *(fusion.reads or ()), *like):
            self._check_reference(f"layout '{name}': fuses", reference, tensors)

    def _check_reference(self, where: str, reference: str, tensors: frozenset[str]) -> None:
        owner, _, tensor = reference.partition(".")
        if tensor == "*":
            if owner not in tensors:
                raise ValueError(f"{where}: '{reference}' names unknown tensor '{owner}'")
            return
        if owner not in self.pattern:
            raise ValueError(f"{where}: '{reference}' names unknown node '{owner}'")
        inputs = [plain(i) for i in self.pattern[owner].inputs]
        if tensor not in inputs:
            raise ValueError(f"{where}: node '{owner}' has no input '{tensor}'")

    def _check_predicate(self, predicate: Predicate, tensors: frozenset[str]) -> None:
        for nested in (*(predicate.any_of or ()), *filter(None, [predicate.never])):
            self._check_predicate(nested, tensors)
        used = [predicate.is_initializer, predicate.is_activation, predicate.scalar]
        used += [predicate.is_graph_input, predicate.is_graph_output]
        used += [predicate.sole_consumer, *(predicate.same_shape or [])]
        models = (predicate.rank, predicate.dim, predicate.consumers, predicate.values)
        used += [sub.tensor for sub in models if sub is not None]
        for tensor in used:
            if tensor is not None and tensor not in tensors:
                raise ValueError(f"where: unknown tensor '{tensor}'")
        nodes = [predicate.depthwise, predicate.attribute and predicate.attribute.node]
        for node in nodes:
            if node is not None and node not in self.pattern:
                raise ValueError(f"where: unknown node '{node}'")


class AlternativeScheme(Strict):
    """Another number format that the pack's layouts work in, and the engines that have it."""

    scheme: Scheme
    when: Condition = Condition()


class ManifestFile(Strict):
    """``pack.yaml``: what a rule pack is and for which engine.

    ``version``: semantic version, MAJOR.MINOR.PATCH. ``engine_versions``: the engine's versions
    that the rules are for; ``placer_versions``: those of placer that can read them.
    ``extends``: another pack whose rules are taken over, e.g. ``tensorrt@>=0.2``, built in or
    installed. A rule with the id of one of these replaces it; ``disable`` lists ids that are left
    out. ``scheme``: the formats of quantized tensors; left out, that of the extended pack.
    ``alternatives``: other schemes, by the name that ``--scheme`` takes, beside those of the
    extended pack where its scheme is taken.
    """

    name: Annotated[RuleId, Field(max_length=64)]
    version: Annotated[
        str,
        Field(pattern=r"^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$", max_length=32),
    ]
    engine: EngineName
    engine_versions: Versions
    placer_versions: Versions | None = None
    extends: Annotated[str, AfterValidator(_requirement)] | None = None
    disable: list[RuleId] = []
    scheme: Scheme | None = None
    alternatives: dict[RuleId, AlternativeScheme] = {}
    licence: str
    maintainers: list[str] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _is_printable(cls, data: object) -> object:
        return _without_control_characters(data)

    @model_validator(mode="after")
    def _says_enough(self) -> ManifestFile:
        if self.extends is None and self.scheme is None:
            raise ValueError("give the 'scheme', or a pack that this one 'extends'")
        if self.extends is None and self.disable:
            raise ValueError("'disable' is for rules of a pack that this one 'extends'")
        return self


class Manifest(ManifestFile):
    """A manifest whose scheme is settled."""

    scheme: Scheme
