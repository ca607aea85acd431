"""What ``pack.yaml`` says of a rule pack."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from packaging.specifiers import SpecifierSet
from pydantic import (
    AfterValidator,
    Field,
    model_validator,
)

from placer.common.yaml_file import Strict
from placer.quantization import Scheme
from placer.rules.condition import Condition
from placer.rules.field_types import (
    EngineName,
    RuleId,
    Versions,
    version_range,
    without_control_characters,
)


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
    return PackRequirement(name, SpecifierSet(version_range(versions)))


def _requirement(text: str) -> str:
    return str(parse_requirement(text))


class AlternativeScheme(Strict):
    """Another number format that the pack's layouts work in, and the engines that have it."""

    scheme: Scheme = Field(description="The number formats.")
    when: Condition = Field(default=Condition(), description="Engines that have it.")


class ManifestFile(Strict):
    """``pack.yaml``: what a rule pack is and for which engine."""

    name: Annotated[RuleId, Field(max_length=64)] = Field(
        description="Lower-case letters, digits and `-`."
    )
    version: Annotated[
        str,
        Field(pattern=r"^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$", max_length=32),
    ] = Field(description="Semantic version, MAJOR.MINOR.PATCH.")
    engine: EngineName = Field(description="The engine that the rules are for.")
    engine_versions: Versions = Field(
        description="The engine's versions that the rules are for; another one is warned of."
    )
    placer_versions: Versions | None = Field(
        default=None, description="Versions of placer that can read the pack; others refuse it."
    )
    extends: Annotated[str, AfterValidator(_requirement)] | None = Field(
        default=None,
        description="Another pack, built in or installed, whose rules are taken over, e.g. "
        "`tensorrt@>=0.2`. A rule with the id of one of these replaces it.",
    )
    disable: list[RuleId] = Field(
        default=[], description="Rules of the extended pack that are left out."
    )
    scheme: Scheme | None = Field(
        default=None,
        description="Formats of quantized tensors; left out, those of the extended pack.",
    )
    alternatives: dict[RuleId, AlternativeScheme] = Field(
        default={},
        description="Other schemes by the name that `--scheme` takes, beside those of the extended "
        "pack where its scheme is taken.",
    )
    kernels: Literal["rules", "generated"] | None = Field(
        default=None,
        description="How the engine makes layers. `rules`: those of the layouts' `fuses`, which is "
        "what counts if nothing is said. `generated`: what is connected between two convolutions "
        "or matrix products is one kernel, as TensorRT-RTX builds it; `fuses` are not looked at. "
        "Left out, that of the extended pack.",
    )
    dequantizes: Literal["once", "each", "rounded"] | None = Field(
        default=None,
        description="Whether readers in float of one tensor of integers share a layer that "
        "dequantizes it (`once`, which is what counts if nothing is said) or have one for `each`. "
        "`rounded`: once, and where no kernel takes Q along, one layer rounds and writes float. "
        "Left out, that of the extended pack.",
    )
    constants: Literal["folded", "dequantized"] | None = Field(
        default=None,
        description="What becomes of a constant with a pair that is read in float: `folded` when "
        "the model is built, which is what counts if nothing is said, or `dequantized` in every "
        "run. Left out, that of the extended pack.",
    )
    idle: Literal["kept", "partly", "removed"] | None = Field(
        default=None,
        description="What becomes of nodes that hand on what they read (sums with 0, products with "
        "1, Slices of all): layers as others are (`kept`, which is what counts if nothing is said) "
        "or none (`removed`). `partly`: none are Casts and, unless they read a graph input, "
        "Expands, Slices without an end, and sums and products with a single number. Left out, "
        "that of the extended pack.",
    )
    equal: Literal["kept", "merged"] | None = Field(
        default=None,
        description="What becomes of nodes that compute the same from the same: each is `kept`, "
        "which is what counts if nothing is said, or they are `merged` into one. Left out, that of "
        "the extended pack.",
    )
    concats: Literal["kept", "joined"] | None = Field(
        default=None,
        description="What becomes of a Concat that another one along the same axis alone reads: it "
        "is `kept`, which is what counts if nothing is said, or `joined` with that one. Left out, "
        "that of the extended pack.",
    )
    repeats: Literal["merged", "requantized"] | None = Field(
        default=None,
        description="What becomes of a pair behind a node that the same pair stands before: "
        "`merged` with it, which is what counts if nothing is said, or `requantized`, a layer of "
        "its own, as where an engine computes both but for zero points of 0. Left out, that of the "
        "extended pack.",
    )
    signed: Literal["read", "converted"] | None = Field(
        default=None,
        description="What becomes of int8 activations of a file, where the scheme has uint8: "
        "kernels `read` them, which is what counts if nothing is said, or they are `converted` to "
        "uint8 where one DequantizeLinear alone reads them, and read by no integer kernel "
        "elsewhere. Left out, that of the extended pack.",
    )
    bodies: Literal["float", "entered"] | None = Field(
        default=None,
        description="Whether rules look into the bodies of If, Loop and Scan: `entered` where the "
        "engine fuses pairs there as elsewhere; else what is there stays `float`, which is what "
        "counts if nothing is said. Left out, that of the extended pack.",
    )
    exclude: list[str] = Field(
        default=[],
        description="Nodes that stay float in models that have them, named as for `--exclude`, "
        "beside those of the extended pack: for a pack of one family of models.",
    )
    licence: str = Field(description="Licence of the rules.")
    maintainers: list[str] = Field(min_length=1, description="Who to ask.")

    @model_validator(mode="before")
    @classmethod
    def _is_printable(cls, data: object) -> object:
        return without_control_characters(data)

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
