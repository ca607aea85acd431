"""Orders in which nobody is favoured by place or by neighbour."""

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from placer.engines.orders import balanced_orders


def test_orders_of_four_models():
    assert list(balanced_orders(5, 4)) == [
        (0, 1, 3, 2),
        (1, 2, 0, 3),
        (2, 3, 1, 0),
        (3, 0, 2, 1),
        (0, 1, 3, 2),
    ]


@given(st.integers(2, 12))
def test_each_is_at_each_place_and_behind_each_other_equally_often(models: int):
    cycle = models * (1 + models % 2)
    orders = list(balanced_orders(cycle, models))
    places = Counter((model, place) for order in orders for place, model in enumerate(order))
    assert set(places.values()) == {cycle // models}
    assert len(places) == models**2
    neighbours = Counter(pair for order in orders for pair in pairwise(order))
    assert set(neighbours.values()) == {1 + models % 2}
    assert len(neighbours) == models * (models - 1)


def test_one_model_is_its_own_order():
    assert list(balanced_orders(2, 1)) == [(0,), (0,)]
