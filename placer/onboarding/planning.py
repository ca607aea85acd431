"""What is to be done with each model of a manifest, and why."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from placer.common.files import data_file, make_output_folder
from placer.common.names import unknown
from placer.errors import InputError
from placer.onboarding.describe import Described, question_key
from placer.onboarding.fingerprints import changes, inputs_of, only_goes_on
from placer.onboarding.manifest import Job, Onboarding, new_folder
from placer.onboarding.manifest_fields import Options
from placer.results.folder import OutputFolder
from placer.results.onboarding import DONE, SETTLED, WITHOUT_RESULT, Record
from placer.results.result import Result

Describe = Callable[[Options, Path], Described]
Action = Literal["run", "resume", "redo", "nothing"]
# Engines are started to ask for their versions; more at once would only compete.
_ASKED_AT_ONCE = 2


@dataclass(frozen=True)
class Planned:
    """One model and what is done with it.

    ``home``: the folder of its results. ``folder``: where it is worked on, ``home`` or, while that
    keeps earlier results, a folder beside it. ``kept``: how an earlier run ended, in ``folder``.
    """

    job: Job
    action: Action
    why: str
    home: Path
    folder: Path
    inputs: Mapping[str, str]
    described: Described
    kept: Record | None


def plan(onboarding: Onboarding, redo: frozenset[str] | None, describe: Describe) -> list[Planned]:
    """What is to be done, in order; writes nothing.

    ``describe``: what tells the engine and the pack of options. ``redo``: names of models to begin
    anew whatever is there, None for all. Raises InputError for a name that no model has, and for
    folders that hold something else.
    """
    names = {job.name for job in onboarding.jobs}
    missing = sorted((redo or frozenset()) - names)
    if missing:
        raise InputError(f"{onboarding.manifest}: {unknown('model', missing[0], sorted(names))}")
    described = _described(onboarding, describe)
    return [
        _planned(
            job,
            described[question_key(job.options)],
            onboarding,
            redo is None or job.name in redo,
        )
        for job in onboarding.jobs
    ]


def make_ready(planned: Planned) -> Record:
    """Make the folder in which ``planned`` is run, with a record that says so."""
    if planned.action != "resume":
        _remove(planned.folder)
        make_output_folder(planned.folder)
    record = Record(state="running", reason="", inputs=dict(planned.inputs), seconds=0)
    record.write(planned.folder)
    return record


def settle(planned: Planned, record: Record) -> Path:
    """Keep ``record``; results of changed inputs replace earlier ones. Returns their folder."""
    record.write(planned.folder)
    if record.state not in SETTLED or planned.folder == planned.home:
        return planned.folder
    _replace(planned.home)
    return planned.home


def clean_up(home: Path) -> None:
    """End what a killed run left half done in place of results."""
    pending = Record.read(new_folder(home))
    if pending is not None and pending.state in SETTLED:
        _replace(home)
    for folder in (home, new_folder(home)):
        shutil.rmtree(_old(folder), ignore_errors=True)


def _replace(home: Path) -> None:
    """Put the new results in place of the old ones."""
    _remove(home)
    new_folder(home).replace(home)


def _remove(folder: Path) -> None:
    """Remove ``folder``; renamed first, as one that is half removed would look like results."""
    old = _old(folder)
    shutil.rmtree(old, ignore_errors=True)
    with suppress(FileNotFoundError):
        folder.replace(old)
    shutil.rmtree(old, ignore_errors=True)


def _old(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.old")


def _described(onboarding: Onboarding, describe: Describe) -> dict[str, Described]:
    questions = {question_key(job.options): job.options for job in onboarding.jobs}
    with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:
        answers = pool.map(lambda options: describe(options, onboarding.folder), questions.values())
        return dict(zip(questions, answers, strict=True))


def _planned(job: Job, described: Described, onboarding: Onboarding, redo: bool) -> Planned:
    home = onboarding.output / job.name
    new = new_folder(home)
    inputs = inputs_of(job, described, onboarding.folder)
    current, pending = Record.read(home), Record.read(new)
    if pending is not None and pending.state in SETTLED:  # About to take the place of the other.
        current, pending, folder = pending, None, new
    else:
        folder = home
    _check_is_ours(home, current, job)

    def decided(action: Action, why: str, where: Path, kept: Record | None) -> Planned:
        return Planned(job, action, why, home, where, inputs, described, kept)

    has_results = current is not None and current.state in SETTLED
    fresh = new if has_results else home
    if redo:
        return decided("redo" if current else "run", "asked for", fresh, None)
    if current is not None and has_results and current.inputs == inputs:
        if _is_complete(current, folder):
            return decided("nothing", "nothing changed", folder, current)
        return decided("redo", "its results are incomplete or were changed", fresh, None)
    resumable = [
        (record, where)
        for record, where in ((pending, new), (current, folder))
        if record is not None and _can_resume(record, inputs)
    ]
    for record, where in resumable:
        if _has_readable_study(where):
            return decided("resume", _why_again(record, inputs), where, record)
    if current is None:
        return decided("run", "new", home, None)
    why = "its study cannot be read" if resumable else _why_again(current, inputs)
    return decided("redo", why, fresh, None)


def _check_is_ours(home: Path, record: Record | None, job: Job) -> None:
    """Raise InputError for a folder that no run of this command made: it might be removed."""
    if record is None and home.exists() and not OutputFolder(home).onboarding.exists():
        if home.is_dir() and not any(home.iterdir()):
            return
        raise InputError(
            f"{home} holds something that placer onboard has not written; give model {job.model} "
            "another name, or choose another `output`"
        )


def _is_complete(record: Record, folder: Path) -> bool:
    """Whether the files that a run ends with are still there and as it wrote them."""
    if record.state in WITHOUT_RESULT:
        return True
    files = OutputFolder(folder)
    try:
        result = Result.read(folder)
        if record.state not in DONE:
            return True
        result.check_model(files.model)
    except (InputError, OSError):
        return False
    wanted = [files.model, files.placement]
    if result.best is not None and result.best.data_sha256 is not None:
        wanted.append(data_file(files.model))
    return all(path.is_file() for path in wanted)


def _can_resume(record: Record, inputs: Mapping[str, str]) -> bool:
    """Whether the study can be gone on with; a failed one would only repeat what it knows."""
    return record.state not in ("failed", *WITHOUT_RESULT) and only_goes_on(record.inputs, inputs)


def _has_readable_study(folder: Path) -> bool:
    """Whether a run can go on there: with the study, or without any, from the beginning."""
    study = OutputFolder(folder).study
    if not study.exists():
        return True
    try:
        with closing(sqlite3.connect(study)) as database:
            database.execute("PRAGMA schema_version")
    except sqlite3.OperationalError as error:
        return "locked" in str(error)
    except sqlite3.DatabaseError:
        return False
    return True


def _why_again(record: Record, inputs: Mapping[str, str]) -> str:
    changed = changes(record.inputs, inputs)
    if changed:
        return ", ".join(changed)
    before = "interrupted" if record.state == "running" else record.state
    return f"{before} before"
