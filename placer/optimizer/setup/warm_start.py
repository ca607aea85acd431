"""Placements to begin a search with: a previous result, a placement file, a Q/DQ model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from placer.errors import InputError
from placer.model import Model, load_quantized
from placer.qdq.extract import extract_placement
from placer.quantization import FLOAT8, Placement, Scheme
from placer.quantization.placement_file import load_placement, read_placement
from placer.results.folder import OutputFolder
from placer.results.result import Result
from placer.rules.sites import layout_in, rule_layout
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
        yield Proposal(kind, _choices_of_result(file, space, scheme))
        return
    if file.suffix in (".yaml", ".yml"):
        given = read_placement(file).scheme
        placement = load_placement(file, model.graph).translated(given, scheme)
    elif file.suffix == ".onnx":
        placement = _common(extract_placement(load_quantized(file), scheme).placement, model, file)
    else:
        raise InputError(
            f"warm start {path} is neither a result, a placement.yaml nor an .onnx file"
        )
    yield Proposal(kind, space.nearest(placement))


def _choices_of_result(path: Path, space: Space, scheme: Scheme) -> dict[str, str]:
    try:
        result = Result.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, ValidationError) as error:
        raise InputError(f"warm start {path} is not a result.json of this version") from error
    layouts = {
        decision.signature: decision.layout
        for decision in result.decisions
        if decision.layout is not None
    }
    choices, known = dict(space.defaults), 0
    for group in space.groups:
        names_text = layouts.get(group.sites[0].signature, "")
        names = _names(names_text, result.scheme, scheme)
        layout = next((name for name in names if name in group.offered), None)
        if layout is not None:
            choices[group.name] = layout
            known += 1
    if not known:
        raise InputError(
            f"warm start {path}: no group of sites of that result is like one of this model's; "
            "give that of a network with some of its layers"
        )
    return choices


def _names(layout: str, given: Scheme, wanted: Scheme) -> tuple[str, ...]:
    """What ``layout`` of a result in the scheme ``given`` is called in ``wanted``, the best first.

    Layouts of a scheme in FP8 alone do not say their format.
    """
    becomes_fp8 = given.is_float8 and FLOAT8 in wanted.formats
    in_fp8 = (layout_in(layout, FLOAT8),) if becomes_fp8 else ()
    return (*in_fp8, layout, rule_layout(layout))


def _common(placement: Placement, model: Model, path: Path) -> Placement:
    """The part of ``placement`` on edges that the model has."""
    if not placement.edges:
        raise InputError(f"warm start {path} has no Q/DQ pairs; give a quantized model")
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
