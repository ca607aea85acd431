"""What a difference between the predicted and the built plan of a candidate teaches.

The difference is cut down to a minimal graph. Drafts of rules are then tried on it: one stands
only if with it the predicted plan is the built one, or if the built plan shows that pairs were of
no use. A person reviews what comes of it; nothing is added to a pack that others use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from pydantic import ValidationError

from placer.errors import PlacerError
from placer.graph.text import graph_of_text
from placer.learning.builder import BuilderPlans
from placer.learning.case import Case, Judgement, judge
from placer.learning.draft import Guess, guesses
from placer.learning.region import Operators, differing_operators, parts_around
from placer.learning.shrink import shrink
from placer.learning.text import model_text, with_short_names
from placer.plan.diff import diff_plans
from placer.prediction.rule_tests import edge_text, layer_line, predicted_lines
from placer.rules.matcher import match_rules
from placer.rules.pack import Pack
from placer.rules.schema import Rule

# Each takes a build, which is up to some seconds.
MOST_BUILDS = 40
MOST_TRIALS = 40  # While one difference is made smaller.
MOST_DIFFERENCES = 5


@dataclass(frozen=True)
class Lesson:
    """What was learned of a candidate.

    ``whole``: how its plans compare. ``minimal``: the smallest part of it in which they differ,
    None where they agree or the builder refuses it. ``rule``: the draft as YAML has it, None where
    no rule of the language explains the difference; ``why_not`` then says so. ``kind``: of the
    draft, see ``Guess``.
    """

    whole: Judgement
    minimal: Judgement | None = None
    rule: dict[str, Any] | None = None
    why_not: str = ""
    kind: str = ""


def learn(case: Case, plans: BuilderPlans, evidence: str) -> Lesson:
    """Compare the plans of ``case`` and draft a rule that one of their differences asks for.

    The first difference that counts is one of pairs, which move or are of no use, then one of which
    nodes are a layer, then any. ``evidence``: engine, version
    and candidate, the draft's ``source``.
    """
    whole = judge(plans, case)
    if whole.diff is None or whole.diff.agrees:
        return Lesson(whole)
    best: Lesson | None = None
    tried: set[Operators] = set()
    for operators, part in islice(parts_around(whole), MOST_BUILDS):
        if operators in tried or operators not in differing_operators(judge(plans, part)):
            continue
        tried.add(operators)
        lesson = _lesson(whole, part, operators, plans, evidence)
        if lesson.kind in ("float", "motion"):
            return lesson
        if best is None or (lesson.kind and not best.kind):
            best = lesson
        if len(tried) == MOST_DIFFERENCES:
            break
    return best or Lesson(whole, whole, None, "no part of it alone differs; it is the minimal one")


def _lesson(
    whole: Judgement, part: Case, operators: Operators, plans: BuilderPlans, evidence: str
) -> Lesson:
    """What the difference at ``operators`` in ``part`` teaches."""

    def differs(smaller: Case) -> bool:
        return operators in differing_operators(judge(plans, smaller))

    small = shrink(part, differs, MOST_TRIALS)
    minimal = judge(plans, with_short_names(small))
    if not minimal.disagrees:
        why = "the difference vanishes once its nodes have short names; it is in how they are read"
        return Lesson(whole, judge(plans, small), None, why)
    try:
        text = model_text(minimal.case)
        graph_of_text(text)
    except (ValueError, PlacerError) as error:
        return Lesson(whole, minimal, None, f"the minimal graph is not an inline test: {error}")
    return _drafted(whole, minimal, plans, text, evidence)


def sentences_of(lesson: Lesson) -> Iterator[str]:
    """What there is to say of a lesson, line by line."""
    whole = lesson.whole
    if whole.diff is None:
        yield f"the builder refuses the candidate, so there is no plan: {whole.refusal}"
        return
    if whole.diff.agrees:
        count = len(whole.layers[1])
        yield f"all {count} layers are built as predicted; there is nothing to learn"
        return
    score = whole.diff.exact
    yield (
        f"{score.predicted} layers predicted, {score.actual} built, {score.matched} of them alike "
        f"({whole.plans[1].source})"
    )
    if lesson.minimal is not None:
        yield from ("the smallest part that differs:", "", lesson.minimal.case.text)
        for side, layers in zip(("predicted", "built"), lesson.minimal.layers, strict=True):
            yield from (f"{side}:", *(f"  {layer}" for layer in layers))
    if lesson.rule is None:
        yield f"no draft: {lesson.why_not}"


def _drafted(
    whole: Judgement, minimal: Judgement, plans: BuilderPlans, text: str, evidence: str
) -> Lesson:
    case, built = minimal.case, minimal.plans[1]
    generates = plans.pack.manifest.behaviour.kernels == "generated"
    for guess in guesses(case, built, plans.pack.manifest):
        document = _document(guess, minimal, text, evidence)
        try:
            rule = Rule.model_validate(document)
        except ValidationError:
            continue  # The names of the graph do not fit the language.
        if match_rules(case.model.graph, [rule]) and _explains(rule, guess, case, plans):
            drafted = _with_layers(document, rule, guess, case, plans)
            return Lesson(whole, minimal, drafted, kind=guess.kind)
    if generates:
        why = (
            f"what pack {plans.pack.manifest.name} says of layers is not in its rules: its engine "
            "generates kernels (placer/prediction/kernels/), and neither pairs that move nor "
            "pairs that are of no use explain the difference"
        )
    else:
        why = "no layer, motion or float node that the rule language can say explains it alone"
    return Lesson(whole, minimal, None, why)


def with_rule(pack: Pack, rule: Rule) -> Pack:
    """``pack`` with a rule of its own more."""
    origins = {**pack.origins, rule.id: pack.lineage[:1]}
    rules = sorted((*pack.rules, rule), key=lambda one: one.id)
    return replace(pack, rules=tuple(rules), origins=origins)


def _explains(rule: Rule, guess: Guess, case: Case, plans: BuilderPlans) -> bool:
    """Whether the difference is gone with ``rule``: pairs that it forbids, or layers it foretells.

    A node that is left float must then be built as predicted. Of a layer it is enough that more
    layers are predicted right and no more conversions wrong: those at the edges of a part are not
    those of the whole.
    """
    pack = with_rule(plans.pack, rule)
    wanted = _without(case, guess.floats) if guess.floats else case
    judged = judge(plans, wanted)
    if judged.diff is None:
        return False
    after = diff_plans(plans.predicted(wanted, pack), judged.plans[1])
    if after.agrees or guess.kind != "fusion":
        return after.agrees
    wrong = [d.false_conversions + d.missed_conversions for d in (judged.diff, after)]
    return after.exact.f1 > judged.diff.exact.f1 and wrong[1] <= wrong[0]


def _without(case: Case, nodes: Sequence[Any]) -> Case:
    names = {node.name for node in nodes}
    edges = {edge for edge in case.placement.edges if edge.node in names}
    return Case(case.model, case.placement.without(edges))


def _document(guess: Guess, minimal: Judgement, text: str, evidence: str) -> dict[str, Any]:
    case = minimal.case
    operators = "-".join(dict.fromkeys(node.op.lower() for node in guess.nodes))
    fields = guess.fields
    test: dict[str, Any] = {
        "model": text,
        "matches": [{node.name: node.name for node in guess.nodes}],
    }
    return {
        "id": f"draft-{operators}-{guess.kind}-{case.id[:4]}",
        "why": f"{guess.reason}. A draft from one difference: review pattern and conditions.",
        "source": evidence,
        **{key: value for key, value in fields.items() if key != "tests"},
        "tests": [test],
    }


def _with_layers(
    document: dict[str, Any], rule: Rule, guess: Guess, case: Case, plans: BuilderPlans
) -> dict[str, Any]:
    """``document`` whose test also has all matches, the edges that are quantized, and the layers.

    A test places pairs with one scale per tensor; layers are left out where that makes others.
    """
    pack = with_rule(plans.pack, rule)
    (test,) = document["tests"]
    graph = graph_of_text(test["model"])
    matches = match_rules(graph, [rule])
    test["matches"] = [{name: node.name for name, node in m.nodes.items()} for m in matches]
    layout = rule.layouts[guess.layout]
    of_layout = {e for e in case.placement.edges if f"{e.node}.{e.tensor}" in layout.quantize}
    if layout.quantize:
        test["quantized"] = {guess.layout: sorted(edge_text(e) for e in of_layout)}
    floats = {node.name for node in guess.floats}
    more = sorted(edge_text(e) for e in case.placement.edges - of_layout if e.node not in floats)
    lines = predicted_lines(graph, rule, guess.layout, pack, more)
    explained = plans.predicted(_without(case, guess.floats), pack)
    if lines == [layer_line(layer) for layer in explained.layers]:
        test |= {"pairs": more} if more else {}
        test["layers"] = {guess.layout: lines}
    return document
