"""Which engines there are: the built-in ones and those that other distributions add.

A distribution adds an engine through an entry point of the group ``placer.engines``: the entry's
name is the engine's name and its object an ``EngineFactory``. See ``docs/engine-plugins.md``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol, runtime_checkable

from typing_extensions import get_protocol_members

from placer.common.names import engine_title, near, unknown
from placer.common.user_code import UserCode
from placer.engines.base import Engine
from placer.errors import InputError, RunError
from placer.graph.shapes import ShapeRange
from placer.qdq.bases import Base
from placer.results.objective import Objective
from placer.rules.pack import Pack

GROUP = "placer.engines"
AUTO = "auto"
# Those that measure on hardware, the fastest hardware first.
AUTO_ORDER = ("tensorrt", "tensorrt-rtx", "onnxruntime")


# The engines that take an option which one that measures does not.
_OF_ESTIMATES = {"gpu": "fusion-model or tensorrt-rtx-build", "build_for": "fusion-model"}


def check_measured(engine: str, *, gpu: str | None, build_for: str | None = None) -> None:
    """Raise InputError for options of engines that estimate, as ``engine`` measures here."""
    for option, value in (("gpu", gpu), ("build_for", build_for)):
        if value is not None:
            raise InputError(
                f"`{option}` goes with engine {_OF_ESTIMATES[option]}, which estimates latencies; "
                f"{engine_title(engine)} measures them on this machine"
            )


@dataclass(frozen=True)
class EngineOptions:
    """What an engine is made from.

    ``pack``: the rule pack of the run. ``threads``: CPU threads. ``shapes``: input shapes given
    by the user, of ``shape_ranges`` the optima. ``gpu``, ``base``, ``build_for`` and ``device``
    are the options of these names, None where they are not given. ``extra``: the engine options.
    ``objective``: what ``Engine.measure`` is to tell; see ``MeasuresThroughput``.
    """

    pack: Pack
    threads: int = 1
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    shape_ranges: Mapping[str, ShapeRange] = field(default_factory=dict)
    gpu: str | None = None
    base: str | None = None
    build_for: str | None = None
    device: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict)
    objective: Objective = "latency"

    def check_extra(self, engine: str, known: Collection[str] = ()) -> None:
        """Raise InputError if ``extra`` has a key that is not one of ``known``."""
        for key in self.extra:
            if key not in known:
                raise InputError(f"engine {engine}: {unknown('engine option', key, known)}")

    def check_measured(self, engine: str) -> None:
        """Raise InputError for options of engines that estimate, as ``engine`` measures here."""
        check_measured(engine, gpu=self.gpu, build_for=self.build_for)

    def whole(self, key: str) -> int | None:
        """The engine option ``key``, a whole number above 0; None if it is not given.

        Raises InputError for anything else.
        """
        text = self.extra.get(key)
        if text is None:
            return None
        if not text.isdecimal() or not int(text):
            raise InputError(f"engine option {key}={text}: give a whole number above 0")
        return int(text)


@runtime_checkable
class EngineFactory(Protocol):
    """Makes an engine; importing one must not need the engine's libraries.

    ``rules``: the rule pack that the engine takes by default, the name of a built-in one or the
    absolute path of a folder.
    """

    rules: str

    def unavailable(self) -> str | None:
        """Why the engine cannot run here, in one sentence, or None if it can."""

    def create(self, options: EngineOptions) -> Engine:
        """Return the engine; raises InputError for options that it does not take."""


@runtime_checkable
class ChoosesRules(Protocol):
    """A factory whose default rule pack depends on the engine options."""

    def rules_for(self, extra: Mapping[str, str]) -> str:
        """The pack for the engine options ``extra``; InputError if one is wrong."""


@runtime_checkable
class MeasuresThroughput(Protocol):
    """A factory whose engines measure any of ``objectives``, as ``EngineOptions.objective`` says.

    For throughput the seconds of ``Engine.measure`` are wall time over the number of inferences
    that several requests in flight made in it. Other factories are asked for latency only.
    """

    objectives: frozenset[Objective]


def measures_throughput(factory: EngineFactory) -> bool:
    """Whether ``throughput`` is among the objectives of ``factory``."""
    return isinstance(factory, MeasuresThroughput) and "throughput" in factory.objectives


@runtime_checkable
class ComparesBases(Protocol):
    """A factory whose engines compute a model in any of ``bases``; base ``auto`` compares these."""

    bases: tuple[Base, ...]


@dataclass(frozen=True)
class Registry:
    """Engine factories by name; a built-in one hides a plug-in of the same name."""

    built_in: Mapping[str, EngineFactory]
    plugins: tuple[EntryPoint, ...] = ()

    @classmethod
    def installed(cls, built_in: Mapping[str, EngineFactory]) -> Registry:
        """The built-in engines and those of all installed distributions; imports none of these."""
        others = (entry for entry in entry_points(group=GROUP) if entry.name not in built_in)
        return cls(built_in, tuple(others))

    def names(self) -> tuple[str, ...]:
        """All engines, the built-in ones first."""
        return tuple(dict.fromkeys((*self.built_in, *sorted(e.name for e in self.plugins))))

    def resolve(self, name: str) -> tuple[str, EngineFactory, str]:
        """Return the engine that ``name`` stands for, its factory and why ``auto`` took it.

        Raises InputError for an unknown name, RunError if the engine cannot run here or a plug-in
        fails.
        """
        if name == AUTO:
            return self._first_available()
        factory = self.factory(name)
        reason = self._unavailable(name, factory)
        if reason is not None:
            raise RunError(f"engine {name} cannot run here: {reason}")
        return name, factory, ""

    def _first_available(self) -> tuple[str, EngineFactory, str]:
        passed_over: dict[str, str] = {}
        for name in AUTO_ORDER:
            if name not in self.names():
                continue
            factory = self.factory(name)
            reason = self._unavailable(name, factory)
            if reason is None:
                names = " and ".join(passed_over)
                others = f" (placer doctor says why not {names})" if passed_over else ""
                return name, factory, f"the first that runs on this machine{others}"
            passed_over[name] = reason
        reasons = "; ".join(f"not {name}: {reason}" for name, reason in passed_over.items())
        raise RunError(f"no engine runs on this machine ({reasons})")

    def check_name(self, name: str) -> None:
        """Raise InputError for an unknown name; no plug-in is imported."""
        if name in self.names():
            return
        known = ", ".join((AUTO, *self.built_in, *sorted(map(_described, self.plugins))))
        suggestion = near(name, (AUTO, *self.names()))
        raise InputError(f"unknown engine '{name}'; use one of: {known}{suggestion}")

    def factory(self, name: str) -> EngineFactory:
        """Return the factory called ``name``, a plug-in's is imported.

        Raises InputError for an unknown name and RunError if the plug-in fails.
        """
        self.check_name(name)
        if name in self.built_in:
            return self.built_in[name]
        entries = [entry for entry in self.plugins if entry.name == name]
        if len(entries) > 1:
            both = " and ".join(sorted(_distribution(entry) for entry in entries))
            raise InputError(f"engine '{name}' comes with {both}; uninstall all but one")
        (entry,) = entries
        with _plugin_code(entry, f"importing {entry.value}"):
            factory = entry.load()
        if not isinstance(factory, EngineFactory):
            raise RunError(
                f"engine {_described(entry)} is broken: {entry.value} has no rules, unavailable() "
                "or create(); correct its entry point"
            )
        return factory

    def create(self, name: str, factory: EngineFactory, options: EngineOptions) -> Engine:
        """Make the engine; RunError if the factory of a plug-in fails."""
        entry = self._entry(name)
        if entry is None:
            return factory.create(options)
        with _plugin_code(entry, "create()"):
            engine = factory.create(options)
        missing = sorted(m for m in get_protocol_members(Engine) if not hasattr(engine, m))
        if missing:
            raise RunError(
                f"engine {_described(entry)} is broken: create() returned a "
                f"{type(engine).__name__}, which has no {', '.join(missing)}; install a release "
                "for this version of placer"
            )
        return engine

    def _unavailable(self, name: str, factory: EngineFactory) -> str | None:
        entry = self._entry(name)
        if entry is None:
            return factory.unavailable()
        with _plugin_code(entry, "unavailable()"):
            return factory.unavailable()

    def _entry(self, name: str) -> EntryPoint | None:
        if name in self.built_in:
            return None
        return next((entry for entry in self.plugins if entry.name == name), None)


def plugin_among(modules: Collection[str]) -> str | None:
    """The plug-in that is in one of ``modules``, or in a module of theirs; None if none is."""
    tops = {name.partition(".")[0] for name in modules} - {"placer"}
    entries = (e for e in entry_points(group=GROUP) if e.module.partition(".")[0] in tops)
    return next((_described(entry) for entry in entries), None)


def _plugin_code(entry: EntryPoint, what: str) -> UserCode:
    return UserCode(
        f"engine {_described(entry)}: {what}", "reinstall or report it", raises=RunError
    )


def _described(entry: EntryPoint) -> str:
    return f"{entry.name} (of {_distribution(entry)})"


def _distribution(entry: EntryPoint) -> str:
    # An entry point that is made by hand belongs to no distribution.
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown distribution"
