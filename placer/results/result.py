"""result.json: everything a run found, as typed data with a published JSON Schema."""

from __future__ import annotations

import platform
from collections.abc import Collection, Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from pydantic import Field, PrivateAttr

from placer.common.files import data_file, sha256_of, write_text
from placer.errors import InputError, RunError
from placer.quantization import Scheme
from placer.results.documents import read_document
from placer.results.folder import OutputFolder
from placer.results.objective import Objective
from placer.results.parts import (
    BaselinePart,
    BestPart,
    BudgetPart,
    CalibrationPart,
    ConditionsPart,
    DecisionPart,
    EnginePart,
    EvaluationPart,
    FrontPart,
    ModelPart,
    NoiseSourcePart,
    PackPart,
    Part,
    RecoveryPart,
    RulePart,
    SitePart,
    SourcePart,
    TrialPart,
)
from placer.results.verdict import Verdict

# Kind of the trial with which the search on a quantized model begins.
AS_IMPORTED = "as imported"
_NAMES = OutputFolder(Path())
_AGREEMENT = "argmax_agreement"


class Result(Part):
    """Everything a run of ``placer optimize`` found."""

    format: Literal["placer-result/1"] = "placer-result/1"
    verdict: Verdict
    objective: Objective = Field(
        default="latency",
        description="what was measured and searched for; ratios are of the time per inference",
    )
    model: ModelPart
    engine: EnginePart
    pack: PackPart
    scheme: Scheme
    calibrated: bool
    calibration: CalibrationPart
    evaluation: EvaluationPart
    gates: list[str]
    seed: int
    budget: BudgetPart
    sampler: str
    sites: int
    decisions: list[DecisionPart] = Field(description="groups of sites decided together")
    importance_by_rule: dict[str, float] = Field(description="sums of the decisions' importances")
    trials: list[TrialPart]
    probes: int = Field(
        default=0,
        description="placements whose noise alone was measured, on a few samples, beside the "
        "trials",
    )
    baseline: BaselinePart | None
    best: BestPart | None
    recovery: RecoveryPart | None = Field(
        default=None, description="null unless it was asked for, and of the float model"
    )
    source: SourcePart | None = Field(
        default=None, description="null unless the model was quantized already"
    )
    front: list[FrontPart] = Field(
        default=[], description="with a front: its points, the fastest first, which is the best"
    )
    confirmation: ConditionsPart | None = Field(
        description="of the measurement of baseline and best; null on engines that do not tell"
    )
    noise_sources: list[NoiseSourcePart] = Field(
        default=[],
        description="where the accuracy went: rules, or groups of their sites, the noisiest first",
    )
    warnings: list[str]
    versions: dict[str, str]
    command: str | None = Field(default=None, description="what repeats the run; no passwords")
    rules: dict[str, RulePart] = Field(default={}, description="by the id that sites name")
    site_decisions: list[SitePart] = Field(default=[], description="every site, in node order")

    _folder: Path | None = PrivateAttr(default=None)

    def __repr_args__(self) -> Iterable[tuple[str, object]]:
        """The outcome alone: with all trials it would fill the screens of a notebook."""
        yield "model", self.model.path
        yield "engine", self.engine.name
        yield "verdict", self.verdict.value
        yield "speedup", round(self.speedup, 3)
        yield "trials", len(self.trials)

    def shown_metrics(self, classifiers: Collection[str] = ()) -> dict[str, float | None]:
        """Metrics of the result that mean something for their output.

        Agreement of the largest entry does where entries are scores of classes: of
        ``classifiers``, of outputs with labels, and where a gate asks for it. For boxes or states
        it is a number without a meaning.
        """
        if self.best is None:
            return {}
        metrics = self.best.metrics
        asked = [g.gate for g in self.best.gates if g.gate.startswith(_AGREEMENT)]
        if any("@" not in gate for gate in asked):  # Of all outputs.
            return metrics
        classes = {gate.partition("@")[2] for gate in asked} | set(classifiers)
        classes |= {name.partition(" ")[2] for name in metrics if name.startswith("top1 ")}
        return {
            name: value
            for name, value in metrics.items()
            if not name.startswith(_AGREEMENT) or name.partition(" ")[2] in classes
        }

    def beside_source(self) -> str:
        """How the quantized file that the run was given stands to its trials; else nothing."""
        if self.source is None:
            return ""
        text = f"{self.model.path} itself was not measured"
        if self.source.time_ratio is not None and self.source.time_ratio_interval is not None:
            low, high = self.source.time_ratio_interval
            text = (
                f"the result takes {self.source.time_ratio:.3g} times as long as "
                f"{self.model.path} itself, measured in turn (95% interval {low:.3g} to {high:.3g})"
            )
        number = next((trial.number for trial in self.trials if trial.kind == AS_IMPORTED), None)
        if number is None:
            return text
        return (
            f"trial {number} ({AS_IMPORTED}) is the placement nearest to the file's pairs that the "
            f"search can try; {text}"
        )

    def looked_faster(self) -> str:
        """Which trial was faster than the result's while searching, and why it lost; else nothing.

        Of estimates, which measuring again would not change, nothing is said.
        """
        if self.best is None or self.best.trial is None or self.engine.estimated:
            return ""
        ratios = {
            trial.number: trial.ratio_to_float
            for trial in self.trials
            if trial.state == "complete" and trial.ratio_to_float is not None
        }
        first = min(ratios, key=ratios.__getitem__, default=None)
        if first is None or ratios[first] == ratios.get(self.best.trial):
            return ""
        return (
            f"trial {first} looked faster (x{1 / ratios[first]:.2f}) while searching; the result "
            f"is trial {self.best.trial}, the fastest when the best ones were measured again in "
            "turn"
        )

    @classmethod
    def read(cls, path: Path | str) -> Result:
        """Read result.json, or that of an output folder; InputError if it cannot be read."""
        path = Path(path)
        file = OutputFolder(path).result if path.is_dir() else path
        result = read_document(cls, file, "result", "placer optimize")
        result._folder = file.parent
        return result

    def write(self, path: Path) -> None:
        """Write ``path`` atomically."""
        write_text(path, self.model_dump_json(indent=2) + "\n")
        self._folder = path.parent

    def check_model(self, path: Path) -> None:
        """Raise InputError if ``path`` is another file than the optimized.onnx that the run wrote.

        So it does for external data that are there. Files of earlier versions do not tell.
        """
        if self.best is None:
            return
        data = data_file(path)
        wanted = {path: self.best.model_sha256}
        if data.is_file():
            wanted[data] = self.best.data_sha256
        for file, digest in wanted.items():
            if digest is not None and sha256_of(file) != digest:
                raise InputError(
                    f"{file} is not the file that this run wrote (its SHA-256 is not the one in "
                    f"{_NAMES.result}); put that file back, or run placer optimize again"
                )

    @property
    def speedup(self) -> float:
        """How many times as fast as the float model; 1 if the gates are not met.

        An estimate if ``engine.estimated``.
        """
        return 1.0 if self.best is None else self.best.speedup

    @property
    def folder(self) -> Path:
        """The output folder. RunError if the result was neither written nor read from a file."""
        if self._folder is None:
            raise RunError("this result has no folder; write it, or read it with Result.read")
        return self._folder

    @property
    def optimized_model(self) -> Path:
        """Path of optimized.onnx. RunError if there is none, for no candidate meets the gates."""
        return self._written(_NAMES.model)

    @property
    def placement_file(self) -> Path:
        """Path of placement.yaml. RunError if there is none, for no candidate meets the gates."""
        return self._written(_NAMES.placement)

    def _written(self, path: Path) -> Path:
        if self.best is None:
            raise RunError(f"there is no {path.name}: no candidate meets {', '.join(self.gates)}")
        return self.folder / path


def versions() -> Mapping[str, str]:
    """Versions of everything that shapes a result."""
    packages = ("placer", "onnx", "onnxruntime", "optuna", "numpy")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}
