"""The rule language, version 1: what a rule file and a pack manifest may say.

A rule is pure data. ``placer rules schema`` prints the JSON Schema of these models,
``docs/rules.md`` explains them with examples, and ``python -m placer.rules.packaging.reference``
writes ``docs/rule-reference.md`` from the descriptions here.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Annotated, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from placer.common.yaml_file import Strict
from placer.quantization.scheme import Format
from placer.rules.predicate_schema import Predicate, TensorName, subjects_of

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


def _without_control_characters(data: object) -> object:
    """Texts of a pack are printed; an escape sequence in one could rewrite the terminal."""
    for text in _strings(data):
        if text.isprintable():
            continue
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


class NodePattern(Strict):
    """One node of a pattern."""

    op: Names = Field(description="The operator, or a list of alternatives.")
    inputs: list[InputName] = Field(
        min_length=1,
        description="A tensor name per input. `b?` is an input that may be absent, `xs*` takes all "
        "that remain, `_` (also `_?` and `_*`) matches anything and binds nothing. One name at two "
        "nodes says that both read the tensor, or that one reads what the other wrote.",
    )
    output: OutputNames = Field(
        description="Name of the first output, or a list of names, one per output: `_` binds "
        "nothing, `ys*` takes all that remain (Split)."
    )
    optional: bool = Field(
        default=False,
        description="The node may be absent; its output and its first input are then one tensor.",
    )
    commutative: bool = Field(
        default=False, description="The first two inputs match in either order."
    )
    repeat: bool = Field(
        default=False,
        description="However many such nodes in a row, what each writes being read once; the "
        "first input is the one that comes from the row, at any place if `commutative`.",
    )


class Condition(Strict):
    """On which engines something holds; what is not given is not asked.

    What is not known of the engine or its GPU is taken to fit.
    """

    engine_versions: Versions | None = Field(
        default=None, description="Version range of the engine, e.g. `>=8.5,<11`."
    )
    compute_capability: Versions | None = Field(
        default=None, description="Range of the GPU's compute capability, e.g. `>=7.2`."
    )
    typing: Literal["strong", "weak"] | None = Field(
        default=None,
        description="`strong`: types as the graph says; `weak`: the engine chooses among FP32 and "
        "FP16.",
    )
    signed_products: bool | None = Field(
        default=None,
        description="Whether the processor has products of two int8 operands (AMX-INT8 or "
        "AVX-VNNI-INT8).",
    )


class Followers(Strict):
    """What a layer takes along: nodes that follow one another, however many.

    Each is the only one that reads what is written before it, with no pair between them, and its
    other operands are constants; those of arithmetic are read there alone, and have one value or
    one for each channel.
    """

    op: list[str] = Field(min_length=1, description="The operators that may follow.")
    axis: int = Field(default=1, description="The axis of the channels; negative: from the end.")


class Fusion(Strict):
    """A layer that the engine builds when the layout's edges into it are quantized."""

    nodes: list[str] = Field(
        min_length=1,
        description="The pattern nodes that become one layer; absent optional ones are left out.",
    )
    op: Names = Field(
        description="The layer's operator in the engine's words; a list where it depends on the "
        "first node's."
    )
    inputs: str = Field(
        description="Type of the quantized edges that it reads, `float` if it reads none as "
        "integers; all others are read in float."
    )
    outputs: str = Field(
        description="Type of the first output. An integer type: the layer exists only if every "
        "reader of its output is quantized with one scale. `float`: it never writes integers. "
        "`readers`: integers if every reader is quantized with one scale, else float. `each`: what "
        "each reader needs, float and integers beside each other. `same`: what it reads, in the "
        "same scale."
    )
    reads: list[Reference] | Literal["any"] | None = Field(
        default=None,
        description="The quantized edges that it reads; by default those into its nodes that the "
        "layout quantizes. `any`: its kernel quantizes and dequantizes by itself, so that pairs "
        "may be on any of its edges and inside it, and it reads what there is.",
    )
    absorbs: list[Reference] = Field(
        default=[],
        description="Quantized edges inside the layer; any other pair inside a layer forbids it.",
    )
    in_place: list[Reference] = Field(
        default=[],
        description="Edges of tensors that it overwrites with its result, so it reads them in the "
        "type that it writes: quantized ones in float where it writes float.",
    )
    readers_agree: bool = Field(
        default=False,
        description="The layer exists only if all readers of its outputs need the same: float, or "
        "integers of one scale.",
    )
    readers_quantized: Literal["alike", "as-read"] | None = Field(
        default=None,
        description="The layer exists only if all that read its outputs carry a pair: `alike`, of "
        "one scale; `as-read`, of the scale that the layer reads.",
    )
    merges: bool = Field(
        default=False,
        description="Layers of the rule that read one another are one, however many, if whatever "
        "else reads their results runs after all of them. Only for a single node with `reads` "
        "`any`, or [], where a pair between two keeps them apart.",
    )
    passes: list[str] = Field(
        default=[],
        description="Pattern nodes that the engine computes before the layer although they read "
        "what one of its nodes writes, since that only moves elements.",
    )
    joins: bool = Field(
        default=False,
        description="Layers of the rule that read one tensor are one, if all of them can be built "
        "and read it alike: as floats, or in one scale.",
    )
    takes: Followers | None = Field(
        default=None,
        description="What follows the layer and becomes part of it where no other layer has it.",
    )
    past: list[str] = Field(
        default=[],
        description="Operators that only move elements, past which the engine computes what "
        "follows, if `takes` names it: what has one operand, or scalars besides, and is read once.",
    )
    copies: int = Field(
        default=1,
        ge=1,
        le=8,
        description="How many layers it is, each with an equal part of the work, as one for each "
        "direction of a recurrent node.",
    )
    bare: list[Reference] = Field(
        default=[],
        description="Edges into the layer that carry no pair, else it does not exist.",
    )
    float_type: Literal["float", "float16"] | None = Field(
        default=None,
        description="The float type written where it is not the model's; `float` is FP32.",
    )
    float_like: Reference | None = Field(
        default=None, description="The edge whose float type the layer writes."
    )
    first_when: list[Condition] = Field(
        default=[],
        description="Engines that, of overlapping layers alike in all else, build the one whose "
        "nodes come first in the model; all others build the one whose nodes come last.",
    )
    later_input: Reference | None = Field(
        default=None,
        description="The edge by which overlapping layers alike in all else are told apart before "
        "their order: the one is built whose edge is the later input of its node.",
    )
    later_input_when: list[Condition] = Field(
        default=[Condition()], description="Engines that go by `later_input`."
    )
    when: Condition = Field(default=Condition(), description="Engines on which it is so.")

    @model_validator(mode="after")
    def _check_merging(self) -> Fusion:
        if self.merges and (len(self.nodes) > 1 or self.reads not in ("any", [])):
            raise ValueError("`merges` is for a single node with `reads` any or []")
        if self.merges and self.takes is not None:
            raise ValueError("`merges` joins what follows, too; leave `takes` out")
        return self


