"""How far figures of ``fit_unseen.py`` depend on which networks are generated: its tables at once.

    python -m benchmarks.times.fit_draws --engine onnxruntime --builds builds \\
        --models networks/fit_set/aside --json draws.json

The ONNX files of each folder are estimated by a fit to the networks that ``placer fit`` measures
and by fits to half of those of each kind, drawn at random.
Of the first fit it is told besides how many estimates its 80% intervals hold, and, with ``--own``,
how far further builds of a network are off whose float and default builds are given. What is not in
``--builds`` is measured, with ``--only-fit`` it is left out.
"""

from __future__ import annotations

import random
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.command_line import parser_of, write_json
from benchmarks.times.fit_unseen import (
    Makers,
    Networks,
    add_measuring,
    estimates_left_out,
    figures,
    given,
    held,
    measured,
    pairs_with_own,
)
from placer.fitting.costs import fit_costs
from placer.fitting.estimates import estimate
from placer.fitting.leave_out import BuildPair, leave_out, pairs_of
from placer.fitting.predicted import PredictedNetwork
from placer.results.result import versions

_FIGURES = ("within 10%", "80%", "95%", "ordered")


def half_of_each_kind(generated: Networks, seed: int) -> list[PredictedNetwork]:
    """Half of the generated networks of each kind, drawn at random."""
    rng = random.Random(seed)
    kinds: dict[str, list[PredictedNetwork]] = defaultdict(list)
    for network in generated:
        kinds[network.record.network.rpartition("-")[0]].append(network)
    drawn_ones = (rng.sample(own, len(own) // 2) for _, own in sorted(kinds.items()))
    return [network for own in drawn_ones for network in own]


def fits(generated: Networks, draws: int) -> dict[str, list[PredictedNetwork]]:
    """What is fitted to, by what it is called: the generated networks, and halves of them."""
    halves = {f"draw {seed}": half_of_each_kind(generated, seed) for seed in range(draws)}
    return {"generated": list(generated)} | halves


def by_fit(known: Networks, chosen: Mapping[str, Makers]) -> dict[str, dict[str, float]]:
    """Figures of each set of ``chosen`` networks by a fit to the others of ``known``."""
    everything: Makers = {name: make for own in chosen.values() for name, make in own.items()}
    pairs: dict[str, list[BuildPair]] = defaultdict(list)
    for network, own in estimates_left_out(known, everything):
        which = next(name for name, own in chosen.items() if network.record.network in own)
        pairs[which] += pairs_of(network, own)
    return {name: figures(own) for name, own in pairs.items()}


def table_of(rows: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Table:
    """Of each set the figures of the first fit, and mean, least and most of the others."""
    table = Table("networks", "figure", "generated", "mean of draws", "least", "most")
    first, *others = rows.values()
    for name, own in first.items():
        for figure in _FIGURES:
            found = [one[name][figure] for one in others] or [own[figure]]
            shown = (own[figure], float(np.mean(found)), min(found), max(found))
            table.add_row(name, figure, *(f"{value:.1%}" for value in shown))
    return table


def intervals(networks: Networks, chosen: Mapping[str, Makers]) -> dict[str, dict[str, float]]:
    """The 80% intervals of a fit to the others of ``networks``: mean widths, and shares held."""
    names = {name for own in chosen.values() for name in own}
    generated = [one for one in networks if one.record.network not in names]
    known = leave_out(generated).by_network
    table = fit_costs([one.costs for one in generated])
    found = {}
    for name, own in chosen.items():
        both = [(one, estimate(table, one.costs)) for one in networks if one.record.network in own]
        found[name] = held(known, both)
    return found


def with_own(networks: Networks, chosen: Mapping[str, Makers]) -> dict[str, dict[str, float]]:
    """Figures by set of further builds of networks whose float and default builds are given."""
    found = {}
    for name, own in chosen.items():
        others = {other for which in chosen.values() for other in which} - own.keys()
        known = [one for one in networks if one.record.network not in others]
        pairs = pairs_with_own(known, own)
        found[name] = figures([pair for of_network in pairs.values() for pair in of_network])
    return found


def main() -> None:
    """Measure what is missing, fit to each draw, print and write the figures."""
    parser = parser_of(__doc__)
    add_measuring(parser)
    parser.add_argument("--models", type=Path, nargs="+", required=True, help="folders")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--own", action="store_true", help="builds of the network given, too")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    chosen = {str(folder): given(folder) for folder in arguments.models}
    everything: Makers = {name: make for own in chosen.values() for name, make in own.items()}
    with tempfile.TemporaryDirectory() as folder:
        networks = measured(arguments, everything, Path(folder))
    if arguments.share:
        return
    own = [one for one in networks if one.record.network in everything]
    others = [one for one in networks if one.record.network not in everything]
    known = fits(others, arguments.draws)
    rows = {name: by_fit([*own, *one], chosen) for name, one in known.items()}
    for name, one in known.items():
        print(f"{name}: fitted to {len(one)} networks")
    Console().print(table_of(rows))
    document: dict[str, object] = {"engine": arguments.engine, "versions": versions(), **rows}
    document["80% intervals"] = held = intervals(networks, chosen)
    for name, shares in held.items():
        print(
            f"80% intervals, {name}: "
            + ", ".join(f"{what} {share:.1%}" for what, share in shares.items())
        )
    if arguments.own:
        document["float and default builds given"] = further = with_own(networks, chosen)
        for name, figures in further.items():
            shown = ", ".join(f"{figure} {figures[figure]:.1%}" for figure in _FIGURES)
            print(f"float and default builds given, {name}: {shown}")
    if arguments.json:
        write_json(arguments.json, document)


if __name__ == "__main__":
    main()
