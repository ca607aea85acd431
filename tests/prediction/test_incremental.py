"""Predicting from a near prediction is predicting from scratch, and looks at what changed only."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.graph import Edge, Graph
from placer.graph.text import graph_of_text
from placer.prediction.layers.prediction import Prediction
from placer.prediction.layers.predictor import Predictor
from placer.quantization import EMPTY, FLOAT8, Placement
from placer.quantization.placement import ScaleGroup
from placer.rules.connected import connected
from placer.rules.incremental_placement import IncrementalPlacer
from placer.rules.packaging.load import load_pack
from placer.rules.sites import ResolvedLayout, Site, find_sites, place
from placer.rules.target import Target
from placer.search.landscape.layer_signatures import LayerModel
from tests.prediction.small_rules import PACK
from tests.prediction.test_motion import HEAD, graph_texts, placements

RULES = {"small": PACK, "tensorrt": load_pack("tensorrt").rules}

# Two heads that read one mask, with motion past their Reshapes and Transposes.
ATTENTION = f"""
{HEAD}
g (float[1,16,32] x, float[1,1,16,16] mask) => (float[1,16,32] out, float[1,2,16,16] p1)
<float[32,32] w = {{1}}, float[32] b = {{0}}, int64[4] heads = {{1,16,2,16}},
 int64[3] whole = {{1,16,32}}, float half = {{0.25}}> {{
  [q0] q0 = MatMul(x, w) [qb] q1 = Add(q0, b) [qr] q2 = Reshape(q1, heads)
  [qt] q = Transpose<perm = [0, 2, 1, 3]>(q2)
  [k0] k0 = MatMul(x, w) [kr] k2 = Reshape(k0, heads)
  [kt] k = Transpose<perm = [0, 2, 3, 1]>(k2)
  [v0] v0 = MatMul(x, w) [vr] v2 = Reshape(v0, heads)
  [vt] v = Transpose<perm = [0, 2, 1, 3]>(v2)
  [score1] s1 = MatMul(q, k) [scale1] s2 = Mul(s1, half) [mask1] s3 = Add(s2, mask)
  [soft1] p1 = Softmax<axis = -1>(s3) [read1] r1 = MatMul(p1, v)
  [score2] s4 = MatMul(r1, k) [mask2] s5 = Add(s4, mask)
  [soft2] p2 = Softmax<axis = -1>(s5) [read2] r2 = MatMul(p2, v)
  [rt] r3 = Transpose<perm = [0, 2, 1, 3]>(r2) [rr] r4 = Reshape(r3, whole)
  [proj] y = MatMul(r4, w) [skip] z = Add(y, x)
  [norm] out = LayerNormalization<axis = -1>(z, b, b)
}}
"""
# Branches, a residual, joined and split channels, and tensors read inside and outside a subgraph.
BRANCHES = f"""
{HEAD}
g (float[1,8,16,16] x, bool c) => (float[1,8,8,8] left, float[1,8,8,8] right, float[1,8,16,16] d)
<float[8,8,1,1] w = {{1}}, float[16,16,1,1] v = {{2}}> {{
  [conv1] a = Conv(x, w) [relu1] b = Relu(a)
  [conv2] d = Conv(b, w) [conv3] e = Conv(x, w) [add1] f = Add(d, e) [relu2] g = Relu(f)
  [join1] h = Concat<axis = 1>(g, b) [pool1] i = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(h)
  [conv4] j = Conv(i, v) [split1] l, m = Split<axis = 1>(j)
  [conv5] n = Conv(l, w) [if1] o = If (c) <
    then_branch = t () => (t1) {{ t1 = Relu(m) }}, else_branch = e () => (e1) {{ e1 = Add(m, n) }}
  >
  [join2] p = Concat<axis = 1>(o, n) [conv6] q = Conv(p, v)
  [split2] left, right = Split<axis = 1>(q)
}}
"""


def content(prediction: Prediction) -> tuple[object, ...]:
    """All that a prediction says; claims are compared by identity."""
    layers = [(p.layer, p.nodes, p.claim, p.edges, p.ordinal) for p in prediction.layers]
    return layers, prediction.form.scales, prediction.form.second, prediction.form.canonical()


def predictor_of(
    graph: Graph, rules: str = "tensorrt", typing: str = "strong", base: str = "float16"
) -> Predictor:
    target = Target(typing="weak" if typing == "weak" else "strong")
    return Predictor(graph, RULES[rules], target, base, "int8")


@st.composite
def similar(draw: st.DrawFn, graph: Graph, placement: Placement) -> Placement:
    """``placement`` with one of its groups left out or taken from another placement."""
    other = draw(placements(graph))
    gone = draw(st.sampled_from([None, *placement.groups]))
    kept = placement.groups - {gone}
    used = {edge for group in kept for edge in group.edges}
    groups = draw(st.sets(st.sampled_from(list(other.groups)), max_size=1)) if other.groups else ()
    chosen = draw(st.sampled_from([None, FLOAT8]))
    new = (ScaleGroup(group.edges - used, chosen) for group in groups)
    return Placement(kept | {group for group in new if group.edges})


@st.composite
def walks(draw: st.DrawFn) -> tuple[Predictor, list[Placement], list[int]]:
    """Placements, each with the number of the earlier one that it is predicted from."""
    graph = graph_of_text(draw(graph_texts() | st.sampled_from([ATTENTION, BRANCHES])))
    typing = draw(st.sampled_from(["weak", "strong"]))
    base = draw(st.sampled_from(["float", "float16"]))
    walk, near = [draw(placements(graph))], [0]
    for _ in range(draw(st.integers(1, 5))):
        near.append(draw(st.integers(0, len(walk) - 1)))
        walk.append(draw(similar(graph, walk[near[-1]]) | placements(graph)))
    return predictor_of(graph, draw(st.sampled_from(sorted(RULES))), typing, base), walk, near


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(walks())
def test_from_a_near_prediction_follows_what_follows_from_scratch(
    case: tuple[Predictor, list[Placement], list[int]],
):
    predictor, walk, near = case
    known = [predictor.predict(walk[0])]
    for placement, index in zip(walk[1:], near[1:], strict=True):
        known.append(predictor.predict(placement, known[index]))
    for placement, prediction in zip(walk, known, strict=True):
        assert content(prediction) == content(predictor.predict(placement))


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_what_is_built_in_a_region_follows_from_the_pairs_on_its_edges(data: st.DataObject):
    graph = graph_of_text(data.draw(graph_texts() | st.sampled_from([ATTENTION, BRANCHES])))
    predictor = predictor_of(graph, data.draw(st.sampled_from(sorted(RULES))))
    form = predictor.predict(data.draw(placements(graph))).form
    for region in predictor._regions:
        decided = predictor._decisions.of(region, form)
        found = {i: paired for i, paired in decided.items() if paired is not None}
        assert {i: paired.candidate for i, paired in found.items()} == region.candidates(
            form, lambda _: True
        )
        for paired in found.values():
            assert paired.chains == tuple(map(form.chain, paired.candidate.reads))
            assert paired.written == paired.candidate.output_scales(form)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(walks())
def test_what_a_change_makes_of_the_steps_is_what_a_prediction_makes_of_them(
    case: tuple[Predictor, list[Placement], list[int]],
):
    predictor, walk, _ = case
    before, placement = predictor.predict(walk[0]), walk[-1]
    change = walk[0].change_to(placement)
    after = predictor.predict(placement, before)
    assert walk[0].changed(change) == placement
    assert walk[0].id_after(change) == placement.id
    assert set(change.added) == placement.edges - walk[0].edges
    assert set(change.removed) == walk[0].edges - placement.edges
    steps = {**before.steps, **predictor.vary(before, change)}
    assert {i: step for i, step in steps.items() if step is not None} == after.steps


SITES = {
    (name, pack): find_sites(graph_of_text(text), load_pack(pack).rules)
    for name, text in (("attention", ATTENTION), ("branches", BRANCHES))
    for pack in ("tensorrt", "onnxruntime")
}
SITES |= {
    (name, "INT8 and FP8"): find_sites(
        graph_of_text(text), load_pack("tensorrt").rules, formats=[FLOAT8]
    )
    for name, text in (("attention", ATTENTION), ("branches", BRANCHES))
}


def layouts(sites: tuple[Site, ...]) -> st.SearchStrategy[dict[str, str]]:
    return st.fixed_dictionaries(
        {}, optional={site.name: st.sampled_from(sorted(site.layouts)) for site in sites}
    )


def numbers(sites: tuple[Site, ...], choices: dict[str, str]) -> tuple[int, ...]:
    return tuple(list(s.layouts).index(choices.get(s.name, s.default)) for s in sites)


@pytest.mark.parametrize("case", SITES)
@settings(deadline=None, max_examples=40)
@given(st.data())
def test_a_placer_places_as_place_does(case: tuple[str, str], data: st.DataObject):
    sites, placer = SITES[case], IncrementalPlacer(SITES[case])
    for choices in data.draw(st.lists(layouts(sites), max_size=4)):
        assert placer.place(numbers(sites, choices)) == place(sites, choices)


@pytest.mark.parametrize("case", SITES)
@settings(deadline=None, max_examples=25)
@given(st.data())
def test_a_placer_changes_what_placements_differ_in(case: tuple[str, str], data: st.DataObject):
    sites = SITES[case]
    before, after = data.draw(layouts(sites)), data.draw(layouts(sites))
    change = IncrementalPlacer(sites).change(numbers(sites, before), numbers(sites, after))
    assert change == place(sites, before).change_to(place(sites, after))


@pytest.mark.parametrize("case", SITES)
@settings(deadline=None, max_examples=25)
@given(st.data())
def test_the_sites_around_a_change_decide_what_it_changes(
    case: tuple[str, str], data: st.DataObject
):
    sites, placer = SITES[case], IncrementalPlacer(SITES[case])
    before = numbers(sites, data.draw(layouts(sites)))
    site = data.draw(st.integers(0, len(sites) - 1))
    layout = data.draw(st.integers(0, len(sites[site].layouts) - 1))
    after = (*before[:site], layout, *before[site + 1 :])
    known = {i: before[i] for i in placer.around([site])}
    found = placer.change_at([site], known, known | {site: layout})
    assert found == placer.change(before, after)


@st.composite
def any_sites(draw: st.DrawFn) -> tuple[Site, ...]:
    """Sites whose layouts are of any edges and tensors of a model."""
    graph = graph_of_text(BRANCHES)
    tensors = ("a", "b", "d", "f", "g", "h")
    edges = st.sampled_from([e for t in tensors for e in graph.edges_of(t)])
    some = st.frozensets(edges, max_size=2)
    resolved = st.builds(
        ResolvedLayout,
        quantize=some,
        shared=st.lists(st.lists(st.sampled_from(tensors)).map(tuple), max_size=1).map(tuple),
        keep_float=st.just(frozenset()) | some,
        requires=st.just(frozenset()) | some,
        all_or_none=st.lists(some, max_size=1).map(tuple),
        own=some,
        format=st.sampled_from([None, FLOAT8]),
    )
    sites = SITES["branches", "tensorrt"][:4]
    return tuple(replace(site, layouts={site.default: draw(resolved)}) for site in sites)


@pytest.mark.slow
@settings(max_examples=300)
@given(any_sites())
def test_a_placer_places_any_layouts_as_place_does(sites: tuple[Site, ...]):
    assert IncrementalPlacer(sites).place(numbers(sites, {})) == place(sites, {})


def test_a_placer_sees_a_set_broken_by_a_site_that_shares_no_quantized_tensor():
    graph = graph_of_text(BRANCHES)
    (a,), (d,) = graph.edges_of("a"), graph.edges_of("d")[:1]
    none = frozenset[Edge]()
    whole = ResolvedLayout(frozenset({a}), (), none, none, (frozenset({a, d}),))
    keeper = ResolvedLayout(none, (), frozenset({d}), none)
    first, second = SITES["branches", "tensorrt"][:2]
    sites = (
        replace(first, layouts={first.default: whole}),
        replace(second, layouts={second.default: keeper}),
    )
    assert IncrementalPlacer(sites).place(numbers(sites, {})) == place(sites, {}) == EMPTY


@pytest.mark.parametrize("text", [ATTENTION, BRANCHES])
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_counts_and_changes_are_those_of_the_layers(text: str, data: st.DataObject):
    graph = graph_of_text(text)
    sites = find_sites(graph, RULES["tensorrt"])
    model = LayerModel(graph, predictor_of(graph))
    before = model.predict(place(sites, data.draw(layouts(sites))))
    placement = place(sites, data.draw(layouts(sites)))
    after = model.predict(placement, before)
    changed = before.counts()
    change = before.prediction.placement.change_to(placement)
    for signature, node, sign in model.changes(change, before):
        assert 0 <= node < len(graph.nodes)
        changed[signature] += sign
    assert +changed == after.counts() == Counter(map(model.number, after.layers))


def test_a_change_looks_at_the_layers_around_it_only():
    lines = [f"[conv{i}] t{i + 1} = Conv(t{i}, w) [relu{i}] r{i} = Relu(t{i})" for i in range(60)]
    outputs = ", ".join(f"float[1,4,8,8] r{i}" for i in range(60))
    graph = graph_of_text(
        f"{HEAD} g (float[1,4,8,8] t0) => (float[1,4,8,8] t60, {outputs})"
        f" <float[4,4,1,1] w = {{1}}> {{ {' '.join(lines)} }}"
    )
    edge = next(edge for edge in graph.edges_of("t30") if edge.node == "conv30")
    predictor = predictor_of(graph)
    weights = Placement.of_groups([graph.edges_of("w")])
    before = predictor.predict(weights)
    after = predictor.predict(Placement(weights.groups | {ScaleGroup(frozenset({edge}))}), before)
    differ = [i for i, step in after.steps.items() if before.steps.get(i) is not step]
    names = {p.layer.name for i in differ for p in after.steps[i].layers}
    assert {"quantize t30", "conv30"} <= names <= {"quantize t30", "conv30", "relu30"}


def test_the_empty_placement_is_reached_again():
    graph = graph_of_text(BRANCHES)
    predictor = predictor_of(graph)
    whole = predictor.predict(place(SITES["branches", "tensorrt"], {}))
    again = predictor.predict(EMPTY, whole)
    assert content(again) == content(predictor.predict(EMPTY))
    assert not again.form.scales


@given(st.lists(st.frozensets(st.integers(0, 12), max_size=3), max_size=8))
def test_connected_items_share_elements_and_parts_do_not(items: list[frozenset[int]]):
    parts = connected(items)
    assert sorted(i for part in parts for i in part) == list(range(len(items)))
    assert [part[0] for part in parts] == sorted(part[0] for part in parts)
    unions = [frozenset().union(*(items[i] for i in part)) for part in parts]
    assert sum(map(len, unions)) == len(frozenset().union(*unions))
    for part in parts:  # From its first item, all of a part are reached.
        reached, left = {part[0]}, set(part[1:])
        while near := {i for i in left if any(items[i] & items[j] for j in reached)}:
            reached, left = reached | near, left - near
        assert not left
