"""The best placement under a gate as an integer program.

Around a placement, what changes of groups do to the predicted latency is a sum over the groups plus
what pairs of near groups do together (a layer that fuses only if both are quantized, a conversion
between them); noise is a sum over sites. Exactly one layout per group, noise within the limit and
products of two choices as linear inequalities (McCormick 1976) make this a mixed-integer linear
program, which HiGHS solves (Huangfu and Hall 2018, through SciPy). Where three groups depend on
each other the sum is only nearly right, so it is made again around the solution.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from placer.search.landscape import Landscape, Moves, Objective, State, apply
from placer.search.noise_model import NoiseModel

# How often the program is made again around its solution.
ROUNDS = 3
# Branches after which the best known solution is taken: time would not be the same every time.
NODES = 2_000
# Programs of more pairs are not made: predicting them would take longer than a measurement.
MOST_PAIRS = 1_000
OPTIMAL = 0  # HiGHS' status, as SciPy tells it.


class Solution(NamedTuple):
    """``proven``: no other placement has a lower sum around ``state`` within the limit."""

    state: State
    proven: bool


def solve(
    landscape: Landscape, objective: Objective, noise: NoiseModel, limit: float, start: State
) -> Solution | None:
    """The placement of whole groups that is fastest by ``objective`` within the noise ``limit``.

    Looks around ``start`` first, in which no group may be split. None if the program is too large
    or nothing holds the limit.
    """
    best: tuple[float, Solution] | None = None
    state = start
    for _ in range(ROUNDS):
        found = _around(landscape, objective, noise, limit, state)
        if found is None or noise.predict(found.state) > limit * (1 + 1e-9):
            break
        value = landscape.value(found.state, objective)
        if best is not None and value >= best[0]:
            # Only where the sum around the solution has no better one is it the optimum.
            return best[1]._replace(proven=found.proven and found.state == best[1].state)
        best = value, found._replace(proven=False)
        state = found.state
    return None if best is None else best[1]


class _Program(NamedTuple):
    """Costs and constraints ``low <= matrix @ x <= high`` over choices and products of two."""

    costs: np.ndarray
    matrix: csr_array
    low: np.ndarray
    high: np.ndarray


def _around(
    landscape: Landscape, objective: Objective, noise: NoiseModel, limit: float, state: State
) -> Solution | None:
    """The optimum of the sum around ``state``."""
    moves = landscape.group_moves
    gains, changes = landscape.gains(state, objective, moves)
    near = _near_pairs(landscape, moves, changes)
    if len(near) > MOST_PAIRS:
        return None
    both = landscape.moves([moves.moves[i] + moves.moves[j] for i, j in near])
    together = landscape.gains(state, objective, both)[0]
    pairs = [
        (i, j, float(gain - gains[i] - gains[j]))
        for (i, j), gain in zip(near, together, strict=True)
        if abs(gain - gains[i] - gains[j]) > 1e-9
    ]
    room = limit - noise.predict(state)
    program = _program(landscape, gains, pairs, moves.change(noise.extras, state), room)
    found = milp(
        program.costs,
        integrality=np.arange(len(program.costs)) < len(moves),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(program.matrix, program.low, program.high),
        options={"node_limit": NODES, "mip_rel_gap": 1e-6},
    )
    if found.x is None:
        return None
    chosen = [moves.moves[i] for i in np.flatnonzero(found.x[: len(moves)] > 0.5)]
    return Solution(apply(state, chosen), found.status == OPTIMAL)


def _near_pairs(landscape: Landscape, moves: Moves, changes: np.ndarray) -> list[tuple[int, int]]:
    """The pairs of changes of two groups that may do something to one layer."""
    group = _groups(landscape, moves)
    changing = np.flatnonzero(changes).tolist()
    return [
        (i, j)
        for place, i in enumerate(changing)
        for j in changing[place + 1 :]
        if group[i] != group[j] and moves.balls[i] & moves.balls[j]
    ]


def _groups(landscape: Landscape, moves: Moves) -> list[int]:
    """The number of each move's group."""
    owner = {site: number for number, own in enumerate(landscape.members) for site in own}
    return [owner[move[0][0]] for move in moves.moves]


def _program(
    landscape: Landscape,
    gains: np.ndarray,
    pairs: list[tuple[int, int, float]],
    noises: np.ndarray,
    room: float,
) -> _Program:
    """Columns: a choice for each of ``gains``, then the product of each of ``pairs``."""
    group = _groups(landscape, landscape.group_moves)
    count = len(landscape.members)
    entries = [(number, column, 1.0) for column, number in enumerate(group)]
    low, high = [1.0] * count, [1.0] * count
    # Noise powers are small numbers, and HiGHS holds constraints up to 1e-6.
    scale = max(float(np.abs(noises).max()), 1e-300)
    entries += [(count, column, float(own / scale)) for column, own in enumerate(noises)]
    low.append(-np.inf)
    high.append(room / scale)
    for column, (i, j, gain) in enumerate(pairs, len(gains)):
        # A product that gains is at most each factor; one that costs is at least their sum less 1.
        above = [[(column, 1.0), (i, -1.0)], [(column, 1.0), (j, -1.0)]]
        below = [[(column, -1.0), (i, 1.0), (j, 1.0)]]
        for row in below if gain > 0 else above:
            entries += [(len(low), where, value) for where, value in row]
            low.append(-np.inf)
            high.append(0.0 if gain < 0 else 1.0)
    costs = np.concatenate([gains, [gain for _, _, gain in pairs]])
    numbers, columns, values = zip(*entries, strict=True)
    matrix = csr_array((values, (numbers, columns)), shape=(len(low), len(costs)))
    return _Program(costs, matrix, np.array(low), np.array(high))
