"""Which engine and rule pack a model would get, without running it; asked in its own process.

Making an engine loads vendors' and plug-ins' code, which may crash or hang.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from placer.engines.registry import Registry
from placer.engines.select import BUILT_IN
from placer.errors import PlacerError
from placer.onboarding.manifest_fields import Options
from placer.optimizer.options.request import Request
from placer.optimizer.setup.chosen_engine import engine_for
from placer.rules.packaging.lock import check_lock

TIMEOUT_S = 600
# Built-in engines that refuse --device.
_WITHOUT_DEVICES = ("onnxruntime", "openvino", "fusion-model", "tensorrt-rtx-build")


class Described(BaseModel):
    """What the engine and the pack are; ``engine`` says why if they cannot be used.

    ``takes_device``: a device can be chosen. ``shares_cpu``: it measures on this machine's CPU.
    ``lock``: why placer.lock refuses the pack, or empty.
    """

    model_config = ConfigDict(frozen=True)

    engine: str
    pack: str
    lock: str = ""
    takes_device: bool = False
    shares_cpu: bool = False


def describe(options: Options, device: str | None, folder: Path) -> Described:
    """What ``options`` choose for a process in ``folder``; never raises."""
    question = json.dumps({"options": _relevant(options), "device": device})
    command = [sys.executable, "-m", "placer.onboarding.describe"]
    try:
        done = subprocess.run(
            command,
            input=question,
            capture_output=True,
            text=True,
            cwd=folder,
            env=child_environment(),
            timeout=TIMEOUT_S,
            check=False,
        )
        # Engines may print on their own.
        return Described.model_validate_json((done.stdout.splitlines() or [""])[-1])
    except subprocess.TimeoutExpired:
        return _unknown(f"it did not start within {TIMEOUT_S} s")
    except ValidationError:
        return _unknown("it crashed when it was started")


def question_key(options: Options) -> str:
    """Equal for options that choose the same engine and pack."""
    return json.dumps(_relevant(options), sort_keys=True)


def child_environment() -> dict[str, str]:
    """This process's, but modules in the current folder do not hide those of libraries."""
    return {**os.environ, "PYTHONSAFEPATH": "1"}


def _unknown(why: str) -> Described:
    return Described(engine=f"unknown, {why}", pack="unknown")


def _relevant(options: Options) -> dict[str, Any]:
    names = {
        *("engine", "gpu", "base", "threads", "build_for", "engine_options"),
        *("pack", "scheme", "weight_range"),
    }
    return options.model_dump(include=names, exclude_none=True)


def _answer(chosen: dict[str, Any], device: str | None) -> Described:
    name, _, _ = Registry.installed(BUILT_IN).resolve(chosen.get("engine", Request.engine))
    takes_device = name not in _WITHOUT_DEVICES
    request = Request(model=Path(), **chosen)
    engine, pack, _ = engine_for(request, device if takes_device else None)
    lock = ""
    try:
        check_lock(pack, Path())
    except PlacerError as error:
        lock = str(error)
    return Described(
        engine=f"{engine.name} {engine.version}, {engine.device}",
        pack=f"{pack.name_and_version} ({pack.fingerprint})",
        lock=lock,
        takes_device=takes_device,
        shares_cpu=not engine.estimated and not takes_device,
    )


def _main() -> None:
    question = json.load(sys.stdin)
    try:
        answer = _answer(question["options"], question["device"])
    except PlacerError as error:
        answer = Described(engine=f"unknown, {error}", pack="unknown")
    print()  # Whatever an engine printed ends here.
    print(answer.model_dump_json())


if __name__ == "__main__":
    _main()
