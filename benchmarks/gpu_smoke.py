"""Exercise the whole GPU path on this machine in a few minutes and print what passed.

For whoever has a GPU and TensorRT or TensorRT-RTX: builds, runs, times, gates and inspects real
engines, on the bundled model.

    python benchmarks/gpu_smoke.py --engine tensorrt --json smoke.json
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from placer.common.files import write_text
from placer.common.statistics import paired_ratio
from placer.engines.base import Engine, Tensors
from placer.engines.doctor import diagnose
from placer.engines.select import select_engine
from placer.errors import PlacerError
from placer.model import load_as_is
from placer.optimizer.observer import QuietObserver
from placer.optimizer.run import Request, optimize
from placer.results.result import versions

DIGITS = Path(__file__).parent.parent / "examples" / "digits"


@dataclass(frozen=True)
class Step:
    """One thing that was tried."""

    name: str
    passed: bool
    said: str
    seconds: float


def attempt(name: str, do: Callable[[], str]) -> Step:
    """Run ``do``; what it returns or the error it raises is what the step says."""
    start = time.perf_counter()
    try:
        said, passed = do(), True
    except (PlacerError, AssertionError) as error:
        said, passed = str(error), False
    return Step(name, passed, said, time.perf_counter() - start)


class Smoke:
    """The steps, each on what the ones before it have made."""

    def __init__(self, name: str, engine: Engine) -> None:
        self._name = name
        self._engine = engine
        self._model = load_as_is(DIGITS / "digits.onnx")
        with np.load(DIGITS / "evaluation.npz") as data:
            self._inputs: Tensors = {"image": data["image"][:1].astype(np.float32)}

    def steps(self) -> list[Step]:
        """Run all of them."""
        return [
            attempt("build and run the float model", self.build),
            attempt("repeated medians agree within 1%", self.repeat),
            attempt("inspect what was built", self.inspect),
            attempt("optimize with a gate", self.search),
        ]

    def build(self) -> str:
        """Build the model and look at its output."""
        compiled = self._engine.compile(self._model.proto, self._model.base_dir)
        outputs = compiled.run(self._inputs)
        assert all(np.isfinite(value).all() for value in outputs.values()), "output is not finite"
        return f"outputs {', '.join(f'{n} {v.shape}' for n, v in outputs.items())}"

    def repeat(self) -> str:
        """Measure the same engine twice in one series."""
        compiled = self._engine.compile(self._model.proto, self._model.base_dir)
        seconds = self._engine.measure([compiled, compiled], self._inputs, 51)
        ratio = paired_ratio(seconds[:, 1], seconds[:, 0])
        median = 1e6 * float(np.median(seconds[:, 0]))
        assert abs(ratio.median - 1) < 0.01, f"the same engine twice: ratio {ratio.median:.4f}"
        return f"{median:.1f} us, ratio {ratio.median:.4f}"

    def inspect(self) -> str:
        """Read the plan."""
        compiled = self._engine.compile(self._model.proto, self._model.base_dir)
        plan = compiled.plan()
        assert plan.layers, "the plan is empty"
        return f"{len(plan.layers)} layers"

    def search(self) -> str:
        """A short search with real latency and a gate on held-out digits."""
        with tempfile.TemporaryDirectory() as folder:
            request = Request(
                model=DIGITS / "digits.onnx",
                output=Path(folder),
                data=str(DIGITS / "calibration.npz"),
                evaluation_data=str(DIGITS / "evaluation.npz"),
                engine=self._name,
                preset="quick",
                budget=6,
            )
            result = optimize(request, QuietObserver())
        assert result.best is not None, "no result"
        failed = [t.error for t in result.trials if t.error]
        low, high = result.best.speedup_interval
        return (
            f"{result.verdict}, speed-up {result.best.speedup:.2f} ({low:.2f} to {high:.2f}), "
            f"{len(result.trials)} trials, {len(failed)} failed {failed[:1]}"
        )


def main() -> None:
    """Print a table, write JSON, exit with 1 if a step failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", default="tensorrt")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    console = Console(width=140)
    try:
        engine, _, _ = select_engine(
            arguments.engine, threads=1, pack=None, gpu=None, base="float16", shapes={}
        )
    except PlacerError as error:
        console.print(escape(f"{arguments.engine}: {error}"), highlight=False)
        raise SystemExit(error.exit_code) from None
    steps = Smoke(arguments.engine, engine).steps()
    table = Table(title=f"{engine.name} {engine.version} on {engine.device}")
    for column in ("step", "", "seconds", "what it said"):
        table.add_column(column, overflow="fold")
    for step in steps:
        mark = "passed" if step.passed else "FAILED"
        table.add_row(step.name, mark, f"{step.seconds:.1f}", step.said)
    console.print(table)
    if arguments.json:
        document = {
            "versions": dict(versions()),
            "machine": diagnose().to_json(),
            "steps": [asdict(step) for step in steps],
        }
        write_text(arguments.json, json.dumps(document, indent=2) + "\n")
    sys.exit(0 if all(step.passed for step in steps) else 1)


if __name__ == "__main__":
    main()
