"""What an engine does everywhere, whatever the patterns of a pack's rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from placer.common.processor import UNKNOWN_PROCESSOR
from placer.common.yaml_file import Strict
from placer.rules.gains import NO_CORRECTION, Gains
from placer.rules.target import Target

# What holds of an engine unless a pack says otherwise.
_OF_ENGINES = {"tensorrt": {"types": "written", "pairs": "symmetric"}}


class Behaviour(Strict):
    """What an engine does everywhere. A field that is left out is that of the extended pack."""

    kernels: Literal["rules", "generated"] = Field(
        default="rules",
        description="How the engine makes layers: by the layouts' `fuses` (`rules`), or what is "
        "connected between two convolutions or matrix products is one kernel (`generated`), as "
        "TensorRT-RTX builds it; `fuses` are then not looked at.",
    )
    shapes: Literal["given", "fixed"] = Field(
        default="given",
        description="Which shapes the engine takes as constants: those `given` for the run, or "
        "only those that the model has `fixed`.",
    )
    dequantizes: Literal["once", "each", "rounded"] = Field(
        default="once",
        description="Whether readers in float of one tensor of integers share a layer that "
        "dequantizes it (`once`) or have one for `each`. `rounded`: once, and where no kernel "
        "takes Q along, one layer rounds and writes float.",
    )
    constants: Literal["folded", "dequantized"] = Field(
        default="folded",
        description="What becomes of a constant with a pair that is read in float: `folded` when "
        "the model is built, or `dequantized` in every run.",
    )
    wide_types: Literal["kept", "narrowed"] = Field(
        default="kept",
        description="What becomes of integers of 64 bits, booleans and doubles: they are `kept`, "
        "or `narrowed` to int32, uint8 and float.",
    )
    no_ops: Literal["kept", "casts", "partly", "removed"] = Field(
        default="kept",
        description="What becomes of nodes that hand on what they read (sums with 0, products with "
        "1, Slices of all): layers as others are (`kept`) or none (`removed`). `casts`: none are "
        "Casts to the type that they read, nor Transposes that undo each other with nothing but "
        "pairs between them. `partly`: nor, unless they read a graph input, Expands, "
        "Slices without an end, and sums and products with a single number.",
    )
    run_time_scales: Literal["unknown", "predicted"] = Field(
        default="unknown",
        description="Whether the rules know the layers of a file that computes scales at run time "
        "(DynamicQuantizeLinear): it is `predicted` as it is, else its float model is shown.",
    )
    equal: Literal["kept", "states", "unquantized", "merged"] = Field(
        default="kept",
        description="What becomes of nodes that compute the same from the same: each is `kept`, or "
        "they are `merged` into one. `states`: only Slices of floats that shapes and constants "
        "alone decide, as the initial states of recurrent layers. `unquantized`: only nodes that "
        "no rule quantizes or that pairs move past, as one of others may have pairs that the other "
        "lacks.",
    )
    concats: Literal["kept", "joined"] = Field(
        default="kept",
        description="What becomes of a Concat that another one along the same axis alone reads: it "
        "is `kept` or `joined` with that one.",
    )
    reductions: Literal["apart", "joined"] = Field(
        default="apart",
        description="What becomes of a Reduce that drops the axes that the Unsqueeze or Reshape "
        "behind it, which alone reads it, puts back: both are layers `apart`, or `joined`.",
    )
    order: Literal["given", "depth-first"] = Field(
        default="given",
        description="In which order the engine runs nodes: that of the model (`given`), or one of "
        "its own, from the last output back, the first input of each node first (`depth-first`). "
        "Nodes that something else runs between are not one layer.",
    )
    repeats: Literal["merged", "requantized"] = Field(
        default="merged",
        description="What becomes of a pair behind a node that the same pair stands before: "
        "`merged` with it, or `requantized`, a layer of its own, as where an engine computes both "
        "but for zero points of 0.",
    )
    clamps: Literal["fused", "kept"] = Field(
        default="fused",
        description="What becomes of a Relu or Clip of a file in front of a Q that does not do the "
        "same, since its zero point is not the lowest integer: part of the kernel before it "
        "(`fused`) or a layer of its own (`kept`).",
    )
    chained: Literal["converted", "fused"] = Field(
        default="converted",
        description="What becomes of a pair of another scale behind one whose integers a Conv "
        "writes for no other reader: a layer that converts them (`converted`), or part of the "
        "Conv's layer (`fused`).",
    )
    equal_scales: Literal["apart", "one"] = Field(
        default="apart",
        description="Scales of pairs that are given apart, with the same range: they are told "
        "`apart`, or they are `one`, since the engine compares their numbers.",
    )
    signed: Literal["read", "converted"] = Field(
        default="read",
        description="What becomes of int8 activations of a file, where the scheme has uint8: "
        "kernels `read` them, or they are `converted` to uint8 where one DequantizeLinear alone "
        "reads them, and read by no integer kernel elsewhere.",
    )
    other_formats: Literal["read", "moved"] = Field(
        default="read",
        description="What becomes of activations in another 8-bit type than the scheme's, such as "
        "FP8: layouts that have the format `read` them, or they are `moved` by nodes that move "
        "elements and read by no other.",
    )
    bodies: Literal["float", "entered"] = Field(
        default="float",
        description="Whether rules look into the bodies of If, Loop and Scan: `entered` where the "
        "engine fuses pairs there as elsewhere; else what is there stays `float`.",
    )
    types: Literal["chosen", "written"] = Field(
        default="chosen",
        description="Who says in which type what is not quantized is computed: the engine has it "
        "`chosen`, whatever the file says, or it is `written` into the file, as TensorRT takes it: "
        "by default FP16 is. Of engine `tensorrt` it is `written` unless the pack says otherwise.",
    )
    pairs: Literal["any", "symmetric"] = Field(
        default="any",
        description="Which pairs of a file the engine takes: `any`, or `symmetric` ones with one "
        "scale for an activation; `placer explain` says which of the others it refuses, and which "
        "it computes in float. Of engine `tensorrt` they are `symmetric` unless the pack says "
        "otherwise.",
    )
    half: Literal["quantized", "kept"] = Field(
        default="quantized",
        description="What becomes of operators on FP16 or BF16 tensors between pairs: integer "
        "kernels as for float (`quantized`), or they are `kept`, since no integer kernel reads or "
        "writes half precision; placer says so before a search.",
    )
    half_kernels: tuple[str, ...] = Field(
        default=(),
        description="The operators with kernels for float16. Of others, and of these where they "
        "are alone among others, the engine casts what they read to float and back; empty: all "
        "have some.",
    )
    memory_layouts: Literal["ignored", "followed", "integers"] = Field(
        default="ignored",
        description="Whether it is `followed` where each tensor's channels are in memory, as ONNX "
        "Runtime has them on a CPU, since moving them takes time; else layers have them as they "
        "come. `integers`: followed where only integer kernels have a layout of their own.",
    )
    products: Literal["exact", "saturating"] = Field(
        default="exact",
        description="What becomes of sums of products of uint8 by int8 on processors that add them "
        "in pairs in 16 bits (x86 without VNNI): kernels keep them `exact`, or they are "
        "`saturating`, so that weights take a reduced range there; see the scheme's "
        "`weight_range`.",
    )
    lacks: tuple[str, ...] = Field(
        default=(),
        description="Operators of ONNX that the engine does not have: it refuses models with them, "
        "which is said where such a model is explained or optimized.",
    )
    grouped_convs: Literal["integer", "half"] = Field(
        default="integer",
        description="How fast a Conv of several groups that is not depthwise is estimated to be in "
        "INT8 on a GPU: as other `integer` ones are, or as in `half` precision.",
    )
    foreign: Literal["refused", "plugins"] = Field(
        default="refused",
        description="What becomes of operators that ONNX does not have, where a model is only "
        "explained: it is `refused`, or they are taken for `plugins` of the engine, whose layers "
        "and times are not known.",
    )
    gains: Gains | list[Gains] | None = Field(
        default=None,
        description="Times by which the default placement leaves float what integers would not pay "
        "for; of a list, the first entry that holds on the processor. Left out, or where none "
        "holds, the default is what the layouts say.",
    )

    @property
    def all_gains(self) -> Sequence[Gains]:
        """``gains`` for all processors."""
        if self.gains is None:
            return ()
        return self.gains if isinstance(self.gains, list) else [self.gains]

    def gains_on(self, target: Target) -> Gains | None:
        """``gains`` for the processor of ``target``; the first where that is not known."""
        gains = next((gains for gains in self.all_gains if target.meets(gains.when)), None)
        if gains is not None and self.half == "kept":
            gains = gains.with_half_kept()
        if gains is None or (gains.corrected == NO_CORRECTION and not gains.activated):
            return gains
        is_known = target.processor != UNKNOWN_PROCESSOR
        corrected = is_known and target.meets(gains.corrected.when)
        return gains.model_copy(
            update={
                "corrected": gains.corrected if corrected else NO_CORRECTION,
                "activated": [a for a in gains.activated if is_known and target.meets(a.when)],
            }
        )

    def of_engine(self, engine: str) -> Behaviour:
        """The behaviour of a pack for ``engine`` that extends none, with what that implies."""
        implied = _OF_ENGINES.get(engine, {})
        left_out = implied.keys() - self.model_fields_set
        return self.model_copy(update={name: implied[name] for name in left_out})


DEFAULT_BEHAVIOUR = Behaviour()
