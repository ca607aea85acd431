"""Output folders and the names of what is in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from placer.common.files import data_file, remove_if_empty
from placer.common.own_files import is_own
from placer.errors import InputError

# What output folders end with unless the user chooses their names.
SUFFIX = ".placer"
_FRONT = "front"


@dataclass(frozen=True)
class OutputFolder:
    """The folder of a run's results, or of a point of its front.

    Which files are there depends on the run: without a result there is no model and no placement,
    an engine that estimates has predicted plans only, and a shared study is in a database.
    """

    path: Path

    @property
    def model(self) -> Path:
        """The Q/DQ model."""
        return self.path / "optimized.onnx"

    @property
    def closest(self) -> Path:
        """The candidate that misses the gates by least, where none meets them."""
        return self.path / "closest.onnx"

    @property
    def exported(self) -> Path:
        """The same as an OpenVINO model, whose weights are beside it in ``optimized.bin``."""
        return self.path / "optimized.xml"

    @property
    def placement(self) -> Path:
        """Which edges are quantized, with their ranges."""
        return self.path / "placement.yaml"

    @property
    def result(self) -> Path:
        """What the run found."""
        return self.path / "result.json"

    @property
    def report(self) -> Path:
        """The same as a page."""
        return self.path / "report.html"

    @property
    def study(self) -> Path:
        """The trials, as Optuna keeps them in SQLite."""
        return self.path / "study.db"

    @property
    def study_url(self) -> str:
        """The same as the URL of an Optuna storage."""
        return f"sqlite:///{self.study}"

    @property
    def given_model(self) -> Path:
        """The model that was given in memory."""
        return self.path / "model.onnx"

    @property
    def data(self) -> Path:
        """Calibration data that was given in memory."""
        return self.path / "data.npz"

    @property
    def evaluation_data(self) -> Path:
        """The gates' data that was given in memory."""
        return self.path / "eval_data.npz"

    @property
    def log(self) -> Path:
        """What was logged."""
        return self.path / "placer.log"

    @property
    def process_log(self) -> Path:
        """What the process of an onboarding printed."""
        return self.path / "output.log"

    @property
    def onboarding(self) -> Path:
        """The record of an onboarding."""
        return self.path / "onboarding.json"

    @property
    def applied(self) -> Path:
        """How a placement was applied to another file of its network."""
        return self.path / "apply.json"

    def check_spares(self, *read: Path) -> None:
        """Raise InputError if a model, placement or result here would overwrite one of ``read``."""
        for own in (self.model, self.placement, self.result):
            for path in read:
                if _is_same_file(path, own):
                    raise InputError(f"the result would overwrite {path}; choose another output")

    def check_is_own(self) -> None:
        """Raise InputError if a file that a run writes is here and of no run of placer's.

        Documents say themselves whose they are. Models and placements are placer's where a log or
        a record is beside them, which every run leaves.
        """
        documents = [self.result, self.report]
        for predicted in (False, True):
            documents += [self.plan(predicted=predicted), self.float_plan(predicted=predicted)]
        foreign = [path for path in documents if path.is_file() and not is_own(path)]
        if not foreign and not self.holds_records():
            models = (self.model, self.placement, self.exported, self.closest)
            foreign = [path for path in models if path.exists()]
        if foreign:
            raise InputError(
                f"{foreign[0]} is there and no run of placer wrote it; move the file or choose "
                "another output"
            )

    def holds_records(self) -> bool:
        """Whether a log or a record is here, which every run of placer's leaves."""
        records = (self.log, self.result, self.study, self.applied)
        return any(path.exists() for path in records)

    def check_holds_no_result(self) -> None:
        """Raise InputError if a result is here, which another model would not be the one of."""
        if self.result.exists():
            raise InputError(
                f"{self.path} holds a run of placer optimize, whose {self.model.name} would be "
                "replaced; choose another output"
            )

    def check_is_no_part(self, page: Path) -> None:
        """Raise InputError if ``page`` is a file of the run that is no page."""
        is_page = page.suffix.lower() in (".html", ".htm")
        if not is_page and page.is_file() and page.resolve().parent == self.path.resolve():
            raise InputError(f"{page} belongs to the run; choose another output")

    def plan(self, *, predicted: bool) -> Path:
        """The plan of the result: what the engine runs, or what the rules predict."""
        return self.path / f"plan{'_predicted' if predicted else ''}.json"

    def float_plan(self, *, predicted: bool) -> Path:
        """The same of the float model."""
        return self.path / f"plan_float{'_predicted' if predicted else ''}.json"

    def front_point(self, rank: int, placement_id: str) -> OutputFolder:
        """The folder of a point of the latency-accuracy front; 1 is the fastest."""
        return OutputFolder(self.path / _FRONT / f"{rank}-{placement_id}")

    def front_points(self) -> Iterator[OutputFolder]:
        """The points that are there, those of earlier runs included."""
        return (OutputFolder(path) for path in (self.path / _FRONT).glob("[0-9]*-*"))

    def keep_front_points(self, kept: set[OutputFolder]) -> None:
        """Remove the points of earlier runs of the same study, but for ``kept``."""
        for other in set(self.front_points()) - kept:
            other.remove_model()
        remove_if_empty(self.path / _FRONT)

    def remove_outcome(self) -> None:
        """Remove what tells of the model here, before another one takes its place.

        A run may be killed before it has told of the new one. What somebody else put there, such
        as a folder, stays; writing the new one tells of it.
        """
        for file in (self.result, self.report):
            if file.is_file() or file.is_symlink():
                file.unlink()

    def remove_model(self) -> None:
        """Remove the model and its placement, and the folder if nothing else is in it."""
        self.remove_outcome()
        for file in (self.model, data_file(self.model), self.placement):
            file.unlink(missing_ok=True)
        self.remove_exported()
        remove_if_empty(self.path)

    def remove_exported(self) -> None:
        """Remove the result as an OpenVINO model."""
        for file in (self.exported, self.exported.with_suffix(".bin")):
            file.unlink(missing_ok=True)

    def remove_closest(self) -> None:
        """Remove the closest candidate of a run that met no gate."""
        for file in (self.closest, data_file(self.closest)):
            file.unlink(missing_ok=True)


@dataclass(frozen=True)
class OnboardingFolder:
    """The folder of an onboarding, which holds those of its models."""

    path: Path

    @property
    def summary(self) -> Path:
        """How all models were onboarded."""
        return self.path / "summary.json"

    @property
    def report(self) -> Path:
        """The same as a page."""
        return self.path / "report.html"

    @property
    def junit(self) -> Path:
        """The same for continuous integration."""
        return self.path / "junit.xml"


def _is_same_file(one: Path, other: Path) -> bool:
    with suppress(OSError, ValueError):  # What cannot be looked at is told when it is read.
        return one.is_file() and other.is_file() and one.samefile(other)
    return False
