"""Where nodes are that stand in the branches of If nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Branch(NamedTuple):
    """One body of an If: ``attribute`` is ``then_branch`` or ``else_branch`` of node ``owner``."""

    owner: str
    attribute: str

    def __str__(self) -> str:
        """Return the branch in words."""
        return f"the {self.attribute.partition('_')[0]} branch of If '{self.owner}'"


# Where a node is: the branches around it, the outermost first; () for the graph itself.
Scope = tuple[Branch, ...]
# Scopes of the nodes in branches by their names; nodes of the graph itself are not there.
Scopes = Mapping[str, Scope]
