"""placement.yaml: a placement and its ranges, portable between files of one model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, NonNegativeInt

from placer.errors import InputError
from placer.graph import Edge, Graph
from placer.placement import Placement
from placer.ranges import Ranges, union
from placer.rules.loader import parse_text
from placer.scheme import Scheme

FORMAT = "placer-placement/1"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _EdgeEntry(_Part):
    tensor: str
    node: str
    input: NonNegativeInt


class _GroupEntry(_Part):
    range: tuple[float, float] | None = None
    edges: tuple[_EdgeEntry, ...]


class _Document(_Part):
    format: Literal["placer-placement/1"]
    id: str
    model: str
    pack: str
    scheme: Scheme
    calibrated: bool
    groups: tuple[_GroupEntry, ...]


def load_placement(path: Path, graph: Graph) -> Placement:
    """Read a placement file and find its edges in ``graph``.

    An edge is found by node and input, so that a tensor may be called otherwise. Raises InputError,
    naming file, line and field, for anything that is no placement file of this model.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}; give a placement.yaml") from error
    document = parse_text(text, str(path), _Document)
    groups = [frozenset(_find(e, graph, path) for e in g.edges) for g in document.groups]
    return Placement(frozenset(group for group in groups if group))


def _find(entry: _EdgeEntry, graph: Graph, path: Path) -> Edge:
    reads = graph.outputs if not entry.node else ()
    if entry.node in graph.by_name:
        reads = graph.by_name[entry.node].inputs
    if entry.input >= len(reads):
        raise InputError(
            f"{path}: the model has no input {entry.input} of node '{entry.node}'; "
            "give the placement of this model"
        )
    return Edge(reads[entry.input], entry.node, entry.input)


def placement_text(
    placement: Placement,
    ranges: Ranges,
    scheme: Scheme,
    *,
    model: str,
    pack: str,
    calibrated: bool,
) -> str:
    """Return the YAML text of ``placement``.

    ``model`` is the model's fingerprint, ``pack`` the rule pack's name and version; ``calibrated``
    is false if the ranges come from random inputs. Each group
    lists its edges and the range that its scale represents; weights have no range, because
    their scales follow from their values.
    """
    document: dict[str, Any] = {
        "format": FORMAT,
        "id": placement.id,
        "model": model,
        "pack": pack,
        "scheme": scheme.model_dump(),
        "calibrated": calibrated,
        "groups": [_group(edges, ranges) for edges in placement.sorted()],
    }
    return yaml.safe_dump(document, sort_keys=False, width=100, allow_unicode=True)


def _group(edges: list[Edge], ranges: Ranges) -> dict[str, Any]:
    known = [ranges[tensor] for tensor in sorted({e.tensor for e in edges}) if tensor in ranges]
    group: dict[str, Any] = {}
    if known:
        low, high = union(known)
        group["range"] = [low, high]
    group["edges"] = [{"tensor": e.tensor, "node": e.node, "input": e.input_index} for e in edges]
    return group
