"""placer's own plan format: exact round trip, errors that name the field."""

import json
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.errors import InputError
from placer.plan import Kind, Layer, Plan, Port
from placer.plan.json_format import parse_plan, plan_json

PORTS = st.builds(Port, st.text(), st.text(), st.text())
LAYERS = st.builds(
    Layer,
    name=st.text(),
    op=st.text(),
    nodes=st.lists(st.text(), max_size=4).map(tuple),
    inputs=st.lists(PORTS, max_size=3).map(tuple),
    outputs=st.lists(PORTS, max_size=3).map(tuple),
    kind=st.sampled_from(get_args(Kind)),
    activation=st.text(),
    time_us=st.none() | st.floats(min_value=0, allow_infinity=False),
)
PLANS = st.builds(
    Plan,
    st.lists(LAYERS, max_size=5).map(tuple),
    st.text(),
    st.booleans(),
    st.lists(st.text(), max_size=3).map(tuple),
)


@pytest.mark.slow
@settings(max_examples=30)
@given(PLANS)
def test_a_plan_read_back_is_the_same(plan: Plan):
    assert parse_plan(json.loads(json.dumps(plan_json(plan))), "plan.json") == plan


def test_the_document():
    conv = Layer(
        "conv1",
        "Conv",
        ("conv1", "relu1"),
        (Port("int8", "", "x"),),
        (Port("float16", "NHWC"),),
        time_us=12.5,
    )
    assert plan_json(Plan((conv,), "fusion-model", estimated=True)) == {
        "format": "placer-plan/1",
        "source": "fusion-model",
        "estimated": True,
        "layers": [
            {
                "name": "conv1",
                "op": "Conv",
                "nodes": ["conv1", "relu1"],
                "inputs": [{"dtype": "int8", "tensor": "x"}],
                "outputs": [{"dtype": "float16", "format": "NHWC"}],
                "kind": "compute",
                "time_us": 12.5,
            }
        ],
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "magic"}, r"plan.json: layers.0.kind: Input should be 'compute', 'quantize', .*"),
        ({"node": []}, r"plan.json: layers.0.node: Extra inputs are not permitted"),
        ({"nodes": "conv"}, r"plan.json: layers.0.nodes: Input should be a valid list"),
        ({"time_us": -1}, r"plan.json: layers.0.time_us: Input should be greater than .* to 0"),
        ({"outputs": [{}]}, r"plan.json: layers.0.outputs.0.dtype: Field required"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, object], message: str):
    document = plan_json(Plan((Layer("a", "Conv", ("a",)),)))
    document["layers"][0] |= change
    with pytest.raises(InputError, match=message):
        parse_plan(document, "plan.json")


def test_another_version_is_refused():
    with pytest.raises(InputError, match=r"plan.json: format: Input should be 'placer-plan/1'"):
        parse_plan(plan_json(Plan(())) | {"format": "placer-plan/9"}, "plan.json")
    with pytest.raises(InputError, match=r"plan.json: the document: Input should be a valid dict"):
        parse_plan([], "plan.json")
