"""Moves: changes of sites' layouts, split into pieces too far apart to interact."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, reduce
from operator import itemgetter, or_

import numpy as np

State = tuple[int, ...]  # Number of the layout of each decided site.
Move = tuple[tuple[int, int], ...]  # Sites and the layouts they change to.


def apply(state: State, moves: Iterable[Move]) -> State:
    """``state`` after ``moves``."""
    changed = list(state)
    for move in moves:
        for site, layout in move:
            changed[site] = layout
    return tuple(changed)


# As many as one proposal comes back to: of thousands of sites it takes 0.4 ms to make one anew.
@lru_cache(maxsize=64)
def layouts_of(state: State) -> np.ndarray:
    """The numbers of ``state`` as an array, which is not to be changed."""
    layouts = np.array(state, dtype=np.int64)
    layouts.flags.writeable = False
    return layouts


def sites_of(move: Move) -> set[int]:
    """The sites that ``move`` changes."""
    return {site for site, _ in move}


def with_sites(state: State, other: State, sites: Iterable[int]) -> State:
    """``state`` with the layouts that ``sites`` have in ``other``."""
    changed = list(state)
    for site in sites:
        changed[site] = other[site]
    return tuple(changed)


@dataclass(frozen=True, eq=False)
class Piece:
    """A part of a change that is far from its other parts.

    ``near``: the sites that what it does depends on. ``nodes``: those it may do something to.
    ``known``: number of what it does by its ``context``, shared with pieces that do the same.
    ``alike``: equal for pieces around whose sites all is alike, in the order of ``near``.
    """

    move: Move
    near: tuple[int, ...]
    nodes: tuple[int, ...]
    known: dict[object, int] = field(default_factory=dict, repr=False)
    alike: Hashable = None

    @cached_property
    def sites(self) -> tuple[int, ...]:
        """The sites that change."""
        return tuple(site for site, _ in self.move)

    @cached_property
    def context(self) -> Callable[[State], object]:
        """Of a state the layouts of ``near``."""
        return itemgetter(*self.near)

    @cached_property
    def layouts(self) -> tuple[int, ...]:
        """What ``sites`` change to."""
        return tuple(layout for _, layout in self.move)

    @cached_property
    def own(self) -> Callable[[State], tuple[int, ...]]:
        """Of a state the layouts of ``sites``."""
        return _of_sites(self.sites)

    @cached_property
    def around(self) -> Callable[[State], tuple[int, ...]]:
        """Of a state the layouts of ``near`` but those of ``sites``."""
        return _of_sites([site for site in self.near if site not in self.sites])

    @cached_property
    def ball(self) -> int:
        """``nodes`` as bits."""
        return _bits(self.nodes)


class Moves:
    """Changes to choose from."""

    def __init__(self, moves: Sequence[Move], pieces: Sequence[Sequence[Piece]]) -> None:
        """``pieces``: of each of ``moves``."""
        self.moves = tuple(moves)
        self.balls = tuple(reduce(or_, [piece.ball for piece in of_move]) for of_move in pieces)
        self.pieces = tuple(dict.fromkeys(piece for of_move in pieces for piece in of_move))
        index = {piece: i for i, piece in enumerate(self.pieces)}
        # Flat arrays, and where each move begins in them.
        self.parts = np.array([index[piece] for of_move in pieces for piece in of_move], dtype=int)
        self._part_counts = np.array([len(of_move) for of_move in pieces], dtype=int)
        self.part_starts = _starts(self._part_counts)
        self.sites = np.array([site for move in moves for site, _ in move], dtype=int)
        self.layouts = np.array([layout for move in moves for _, layout in move], dtype=int)
        self.site_starts = _starts(np.array([len(move) for move in moves], dtype=int))
        self._near = np.array([site for piece in self.pieces for site in piece.near], dtype=int)
        self._sites = 1 + max((max(piece.near) for piece in self.pieces), default=0)
        near_counts = np.array([len(piece.near) for piece in self.pieces], dtype=int)
        self._near_starts = _starts(near_counts)
        self._near_weights = _weights(near_counts)
        self._codes: tuple[State, np.ndarray] = (), np.zeros(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.moves)

    def parts_of(self, index: int) -> np.ndarray:
        """Numbers of the pieces of one move."""
        start = self.part_starts[index]
        return self.parts[start : start + self._part_counts[index]]

    def changing(self, state: State) -> np.ndarray:
        """Whether each move changes ``state`` at all."""
        return self.sums((layouts_of(state)[self.sites] != self.layouts).astype(int)) > 0

    def any_part(self, of_pieces: np.ndarray) -> np.ndarray:
        """Whether ``of_pieces`` holds for a piece of each move, shape (moves,)."""
        empty = np.zeros(0, dtype=bool)
        return (
            np.logical_or.reduceat(of_pieces[self.parts], self.part_starts) if len(self) else empty
        )

    def pieces_of(self, wanted: np.ndarray) -> np.ndarray:
        """Whether each piece is one of a ``wanted`` move, shape (pieces,)."""
        marked = np.zeros(len(self.pieces), dtype=bool)
        marked[self.parts[np.repeat(wanted, self._part_counts)]] = True
        return marked

    def altered(self, sites: np.ndarray) -> np.ndarray:
        """Whether what each piece does depends on one of ``sites``, shape (pieces,)."""
        if not self.pieces:
            return np.zeros(0, dtype=bool)
        is_altered = np.zeros(self._sites, dtype=bool)
        is_altered[sites[sites < self._sites]] = True
        return np.logical_or.reduceat(is_altered[self._near], self._near_starts)

    def distinct(self, state: State, pieces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """One of ``pieces``, by index, for all that do the same in ``state`` as they are alike.

        In the order of ``pieces``, for each of which the second array has the position of its own.
        """
        if not len(pieces):
            return pieces, pieces
        codes = self._codes_in(state)[pieces]
        _, first, same = np.unique(codes, return_index=True, return_inverse=True)
        order = np.argsort(first)
        position = np.empty(len(order), dtype=int)
        position[order] = np.arange(len(order))
        return pieces[first[order]], position[same]

    def _codes_in(self, state: State) -> np.ndarray:
        """Of each piece a number for what it is and the layouts near it, shape (pieces,).

        Products with random odd numbers are summed up modulo 2**64, so unlike ones have one number
        with a chance of about 2**-60 (Dietzfelbinger 1996, Universal hashing and k-wise independent
        random variables via integer arithmetic without primes).
        """
        if self._codes[0] is not state:
            layouts = layouts_of(state)[self._near] * self._near_weights
            self._codes = state, np.add.reduceat(layouts, self._near_starts) + self._kinds
        return self._codes[1]

    @cached_property
    def _kinds(self) -> np.ndarray:
        """Of each piece a random number for what it is, the same for those that are alike."""
        numbers: dict[Hashable, int] = {}
        kinds = [numbers.setdefault((p.alike, p.layouts), len(numbers)) for p in self.pieces]
        return np.asarray(_random(len(numbers), seed=1)[np.array(kinds, dtype=int)])

    def change(self, table: np.ndarray, state: State) -> np.ndarray:
        """What each move adds to a sum over sites of a ``table`` by site and layout."""
        now = layouts_of(state)[self.sites]
        return self.sums(table[self.sites, self.layouts] - table[self.sites, now])

    def sums(self, by_site: np.ndarray) -> np.ndarray:
        """Sum up what each move does to each of its sites, shape (..., moves)."""
        if not len(self):
            return np.zeros((*by_site.shape[:-1], 0))
        return np.asarray(np.add.reduceat(by_site, self.site_starts, axis=-1))

    @cached_property
    def of_sites(self) -> np.ndarray:
        """The number of the move that each of ``sites`` belongs to."""
        ends = np.append(self.site_starts[1:], len(self.sites))
        return np.repeat(np.arange(len(self)), ends - self.site_starts)


def batches(pieces: Sequence[tuple[int, Piece]]) -> Iterator[list[int]]:
    """Split numbered ``pieces`` into lists of those that are far from each other."""
    waiting = list(pieces)
    while waiting:
        batch: list[int] = []
        taken = 0
        left: list[tuple[int, Piece]] = []
        for index, piece in waiting:
            if piece.ball & taken:
                left.append((index, piece))
            else:
                batch.append(index)
                taken |= piece.ball
        yield batch
        waiting = left


def _of_sites(sites: Sequence[int]) -> Callable[[State], tuple[int, ...]]:
    """What gives the layouts of ``sites``, a tuple however many there are."""
    if len(sites) > 1:
        return itemgetter(*sites)
    if not sites:
        return lambda _: ()
    (site,) = sites
    return lambda state: (state[site],)


def _starts(sizes: np.ndarray) -> np.ndarray:
    return np.asarray(np.cumsum(sizes) - sizes)


def _random(count: int, *, seed: int) -> np.ndarray:
    """Odd numbers, the same in every process."""
    drawn = np.random.default_rng(seed).integers(-(1 << 63), 1 << 63, size=count)
    return np.asarray(drawn | 1)


def _weights(counts: np.ndarray) -> np.ndarray:
    """A random number for each position in lists of so many entries, one list after the other."""
    ranks = np.arange(counts.sum()) - np.repeat(_starts(counts), counts)
    return np.asarray(_random(max(counts, default=0), seed=0)[ranks])


def _bits(numbers: Iterable[int]) -> int:
    """A set of numbers as the bits of one, of which many are quickly held against each other."""
    bits = 0
    for number in numbers:
        bits |= 1 << number
    return bits
