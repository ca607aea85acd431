"""Where nodes are that stand in the bodies of If, Loop and Scan nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Body(NamedTuple):
    """One body of an If, Loop or Scan: the graph that ``attribute`` of node ``owner`` holds."""

    owner: str
    attribute: str

    @property
    def repeats(self) -> bool:
        """Whether it may run several times, as those of Loop and Scan do."""
        return self.attribute == "body"

    def __str__(self) -> str:
        """Return the body in words."""
        if self.repeats:
            return f"the body of '{self.owner}'"
        return f"the {self.attribute.partition('_')[0]} branch of If '{self.owner}'"


# Where a node is: the bodies around it, the outermost first; () for the graph itself.
Scope = tuple[Body, ...]
# Scopes of the nodes in bodies by their names; nodes of the graph itself are not there.
Scopes = Mapping[str, Scope]
