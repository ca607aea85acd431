"""The best placement under a gate as an integer program.

Around a placement, what changes of groups do to the predicted latency is a sum over the groups plus
what pairs of near groups do together (a layer that fuses only if both are quantized, a conversion
between them); noise is a sum over sites. Exactly one layout per group, noise within the limit and
products of two choices as linear inequalities (McCormick 1976) make this a mixed-integer linear
program, which HiGHS solves (Huangfu and Hall 2018, through SciPy). Where three groups depend on
each other the sum is only nearly right, so it is made again around a solution that is better.

Its linear relaxation comes first. It takes a hundredth of the time and tells how much there may be
to gain, which changes are in no better placement (their reduced costs are above that gain), and
whether the sum is anything to go by so far from the placement that it was made around.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import csr_array

from placer.search.landscape.landscape import Landscape, Moves, Objective, State, apply
from placer.search.models.noise_model import NoiseModel

# How often the program is made again around its solution.
ROUNDS = 3
# Branches after which the best known solution is taken: time would not be the same every time.
NODES = 200
# In units of the float model's latency: what the solution may be slower than the best.
GAP = 1e-4
# Programs of more pairs are not made: predicting them would take longer than a measurement.
MOST_PAIRS = 1_000
OPTIMAL = 0  # HiGHS' status, as SciPy tells it.

Pair = tuple[int, int, float]  # Two changes, and what both do beyond what each does.


class Solution(NamedTuple):
    """``proven``: no other placement has a sum around ``state`` lower by ``GAP``."""

    state: State
    proven: bool


def solve(
    landscape: Landscape, objective: Objective, noise: NoiseModel, limit: float, start: State
) -> Solution | None:
    """The placement of whole groups that is fastest by ``objective`` within the noise ``limit``.

    Looks around ``start``, in which no group may be split, and on from there while that is better.
    None if the program is too large, nothing better was found or nothing holds the limit.
    """
    state, value = start, np.inf
    if noise.predict(start) <= limit:
        value = landscape.value(start, objective)
    for _ in range(ROUNDS):
        optimum = _around(landscape, objective, noise, limit, state)
        if optimum is None or noise.predict(optimum.state) > limit * (1 + 1e-9):
            break
        if optimum.state == state:
            return optimum
        after = landscape.value(optimum.state, objective)
        if after >= value:
            break
        state, value = optimum.state, after
    return None if state == start else Solution(state, proven=False)


class _Program(NamedTuple):
    """Choices that cost least and hold ``equal @ x == 1`` and ``most @ x <= high``.

    ``x``: one choice for each of ``moves``, then the product of the two of each of ``pairs``.
    """

    costs: np.ndarray
    pairs: Sequence[Pair]
    equal: csr_array
    most: csr_array
    high: np.ndarray

    @property
    def choices(self) -> int:
        """How many of the unknowns are choices."""
        return len(self.costs) - len(self.pairs)

    def sum_of(self, chosen: np.ndarray) -> float:
        """What ``chosen`` costs, shape (choices,), whole numbers."""
        single = chosen @ self.costs[: self.choices]
        return float(single + sum(cost for i, j, cost in self.pairs if chosen[i] and chosen[j]))


def _around(
    landscape: Landscape, objective: Objective, noise: NoiseModel, limit: float, state: State
) -> Solution | None:
    """The optimum of the sum around ``state``; None if there is none or the sum misleads."""
    moves = landscape.group_moves
    program = _program(landscape, objective, noise, limit, state)
    if program is None:
        return None
    relaxed = linprog(
        program.costs,
        A_ub=program.most,
        b_ub=program.high,
        A_eq=program.equal,
        b_eq=np.ones(program.equal.shape[0]),
        bounds=(0, 1),
    )
    if relaxed.x is None:
        return None

    def reached(x: np.ndarray) -> State:
        return apply(state, [moves.moves[i] for i in np.flatnonzero(x[: len(moves)] > 0.5)])

    is_open = np.ones(len(relaxed.x), dtype=bool)
    if noise.predict(state) <= limit:  # Then it costs 0 in the sum, and better is less than that.
        if relaxed.fun > -GAP:
            return Solution(state, proven=True)
        rounded = reached(relaxed.x)
        expected = program.sum_of(relaxed.x[: len(moves)] > 0.5)
        change = landscape.value(rounded, objective) - landscape.value(state, objective)
        if change - expected > -relaxed.fun:
            return None  # Wrong by more than there is to gain.
        is_open = relaxed.fun + relaxed.lower.marginals <= 1e-9
    x, is_optimal = _solved(program, is_open, relaxed.fun)
    return None if x is None else Solution(reached(x), is_optimal)


def _solved(program: _Program, is_open: np.ndarray, bound: float) -> tuple[np.ndarray | None, bool]:
    """The unknowns and whether they are proven to be within ``GAP`` of the least cost.

    ``is_open``: which of them may be other than 0. ``bound``: no cost is lower.
    """
    solution = milp(
        program.costs,
        integrality=np.arange(len(program.costs)) < program.choices,
        bounds=Bounds(0, is_open.astype(float)),
        constraints=[
            LinearConstraint(program.equal, 1, 1),
            LinearConstraint(program.most, -np.inf, program.high),
        ],
        options={"node_limit": NODES, "mip_rel_gap": min(1.0, GAP / max(-bound, GAP))},
    )
    return solution.x, solution.status == OPTIMAL


def _near_pairs(landscape: Landscape, changes: np.ndarray) -> list[tuple[int, int]]:
    """The pairs of changes of two groups that may do something to one layer."""
    first, second = landscape.near_groups
    both = changes[first] & changes[second]
    return list(zip(first[both].tolist(), second[both].tolist(), strict=True))


def _groups(landscape: Landscape, moves: Moves) -> list[int]:
    """The number of each move's group."""
    owner = {site: number for number, sites in enumerate(landscape.members) for site in sites}
    return [owner[move[0][0]] for move in moves.moves]


