"""How far estimates of ``placer fit`` are off for networks that it has not seen.

The ONNX files of a folder and the networks that ``placer fit`` measures are built on a real engine,
in float, by the rules' default layouts and with random placements. The former are then estimated by
a fit to the latter. What counts are the ratios between the placements of one network, and whether
two placements that differ by more than noise are put in the right order.

    python -m benchmarks.networks.write fit_set --folder networks
    python -m benchmarks.times.fit_unseen --engine openvino --builds builds \\
        --models networks/fit_set/aside --json unseen.json

Printed with the errors: those that the first half of the rounds would have as an estimate of the
second, how many of the estimates are within the 80% intervals that ``explain`` and ``optimize``
show with such a fit, and the errors of further builds where the float and default builds of all
files were given, as by ``placer fit --models``. The same errors of the architectures that a fit
measures are told last, each estimated by a fit without it, which takes longest.

``--builds`` keeps what was measured; another run measures only what is missing there.
``--only-fit`` measures nothing and fits to what is there, also if another machine measured it.
``--share 1/3`` measures every third network and fits nothing, for processes beside each other, each
pinned to a core:

    for i in 1 2 3; do taskset -c $i python -m benchmarks.times.fit_unseen --engine openvino \\
        --builds builds --models networks/fit_set/aside --rounds 15 --share $i/3 & done; wait

``--again FOLDER``: builds of the same files that another run measured. Their errors as estimates
are printed: what a repeated measurement is off by, no estimate can be expected to undercut.

Latencies mean something on a quiet machine only: the table shows how far two
builds of the same float model were apart.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

from benchmarks.command_line import parser_of, write_json
from placer.engines.abilities import target_of
from placer.engines.isolation import IsolatedEngine
from placer.engines.rounds import TIMING
from placer.engines.select import select_engine
from placer.errors import PlacerError
from placer.fitting.architectures import architecture_names
from placer.fitting.costs import fit_costs
from placer.fitting.estimates import estimate
from placer.fitting.leave_out import (
    BuildPair,
    LeftOut,
    conformal_quantile,
    leave_out,
    network_errors,
    pairs_of,
)
from placer.fitting.measure import Measurer, model_paths
from placer.fitting.networks import ARCHITECTURE, network_names, write_network
from placer.fitting.predicted import PredictedNetwork, in_steadier_times, predict
from placer.fitting.records import NetworkRecord, Records
from placer.fitting.round_times import build_seconds
from placer.fitting.run import GIVEN_WEIGHT, network_weight
from placer.model import load_model
from placer.prediction.select import make_predictor
from placer.prediction.times.intervals import NetworkErrors, errors_of_size
from placer.results.result import versions

_CLOSE = 0.1  # The error of a ratio up to which it counts as right.
_KNOWN_BUILDS = 2  # In float, and by the rules' default layouts.
Makers = Mapping[str, Callable[[], onnx.ModelProto]]
Networks = Sequence[PredictedNetwork]


def given(folder: Path) -> Makers:
    """The ONNX files in ``folder`` by name."""
    return {path.stem: partial(onnx.load, path) for path in model_paths(folder)}


def measured_options(builds: Path) -> dict[str, object]:
    """What the records in ``builds`` were measured with, on this machine or another."""
    found = list(builds.glob("*/options.json"))
    if len(found) != 1:
        raise SystemExit(f"{builds} has records of {len(found)} machines or efforts, not of one")
    print(f"measured with {found[0].read_text(encoding='utf-8')}")
    return dict(json.loads(found[0].read_text(encoding="utf-8")))


def measured(arguments: argparse.Namespace, chosen: Makers, folder: Path) -> list[PredictedNetwork]:
    """All networks, ``chosen`` before generated ones; measured now unless they were before."""
    engine, pack, _ = select_engine(arguments.engine, threads=1)
    measurer = Measurer(engine, pack, "float", arguments.rounds, arguments.placements)
    options = {"engine": engine.name, "version": engine.version, "device": engine.device}
    effort = {"rounds": measurer.rounds, "placements": measurer.placements, "timing": TIMING}
    known = measured_options(arguments.builds) if arguments.only_fit else {**options, **effort}
    records = Records(arguments.builds, known)
    found = []
    names = (*chosen, *network_names(arguments.generated))
    if arguments.share:
        own, count = map(int, arguments.share.split("/"))
        names = names[own - 1 :: count]
    for name in names:
        if name in chosen:
            path = folder / f"{name}.onnx"
            onnx.save(chosen[name](), path)
        else:
            path = write_network(name, folder)
        model = load_model(path)
        record = records.load(name, model.fingerprint)
        if record is None and arguments.only_fit:
            continue
        if record is None:
            print(f"measuring {name}", flush=True)
            try:
                record = measurer.measure(name, model)
            except PlacerError as error:
                print(f"{name} is left out: {error}", flush=True)
                continue
            records.keep(record)
        predictor = make_predictor(model.graph, pack, target_of(engine), "float")
        weight = network_weight(name)
        found.append(predict(record, model.graph, predictor, pack.follows_memory_layouts, weight))
    if isinstance(engine, IsolatedEngine):
        engine.close()
    return in_steadier_times(found)


def estimates_left_out(
    networks: Sequence[PredictedNetwork], chosen: Makers
) -> list[tuple[PredictedNetwork, tuple[float, ...]]]:
    """The networks ``chosen``, each with the estimates of a fit to those that are not."""
    left_out = [network for network in networks if network.record.network in chosen]
    known = [network.costs for network in networks if network.record.network not in chosen]
    table = fit_costs(known)
    return [(network, estimate(table, network.costs)) for network in left_out]


def pairs_by_halves(network: PredictedNetwork) -> list[BuildPair]:
    """Pairs of builds, where the first half of the rounds is the estimate of the second."""
    seconds = network.record.seconds
    half = len(seconds) // 2
    first, second = (
        build_seconds(part, network.timed) for part in (seconds[:half], seconds[half:])
    )
    return pairs_of(_with_times(network, second), tuple(first))


def pairs_by_repetition(network: PredictedNetwork, again: NetworkRecord) -> list[BuildPair]:
    """Pairs of builds that both measured, where ``again`` is the estimate."""
    records = network.record.builds
    others = {build.groups: build for build in again.builds}
    kept = [index for index, build in enumerate(records) if build.groups in others]
    builds = tuple(records[index] for index in kept)
    costs = replace(network.costs, builds=tuple(network.costs.builds[index] for index in kept))
    own = replace(network, record=network.record.model_copy(update={"builds": builds}), costs=costs)
    rounds = np.array([others[build.groups].seconds for build in builds]).T
    return pairs_of(own, tuple(build_seconds(rounds, network.timed)))


def _with_times(network: PredictedNetwork, seconds: np.ndarray) -> PredictedNetwork:
    both = zip(network.costs.builds, 1e6 * seconds, strict=True)
    builds = tuple(replace(build, us=float(us)) for build, us in both)
    return replace(network, costs=replace(network.costs, builds=builds))


def measurements(networks: Networks, again: Path | None) -> dict[str, dict[str, list[BuildPair]]]:
    """By what estimates measured ratios: pairs of ``networks`` by name."""
    halves = {network.record.network: pairs_by_halves(network) for network in networks}
    found = {"one half of the rounds by the other": halves}
    return found if again is None else {**found, "a repetition": repeated(again, networks)}


def repeated(folder: Path, networks: Networks) -> dict[str, list[BuildPair]]:
    """``pairs_by_repetition`` of ``networks`` that are in ``folder``, by name."""
    records = Records(folder, measured_options(folder))
    found = {}
    for network in networks:
        again = records.load(network.record.network, network.record.fingerprint)
        if again is not None:
            found[network.record.network] = pairs_by_repetition(network, again)
    return found


def held(
    known: Sequence[NetworkErrors],
    estimated: Sequence[tuple[PredictedNetwork, tuple[float, ...]]],
) -> dict[str, float]:
    """How many of ``estimated`` are within the 80% intervals that ``known`` networks tell.

    By what is estimated: ``ratio`` of two builds of one network, and ``latency``. With each the
    mean of the intervals' half widths.
    """
    widths, ratios, latencies = [], [], []
    for network, own in estimated:
        errors = network_errors(network.costs, own)
        width = errors_of_size(known, errors.weights_mb)
        widths.append(width)
        latencies += [error <= width[0] for error in errors.latencies]
        ratios += [error <= width[1] for error in errors.ratios]
    latency_width, ratio_width = np.mean(widths, axis=0).tolist()
    return {
        "ratio": float(np.mean(ratios)),
        "half width of ratios": ratio_width,
        "latency": float(np.mean(latencies)),
        "half width of latencies": latency_width,
    }


def architectures_left_out(left: LeftOut, known: Networks) -> dict[str, list[BuildPair]]:
    """Pairs of the architectures among ``known``, by a fit without it and those like it."""
    chosen = (one for one in known if one.record.network.startswith(f"{ARCHITECTURE}-"))
    return {
        architecture_names()[int(one.record.network.rpartition("-")[2])]: pairs_of(
            one, left.estimates[one.record.network]
        )
        for one in chosen
    }


def pairs_with_own(
    networks: Sequence[PredictedNetwork], chosen: Makers
) -> dict[str, list[BuildPair]]:
    """Pairs with a further build, by a fit that knew the float and the default of all ``chosen``.

    By network.
    """
    asked = [network for network in networks if network.record.network in chosen]
    own = [
        replace(n.costs, builds=n.costs.builds[:_KNOWN_BUILDS], weight=GIVEN_WEIGHT) for n in asked
    ]
    generated = [n.costs for n in networks if n.record.network not in chosen]
    table = fit_costs([*generated, *own])
    found = {}
    for network in asked:
        estimates = estimate(table, network.costs)
        places = itertools.combinations(range(len(network.costs.builds)), 2)
        found[network.record.network] = [
            pair
            for pair, (_, second) in zip(pairs_of(network, estimates), places, strict=True)
            if second >= _KNOWN_BUILDS
        ]
    return found


def figures(pairs: Sequence[BuildPair]) -> dict[str, float]:
    """Quantiles of the relative errors of ratios, and the share in the right order."""
    errors = [pair.error for pair in pairs]
    apart = [pair for pair in pairs if pair.apart]
    return {
        "pairs": len(pairs),
        "within 10%": sum(error <= _CLOSE for error in errors) / len(errors),
        "median": conformal_quantile(errors, 0.5),
        "80%": conformal_quantile(errors, 0.8),
        "95%": conformal_quantile(errors, 0.95),
        "apart": len(apart),
        "ordered": sum(pair.ordered for pair in apart) / max(len(apart), 1),
    }


def table_of(
    title: str, networks: Sequence[PredictedNetwork], pairs: Mapping[str, list[BuildPair]]
) -> Table:
    """A row for each network and one for all."""
    table = Table(title=title)
    for column in (
        "network",
        "copies differ",
        "pairs",
        "within 10%",
        "median",
        "80%",
        "95%",
        "ordered",
    ):
        table.add_column(column)
    noise = {network.record.network: f"{network.noise:.1%}" for network in networks}
    everything = [pair for own in pairs.values() for pair in own]
    for name, own in (*pairs.items(), ("all", everything)):
        row = figures(own)
        shares = ("within 10%", "median", "80%", "95%")
        quantiles = (f"{row[share]:.1%}" for share in shares)
        ordered = f"{row['ordered']:.1%} of {row['apart']:.0f}"
        table.add_row(name, noise.get(name, ""), f"{row['pairs']:.0f}", *quantiles, ordered)
    return table


class Report:
    """What is printed, and its figures in ``document``."""

    def __init__(self, engine: str, networks: Networks) -> None:
        self._engine, self._networks = engine, networks
        self.document: dict[str, object] = {
            "engine": engine,
            "versions": versions(),
            "copies differ": {n.record.network: n.noise for n in networks},
        }

    def add(self, title: str, pairs: Mapping[str, list[BuildPair]]) -> None:
        """Print the table of ``pairs``, those of each network and of all; keep their figures."""
        Console().print(table_of(f"{self._engine}, {title}", self._networks, pairs))
        everything = [pair for own in pairs.values() for pair in own]
        by_network = {name: figures(own) for name, own in pairs.items()}
        self.document[title] = {"all": figures(everything), **by_network}


def add_measuring(parser: argparse.ArgumentParser) -> None:
    """Options of ``measured``."""
    parser.add_argument("--engine", default="openvino")
    parser.add_argument("--builds", type=Path, required=True)
    parser.add_argument("--generated", type=int, default=280, help="networks of `placer fit`")
    parser.add_argument("--placements", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--only-fit", action="store_true")
    parser.add_argument("--share", help="of the networks: 2/3 are the second of each three")


def main() -> None:
    """Measure what is missing, leave out each network, print and write the figures."""
    parser = parser_of(__doc__)
    add_measuring(parser)
    parser.add_argument("--models", type=Path, required=True, help="a folder of ONNX files")
    parser.add_argument("--again", type=Path, help="builds of the files, measured another time")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    chosen = given(arguments.models)
    with tempfile.TemporaryDirectory() as folder:
        networks = measured(arguments, chosen, Path(folder))
    if arguments.share:
        return
    report = Report(arguments.engine, networks)
    known = [network for network in networks if network.record.network not in chosen]
    estimates = estimates_left_out(networks, chosen)
    pairs = {network.record.network: pairs_of(network, own) for network, own in estimates}
    report.add("fitted to networks of `placer fit`", pairs)
    for title, found in measurements([n for n, _ in estimates], arguments.again).items():
        report.add(title, found)
    report.add("float and default builds given", pairs_with_own(networks, chosen))
    left = leave_out(known)  # Takes longest, some twenty fits.
    report.add("architectures left out", architectures_left_out(left, known))
    within = held(left.by_network, estimates)
    print("80% intervals: " + ", ".join(f"{what} {share:.1%}" for what, share in within.items()))
    report.document["80% intervals"] = within
    if arguments.json:
        write_json(arguments.json, report.document)


if __name__ == "__main__":
    main()
