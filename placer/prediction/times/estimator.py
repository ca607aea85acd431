"""What estimates the times of predicted layers, whatever the estimate rests on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from operator import itemgetter
from weakref import WeakKeyDictionary

from placer.plan import Plan
from placer.prediction.layers.conversions import PredictedLayer
from placer.prediction.layers.prediction import Prediction
from placer.prediction.layers.steps import Step


class Estimator(ABC):
    """Estimates the layers of one model on one device.

    ``source``: what a plan says that its times are. ``ratio_error``: relative error that 80% of
    estimated ratios of two builds of one network stay within, ``latency_error``: the same of
    latencies; both of networks that the estimate was not fitted to. ``layer_error``: by how much
    layers around a site must differ for another layout than the rule's; by default ``ratio_error``,
    as of such layers nobody measured the error.
    """

    def __init__(
        self,
        source: str,
        latency_error: float,
        ratio_error: float,
        layer_error: float | None = None,
    ) -> None:
        self.latency_error = latency_error
        self.ratio_error = ratio_error
        self.layer_error = ratio_error if layer_error is None else layer_error
        self._source = source
        self._known: WeakKeyDictionary[Step, tuple[float, ...]] = WeakKeyDictionary()

    @abstractmethod
    def layer_us(self, predicted: PredictedLayer) -> float:
        """Estimated time of one layer in microseconds; 0 for a no-op."""

    def layers(self, prediction: Prediction) -> tuple[PredictedLayer, ...]:
        """Those of the plan that ``estimate`` gives, in its order."""
        return prediction.layers

    def estimate(self, prediction: Prediction) -> Plan:
        """The predicted plan with an estimated time for each layer, in microseconds."""
        layers = tuple(
            replace(predicted.layer, time_us=us)
            for predicted, us in zip(self.layers(prediction), self._times(prediction), strict=True)
        )
        return Plan(layers, self._source, estimated=True)

    def total_us(self, prediction: Prediction) -> float:
        """Estimated time of all layers in microseconds."""
        return sum(self._times(prediction))

    def step_us(self, step: Step) -> tuple[float, ...]:
        """Estimated times of the layers of one step in microseconds, kept while the step lives."""
        known = self._known.get(step)
        if known is None:
            known = self._known[step] = tuple(map(self.layer_us, step.layers))
        return known

    def _times(self, prediction: Prediction) -> Iterator[float]:
        """Those of ``prediction.layers``."""
        for _, step in sorted(prediction.steps.items(), key=itemgetter(0)):
            yield from self.step_us(step)


class NoTimes(Estimator):
    """For engines of which nothing estimates times: layers have none, and no change saves any."""

    def __init__(self) -> None:
        super().__init__("rules", 0.0, 0.0)

    def layer_us(self, predicted: PredictedLayer) -> float:
        """0: not known."""
        del predicted
        return 0.0

    def layers(self, prediction: Prediction) -> tuple[PredictedLayer, ...]:
        """Those of ``prediction``, with what comes of moved tensors."""
        return prediction.all_layers

    def estimate(self, prediction: Prediction) -> Plan:
        """The predicted plan without times."""
        layers = tuple(predicted.layer for predicted in self.layers(prediction))
        return Plan(layers, self._source, estimated=True)
