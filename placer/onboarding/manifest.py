"""The manifest of ``placer onboard``: which models, and how each of them is optimized."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from placer.common.durations import parse_duration
from placer.common.files import read_text
from placer.common.yaml_file import LOADER, parse_text
from placer.errors import InputError
from placer.onboarding.manifest_fields import NAME, Entry, Manifest, Options, Target
from placer.results.folder import SUFFIX, OnboardingFolder, OutputFolder

# Names of what lies beside the folders of the models.
_FILES = OnboardingFolder(Path())
_RESERVED = tuple(path.name for path in (_FILES.summary, _FILES.report, _FILES.junit))
_NEW = ".new"
_WHAT = "a manifest, a YAML file such as `models: [{model: zoo/**/*.onnx}]`"


@dataclass(frozen=True)
class Job:
    """One model to optimize. ``model``: its path as seen from the manifest's folder.

    ``target``: what it is optimized for, and ``of`` its name without that; empty without targets.
    """

    name: str
    model: str
    options: Options
    of: str = ""
    target: str = ""

    @property
    def time_limit(self) -> float | None:
        """Seconds after which its process is killed."""
        limit = self.options.time_limit
        return None if limit is None else parse_duration(limit)


@dataclass(frozen=True)
class Onboarding:
    """A manifest that was read: ``jobs`` in the order in which they start.

    ``folder``: the manifest's, absolute. ``slots``: for each job that runs at the same time its
    device, None where none is handed out. ``executor``: the Dask scheduler instead, with at most
    ``at_once`` models. ``left_out``: what globs match and nothing names, since placer wrote it.
    """

    manifest: Path
    folder: Path
    output: Path
    slots: tuple[str | None, ...]
    jobs: tuple[Job, ...]
    executor: str | None = None
    at_once: int | None = None
    left_out: tuple[str, ...] = ()


def read_manifest(
    path: Path,
    output: Path | None = None,
    at_once: int | None = None,
    executor: str | None = None,
) -> Onboarding:
    """Read the manifest at ``path``; the others count instead of what it says.

    Raises InputError, with file, line and field, for whatever is wrong in it, for globs that match
    nothing, and for two models of one name.
    """
    text = read_text(path, _WHAT, "yaml_bytes")
    manifest = parse_text(text, str(path), Manifest)
    folder = path.absolute().parent
    out = output or folder / (manifest.output or f"{path.stem}{SUFFIX}")
    out = Path(os.path.normpath(out.absolute()))
    entries = [
        _Given(f"{path}:{line}", entry)
        for line, entry in zip(_entry_lines(text), manifest.models, strict=True)
    ]
    jobs = _jobs(manifest.defaults, entries, folder, out)
    jobs = [job for one in jobs for job in _for_targets(one, manifest.targets)]
    _check_names(jobs, path)
    ordered = sorted(jobs, key=lambda job: -job.options.priority)
    executor = executor or manifest.executor
    if executor is not None and manifest.devices:
        raise InputError(
            f"{path}: field 'devices' is for this machine; with an executor give each worker its "
            "own by CUDA_VISIBLE_DEVICES"
        )
    at_once = at_once or manifest.jobs
    slots = _slots(manifest, at_once, len(ordered), path)
    left_out = _left_out(manifest, folder, out)
    return Onboarding(path, folder, out, slots, tuple(ordered), executor, at_once, left_out)


def new_folder(folder: Path) -> Path:
    """Where a model is redone while ``folder`` keeps the results that it has."""
    return folder.with_name(f"{folder.name}{_NEW}")


def _slots(manifest: Manifest, jobs: int | None, models: int, path: Path) -> tuple[str | None, ...]:
    devices = manifest.devices
    if len(set(devices)) < len(devices):
        raise InputError(f"{path}: field 'devices' names a device twice; give each of them once")
    if not devices:
        return (None,) * min(jobs or 1, models)
    if jobs is not None and jobs > len(devices):
        raise InputError(
            f"{path}: {jobs} jobs cannot share {len(devices)} devices; lower jobs or add devices"
        )
    return tuple(devices[:jobs])


@dataclass(frozen=True)
class _Given:
    """An entry and where it is, for messages."""

    where: str
    entry: Entry


def _entry_lines(text: str) -> list[int]:
    """1-based lines of the entries of ``models``."""
    tree = yaml.compose(text, Loader=LOADER)
    pairs = tree.value if isinstance(tree, yaml.MappingNode) else ()
    entries = next((value.value for key, value in pairs if key.value == "models"), ())
    return [node.start_mark.line + 1 for node in entries]


def _jobs(defaults: Options, given: Sequence[_Given], folder: Path, out: Path) -> list[Job]:
    """The models of all entries, each where an entry comes to it first.

    What a later glob says of a model counts before an earlier one, an entry that names it before
    both.
    """
    matched: dict[str, Job] = {}
    named: dict[str, list[_Given]] = {}
    for one in given:
        if not _is_glob(one.entry.model, folder):
            key = os.path.normpath(folder / one.entry.model)
            named.setdefault(key, []).append(one)
            continue
        for model, name in _matches(one, folder, out):
            key = os.path.normpath(folder / model)
            below = matched[key].options if key in matched else defaults
            matched[key] = Job(name, model, _layered(below, one.entry))
            named.setdefault(key, [])
    return [
        job
        for key, entries in named.items()
        for job in _jobs_of_model(matched.get(key), entries, defaults)
    ]


def _jobs_of_model(matched: Job | None, named: Sequence[_Given], defaults: Options) -> list[Job]:
    """What globs found, unless entries name the model; one for each of these."""
    if matched is not None and not named:
        return [matched]
    below = defaults if matched is None else matched.options
    usual = _safe(Path(named[0].entry.model).stem) if matched is None else matched.name
    _check_named_once(named, usual)
    return [
        Job(one.entry.name or usual, one.entry.model, _layered(below, one.entry)) for one in named
    ]


def _check_named_once(ones: Sequence[_Given], usual: str) -> None:
    names = [one.entry.name or usual for one in ones]
    for number, one in enumerate(ones):
        if names[number] in names[:number]:
            raise InputError(
                f"{one.where}: model {one.entry.model} is named twice; merge the entries, or give "
                "each another 'name'"
            )


def _layered(below: Options, above: Options) -> Options:
    """``below`` with what ``above`` sets."""
    chosen = {name: getattr(below, name) for name in below.model_fields_set}
    fields = above.model_fields_set - {"model", "name"}
    return Options.model_validate({**chosen, **{name: getattr(above, name) for name in fields}})


def _for_targets(job: Job, targets: Mapping[str, Target]) -> list[Job]:
    """``job`` once for each target, or as it is if there are none."""
    if not targets:
        return [job]
    return [
        Job(f"{job.name}-{name}", job.model, _layered(job.options, target), job.name, name)
        for name, target in targets.items()
    ]


def _is_glob(text: str, folder: Path) -> bool:
    return glob.has_magic(text) and not (folder / text).exists()


def _matches(one: _Given, folder: Path, out: Path) -> list[tuple[str, str]]:
    """Path and name of files that a glob matches, but no results; InputError if there is none."""
    pattern = one.entry.model
    if one.entry.name is not None:
        raise InputError(f"{one.where}: '{pattern}' is a glob and 'name' is for one model; drop it")
    # Path.glob takes no absolute patterns.
    texts = glob.glob(pattern, root_dir=folder, recursive=True)  # noqa: PTH207
    paths = [text for text in _once(texts, folder) if not _is_result(folder / text, out)]
    if not paths:
        only = "but results of placer, which entries of their own may name" if texts else ""
        reason = f"no file matches '{pattern}' {only}".rstrip()
        raise InputError(f"{one.where}: {reason}; correct the glob")
    fixed = _fixed_part(pattern)
    return [(text, _safe(_from(text, fixed))) for text in paths]


def _left_out(manifest: Manifest, folder: Path, out: Path) -> tuple[str, ...]:
    """Results that globs match, other than in the folders that are always placer's own."""
    named = {os.path.normpath(folder / entry.model) for entry in manifest.models}
    globs = (entry.model for entry in manifest.models if _is_glob(entry.model, folder))
    found = (
        text
        for pattern in globs
        for text in _once(glob.glob(pattern, root_dir=folder, recursive=True), folder)  # noqa: PTH207
        if os.path.normpath(folder / text) not in named
    )
    paths = ((text, Path(os.path.normpath(folder / text))) for text in found)
    return tuple(
        dict.fromkeys(t for t, path in paths if not _is_in_own(path, out) and _is_beside(path))
    )


