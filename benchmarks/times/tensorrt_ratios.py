"""How often measured ratios of two TensorRT engines lie in the stated 80% interval, by class.

    python -m benchmarks.times.tensorrt_ratios [benchmarks/measured/tensorrt-ratios.json]

The file has ratios that others measured, with their source and what was estimated of them; nothing
is fitted to them. ``set`` is `known` for those that had been seen when rules were written, `read`
and `aside` for the two parts of those that were found last; ``first`` is what was estimated of
these before any change. "Left out": the error that 80% of the other networks (or of those on other
GPUs) of a class stay within, tried on the one that was left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.command_line import parser_of
from placer.prediction.times.intervals import COVERAGE, network_quantile, relative_error
from placer.prediction.times.layer_classes import BLACKWELL, load_layer_classes

MEASURED = Path(__file__).parents[1] / "measured" / "tensorrt-ratios.json"
CLASSES = load_layer_classes()
_WIDTH = 140
KINDS = {"matrices": CLASSES.matrix_ratio_error, "depthwise": CLASSES.depthwise_ratio_error}


@dataclass(frozen=True)
class Ratio:
    """Time of an engine over that of another one of the same network.

    ``pairs``: `explicit`, or `implicit` for those of a calibration, which stand as pairs in the
    estimate. ``base``: type of what is not quantized, ``over``: of the other engine. ``kind``: what
    does most of the network, `convs`, `matrices` or `depthwise`. ``batch``: a number. ``input``:
    height and width of the image (one number if they are equal), or tokens. ``version``:
    TensorRT's, a number and what else is told, or `unknown`. Raises ValueError if ``batch`` is no
    number, or ``version`` neither.
    """

    network: str
    batch: str
    input: str
    gpu: str
    compute_capability: str
    version: str
    pairs: str
    format: str
    base: str
    over: str
    kind: str
    measured: float
    first: float | None
    estimated: float
    set: str
    source: str

    def __post_init__(self) -> None:
        if not self.batch.isdigit():
            raise ValueError(f"{self.network}: batch '{self.batch}' is no number")
        if self.version != "unknown" and not self.version[:1].isdigit():
            raise ValueError(
                f"{self.network}: version '{self.version}' is no number; write unknown"
            )

    @property
    def release(self) -> str:
        """TensorRT's releases that are looked at together."""
        if self.version == "unknown":
            return "TensorRT unknown"
        return "TensorRT 8" if self.version.startswith("8") else "TensorRT 10 and 11"

    @property
    def error(self) -> float:
        """The factor by which the estimate is off, less 1."""
        return relative_error(self.estimated, self.measured)

    @property
    def stated(self) -> float:
        """The error that placer states for such a ratio."""
        least = CLASSES.least_ratio_error(self.base, self.compute_capability)
        return max(least, KINDS.get(self.kind, 0.0))

    @property
    def is_wrong(self) -> bool:
        """Whether the slower of the two is estimated to be the faster one."""
        return (self.measured - 1) * (self.estimated - 1) < 0

    @property
    def is_surely_wrong(self) -> bool:
        """Whether placer would say so without a doubt."""
        return self.is_wrong and abs(math.log(self.estimated)) > math.log1p(self.stated)

    @property
    def class_name(self) -> str:
        """What decides how far off estimates are stated to be."""
        if self.base == "float":
            return "beside FP32"
        if float(self.compute_capability) >= BLACKWELL:
            return "Blackwell"
        return self.kind


def read(path: Path) -> list[Ratio]:
    """The ratios of a file like ``benchmarks/measured/tensorrt-ratios.json``."""
    return [Ratio(**fields) for fields in json.loads(path.read_text("utf-8"))]


def left_out(ratios: Sequence[Ratio], key: Callable[[Ratio], str]) -> float:
    """The share of ``ratios`` within the error that 80% of the others of their class stay within.

    Others are those with another ``key``; a class without others takes all.
    """
    held = 0
    for ratio in ratios:
        others = [r for r in ratios if key(r) != key(ratio)]
        alike = [r for r in others if r.class_name == ratio.class_name] or others
        held += ratio.error <= quantile(alike)
    return held / len(ratios)


def quantile(ratios: Sequence[Ratio]) -> float:
    """What 80% of ``ratios`` stay within, each network counting the same."""
    networks = dict.fromkeys(ratio.network for ratio in ratios)
    errors = [[r.error for r in ratios if r.network == network] for network in networks]
    return network_quantile(errors, COVERAGE)


def row(name: str, ratios: Sequence[Ratio]) -> list[str]:
    """A line of the table: errors are logarithms of estimated to measured ratios."""
    networks = {ratio.network for ratio in ratios}
    logs = [math.log(ratio.estimated / ratio.measured) for ratio in ratios]
    within = sum(ratio.error <= ratio.stated for ratio in ratios) / len(ratios)
    return [
        name,
        str(len(ratios)),
        str(len(networks)),
        f"{sum(logs) / len(logs):+.3f}",
        f"{math.sqrt(sum(x * x for x in logs) / len(logs)):.3f}",
        f"{quantile(ratios):.0%}",
        f"{within:.0%}",
        str(sum(ratio.is_wrong for ratio in ratios)),
        str(sum(ratio.is_surely_wrong for ratio in ratios)),
    ]


def main() -> None:
    """Print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=MEASURED)
    ratios = read(parser.parse_args().file)
    keys: list[Callable[[Ratio], str]] = [
        lambda _: "all",
        lambda r: r.class_name,
        lambda r: r.pairs,
        lambda r: r.format,
        lambda r: r.release,
        lambda r: f"{r.set}, {r.class_name}" if r.set != "known" else "",
        lambda r: r.gpu,
    ]
    heads = ["", "ratios", "networks", "mean", "rms", "80% of networks", "within stated"]
    table = Table()
    for head in [*heads, "wrong order", "surely"]:
        table.add_column(head, no_wrap=True)
    for key in keys:
        for name in sorted({key(ratio) for ratio in ratios} - {""}):
            table.add_row(*row(name, [ratio for ratio in ratios if key(ratio) == name]))
        table.add_section()
    # Wide enough for all columns, also where the output is no terminal.
    Console(width=_WIDTH).print(table)
    print(f"network left out: {left_out(ratios, lambda r: r.network):.0%} within")
    print(f"GPU left out: {left_out(ratios, lambda r: r.gpu):.0%} within")


if __name__ == "__main__":
    main()
