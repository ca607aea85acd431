"""Properties of a model's nodes and tensors that no placement changes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class FixedProperties:
    """What decides about layers besides the graph, the rules' sites and a placement.

    ``nodes``: by name, of those that may be layers. ``of_tensor``: the same of a tensor.
    """

    nodes: Mapping[str, Hashable]
    of_tensor: Callable[[str], Hashable]
