"""What a predicate becomes for matching: a function that tells whether it holds of a match.

In the modules of checks, ``is_...`` asks something of one tensor; the other public functions make
the check of the predicate that ``predicate_schema`` describes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from placer.graph import Graph, Node

Nodes = Mapping[str, Node]  # By pattern node.
Tensors = Mapping[str, tuple[str, ...]]  # By tensor name of the pattern.
# Whether a condition holds of what is bound; what is said of an absent tensor or node does not.
Check = Callable[[Nodes, Tensors, Graph], bool]


def of_each(holds: Callable[[str, Graph], bool]) -> Callable[[str], Check]:
    """Makes the condition that ``holds`` is true of every tensor of a name, and there are some."""

    def of(name: str) -> Check:
        def check(_: Nodes, tensors: Tensors, graph: Graph) -> bool:
            bound = tensors.get(name, ())
            if len(bound) == 1:
                return holds(bound[0], graph)
            return bool(bound) and all(holds(tensor, graph) for tensor in bound)

        return check

    return of


def within(value: float, at_least: float | None, at_most: float | None) -> bool:
    """Whether ``value`` is between the limits, which belong to it; None: no limit."""
    return (at_least is None or value >= at_least) and (at_most is None or value <= at_most)
