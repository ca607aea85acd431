"""Onboarding in one call: a manifest read, planned and run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from placer.common.listed import listed
from placer.errors import InputError
from placer.onboarding import runner
from placer.onboarding.dask import OnDask
from placer.onboarding.executors import Executor, Local
from placer.onboarding.manifest import Onboarding, read_manifest
from placer.onboarding.planning import Planned, plan
from placer.results.onboarding import Summary


@dataclass(frozen=True, eq=False)
class OnboardingPlan:
    """What would be done with each model and why; ``summary`` says how they stand now.

    ``notes``: what the manifest seems to ask for and is not done, in sentences.
    """

    planned: tuple[Planned, ...]
    summary: Summary
    notes: tuple[str, ...] = ()


def onboard(
    manifest: str | PathLike[str],
    *,
    output: str | PathLike[str] | None = None,
    jobs: int | None = None,
    executor: str | None = None,
    redo: bool | Sequence[str] = False,
    tell: Callable[[str], None] | None = None,
) -> Summary:
    """Optimize the models that ``manifest`` lists; again, only what has changed.

    ``output``, ``jobs``, ``executor``: instead of what the manifest says. ``redo``: True begins all
    models anew, names begin these anew. ``tell`` is given a line for whatever happens; by default
    nothing is said. A model that fails is in the summary and no error.

    Raises InputError for a wrong manifest and for an output folder that cannot be written.
    """
    onboarding = _read(manifest, output, jobs, executor)
    say = tell or _silent
    for note in _notes(onboarding):
        say(note)
    with _executor(onboarding) as chosen:
        summary = runner.onboard(onboarding, _anew(redo), say, chosen)
    say(f"summary.json, junit.xml and results are in {onboarding.output}")
    return summary


def plan_onboarding(
    manifest: str | PathLike[str],
    *,
    output: str | PathLike[str] | None = None,
    jobs: int | None = None,
    executor: str | None = None,
    redo: bool | Sequence[str] = False,
) -> OnboardingPlan:
    """What ``onboard`` would do; writes nothing. Raises InputError for a wrong manifest."""
    onboarding = _read(manifest, output, jobs, executor)
    with _executor(onboarding) as chosen:
        planned = plan(onboarding, _anew(redo), chosen.describe)
        summary = runner.Run(onboarding, planned, chosen).summary()
        return OnboardingPlan(tuple(planned), summary, _notes(onboarding))


@contextmanager
def _executor(onboarding: Onboarding) -> Iterator[Executor]:
    """Where the models are optimized, as long as it is needed."""
    if onboarding.executor is None:
        yield Local(onboarding.slots)
        return
    with closing(OnDask(onboarding.executor, onboarding.at_once)) as workers:
        yield workers


def _read(
    manifest: str | PathLike[str],
    output: str | PathLike[str] | None,
    jobs: int | None,
    executor: str | None,
) -> Onboarding:
    if jobs is not None and jobs < 1:
        raise InputError(f"`jobs` is {jobs}; give 1 or more")
    return read_manifest(Path(manifest), None if output is None else Path(output), jobs, executor)


def _notes(onboarding: Onboarding) -> tuple[str, ...]:
    if not onboarding.left_out:
        return ()
    return (
        f"left out: {listed(onboarding.left_out)}, as a result.json beside it says that placer "
        "wrote it; to optimize it, name it in an entry of its own",
    )


def _anew(redo: bool | Sequence[str]) -> frozenset[str] | None:
    """Names of models to begin anew, None for all."""
    if isinstance(redo, bool):
        return None if redo else frozenset()
    return frozenset([redo] if isinstance(redo, str) else redo)


def _silent(_text: str) -> None:
    pass
