"""What ``pack.yaml`` says of a rule pack."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from packaging.specifiers import SpecifierSet
from pydantic import (
    AfterValidator,
    Field,
    model_validator,
)

from placer.common.yaml_file import Strict
from placer.quantization import Scheme
from placer.rules.behaviour import DEFAULT_BEHAVIOUR, Behaviour
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
    behaviour: Behaviour = Field(
        default=DEFAULT_BEHAVIOUR, description="What the engine does whatever the rules' patterns."
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
