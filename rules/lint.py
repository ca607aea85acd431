"""Find rules that are valid but cannot be meant: untested, unreachable, indistinct, contradictory.

What a rule does depends on models, so the rules' own tests serve as examples: a rule that another
one beats on every node of its own tests is shadowed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx.defs
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from placer.common.names import near
from placer.errors import InputError
from placer.graph import Graph
from placer.graph.operators import STANDARD_DOMAINS
from placer.graph.text import graph_of_text
from placer.rules.field_types import plain
from placer.rules.match import Match
from placer.rules.matcher import find_matches, match_rules
from placer.rules.pack import Pack
from placer.rules.schema import Layout, Rule
from placer.rules.sites import Site, find_sites
from placer.rules.sizes_of_tests import check_tests

# Whose layers the pack's `layers` tests predict; the other packs' claims are held against the
# engine itself.
_PREDICTED_ENGINES = ("tensorrt",)


def lint(pack: Pack) -> Iterator[str]:
    """Yield one sentence per finding in the rules that ``pack`` does not take over from another.

    Raises InputError if the tests of one hold more values than the limits allow.
    """
    for rule in pack.own_rules:
        alone = (*_unknown_operators(rule), *_unconnected(rule), *_lint_rule(rule))
        for finding in (*alone, *_lint_layers(rule, pack), *_lint_examples(rule, pack)):
            yield f"{rule.id}: {finding}"


def _unknown_operators(rule: Rule) -> Iterator[str]:
    """Operators of the pattern that no version of ONNX has, so that nothing ever matches."""
    schemas = onnx.defs.get_all_schemas_with_history()
    known = {schema.name for schema in schemas if not schema.domain}
    for name, node in rule.pattern.items():
        for op in (node.op,) if isinstance(node.op, str) else node.op:
            domain, separator, _ = op.rpartition("::")
            if separator and domain in STANDARD_DOMAINS:
                yield f"node '{name}': '{op}' never matches; ONNX's own operators have no domain"
            elif not separator and op not in known:
                yield f"node '{name}': ONNX has no operator '{op}'{near(op, known)}"


def _unconnected(rule: Rule) -> Iterator[str]:
    """Nodes for which all nodes of a model are tried: matching takes the square of their number."""
    reached: set[str] = set()
    for name, node in rule.pattern.items():
        tensors = {plain(tensor) for tensor in (*node.inputs, *node.output)} - {"_"}
        if reached and reached.isdisjoint(tensors):
            yield (
                f"node '{name}' has no tensor of a node above it, so that it is looked for in the "
                "whole model; list the nodes along their tensors"
            )
        reached |= tensors


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
        if layout.formats is not None and (layout.requires or not layout.quantize):
            yield f"layout '{name}' has formats of its own for nothing: " + (
                "it takes those of what it requires" if layout.requires else "it quantizes nothing"
            )
        yield from _ties(name, layout)
        yield from _never_offered(name, rule, layout)
    yield from _equal_layouts(rule)


def _ties(name: str, layout: Layout) -> Iterator[str]:
    """A tensor in two sets of ``share_scale`` says two scales and gets one."""
    count = Counter(tensor for tensors in layout.share_scale for tensor in set(tensors))
    for tensor in sorted(tensor for tensor, times in count.items() if times > 1):
        yield f"layout '{name}' gives '{tensor}' two scales; write one share_scale set for both"


def _never_offered(name: str, rule: Rule, layout: Layout) -> Iterator[str]:
    for what in ("engine_versions", "compute_capability"):
        ranges = [getattr(condition, what) for condition in (rule.when, layout.when)]
        if all(ranges) and not _meet(ranges[0], ranges[1]):
            yield f"layout '{name}' is unreachable: its {what} exclude those of the rule"


def _meet(first: str, second: str) -> bool:
    """Whether a version lies in both ranges, tried at and beside every bound."""
    both = SpecifierSet(first) & SpecifierSet(second)
    bounds = [Version(str(s.version).removesuffix(".*")) for s in both]
    near = [
        Version(".".join(map(str, (*bound.release[:-1], max(bound.release[-1] + step, 0)))))
        for bound in bounds
        for step in (-1, 0, 1)
    ]
    return any(both.contains(version) for version in (*bounds, *near))


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
    past = sorted(layout.keep_float_past)
    return repr((*parts, past, layout.beside_others, layout.when))


def _lint_layers(rule: Rule, pack: Pack) -> Iterator[str]:
    if pack.manifest.engine not in _PREDICTED_ENGINES:
        return
    predicted = {layout for test in rule.tests for layout in test.layers}
    for name, layout in rule.layouts.items():
        if layout.fuses and name not in predicted:
            yield f"layout '{name}' states layers that no test predicts; list them under 'layers'"


@dataclass(frozen=True, eq=False)
class _Example:
    """A test's graph with the matches and sites that ``rule`` has in it."""

    graph: Graph
    matches: Sequence[Match]
    sites: Sequence[Site]


