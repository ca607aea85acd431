"""What an explanation says of a quantized file whose sums of products would saturate."""

from __future__ import annotations

from collections.abc import Sequence

from placer.common.listed import in_quotes
from placer.explaining.integer_nodes import integer_nodes
from placer.plan import Plan
from placer.rules.pack import Pack
from placer.rules.target import Target


def saturating(
    wide: Sequence[str], in_operators: Sequence[str], plan: Plan, pack: Pack, target: Target
) -> str:
    """A sentence on the nodes ``wide`` (``wide_weights``); empty where their sums are exact.

    They are so, too, where the predicted ``plan`` computes a node in float. ``in_operators``: those
    that compute on integers whatever the plan says.
    """
    if not pack.saturates_on(target.processor):
        return ""
    on_integers = integer_nodes(plan)
    wide = [*(name for name in wide if name in on_integers), *in_operators]
    if not wide:
        return ""
    return (
        f"weights of {in_quotes(wide)} are too large for this kind of CPU, which has no VNNI: sums "
        "of products may saturate in 16 bits, which costs accuracy; placer optimize with "
        "--weight-range reduced computes scales of weights that leave room"
    )
