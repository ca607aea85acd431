"""A loaded rule pack."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from placer.common.names import unknown
from placer.common.processor import Processor
from placer.errors import InputError
from placer.quantization import WeightRangeOption
from placer.quantization.scheme import in_weight_range
from placer.rules.condition import Condition
from placer.rules.pack_manifest import Manifest
from placer.rules.schema import Rule
from placer.rules.target import ANY_TARGET, Target


@dataclass(frozen=True)
class PackId:
    """One pack: ``content_hash`` is ``sha256:`` and 64 hex digits over its files."""

    name: str
    version: str
    content_hash: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


@dataclass(frozen=True)
class Pack:
    """A loaded rule pack: its manifest and its effective rules ordered by id.

    ``path``: its folder or archive. ``lineage``: the pack itself, the one it extends, and so on.
    ``origins``: for each rule's id the packs that have such a rule, the one that counts first.
    """

    path: Path
    manifest: Manifest
    rules: tuple[Rule, ...]
    lineage: tuple[PackId, ...]
    origins: Mapping[str, tuple[PackId, ...]]

    @property
    def name_and_version(self) -> str:
        """E.g. ``tensorrt 0.1.0``."""
        return f"{self.manifest.name} {self.manifest.version}"

    @property
    def enters_bodies(self) -> bool:
        """Whether rules look into the bodies of If, Loop and Scan."""
        return self.manifest.behaviour.bodies == "entered"

    @property
    def follows_memory_layouts(self) -> bool:
        """Whether the engine's plans tell what it moves between memory layouts."""
        return self.manifest.behaviour.memory_layouts != "ignored"

    @property
    def asks_for_processor(self) -> bool:
        """Whether plans or defaults differ by the processor.

        A rule, layout, fusion or time holds on some only, or float kernels have blocks of channels.
        """
        if self.manifest.behaviour.memory_layouts == "followed":
            return True
        layouts = [layout for rule in self.rules for layout in rule.layouts.values()]
        fusions = [fusion for layout in layouts for fusion in layout.fuses]
        conditions = [rule.when for rule in self.rules]
        conditions += [layout.when for layout in layouts] + [fusion.when for fusion in fusions]
        conditions += [gains.when for gains in self.manifest.behaviour.all_gains]
        return any(condition.asks_for_processor for condition in conditions)

    @property
    def content_hash(self) -> str:
        """``sha256:`` and 64 hex digits over the pack's own files."""
        return self.lineage[0].content_hash

    @property
    def own_rules(self) -> tuple[Rule, ...]:
        """The rules that the pack does not take over from one it extends."""
        return tuple(rule for rule in self.rules if self.origins[rule.id][0] == self.lineage[0])

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits of the SHA-256 over the manifest and all effective rules.

        Whatever range weights have, which changes no layer.
        """
        scheme = in_weight_range(self.manifest.scheme, "full")
        manifest = self.manifest.model_copy(update={"scheme": scheme})
        texts = [part.model_dump_json() for part in (manifest, *self.rules)]
        return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]

    def with_scheme(self, name: str, target: Target = ANY_TARGET) -> Pack:
        """The pack with the alternative scheme ``name``.

        Raises InputError for an unknown name and for a target that does not have the formats.
        """
        alternatives = self.manifest.alternatives
        if not alternatives:
            raise InputError(
                f"pack '{self.manifest.name}' has no scheme '{name}', only its own; leave out "
                "`scheme`"
            )
        if name not in alternatives:
            reason = unknown("scheme", name, sorted(alternatives))
            raise InputError(f"pack '{self.manifest.name}': {reason}")
        chosen = alternatives[name]
        if not target.meets(chosen.when):
            raise InputError(
                f"scheme '{name}' needs {_needs(chosen.when, target)}; choose another scheme, or "
                "a `gpu` and an engine that have it"
            )
        return replace(self, manifest=self.manifest.model_copy(update={"scheme": chosen.scheme}))

    @property
    def in_alternative(self) -> bool:
        """Whether it has one of its alternative schemes."""
        manifest = self.manifest
        return manifest.scheme in [one.scheme for one in manifest.alternatives.values()]

    def with_weight_range(self, asked: WeightRangeOption, target: Target) -> Pack:
        """The pack with weights in the range ``asked`` for.

        ``auto``: reduced where sums of products would saturate on the processor of ``target``, else
        the scheme's own. Raises InputError if weights in FP8 are to have a reduced range.
        """
        scheme = self.manifest.scheme
        chosen = asked
        if asked == "auto" and scheme.weight == "int8" and self.saturates_on(target.processor):
            chosen = "reduced"
        ranged = in_weight_range(scheme, chosen)
        if ranged is scheme:
            return self
        return replace(self, manifest=self.manifest.model_copy(update={"scheme": ranged}))

    def saturates_on(self, processor: Processor) -> bool:
        """Whether sums of products of uint8 by int8 do in the engine's kernels."""
        return processor.exact_products is False and (
            self.manifest.behaviour.products == "saturating"
        )

    def target(self, target: Target) -> Target:
        """``target`` with the integers of the pack's scheme, as sites are to be found for it."""
        return replace(target, integer=self.manifest.scheme.integer)

    def rule(self, rule_id: str) -> Rule:
        """Return the rule called ``rule_id``; InputError lists the known ones."""
        for rule in self.rules:
            if rule.id == rule_id:
                return rule
        reason = unknown("rule", rule_id, (rule.id for rule in self.rules))
        raise InputError(f"pack '{self.manifest.name}': {reason}")


def _needs(condition: Condition, target: Target) -> str:
    """What of ``condition`` a pack's scheme may ask for, and what ``target`` has of it."""
    asked = (
        ("compute capability", condition.compute_capability, target.compute_capability),
        ("engine version", condition.engine_versions, target.engine_version),
    )
    wanted = [(what, needed, has) for what, needed, has in asked if needed is not None]
    return " and ".join(
        f"{what} {needed}" + ("" if has is None else f" (the target has {has})")
        for what, needed, has in wanted
    )
