"""What searches of placer under a gate find, without recovery and with all its steps."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from placer.errors import PlacerError
from placer.optimizer.observer import QuietObserver
from placer.optimizer.options.request import Request
from placer.optimizer.run import optimize
from placer.results.folder import OutputFolder
from placer.results.result import Result


@dataclass(frozen=True)
class Found:
    """A result of a search: its name in the table, and the file."""

    name: str
    path: Path


def searched(request: Request, gates: tuple[float, ...], folder: Path) -> Iterator[Found]:
    """For each gate in dB, the result of ``request`` without recovery and then with it.

    Both rest on the same trials: the second run goes on with the study of the first.
    """
    for gate in gates:
        output = folder / f"gate-{gate:g}"
        asked = replace(request, output=output, gates=(f"sqnr>={gate:g}",))
        for steps in ((), ("auto",)):
            name = f"placer, sqnr>={gate:g}" + (", recovered" if steps else "")
            try:
                result = optimize(replace(asked, recover=steps), QuietObserver())
            except PlacerError as error:
                print(f"{name}: {error}", flush=True)
                continue
            path = output.with_name(f"{output.name}-{len(steps)}.onnx")
            shutil.copy(OutputFolder(output).model, path)
            yield Found(f"{name}{_told(result)}", path)


def _told(result: Result) -> str:
    """What became of a result: that it is the float model, or the steps that it keeps."""
    if result.best is None or not result.best.quantized_edges:
        return ": the float model"
    if result.recovery is None:
        return ""
    kept = [step.step for step in result.recovery.steps if step.kept]
    return f": {', '.join(kept) if result.recovery.kept else 'nothing kept'}"
