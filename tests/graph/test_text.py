"""ONNX text models of rule tests: bounded before ONNX's parser, which recurses, sees them."""

import pytest

from placer.errors import InputError
from placer.graph.text import parse_model

HEAD = '<ir_version: 9, opset_import: ["": 17]>'


def test_nesting_that_overflows_the_parser_is_refused():
    types = f"{HEAD} g ({'seq(' * 8000}float{')' * 8000} x) => (float y) {{ y = Identity(x) }}"
    with pytest.raises(InputError, match="nested more than 64 levels"):
        parse_model(types)
    branch = 'y = If (x) <then_branch = a () => (float z) { # >>>>"}}}}\n'
    with pytest.raises(InputError, match="nested more than 64 levels"):
        parse_model(
            f"{HEAD} g (bool x) => (float y) {{ {branch * 500} z = Relu(z) {' }>' * 500} }}"
        )


def test_size_and_odd_characters():
    with pytest.raises(InputError, match="more than 65,536"):
        parse_model(HEAD + " " * 70_000)
    with pytest.raises(InputError, match="NUL"):
        parse_model(HEAD + "\0")


@pytest.mark.parametrize(
    ("initializers", "values"),
    [
        ("float[262144,262144] w = {1}", "68,719,476,736"),
        (", ".join(f"float[4194304] w{i} = {{1}}" for i in range(5)), "20,971,520"),
    ],
    ids=["one", "together"],
)
def test_initializers_that_would_fill_the_memory_are_refused(initializers: str, values: str):
    text = f"{HEAD} g (float x) => (float y) <{initializers}> {{ y = Relu(x) }}"
    with pytest.raises(InputError, match=f"initializers of {values} values in all, more than 16"):
        parse_model(text)


def test_strings_and_comments_nest_nothing():
    comment = "# " + "(" * 100 + "\n"
    doc = '"' + "[" * 100 + '\\"("'
    text = f"""<ir_version: 9, opset_import: ["": 17], doc_string: {doc}> {comment}
    g (float[2] x) => (float[2] y) {{ y = Relu(x) }}"""
    assert parse_model(text).graph.node[0].op_type == "Relu"