class Motion(Strict):
    """Q moves backward and DQ forward past the node when all edges involved have one scale."""

    before: TensorName = Field(description="The tensor before the node; all its edges must agree.")
    after: TensorName = Field(description="The tensor behind the node; all its edges must agree.")
    only: Literal["backward", "forward"] | None = Field(
        default=None, description="Only Q moves (`backward`), or only DQ (`forward`)."
    )
    per_channel: bool = Field(
        default=False,
        description="DQ moves also where the scales before the node differ: the tensor behind it "
        "then has one for each channel.",
    )
    forward_first: bool = Field(
        default=False,
        description="DQ moves before any Q does, so that Q stops behind what has a pair in front.",
    )
    exclusive: bool = Field(
        default=False,
        description="Q moves only past a node that alone reads its input, or reads a graph input; "
        "DQ only to a tensor that leaves the graph or is read, not both.",
    )


class Layout(Strict):
    """One choice at a site."""

    quantize: list[Reference] = Field(
        default=[],
        description="Edges that carry a pair. `conv.x` is the edge on which node `conv` reads `x`; "
        "`y.*` is every edge on which `y` is read, graph outputs included.",
    )
    share_scale: list[list[TensorName]] = Field(
        default=[], description="Sets of tensors whose pairs share one scale."
    )
    keep_float: list[Reference] = Field(
        default=[], description="Edges that stay float whatever other sites choose."
    )
    requires: list[Reference] = Field(
        default=[],
        description="Edges that other sites must have quantized, else the layout does nothing.",
    )
    all_or_none: list[list[Reference]] = Field(
        default=[],
        description="Sets of edges that it quantizes; if one of a set ends up float, none of the "
        "set is quantized.",
    )
    default: bool = Field(default=False, description="The choice of the pack's default placement.")
    fuses: list[Fusion] = Field(
        default=[], description="The layers that the engine is known to build from it."
    )
    formats: list[Format] | None = Field(
        default=None,
        description="Of the `formats` that the scheme offers to single sites, those that the "
        "engine has for the layout; left out, all. [] where it is slower or not there.",
    )
    when: Condition = Field(
        default=Condition(), description="Engines on which the layout is offered."
    )

    def has_format(self, chosen: Format) -> bool:
        """Whether the engine has the layout in ``chosen``."""
        return self.formats is None or chosen in self.formats


class RuleTest(Strict):
    """An ONNX text graph and what the rule makes of it."""

    model: str = Field(
        description="ONNX text; a float initializer with a single value is filled with it."
    )
    matches: list[dict[str, str]] = Field(
        description="Per expected match, in node order, the graph node bound to each pattern node; "
        "absent optional nodes are left out."
    )
    quantized: dict[str, list[str]] = Field(
        default={},
        description="Per layout, the edges that it quantizes on the first match, written "
        "`tensor->node[index]`, or `tensor->output` for a graph output.",
    )
    layers: dict[str, list[str]] = Field(
        default={},
        description="Per layout, the plan predicted where every match has it, a layer per line: "
        "`conv1+relu1: int8, float -> int8` or `quantize x: float -> int8`.",
    )
    pairs: list[str] = Field(
        default=[],
        description="Edges that carry a pair in those plans besides, with one scale per tensor.",
    )


