"""Placements to begin a search with: a previous result, a placement file, a Q/DQ model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from placer.errors import InputError
from placer.model import Model, load_quantized
from placer.qdq.extract import extract_placement
from placer.quantization import Placement, Scheme
from placer.quantization.placement_file import load_placement
from placer.results.folder import OutputFolder
from placer.results.result import Result
from placer.search.samplers import Proposal
from placer.search.space import Space


def warm_starts(
    paths: Sequence[Path], model: Model, space: Space, scheme: Scheme
) -> tuple[Proposal, ...]:
    """Read each of ``paths``: an output folder, result.json, placement.yaml or a Q/DQ model.

    A result of another model tells the layouts of groups of equal signature; a placement must be
    of this model. ``scheme``: of the candidates. Raises InputError for a file that is neither or
    has nothing in common with it.
    """
    return tuple(proposal for path in paths for proposal in _read(path, model, space, scheme))


def _read(path: Path, model: Model, space: Space, scheme: Scheme) -> Iterator[Proposal]:
    kind = f"warm start {path.name}"
    file = OutputFolder(path).result if path.is_dir() else path
    if not file.exists():
        raise InputError(f"warm start {path}: there is no such file or result; check the path")
    if file.suffix == ".json":
        yield Proposal(kind, _choices_of_result(file, space))
        return
    if file.suffix in (".yaml", ".yml"):
        placement = load_placement(file, model.graph)
    elif file.suffix == ".onnx":
        placement = _common(extract_placement(load_quantized(file), scheme).placement, model, file)
    else:
        raise InputError(
            f"warm start {path} is neither a result, a placement.yaml nor an .onnx file"
        )
    yield Proposal(kind, space.nearest(placement))


def _choices_of_result(path: Path, space: Space) -> dict[str, str]:
    try:
        result = Result.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, ValidationError) as error:
        raise InputError(f"warm start {path} is no result.json of this version") from error
    layouts = {
        decision.signature: decision.layout
        for decision in result.decisions
        if decision.layout is not None
    }
    choices, known = dict(space.defaults), 0
    for group in space.groups:
        layout = layouts.get(group.sites[0].signature)
        if layout in group.offered:
            choices[group.name] = layout
            known += 1
    if not known:
        raise InputError(
            f"warm start {path}: no group of sites of that result is like one of this model's"
        )
    return choices


def _common(placement: Placement, model: Model, path: Path) -> Placement:
    """The part of ``placement`` on edges that the model has."""
    graph = model.graph
    known = {edge for tensor in graph.consumers for edge in graph.edges_of(tensor)}
    edges = placement.edges & known
    # Outputs of any two networks may be called the same.
    if all(edge.is_graph_output for edge in edges):
        raise InputError(
            f"warm start {path}: none of its Q/DQ pairs is on an edge that {model.path} has; "
            "give a quantized model of the same network with the same names"
        )
    return Placement.of(edges, formats=placement.formats)
