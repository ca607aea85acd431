"""Random small graphs: motifs of networks one after another, or a rule's test model grown on."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from onnx import ModelProto

from placer.graph.text import parse_model
from placer.rules.schema import Rule
from tests.differential.motifs import IMAGE, TOKENS
from tests.differential.net import Misfit, Net

_IMAGES = ((1, 3, 32, 32), (1, 16, 16, 16), (1, 16, 16, 16), (1, 32, 8, 8), (2, 16, 16, 16))
_SEQUENCES = ((1, 16, 32), (1, 16, 64), (1, 49, 32), (2, 16, 64))
_FROM_RULE = 0.3
_TOKENS = 0.25
_EXTRA_OUTPUT = 0.15


def random_model(random: Random, rules: Sequence[Rule]) -> ModelProto:
    """A float model of at most a few dozen nodes; ``rules``: whose tests it may start from."""
    if rules and random.random() < _FROM_RULE:
        rule = random.choice(rules)
        net = Net(random, parse_model(random.choice(rule.tests).model))
        count = random.choice((0, 0, 1, 2))
    else:
        net = Net(random)
        net.input(*random.choice(_SEQUENCES if random.random() < _TOKENS else _IMAGES))
        count = random.choice((1, 2, 2, 3, 4))
    _grow(net, random, count)
    tensors = list(net.shapes)
    extra = [random.choice(tensors)] if tensors and random.random() < _EXTRA_OUTPUT else []
    return net.finished(extra)


def _grow(net: Net, random: Random, count: int) -> None:
    """Append ``count`` motifs; those that do not fit leave no trace and are drawn anew."""
    for _ in range(40):
        if count <= 0:
            return
        ranks = {len(shape) for shape in net.shapes.values()}
        weights = (IMAGE if 4 in ranks else {}) | (TOKENS if ranks & {2, 3} else {})
        if not weights:
            return
        (motif,) = random.choices(list(weights), list(weights.values()))
        mark = net.mark()
        try:
            motif(net, random)
        except (Misfit, IndexError):
            net.reset(mark)
        else:
            count -= 1
