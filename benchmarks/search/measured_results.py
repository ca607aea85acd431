"""Results of ``benchmarks.search.measured``: several runs together, in short, and as a table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.search.measured_rivals import SAMPLERS

CHECKPOINTS = (10, 20, 40)


def medians(model: Mapping[str, Any], sampler: str, trials: str) -> tuple[float, float, float]:
    """Median, least and greatest confirmed ratio over the seeds after so many ``trials``."""
    studies = [study for study in model["studies"] if study["sampler"] == sampler]
    own = [study["best"][trials]["confirmed"]["median"] for study in studies]
    return float(np.median(own)), min(own), max(own)


def table(document: Mapping[str, Any]) -> Table:
    """Ratio to float by model, sampler and number of trials."""
    effort = document["effort"]
    drawn = Table(
        title=f"{document['engine']}: latency of float's, median of {effort['seeds']} seeds (least "
        f"to greatest), {effort['rounds']} interleaved rounds of {effort['copies']} copies"
    )
    drawn.add_column("model")
    drawn.add_column("sampler")
    checkpoints = [str(n) for n in CHECKPOINTS if n < effort["budget"]] + [str(effort["budget"])]
    for trials in checkpoints:
        drawn.add_column(f"{trials} trials")
    for column in ("noise measured", "ended"):
        drawn.add_column(column)
    for name, found in document["models"].items():
        for sampler in document["effort"].get("samplers", SAMPLERS):
            rows = [medians(found, sampler, trials) for trials in checkpoints]
            cells = [f"{middle:.3f} ({least:.3f} to {most:.3f})" for middle, least, most in rows]
            own = [study for study in found["studies"] if study["sampler"] == sampler]
            noise = float(np.median([study["evaluations"]["noise"] for study in own]))
            drawn.add_row(name, sampler, *cells, f"{noise:.0f}", ends(own))
        drawn.add_section()
    return drawn


def ends(studies: Sequence[Mapping[str, Any]]) -> str:
    """How studies ended that did not use their budget: after so many trials, or by an error."""
    told = []
    for study in studies:
        if study["stopped"] != "budget":
            why = "" if study["stopped"] == "converged" else f" ({study['stopped']})"
            told.append(f"{study['evaluations']['trials']}{why}")
    return ", ".join(told)


def merged(paths: Sequence[Path]) -> dict[str, Any]:
    """One document of several runs, each of some seeds of some models on one engine."""
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    first = documents[0]
    models: dict[str, Any] = {}
    for document in documents:
        for key in ("engine", "versions"):
            if document[key] != first[key]:
                raise SystemExit(f"the runs differ in {key}: {document[key]}, {first[key]}")
        for name, found in document["models"].items():
            if name not in models:
                models[name] = {**found, "confirmed": []}
                models[name]["studies"] = []
            models[name]["studies"] += found["studies"]
            models[name]["confirmed"].append(found["confirmed"])
    seeds = {study["seed"] for found in models.values() for study in found["studies"]}
    effort = {**first["effort"], "first_seed": min(seeds), "seeds": len(seeds)}
    ran = {study["sampler"] for found in models.values() for study in found["studies"]}
    effort["samplers"] = [sampler for sampler in SAMPLERS if sampler in ran]
    return {**first, "effort": effort, "models": models}


def brief(document: Mapping[str, Any]) -> dict[str, Any]:
    """``document`` without the choices of placements; of each trial kind, ratio and gates held."""
    models = {
        name: {
            **{key: value for key, value in model.items() if key != "confirmed"},
            "studies": [_brief_study(study) for study in model["studies"]],
        }
        for name, model in document["models"].items()
    }
    return {**document, "models": models}


def _brief_study(study: Mapping[str, Any]) -> dict[str, Any]:
    best = {
        trials: {
            "placement": own["placement"],
            "confirmed": [round(own["confirmed"][key], 4) for key in ("median", "low", "high")],
        }
        for trials, own in study["best"].items()
    }
    trials = [
        [own["kind"], None if own["ratio"] is None else round(own["ratio"], 4), own["feasible"]]
        for own in study["trials"]
    ]
    return {**study, "seconds": round(study["seconds"]), "best": best, "trials": trials}
