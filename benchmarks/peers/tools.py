"""What other tools' own quantization of the same models is worth to TensorRT-RTX's builder.

Each tool quantizes each network with its own options (tool_process.py) and the same calibration
data; the result is judged by SQNR on other data, on ONNX Runtime, and by what NVIDIA's builder says
of it: refused, or how many layers it builds. placer's row is its default placement, not searched.
Nothing is timed. A tool that needs other versions of ONNX is given its own environment:

    python -m benchmarks.peers.tools --json peers.json --tool modelopt=envs/modelopt/bin/python
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
from rich.console import Console
from rich.table import Table

import placer
from benchmarks.command_line import parser_of, write_json
from benchmarks.networks.real import Case, case
from benchmarks.peers.tool_process import TOOLS
from placer.engines.onnxruntime import OnnxRuntimeModel
from placer.graph.edit import fix_input_shapes
from placer.graph.shapes import ShapeRange
from placer.optimizer.observer import QuietObserver
from placer.optimizer.options.request import Request
from placer.optimizer.setup.calibrated import calibration_of, choose_ranges
from placer.optimizer.setup.prepare import prepare
from placer.qdq import Inserter
from placer.results.result import versions

NETWORKS = (
    *("det", "rec", "cls"),
    *("MobileNetV2", "U-Net", "YOLO-like", "ViT"),
)
LIMIT = 900  # Seconds for a tool and a network.


@dataclass(frozen=True)
class Row:
    """What became of one network by one tool.

    ``sqnr``: in dB, of the worst output. ``failure``: of the tool. ``refusal``: the builder's.
    """

    tool: str
    pairs: int = 0
    sqnr: float | None = None
    layers: int | None = None
    failure: str = ""
    refusal: str = ""

    def text(self) -> str:
        """For the table."""
        if self.failure:
            return f"fails: {self.failure[:60]}"
        quality = "not run" if self.sqnr is None else f"{self.sqnr:.1f} dB"
        return f"{quality}, " + ("refused" if self.layers is None else f"{self.layers} layers")


def made_by(tool: str, python: str, network: Path, subject: Case, output: Path) -> str:
    """Let ``tool`` write ``output``; returns how it failed, "" if it did not."""
    script = Path(__file__).with_name("tool_process.py")
    data = subject.sources["calibration"]
    command = [python, str(script), tool, str(network), str(data), str(output)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return f"takes longer than {LIMIT} s"
    if done.returncode == 0 and output.is_file():
        return ""
    return (done.stderr.strip().splitlines() or ["no file"])[-1]


def placed(subject: Case, output: Path) -> str:
    """placer's default placement for TensorRT-RTX, with the ranges that a run chooses."""
    request = Request(
        model=subject.path,
        output=output.parent / "out",
        shape_ranges={key: ShapeRange.fixed(shape) for key, shape in subject.shapes.items()},
        data=str(subject.sources["calibration"]),
        engine="fusion-model",
        pack="tensorrt-rtx",
        gpu="rtx4090",
        base="float",
    )
    task = prepare(request, QuietObserver())
    reference = OnnxRuntimeModel(task.model.proto, task.model.base_dir, 1).run
    inserter = Inserter(task.model, task.pack.manifest.scheme)
    statistics = calibration_of(task, QuietObserver())
    chosen = choose_ranges(task, inserter, statistics, reference, QuietObserver())
    proto = inserter.insert(task.space.placement(task.space.defaults), chosen.ranges)
    fix_input_shapes(proto, subject.shapes)
    onnx.save(proto, output)
    return ""


def judged(tool: str, network: Path, subject: Case, output: Path, gpu: str) -> Row:
    """The row of a model that was made."""
    pairs = sum(n.op_type == "DequantizeLinear" for n in onnx.load(output).graph.node)
    data = str(subject.sources["evaluation"])
    try:
        found = placer.evaluate(network, [output], data=data)
        sqnr = min(m.value for m in found.models[0].measures if m.metric == "sqnr")
    except placer.PlacerError:  # What ONNX Runtime does not run has no SQNR.
        sqnr = None
    report = placer.check(output, gpu=gpu)
    layers = None if report.plan is None else len(report.plan.layers)
    return Row(tool, pairs, sqnr, layers, refusal=report.refusal or "")


def rows_of(name: str, folder: Path, arguments: argparse.Namespace) -> Iterator[Row]:
    """All tools on one network."""
    folder.mkdir()
    subject = case(name, arguments.samples, folder)
    fix_input_shapes(subject.model.proto, subject.shapes)
    network = folder / "float.onnx"
    onnx.save(subject.model.proto, network)
    pythons: Mapping[str, str] = dict(arguments.tool)
    for tool in ("placer", *TOOLS):
        output = folder / f"{tool}.onnx"
        if tool == "placer":
            failure = placed(subject, output)
        else:
            failure = made_by(tool, pythons.get(tool, sys.executable), network, subject, output)
        row = Row(tool, failure=failure)
        yield row if failure else judged(tool, network, subject, output, arguments.gpu)


def main() -> None:
    """Run the benchmark, print a table and write JSON."""
    parser = parser_of(__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=NETWORKS)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--gpu", default="sm89")
    parser.add_argument(
        "--tool",
        type=lambda text: tuple(text.split("=", 1)),
        action="append",
        default=[],
        help="NAME=PYTHON: the interpreter that has the tool",
    )
    arguments = parser.parse_args()
    console = Console(width=160)
    table = Table(title=f"other data's SQNR, layers of TensorRT-RTX for {arguments.gpu}")
    for column in ("network", "placer", *TOOLS):
        table.add_column(column)
    found: dict[str, object] = {}
    with TemporaryDirectory() as name:
        for number, network in enumerate(arguments.networks):
            rows = list(rows_of(network, Path(name) / str(number), arguments))
            table.add_row(network, *(row.text() for row in rows))
            found[network] = [asdict(row) for row in rows]
            write_json(arguments.json, {"versions": dict(versions()), "networks": found})
    console.print(table)


if __name__ == "__main__":
    main()
