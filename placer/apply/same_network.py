"""Whether the edges of a placement that a model has are those of its network, or of another one."""

from __future__ import annotations

from pathlib import Path

from placer.apply.transfer import Transferred
from placer.errors import InputError
from placer.model import Model

# Of a placement's edges, at most 44% are found in other networks: 20 pairs of five published
# classifiers, 2026-11-26.
_LEAST_FOUND = 0.5
# A model of which more nodes are new, and none of the edges has its name, is another network. An
# exporter that writes LayerNormalization and Gelu as their parts makes half of the nodes new.
_MOST_NEW = 2 / 3


def notes_on_losses(
    transferred: Transferred, source: Path, model: Model, *, strict: bool, partial: bool
) -> list[str]:
    """What is said of edges that are not found.

    Raises InputError with ``strict`` if there is one, without ``partial`` if ``model`` is hardly
    the network of ``source``.
    """
    if not partial:
        _refuse_other_network(transferred, source, model)
    lost, edges = len(transferred.lost), len(transferred.lost) + len(transferred.found)
    if not edges:
        return [f"{source} quantizes nothing, so the result is the float model"]
    if not lost:
        return []
    summary = f"{lost} of {edges} edges of {source} are not found in {model.path}"
    if strict:
        first = transferred.lost[0]
        raise InputError(
            f"{summary}, the first: {first.edge} ({first.reason}); leave out `strict` to apply the "
            "others"
        )
    if edges - lost < _LEAST_FOUND * edges and not partial:
        raise InputError(
            f"{summary}, so it is hardly the same network; give the placement of this network, or "
            "`partial` to apply the others"
        )
    return [f"{summary}; what reads there stays float"]


def _refuse_other_network(transferred: Transferred, source: Path, model: Model) -> None:
    """Raise InputError if the edges of a small network are found in a part of a larger one."""
    found, new = transferred.found, len(transferred.new_nodes)
    nodes = len(model.graph.nodes)
    if found and new > _MOST_NEW * nodes and not any(edge.by_name for edge in found):
        raise InputError(
            f"{new} of {nodes} nodes of {model.path} have no counterpart in the network of "
            f"{source}, and none of its edges has its name there, so it is hardly the same "
            "network; give the placement of this network, or `partial` to apply what is found"
        )
