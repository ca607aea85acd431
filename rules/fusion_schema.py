"""What a layout may say of the layers that the engine builds from it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from placer.common.yaml_file import Strict
from placer.rules.condition import Condition
from placer.rules.field_types import Integers, Names, Reference, TensorName

NO_OP = "NoOp"  # The operator of layers that compute nothing.


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
    integers: Integers | None = Field(
        default=None,
        description="The type of the pairs that it reads for which it is so; by default any that "
        "the layout has.",
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
    pairs_before: list[str] = Field(
        default=[],
        description="Pattern nodes in front of which pairs may stand inside the layer.",
    )
    branches: list[str] = Field(
        default=[],
        description="Pattern nodes whose other operand may be computed inside the layer: by nodes "
        "of the same operators that are read once and have one computed operand, the rest scalars.",
    )
    scalar_operands: list[str] = Field(
        default=[],
        description="The layer exists only if these pattern nodes have one computed operand, which "
        "is the first of Sub and Pow, and constants of one element.",
    )
    one_scale: bool = Field(
        default=False,
        description="The layer exists only if all pairs that it reads and absorbs have one scale.",
    )
    symmetric: bool = Field(
        default=False,
        description="The layer exists only if the pairs that it reads and absorbs have zero point "
        "0.",
    )
    past_sum: Reference | None = Field(
        default=None,
        description="The edges to sums behind which the engine moves what follows the layer, so "
        "that it is a layer of its own; not if the sum's other operand comes from such a sum.",
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
        description="Layers of the rule that read one tensor are one, if all of them can be built, "
        "read it alike (as floats, or in one scale) and do the same behind. Convs join those of "
        "any rule that have the same window and one group. Convs and products join whichever can, "
        "if they write integers or all floats.",
    )
    joins_first: bool = Field(
        default=False,
        description="Where the first node could join another Conv, it does so alone, and the layer "
        "does not exist.",
    )
    takes: Followers | None = Field(
        default=None,
        description="What follows the layer and becomes part of it where no other layer has it; "
        "with `merges` only behind operators of `past`.",
    )
    past: list[str] = Field(
        default=[],
        description="Operators that only move elements, past which the engine computes what "
        "follows, if `takes` names it: what has one operand, or scalars besides, and is read once.",
    )
    past_biased: list[str] = Field(
        default=[],
        description="Further ones where the layer adds a bias, or ends in an activation that is no "
        "Relu or Clip: a scale alone, as that of DQ, is moved behind them instead.",
    )
    copies: Annotated[int, Field(ge=1, le=8)] | Literal["outputs"] = Field(
        default=1,
        description="How many layers it is, each with an equal part of the work, as one for each "
        "direction of a recurrent node; `outputs`: as many as its last node has outputs.",
    )
    once: list[str] = Field(
        default=[],
        description="Pattern nodes that are part of the first of its `copies` alone.",
    )
    bare: list[Reference] = Field(
        default=[],
        description="Edges into the layer that carry no pair, else it does not exist.",
    )
    present: list[TensorName] = Field(
        default=[],
        description="Optional tensors that the nodes of the match have, such as a bias, else the "
        "layer does not exist.",
    )
    pairs: Literal["none", "some"] | None = Field(
        default=None,
        description="The layer exists only in a model of which no activation carries a pair "
        "(`none`), or any does (`some`).",
    )
    unscaled: list[TensorName] = Field(
        default=[],
        description="Tensors of which, in a model with pairs, none is written by a constant factor "
        "that the engine moves past the Slices or the Split that read it, else the layer does not "
        "exist.",
    )
    undequantized: list[Reference] = Field(
        default=[],
        description="Edges on which no dequantization stands, of a pair or of an integer product, "
        "also in front of sums and constant factors past which OpenVINO moves it.",
    )
    blocked: Reference | None = Field(
        default=None,
        description="The edge of a tensor in ONNX Runtime's blocked layout: no pair is on it, "
        "nor on the way to it from the Convs and pools that write blocks.",
    )
    float_type: Literal["float", "float16"] | None = Field(
        default=None,
        description="The float type written where it is not the model's, also by MatMulInteger and "
        "ConvInteger, whose results are integers in the model; `float` is FP32.",
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
    earlier_input_when: list[Condition] = Field(
        default=[],
        description="Engines that go by it the other way: the one is built whose edge is the "
        "earlier input.",
    )
    earlier_input_if_normalized: bool = Field(
        default=False,
        description="Whether the engines of `later_input_when` and `first_when` go the other way "
        "where the file that they build has a BatchNormalization behind each input's node.",
    )
    fewer_products_when: list[Condition] = Field(
        default=[],
        description="Engines that go, before `later_input`, by the first node, a Conv: the layer "
        "whose Conv sums fewer products for each value is built; not where norms decide by "
        "`earlier_input_if_normalized`.",
    )
    when: Condition = Field(default=Condition(), description="Engines on which it is so.")

    @property
    def is_no_op(self) -> bool:
        """Whether the layer, or the one of some operator, computes nothing."""
        return NO_OP in self.op

    @model_validator(mode="after")
    def _check_merging(self) -> Fusion:
        if self.merges and (len(self.nodes) > 1 or self.reads not in ("any", [])):
            raise ValueError("`merges` is for a single node with `reads` any or []")
        if self.merges and self.takes is not None and not self.past:
            raise ValueError("`merges` joins what follows, too; `takes` is for what is `past`")
        return self