def _once(texts: Sequence[str], folder: Path) -> list[str]:
    """The files of ``texts``, each by its shortest path: links to folders may lead in circles.

    Broken links are among them, so that the summary says what is wrong.
    """
    found: dict[Path, str] = {}
    for text in sorted(texts, key=lambda text: (len(Path(text).parts), text)):
        path = folder / text
        is_broken_link = path.is_symlink() and not path.exists()
        if path.is_file() or is_broken_link:
            found.setdefault(path.parent.resolve() / path.name, text)
    return sorted(found.values())


def _is_result(path: Path, out: Path) -> bool:
    """Whether ``path`` is what placer wrote: a glob must not find it again."""
    path = Path(os.path.normpath(path))
    return _is_in_own(path, out) or _is_beside(path)


def _is_in_own(path: Path, out: Path) -> bool:
    return path.is_relative_to(out) or any(part.endswith(SUFFIX) for part in path.parts[:-1])


def _is_beside(path: Path) -> bool:
    """Whether it lies beside the other files of a run with a folder of its own choice."""
    beside = OutputFolder(path.parent)
    return path in (beside.model, beside.closest) and beside.result.is_file()


def _fixed_part(pattern: str) -> str:
    """The folders before the first wildcard."""
    parts = Path(pattern).parts
    wild = next(number for number, part in enumerate(parts) if glob.has_magic(part))
    return str(Path(*parts[:wild]))


def _from(text: str, folder: str) -> str:
    """``text`` from ``folder`` on and without suffix, folders joined by ``-``."""
    return "-".join(Path(text).relative_to(folder).with_suffix("").parts)


def _safe(name: str) -> str:
    cleaned = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:100]
    return cleaned if re.fullmatch(NAME, cleaned) else f"_{cleaned}"[:100]


def _check_names(jobs: Sequence[Job], path: Path) -> None:
    """Raise InputError for names that would share a folder, on any file system."""
    taken: dict[str, Job] = {}
    for job in jobs:
        key = job.name.lower()
        if key in _RESERVED or key.endswith(_NEW):
            raise InputError(f"{path}: model {job.model} cannot be called '{job.name}'; rename it")
        other = taken.setdefault(key, job)
        if other is not job:
            raise InputError(
                f"{path}: models {other.model} and {job.model} are both called '{job.name}'; give "
                "one of them another 'name'"
            )