def _program(
    landscape: Landscape, objective: Objective, noise: NoiseModel, limit: float, state: State
) -> _Program | None:
    """The program around ``state``; None if it is too large."""
    moves = landscape.group_moves
    pairs = _pairs(landscape, objective, state)
    if pairs is None:
        return None
    gains = landscape.additive_gains(state, objective, moves)
    group = _groups(landscape, moves)
    shape = len(landscape.members), len(gains) + len(pairs)
    equal = csr_array((np.ones(len(group)), (group, np.arange(len(group)))), shape=shape)
    noises = moves.change(noise.extras, state)
    # Noise powers are small numbers, and HiGHS holds constraints up to 1e-6.
    scale = max(float(np.abs(noises).max()), 1e-300)
    quiet = dict(enumerate((noises / scale).tolist())), (limit - noise.predict(state)) / scale
    rows = [quiet, *_products(group, pairs)]
    entries = [
        (i, column, value) for i, (row, _) in enumerate(rows) for column, value in row.items()
    ]
    numbers, columns, values = zip(*entries, strict=True)
    most = csr_array((values, (numbers, columns)), shape=(len(rows), shape[1]))
    costs = np.concatenate([gains, [cost for *_, cost in pairs]])
    return _Program(costs, pairs, equal, most, np.array([high for _, high in rows]))


def _pairs(landscape: Landscape, objective: Objective, state: State) -> list[Pair] | None:
    """What pairs of near changes do together; None if there are too many."""
    moves = landscape.group_moves
    gains = landscape.additive_gains(state, objective, moves)
    near = _near_pairs(landscape, moves.changing(state))
    if len(near) > MOST_PAIRS:
        return None
    both = landscape.moves([moves.moves[i] + moves.moves[j] for i, j in near])
    together = landscape.additive_gains(state, objective, both)
    costly = [
        (i, j, float(gain - gains[i] - gains[j]))
        for (i, j), gain in zip(near, together, strict=True)
    ]
    return [pair for pair in costly if abs(pair[2]) > 1e-9]


def _products(
    group: Sequence[int], pairs: Sequence[Pair]
) -> Iterator[tuple[dict[int, float], float]]:
    """Rows ``entries @ x <= high`` that make products of two choices what they are.

    Of another group only one change is chosen, so all products of a change with that group's are
    at most the change, and at least the change and those less 1. Products that gain need the first,
    those that cost the second.
    """
    with_group = defaultdict[tuple[int, int, bool], list[tuple[int, int]]](list)
    for column, (i, j, cost) in enumerate(pairs, len(group)):
        with_group[i, group[j], cost > 0].append((column, j))
        with_group[j, group[i], cost > 0].append((column, i))
    for (i, _, costs), columns in with_group.items():
        if costs:
            yield (
                {i: 1.0, **{other: 1.0 for _, other in columns}, **{c: -1.0 for c, _ in columns}},
                1.0,
            )
        else:
            yield {i: -1.0, **{column: 1.0 for column, _ in columns}}, 0.0
