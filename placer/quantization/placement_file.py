"""placement.yaml: a placement and its ranges, portable between files of one model."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import FiniteFloat, NonNegativeInt, field_validator

from placer.common.files import read_text
from placer.common.yaml_file import Strict, parse_text
from placer.errors import InputError
from placer.graph import Edge, Graph
from placer.graph.structure import Structure, parse_structure, structure_of
from placer.quantization.placement import Placement, ScaleGroup
from placer.quantization.ranges import Range, Ranges, union
from placer.quantization.scheme import Format, Scheme

FORMAT = "placer-placement/1"
# What the user gave of a group's range: the range itself, or the method that it follows from.
Pin = Literal["range", "minmax", "percentile", "entropy", "mse"]


class _EdgeEntry(Strict):
    tensor: str
    node: str
    input: NonNegativeInt
    weights: Literal["per-tensor"] | None = None


class _GroupEntry(Strict):
    range: tuple[FiniteFloat, FiniteFloat] | None = None
    pinned: Pin | None = None
    format: Format | None = None
    edges: tuple[_EdgeEntry, ...]

    @field_validator("range")
    @classmethod
    def _in_order(cls, ends: tuple[float, float] | None) -> tuple[float, float] | None:
        if ends is not None and ends[0] > ends[1]:
            raise ValueError(f"begins at {ends[0]:g} and ends at {ends[1]:g}; swap them")
        return ends


class _Document(Strict):
    format: Literal["placer-placement/1"]
    id: str
    model: str
    weights: str | None = None
    pack: str
    scheme: Scheme
    calibrated: bool
    groups: tuple[_GroupEntry, ...]
    structure: str | None = None
    base: Literal["float", "bfloat16"] | None = None


@dataclass(frozen=True)
class Group:
    """Edges that share one scale, and the range that it represents; None where it is not told.

    ``per_tensor``: those that read a weight with one scale. ``pinned``: what the user gave.
    ``format``: of the pairs, None where it is the scheme's own.
    """

    edges: frozenset[Edge]
    range: Range | None
    per_tensor: frozenset[Edge] = frozenset()
    pinned: Pin | None = None
    format: Format | None = None


@dataclass(frozen=True, eq=False)
class PlacementFile:
    """A placement file as it is, whatever model it is for.

    ``model``: fingerprint of the model that it was made on. ``weights``: digest of that model's
    float weights; None in files of earlier versions. ``pack``: name and version.
    ``structure``: that model's; None in files of earlier versions. ``base``: the base precision
    that it was judged in, None where the search did not decide on it.
    """

    path: Path
    model: str
    pack: str
    scheme: Scheme
    calibrated: bool
    groups: tuple[Group, ...]
    structure: Structure | None
    base: str | None = None
    weights: str | None = None

    @property
    def pinned(self) -> list[str]:
        """What the user pinned, a sentence for each tensor."""
        sentences = []
        for group in self.groups:
            tensors = sorted({edge.tensor for edge in group.edges - group.per_tensor})
            text = f"calibrated by {group.pinned}"
            if group.pinned == "range" and group.range is not None:
                text = f"range {group.range.low:g} to {group.range.high:g}"
            sentences += [f"{tensor}: {text}" for tensor in tensors if group.pinned is not None]
            weights = {edge.tensor for edge in group.per_tensor}
            sentences += [f"{tensor}: one scale for the weight" for tensor in sorted(weights)]
        return sentences


def read_placement(path: Path) -> PlacementFile:
    """Read a placement file to find its edges in another model (``placer.apply.transfer``).

    Raises InputError, naming file, line and field, for anything that is no placement file.
    """
    document = _read(path)
    structure = document.structure
    return PlacementFile(
        path=path,
        model=document.model,
        pack=document.pack,
        scheme=document.scheme,
        calibrated=document.calibrated,
        groups=tuple(_read_group(entry) for entry in document.groups),
        structure=None if structure is None else parse_structure(structure, f"{path}: structure"),
        base=document.base,
        weights=document.weights,
    )


def _read_group(entry: _GroupEntry) -> Group:
    edges = {Edge(e.tensor, e.node, e.input): e for e in entry.edges}
    return Group(
        edges=frozenset(edges),
        range=None if entry.range is None else Range(*entry.range),
        per_tensor=frozenset(edge for edge, e in edges.items() if e.weights is not None),
        pinned=entry.pinned,
        format=entry.format,
    )


def load_placement(path: Path, graph: Graph) -> Placement:
    """Read a placement file and find its edges in ``graph``.

    An edge is found by node and input, so that a tensor may be called otherwise. Raises InputError,
    naming file, line and field, for anything that is no placement file of this model.
    """
    document = _read(path)
    groups = (
        ScaleGroup(frozenset(_find(e, graph, path) for e in group.edges), group.format)
        for group in document.groups
    )
    entries = (entry for group in document.groups for entry in group.edges)
    return Placement(
        frozenset(group for group in groups if group.edges),
        frozenset(_find(entry, graph, path) for entry in entries if entry.weights is not None),
        None if document.base == "float" else document.base,
    )


def _read(path: Path) -> _Document:
    text = read_text(path, "a placement.yaml", "yaml_bytes")
    if re.match(r'\s*\{\s*"format": "placer-result/', text):
        raise InputError(
            f"{path} is the result of a run; give the placement.yaml of the same folder"
        )
    return parse_text(text, str(path), _Document)


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
    graph: Graph | None = None,
    pinned: Mapping[str, Pin] | None = None,
    base: str | None = None,
    weights: str | None = None,
) -> str:
    """Return the YAML text of ``placement``.

    ``model`` is the model's fingerprint, ``pack`` the rule pack's name and version; ``calibrated``
    is false if the ranges come from random inputs. Each group lists its edges, the range that its
    scale represents, and its format if that is not the scheme's own; weights have no range, because
    their scales follow from their values. With ``graph``, the model's, its structure is kept too,
    which ``placer apply`` needs where another file of the network has other names. ``base`` and
    ``weights``: see ``PlacementFile``.
    """
    document: dict[str, Any] = {
        "format": FORMAT,
        "id": placement.id,
        "model": model,
        **({} if weights is None else {"weights": weights}),
        "pack": pack,
        "scheme": scheme.model_dump(),
        "calibrated": calibrated,
        **({} if base is None else {"base": base}),
        "groups": [_group(e, placement, ranges, pinned or {}) for e in placement.sorted()],
    }
    text: str = yaml.safe_dump(document, sort_keys=False, width=100, allow_unicode=True)
    if graph is None or not graph.nodes:
        return text
    # One block of text: as many YAML entries would take seconds to read for a large model.
    return f"{text}structure: |\n{textwrap.indent(structure_of(graph).text(), '  ')}"


def _group(
    edges: list[Edge], placement: Placement, ranges: Ranges, pinned: Mapping[str, Pin]
) -> dict[str, Any]:
    tensors = sorted({e.tensor for e in edges})
    known = [ranges[tensor] for tensor in tensors if tensor in ranges]
    group: dict[str, Any] = {}
    if known:
        low, high = union(known)
        group["range"] = [low, high]
        pins = [pinned[tensor] for tensor in tensors if tensor in pinned]
        if pins:
            group["pinned"] = pins[0]
    if edges[0] in placement.formats:
        group["format"] = placement.formats[edges[0]]
    group["edges"] = [_edge(edge, placement) for edge in edges]
    return group


def _edge(edge: Edge, placement: Placement) -> dict[str, Any]:
    entry = {"tensor": edge.tensor, "node": edge.node, "input": edge.input_index}
    return {**entry, "weights": "per-tensor"} if edge in placement.per_tensor else entry
