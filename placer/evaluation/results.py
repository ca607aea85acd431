"""What a comparison of models with their float model found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from placer.accuracy.gates import GateResult
from placer.accuracy.intervals import Measure
from placer.accuracy.metrics import finite
from placer.evaluation.layers import Layer, first_wrong


@dataclass(frozen=True)
class Evaluated:
    """One model: its metrics and, if asked for, its layers in order of computation, and gates.

    ``notes``: sentences on scales that do not suit the data or the weights.
    """

    model: str
    measures: tuple[Measure, ...]
    layers: tuple[Layer, ...] = ()
    gates: tuple[GateResult, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def first_wrong(self) -> Layer | None:
        """The first layer that goes wrong (``placer.evaluation.layers``)."""
        return first_wrong(self.layers)


@dataclass(frozen=True)
class EvalResult:
    """What each model scored, on how many samples, and on what engine it ran.

    ``note``: what was compared instead of outputs that cannot be (``placer.model.judged``), and
    which files were placed for another engine.
    """

    float_model: str
    engine: str
    version: str
    samples: int
    models: tuple[Evaluated, ...]
    note: str | None = None

    def to_json(self) -> dict[str, Any]:
        """For ``json.dumps``: infinite values are null."""
        return {
            **{k: v for k, v in asdict(self).items() if k != "models"},
            "models": [_model_json(one) for one in self.models],
        }


def _model_json(one: Evaluated) -> dict[str, Any]:
    wrong = one.first_wrong
    return {
        "model": one.model,
        "metrics": [
            {
                "metric": measure.metric,
                "where": measure.where,
                "value": finite(measure.value),
                "interval": measure.interval and [finite(end) for end in measure.interval],
            }
            for measure in one.measures
        ],
        "gates": [{**asdict(measure), "passed": measure.passed} for measure in one.gates],
        "layers": [_layer_json(layer) for layer in one.layers],
        "first_wrong": None if wrong is None else wrong.tensor,
        "notes": list(one.notes),
    }


def _layer_json(layer: Layer) -> dict[str, Any]:
    return {
        "tensor": layer.tensor,
        "node": layer.node,
        "op": layer.op,
        "sqnr_db": finite(layer.sqnr),
        "before_db": finite(layer.before),
        "own_db": layer.own,
    }
