"""Find rules that are valid but cannot be meant: untested, indistinct or contradictory."""

from __future__ import annotations

from collections.abc import Iterator

from placer.rules.loader import Pack
from placer.rules.schema import Layout, Rule


def lint(pack: Pack) -> Iterator[str]:
    """Yield one sentence per finding in ``pack``."""
    for rule in pack.rules:
        yield from (f"{rule.id}: {finding}" for finding in _lint_rule(rule))


def _lint_rule(rule: Rule) -> Iterator[str]:
    if not rule.tests:
        yield "has no tests; add an ONNX text graph and its expected matches"
    if rule.tests and not any(test.matches for test in rule.tests):
        yield "has no test with a match"
    tested = {layout for test in rule.tests for layout in test.quantized}
    for name, layout in rule.layouts.items():
        if layout.quantize and name not in tested:
            yield f"layout '{name}' is in no test; list its edges under 'quantized'"
        both = set(layout.quantize) & set(layout.keep_float)
        if both:
            yield f"layout '{name}' both quantizes and keeps float: {', '.join(sorted(both))}"
    yield from _equal_layouts(rule)


def _equal_layouts(rule: Rule) -> Iterator[str]:
    seen: dict[str, str] = {}
    for name, layout in rule.layouts.items():
        key = _decision(layout)
        if key in seen:
            yield f"layouts '{seen[key]}' and '{name}' say the same"
        seen.setdefault(key, name)


def _decision(layout: Layout) -> str:
    shared = sorted(sorted(tensors) for tensors in layout.share_scale)
    parts = (sorted(layout.quantize), shared, sorted(layout.keep_float), sorted(layout.requires))
    return repr(parts)
