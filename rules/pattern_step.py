"""The nodes of a rule's pattern in a form that is quick to match."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from placer.common.processor import UNKNOWN_PROCESSOR, Processor
from placer.rules.check import Check
from placer.rules.field_types import plain
from placer.rules.predicate_schema import subjects_of
from placer.rules.predicates import check_of
from placer.rules.schema import NodePattern, Rule


@dataclass(frozen=True, slots=True)
class StepInput:
    """One entry of a pattern node's inputs; ``name``: None if it binds nothing."""

    name: str | None
    port: tuple[str, str]
    required: bool
    variadic: bool


@dataclass(frozen=True, slots=True)
class Step:
    """One node of a pattern, and the conditions that can be told once it is bound.

    ``outputs``: names, None for those that bind nothing, and whether each takes all that remain.
    ``most``: how many inputs it takes. ``near``: its tensors by which a node is looked for,
    ``first`` the first output's name.
    """

    name: str
    ops: Sequence[str]
    inputs: tuple[StepInput, ...]
    most: float
    outputs: tuple[tuple[str | None, bool], ...]
    near: tuple[str, ...]
    first: str
    optional: bool
    commutative: bool
    repeat: bool
    checks: tuple[Check, ...]


def steps_of(rule: Rule, processor: Processor = UNKNOWN_PROCESSOR) -> tuple[Step, ...]:
    """The nodes of the rule's pattern in their order, each with the conditions that it settles.

    ``processor``: what the conditions are to hold on.
    """
    checks = _checks_by_node(rule, processor)
    return tuple(_step_of(name, pattern, checks[name]) for name, pattern in rule.pattern.items())


def _step_of(name: str, pattern: NodePattern, checks: Iterable[Check]) -> Step:
    tensors = [plain(written) for written in pattern.inputs]
    return Step(
        name,
        pattern.op,
        tuple(
            StepInput(
                None if tensor == "_" else tensor,
                (name, tensor),
                not written.endswith(("?", "*")),
                written.endswith("*"),
            )
            for written, tensor in zip(pattern.inputs, tensors, strict=True)
        ),
        inf if any(name.endswith("*") for name in pattern.inputs) else len(pattern.inputs),
        tuple(
            (None if written == "_" else plain(written), written.endswith("*"))
            for written in pattern.output
        ),
        tuple(tensors),
        plain(pattern.output[0]),
        pattern.optional,
        pattern.commutative,
        pattern.repeat,
        tuple(checks),
    )


def _checks_by_node(rule: Rule, processor: Processor) -> Mapping[str, list[Check]]:
    """The conditions by the pattern node with which all that they are about is bound, or absent."""
    order = {name: position for position, name in enumerate(rule.pattern)}
    known = _bound_at(rule)
    checks: dict[str, list[Check]] = {name: [] for name in rule.pattern}
    for predicate in rule.where:
        subjects = subjects_of(predicate)
        positions = [order[name] for name in subjects.nodes]
        positions += [known[name] for name in subjects.tensors]
        checks[list(order)[max(positions)]].append(check_of(predicate, processor))
    return checks


def _bound_at(rule: Rule) -> Mapping[str, int]:
    """The position of the node with which a tensor name is bound: one that cannot be absent, or
    else the last that has the name.
    """
    sure: dict[str, int] = {}
    last: dict[str, int] = {}
    for position, pattern in enumerate(rule.pattern.values()):
        for tensor in map(plain, (*pattern.inputs, *pattern.output)):
            last[tensor] = position
            if not pattern.optional:
                sure.setdefault(tensor, position)
    return last | sure