class Rule(Strict):
    """A rule document: a pattern, the layouts it allows there, why, and its own tests."""

    id: RuleId = Field(description="The rule's name; its file is called `ID.yaml`.")
    why: Why = Field(description="Why the layouts are what they are, in a sentence.")
    source: Source = Field(description="Where the claim of `why` comes from.")
    priority: int = Field(
        default=0,
        description="Where matches overlap, the higher one wins, then the larger match, then the "
        "one whose first node comes last.",
    )
    pattern: dict[TensorName, NodePattern] = Field(
        min_length=1,
        description="The nodes by name; the first cannot be optional, and an optional one's first "
        "input or output is a tensor that a node before it reads or writes.",
    )
    where: list[Predicate] = Field(
        default=[], description="Conditions on a match, all of which must hold."
    )
    layouts: dict[RuleId, Layout] = Field(
        min_length=1,
        description="The choices by name; exactly one is the default, which has no `when`.",
    )
    motion: Motion | None = Field(
        default=None, description="The pattern's nodes let Q and DQ pass."
    )
    signed: list[Reference] = Field(
        default=[],
        description="Edges that need signed integers where the scheme's activations are unsigned: "
        "what is quantized at them, or where pairs move on to them, is int8.",
    )
    unsigned: list[Reference] = Field(
        default=[],
        description="Edges that need unsigned integers where the scheme's activations may be "
        "signed: what is quantized at them, or where pairs move on to them, is uint8.",
    )
    when: Condition = Field(default=Condition(), description="Engines on which the rule holds.")
    tests: list[RuleTest] = Field(default=[], description="The rule's own tests.")

    @model_validator(mode="before")
    @classmethod
    def _is_printable(cls, data: object) -> object:
        return _without_control_characters(data)

    @model_validator(mode="after")
    def _consistent(self) -> Rule:
        self._check_optional_nodes()
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
        for field, references in (("signed", self.signed), ("unsigned", self.unsigned)):
            for reference in references:
                self._check_reference(field, reference, names)
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

    def _check_optional_nodes(self) -> None:
        """Of an absent node the output is its first input, one of which must be bound by then."""
        first = next(iter(self.pattern.values()))
        if first.optional or first.repeat:
            raise ValueError("the first node of a pattern cannot be optional, nor a row of nodes")
        bound: set[str] = set()
        for name, node in self.pattern.items():
            source, made = plain(node.inputs[0]), plain(node.output[0])
            if node.optional and bound.isdisjoint({source} if node.repeat else {source, made}):
                raise ValueError(
                    f"optional node '{name}' needs a first input that the nodes before it always "
                    f"bind, which '{source}' is not; reorder the nodes or remove 'optional'"
                )
            # Of an absent node only these are known.
            ends = (source, made)
            names = ends if node.optional or node.repeat else (*node.inputs, *node.output)
            bound.update(plain(n) for n in names if plain(n) != "_")

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
        for node in (*fusion.nodes, *fusion.passes):
            if node not in self.pattern:
                raise ValueError(f"layout '{name}': fuses names unknown node '{node}'")
        like = [r for r in (fusion.float_like, fusion.later_input) if r]
        reads = [] if fusion.reads == "any" else fusion.reads or []
        for reference in (*fusion.absorbs, *fusion.in_place, *fusion.bare, *reads, *like):
            self._check_reference(f"layout '{name}': fuses", reference, tensors)

    def _check_reference(self, where: str, reference: str, tensors: frozenset[str]) -> None:
        owner, _, tensor = reference.partition(".")
        if tensor == "*":
            if owner not in tensors:
                raise ValueError(f"{where}: '{reference}' names unknown tensor '{owner}'")
            return
        if owner not in self.pattern:
            raise ValueError(f"{where}: '{reference}' names unknown node '{owner}'")
        if self.pattern[owner].repeat:
            raise ValueError(f"{where}: '{reference}' names a row of nodes, whose edges have none")
        inputs = [plain(i) for i in self.pattern[owner].inputs]
        if tensor not in inputs:
            raise ValueError(f"{where}: node '{owner}' has no input '{tensor}'")

    def _check_predicate(self, predicate: Predicate, tensors: frozenset[str]) -> None:
        subjects = subjects_of(predicate)
        for tensor in sorted(subjects.tensors - tensors):
            raise ValueError(f"where: unknown tensor '{tensor}'")
        for node in sorted(subjects.nodes - self.pattern.keys()):
            raise ValueError(f"where: unknown node '{node}'")
