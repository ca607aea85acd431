"""The rule language, version 1: what a rule file may say.

A rule is pure data. ``placer rules schema`` prints the JSON Schema of these models,
``docs/rules.md`` explains them with examples, and ``python -m tests.generated``
writes ``docs/rule-reference.md`` from the descriptions here.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from placer.common.listed import in_quotes
from placer.common.yaml_file import Strict
from placer.quantization.scheme import Format
from placer.rules.condition import Condition
from placer.rules.connected import connected
from placer.rules.field_types import (
    InputName,
    Names,
    OutputNames,
    Reference,
    RuleId,
    Source,
    TensorName,
    Why,
    plain,
    without_control_characters,
)
from placer.rules.fusion_schema import Fusion
from placer.rules.predicate_schema import Predicate, subjects_of
from placer.rules.target import Target


class NodePattern(Strict):
    """One node of a pattern."""

    op: Names = Field(
        description="The operator, or a list of alternatives; of another domain than ONNX's own as "
        "`DOMAIN::OPERATOR`, e.g. `com.example::Swish`."
    )
    inputs: list[InputName] = Field(
        min_length=1,
        description="A tensor name per input. `b?` is an input that may be absent, `xs*` takes all "
        "that remain, `_` (also `_?` and `_*`) matches anything and binds nothing. One name at two "
        "nodes says that both read the tensor, or that one reads what the other wrote.",
    )
    output: OutputNames = Field(
        description="Name of the first output, or a list of names, one per output: `_` binds "
        "nothing, `ys*` takes all that remain, if any do (Split)."
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
        "DQ only to a tensor that leaves the graph or is read, not both, and that has no pair yet.",
    )
    apart: TensorName | None = Field(
        default=None,
        description="A node with which, where it is there, Q that moves before products, as "
        "Convs, is a layer of its own and no part of these, if there are several.",
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
    keep_float_past: list[str] = Field(
        default=[],
        description="Operators behind which edges stay float, too, if all that such a node reads "
        "is constant or stays float; behind a Concat if one operand does.",
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
    beside_others: bool = Field(
        default=False,
        description="It quantizes only edges of tensors that other nodes read, too, and is the "
        "default where the default of other sites quantizes most of these and that of the site "
        "none: a tensor that is integers for all its readers is written once.",
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
        "input or output is a tensor that a node before it reads or writes. "
        "Tensors connect each node with the others.",
    )
    read_behind: list[TensorName] = Field(
        default=[],
        description="Tensors between matched nodes that nodes which come behind all matched ones "
        "may read as well.",
    )
    where: list[Predicate] = Field(
        default=[], description="Conditions on a match, all of which must hold."
    )
    layouts: dict[RuleId, Layout] = Field(
        min_length=1,
        description="The choices by name; exactly one is the default, which has no `when`.",
    )
    decides: bool = Field(
        default=True,
        description="Whether its matches take nodes as sites. `false`: the rule only tells what is "
        "built there, whatever its priority, and other rules decide on the nodes.",
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
    symmetric: list[Reference] = Field(
        default=[],
        description="Edges on which signed integers are read only where their zero point is 0; "
        "others are read in float.",
    )
    shared: list[Reference] = Field(
        default=[],
        description="Edges on which integers are read only where another edge of the tensor, none "
        "of these, carries the same pair.",
    )
    when: Condition = Field(default=Condition(), description="Engines on which the rule holds.")
    tests: list[RuleTest] = Field(default=[], description="The rule's own tests.")

    @model_validator(mode="before")
    @classmethod
    def _is_printable(cls, data: object) -> object:
        return without_control_characters(data)

    @model_validator(mode="after")
    def _consistent(self) -> Rule:
        self._check_optional_nodes()
        self._check_is_connected()
        if sum(layout.default for layout in self.layouts.values()) != 1:
            raise ValueError("exactly one layout has 'default: true'")
        if self.layouts[self.default_layout].when != Condition():
            raise ValueError("the default layout must be offered on all engines; remove its 'when'")
        choices = ("quantize", "keep_float", "requires", "share_scale")
        given = {f for layout in self.layouts.values() for f in choices if getattr(layout, f)}
        if not self.decides and (len(self.layouts) > 1 or given):
            raise ValueError("a rule with 'decides: false' has one layout, with 'fuses' alone")
        names = self.tensor_names
        for layout_name, layout in self.layouts.items():
            self._check_layout(layout_name, layout, names)
        for predicate in self.where:
            self._check_predicate(predicate, names)
        if self.motion is not None:
            self._check_motion(self.motion, names)
        for tensor in self.read_behind:
            if tensor not in names:
                raise ValueError(f"read_behind: unknown tensor '{tensor}'")
        for field in ("signed", "unsigned", "symmetric", "shared"):
            for reference in getattr(self, field):
                self._check_reference(field, reference, names)
        return self

    def _check_motion(self, motion: Motion, tensors: frozenset[str]) -> None:
        for tensor in (motion.before, motion.after):
            if tensor not in tensors:
                raise ValueError(f"motion: unknown tensor '{tensor}'")
        if motion.apart not in (None, *self.pattern):
            raise ValueError(f"motion: apart: unknown node '{motion.apart}'")

    @property
    def tensor_names(self) -> frozenset[str]:
        """Tensor names that the pattern binds."""
        nodes = self.pattern.values()
        names = {plain(n) for node in nodes for n in (*node.inputs, *node.output)}
        return frozenset(names - {"_"})

    @property
    def target(self) -> Target:
        """An engine on which the rule holds, as far as its ``integers`` decide that."""
        return Target(integer=self.when.integers)

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

    def _check_is_connected(self) -> None:
        """Nodes apart from the others would match in every combination of a model's nodes."""
        patterns = self.pattern.values()
        tensors = [{plain(t) for t in (*n.inputs, *n.output)} - {"_"} for n in patterns]
        parts = connected(tensors)
        if len(parts) > 1:
            names = list(self.pattern)
            apart = [names[index] for index in parts[1]]
            others = [name for name in names if name not in apart]
            raise ValueError(
                f"rule '{self.id}': no tensor joins {in_quotes(apart)} with {in_quotes(others)}, "
                "so that every combination of a model's nodes would match; name the tensor that "
                "joins them, or write a rule for each"
            )

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
        for node in (
            *(*fusion.nodes, *fusion.passes, *fusion.pairs_before),
            *(*fusion.branches, *fusion.scalar_operands),
        ):
            if node not in self.pattern:
                raise ValueError(f"layout '{name}': fuses names unknown node '{node}'")
        like = [r for r in (fusion.float_like, fusion.later_input) if r]
        reads = [] if fusion.reads == "any" else fusion.reads or []
        others = (*fusion.absorbs, *fusion.in_place, *fusion.bare, *fusion.undequantized)
        for reference in (*others, *reads, *like):
            self._check_reference(f"layout '{name}': fuses", reference, tensors)
        for tensor in (*fusion.unscaled, *fusion.present):
            if tensor not in tensors:
                raise ValueError(f"layout '{name}': fuses names unknown tensor '{tensor}'")

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