def _lint_examples(rule: Rule, pack: Pack) -> Iterator[str]:
    check_tests(rule, pack)
    examples = list(_examples(rule))
    if examples:
        yield from _shadowed(rule, examples, pack)
        yield from _twice(rule, examples)
        yield from _indistinct(rule, examples)


def _examples(rule: Rule) -> Iterator[_Example]:
    for test in rule.tests:
        try:
            graph = graph_of_text(test.model)
        except InputError:
            continue  # The test itself fails and says so.
        matches = tuple(find_matches(graph, rule))
        if matches:
            yield _Example(graph, matches, find_sites(graph, [rule], rule.target))


def _shadowed(rule: Rule, examples: Sequence[_Example], pack: Pack) -> Iterator[str]:
    if len(rule.layouts) == 1:
        return  # No decision to lose: its layers and motion count all the same.
    winners: set[str] = set()
    kinds = (None, rule.when.integers)
    deciding = [other for other in pack.rules if other.decides and other.when.integers in kinds]
    for example in examples:
        anchors = {match.anchor.name for match in example.matches}
        for match in match_rules(example.graph, deciding):
            if match.rule is rule:
                return
            if anchors & {node.name for node in match.nodes.values()}:
                winners.add(match.rule.id)
    yield f"is shadowed by {' and '.join(sorted(winners))} in all its tests; raise its priority"


def _twice(rule: Rule, examples: Sequence[_Example]) -> Iterator[str]:
    """Two references to one edge, such as ``conv.x`` and ``x.*``."""
    for name, layout in rule.layouts.items():
        for example in examples:
            edges = [(e, r) for r in layout.quantize for e in _edges(example, r)]
            count = Counter(edge for edge, _ in edges)
            again = next((edge for edge, times in count.items() if times > 1), None)
            if again is not None:
                names = sorted(r for edge, r in edges if edge == again)
                yield f"layout '{name}' quantizes an edge twice: {' and '.join(names)}"
                break


def _edges(example: _Example, reference: str) -> tuple[object, ...]:
    return example.matches[0].edges(reference, example.graph)


def _indistinct(rule: Rule, examples: Sequence[_Example]) -> Iterator[str]:
    """Layouts that come to the same on every test cannot be told apart."""
    names = list(rule.layouts)
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            if _decision(rule.layouts[first]) == _decision(rule.layouts[second]):
                continue  # Found already.
            sites = [site for example in examples for site in example.sites]
            if sites and not any({first, second} & set(site.layouts) for site in sites):
                yield f"no test has layout '{first}' or '{second}'; add one where each quantizes"
            elif all(_same(site, first, second) for site in sites):
                yield f"layouts '{first}' and '{second}' come to the same in every test"


def _same(site: Site, first: str, second: str) -> bool:
    return site.layouts.get(first) == site.layouts.get(second)
