"""What an explanation says of FP8 pairs that an engine refuses or has no kernels for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from placer.common.listed import in_quotes
from placer.common.names import engine_title
from placer.explaining.placed_model import PlacedModel
from placer.prediction.times.devices import Device
from placer.prediction.times.gpus import Gpu
from placer.quantization import FLOAT8
from placer.rules.matcher import Matches
from placer.rules.pack import Pack
from placer.rules.schema import Rule
from placer.rules.target import Target


def float8_sentences(
    placed: PlacedModel, pack: Pack, target: Target, device: Device | None
) -> Iterator[str]:
    """A GPU without FP8 tensor cores or with FP8 alone; nodes that a rule keeps float in FP8 alone.

    Where kernels are not generated, predicted layers and times take FP8 to have all that INT8 has.
    """
    formats = {} if placed.placement is None else placed.placement.formats
    readers = {edge.node for edge, chosen in formats.items() if chosen == FLOAT8}
    if not readers:
        return
    if isinstance(device, Gpu) and device.peak.float8 is None:
        capability = device.compute_capability
        yield (
            f"{device.name} (compute capability {capability}) has no FP8 tensor cores, so FP8 "
            "pairs make no engine faster there: use INT8"
        )
    elif (needs := _needed_for_both(placed, pack, target)) is not None:
        yield (
            f"INT8 and FP8 pairs are in one network, which {engine_title(pack.manifest.engine)} "
            f"builds for compute capability {needs} only, and this is "
            f"{target.compute_capability}: use one of them"
        )
    matches, target = Matches(placed.graph, target.processor), replace(target, integer=FLOAT8)
    is_known = pack.manifest.behaviour.kernels == "generated"
    assumed = "" if is_known else ", though layers and times here are predicted as if one did"
    for rule in pack.rules:
        if not (_keeps_float(rule) and target.meets(rule.when)):
            continue
        nodes = {node.name for match in matches.of(rule) for node in match.nodes.values()}
        if kept := sorted(nodes & readers):
            yield (
                f"FP8 pairs before {in_quotes(kept)} gain nothing (rule {rule.id}): "
                f"{rule.why.rstrip('.')}{assumed}; leave these nodes in float, or use INT8"
            )


def _needed_for_both(placed: PlacedModel, pack: Pack, target: Target) -> str | None:
    """The compute capability that INT8 and FP8 need together; None if ``target`` may have it.

    INT8 are activations' pairs that are not FP8: weights alone may be int4 beside FP8.
    """
    placement, constants = placed.placement, placed.graph.initializers
    if placement is None:
        return None
    if all(edge.tensor in constants for edge in placement.edges - placement.formats.keys()):
        return None
    for alternative in pack.manifest.alternatives.values():
        if FLOAT8 in alternative.scheme.formats and not target.meets(alternative.when):
            return alternative.when.compute_capability
    return None


def _keeps_float(rule: Rule) -> bool:
    """Whether ``rule`` is of FP8 alone and quantizes nothing."""
    layouts = rule.layouts.values()
    return rule.when.integers == FLOAT8 and not any(layout.quantize for layout in layouts)
