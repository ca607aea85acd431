"""The engine ``onnxruntime`` as the command line makes it: on its CPU provider or on another."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from platformdirs import user_log_path

from placer.common.limits import Limits as OfInputs
from placer.common.processor import is_arm
from placer.common.run_limits import available_memory
from placer.engines.base import Engine
from placer.engines.isolation import EngineSpec, IsolatedEngine, Limits
from placer.engines.onnxruntime.engine import OnnxRuntimeEngine
from placer.engines.onnxruntime.providers import Provider, absent, is_present, parse_provider
from placer.engines.registry import EngineOptions
from placer.errors import InputError

OPTIONS = ("provider", "compile-timeout", "memory-gb")
# The environment variable that keeps the CPU provider in this process, where a debugger sees it.
IN_PROCESS = "PLACER_ONNXRUNTIME_IN_PROCESS"
# The pack of the CPU provider on ARM.
ARM_RULES = "onnxruntime-arm"
# What a worker may take of the time that one run may take, to compile, to run and to measure: so
# much more than is ever needed that only what hangs is killed.
COMPILE_RUNS, RUN_PATIENCE, MEASURE_RUNS = 20, 12, 2000


class OnnxRuntimeFactory:
    """Makes the engine ``onnxruntime``.

    It lives in a worker process: a provider's library, or a model, may crash it or hang. The CPU
    provider stays in this process if ``IN_PROCESS`` is set in the environment.
    """

    rules = "onnxruntime"

    def unavailable(self) -> str | None:
        """None: ONNX Runtime comes with placer."""
        return None

    def rules_for(self, extra: Mapping[str, str]) -> str:
        """The rule pack of the provider that ``extra`` names; InputError for an unknown one.

        The CPU provider's is that of this machine's processor.
        """
        provider = parse_provider(extra.get("provider", "CPU"))
        if provider is not None:
            return provider.pack
        return ARM_RULES if is_arm() else self.rules

    def create(self, options: EngineOptions) -> Engine:
        """Raises InputError for options that the provider does not take, RunError without it."""
        options.check_measured("onnxruntime")
        options.check_extra("onnxruntime", OPTIONS)
        provider = parse_provider(options.extra.get("provider", "CPU"))
        if provider is None:
            return _cpu_engine(options)
        if not is_present(provider):
            raise absent(provider)
        arguments: dict[str, Any] = {
            "provider": provider.name,
            "threads": options.threads,
            "base": _base(provider, options.base),
            "device": _device(provider, options.device),
        }
        limits = Limits.of(options.whole("compile-timeout"), options.whole("memory-gb"))
        spec = EngineSpec("placer.engines.onnxruntime.provider_engine", "create", arguments)
        return IsolatedEngine(spec, limits, user_log_path("placer"))


def _cpu_engine(options: EngineOptions) -> Engine:
    for key in ("compile-timeout", "memory-gb"):
        if key in options.extra:
            raise InputError(f"engine option {key} is for other providers than the CPU's")
    if options.device is not None:
        raise InputError(
            "`device` chooses a GPU; ONNX Runtime's CPU provider measures on this machine's CPU"
        )
    if options.base not in (None, "float"):
        raise InputError(
            f"ONNX Runtime takes no `base`, here {options.base}: what is not quantized keeps the "
            "model's type; leave it out"
        )
    engine = OnnxRuntimeEngine(options.threads)
    if os.name != "posix" or os.environ.get(IN_PROCESS):
        return engine
    arguments = {"threads": options.threads}
    spec = EngineSpec("placer.engines.onnxruntime.engine", "OnnxRuntimeEngine", arguments)
    return IsolatedEngine(spec, _limits(), user_log_path("placer"), engine)


def _limits() -> Limits:
    """For a worker whose runs have limits of their own: what these cannot stop is killed.

    A run that hangs in one node, a model that takes all memory, a session that is never ready.
    """
    run_s = float(OfInputs.from_environment().run_s)
    return Limits(
        compile_s=COMPILE_RUNS * run_s,
        run_s=RUN_PATIENCE * run_s,
        measure_s=MEASURE_RUNS * run_s,
        memory_bytes=available_memory(),
    )


def _base(provider: Provider, base: str | None) -> str:
    if not provider.bases:
        return "kept"
    chosen = base or provider.bases[0]
    if chosen not in provider.bases:
        raise InputError(
            f"{provider.name} computes in {' or '.join(provider.bases)}, not in base {chosen}"
        )
    return chosen


def _device(provider: Provider, text: str | None) -> int:
    if text is None:
        return 0
    if not provider.on_gpu:
        raise InputError(f"`device` chooses a GPU; {provider.name} measures on this machine's CPU")
    if not text.isdecimal():
        raise InputError(f"`device` '{text}' is not a GPU; give its number, counted from 0")
    return int(text)
