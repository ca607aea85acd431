"""The noise of sites from the noise of candidates, and what gates allow."""

import math

import numpy as np
import pytest

from placer.search.landscape.landscape import State, apply
from placer.search.models.noise_model import NoiseModel, NoiseObservation, learn_limit
from tests.search.landscapes import BRANCHES, landscape

LAND = landscape(BRANCHES, "onnxruntime")
FLOATS = LAND.state(LAND.space.floats)
EVERYTHING = LAND.state(LAND.space.everything)
SITES = [i for i, pair in enumerate(zip(FLOATS, EVERYTHING, strict=True)) if len(set(pair)) > 1]
# One site makes nearly all noise.
NOISY = SITES[2]


def true_noise(state: State) -> float:
    """Additive: 1e-2 of one site, 1e-4 of each other that is quantized."""
    return sum(1e-2 if site == NOISY else 1e-4 for site in SITES if state[site] == EVERYTHING[site])


def only(sites: list[int]) -> State:
    """Everything at ``sites``, float elsewhere."""
    return apply(FLOATS, [tuple((site, EVERYTHING[site]) for site in sites)])


def seen(*states: State) -> list[NoiseObservation]:
    return [NoiseObservation(state, true_noise(state)) for state in states]


def halves(sites: list[int]) -> list[list[int]]:
    """Blocks and their halves down to single sites, as far as the noisy one is in them."""
    if len(sites) == 1 or NOISY not in sites:
        return [sites]
    middle = len(sites) // 2
    return [sites, *halves(sites[:middle]), *halves(sites[middle:])]


def test_blocks_that_are_halved_where_the_noise_is_tell_the_noisy_site():
    blocks = halves(SITES)
    assert len(blocks) < len(SITES) + 3  # Fewer than one by one and more for larger models.
    model = NoiseModel(LAND, seen(*(only(block) for block in blocks)))
    assert model.predict(only([NOISY])) == pytest.approx(1e-2, rel=0.2)
    rest = only([site for site in SITES if site != NOISY])
    assert model.predict(rest) < 0.2 * 1e-2


def test_single_sites_add_up():
    """Noises from 1e-4 to 4e-4, each measured alone."""
    noises = {site: 1e-4 * (1 + index % 4) for index, site in enumerate(SITES)}
    alone = [NoiseObservation(only([site]), noise) for site, noise in noises.items()]
    model = NoiseModel(LAND, alone)
    assert model.predict(EVERYTHING) == pytest.approx(sum(noises.values()), rel=0.1)
    loud, quiet = ([s for s in SITES if noises[s] == noise] for noise in (4e-4, 1e-4))
    predicted = {site: model.predict(only([site])) for site in SITES}
    assert min(predicted[site] for site in loud) > max(predicted[site] for site in quiet)


def test_float_layouts_make_no_noise():
    model = NoiseModel(LAND, seen(EVERYTHING))
    assert model.predict(FLOATS) == 0


def test_before_anything_is_measured_more_edges_are_more_noise():
    model = NoiseModel(LAND, [])
    assert 0 < model.predict(only(SITES[:1])) < model.predict(EVERYTHING)


def test_extras_are_the_noise_by_site_and_layout():
    model = NoiseModel(LAND, seen(*(only([site]) for site in SITES)))
    summed = sum(own[layout] for own, layout in zip(model.extras, EVERYTHING, strict=True))
    assert summed == pytest.approx(model.predict(EVERYTHING))


def test_draws_are_noises_that_are_possible():
    """Never negative, and closer together the more is known."""

    def spread(observations: list[NoiseObservation]) -> float:
        drawn = [
            NoiseModel(LAND, observations, np.random.default_rng(i)).predict(only([NOISY]))
            for i in range(40)
        ]
        assert min(drawn) >= 0
        return float(np.std(drawn) / np.mean(drawn))

    assert spread(seen(only([NOISY]), EVERYTHING)) < spread(seen(EVERYTHING))


def test_the_limit_is_learned_from_what_held_and_what_missed():
    assert learn_limit([]) == math.inf
    assert learn_limit([(0.1, True), (0.2, True)]) == math.inf
    # Between the noisiest that held and the quietest that missed.
    assert learn_limit([(0.04, True), (0.09, False), (0.01, True)]) == pytest.approx(0.06)
    # Far apart: not far below what missed, or little would be tried.
    assert learn_limit([(1e-6, True), (0.9, False)]) == pytest.approx(0.3)
    # Nothing held yet.
    assert learn_limit([(0.9, False)]) == pytest.approx(0.3)


def test_a_limit_of_noise_is_never_zero():
    """The float model has none, nor has any model whose outputs are integers."""
    assert learn_limit([(0.0, True), (0.0, False)]) == math.inf
    overlapping = [(0.0, True), (0.5, True), (0.1, False), (0.2, False)]
    assert learn_limit(overlapping) == pytest.approx(0.1 / 3)


def test_where_outcomes_overlap_most_are_told_right():
    outcomes = [(1.0, True), (2.0, True), (2.5, False), (3.0, True), (4.0, False), (5.0, False)]
    assert learn_limit(outcomes) == 3.0
    assert learn_limit([*outcomes, (2.6, False), (2.7, False)]) == 2.0


def test_with_hope_only_what_is_not_known_is_quieter():
    known, unknown = SITES[0], SITES[1]
    observed = [NoiseObservation(only([known]), 1e-3)]
    expected, hoped = (NoiseModel(LAND, observed, hope=hope) for hope in (0.0, 1.0))
    assert expected.predict(only([known])) == pytest.approx(1e-3, rel=0.01)
    # It was measured to within a tenth.
    assert hoped.predict(only([known])) == pytest.approx(0.9e-3, rel=0.02)
    assert expected.predict(only([unknown])) > 5e-4
    assert hoped.predict(only([unknown])) == 0
