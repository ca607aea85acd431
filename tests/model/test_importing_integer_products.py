"""Products of integers, scaled and biased in every way that ONNX allows: right, or refused."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from placer.errors import InputError
from placer.model import load_model
from tests.reference_outputs import outputs, sqnr

Shape = tuple[int, ...]

STEP = 2.0**-5  # Of the input. Powers of two are exact in FP16 too.
TYPES = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.float16): TensorProto.FLOAT16}


@dataclass(frozen=True)
class Form:
    """A QuantizeLinear, a product, perhaps a bias of int32, and what multiplies the scales in.

    ``shape``: of the product. ``scales``: of them, for a Mul, or for a DequantizeLinear along
    ``axis``, 0 where it names none. ``zeros``: of the quantizer and of the product.
    """

    op: str
    shape: Shape
    bias: Shape | None
    scales: Shape
    by_mul: bool
    axis: int
    zeros: tuple[int, int]
    dtype: np.dtype

    @property
    def channels(self) -> int:
        return 1 if self.op == "ConvInteger" else len(self.shape) - 1

    @property
    def runs(self) -> bool:
        """Whether there are as many scales as the axis has values."""
        axis = self.axis or 1
        if self.by_mul or not self.scales:
            return True
        return axis < len(self.shape) and self.shape[axis] == self.scales[0]

    @property
    def is_float_product(self) -> bool:
        """Whether a float operator with scaled weights computes the same."""
        rank, size = len(self.shape), int(np.prod(self.scales))
        axes = {(self.axis or 1) % rank}
        if self.by_mul:
            axes = {rank - len(self.scales) + i for i, n in enumerate(self.scales) if n > 1}
        return self.zeros[0] == self.zeros[1] and (size == 1 or axes == {self.channels})

    def proto(self) -> onnx.ModelProto:
        rng, channels = np.random.default_rng(7), self.shape[self.channels]
        weight = (channels, 3, 1, 1) if self.op == "ConvInteger" else (3, channels)
        scales = 2.0 ** -np.arange(6, 6 + int(np.prod(self.scales)))
        constants = {
            "w": rng.integers(-90, 90, weight).astype(np.int8),
            "step": np.array(STEP, self.dtype),
            "zero": np.array(self.zeros[0], np.int8),
            "product_zero": np.array(self.zeros[1], np.int8),
            "scales": scales.reshape(self.scales).astype(self.dtype),
        }
        if self.bias is not None:
            constants["bias"] = rng.integers(-5000, 5000, self.bias).astype(np.int32)
        data, dtype = list(self.shape), TYPES[self.dtype]
        data[self.channels] = 3
        graph = helper.make_graph(
            list(self.nodes()),
            "g",
            [helper.make_tensor_value_info("x", dtype, data)],
            [helper.make_tensor_value_info("y", dtype, self.shape)],
            [numpy_helper.from_array(values, name) for name, values in constants.items()],
        )
        return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])

    def nodes(self) -> Iterator[onnx.NodeProto]:
        yield helper.make_node("QuantizeLinear", ["x", "step", "zero"], ["q"])
        yield helper.make_node(self.op, ["q", "w", "product_zero"], ["p"], "product")
        summed = "p" if self.bias is None else "sum"
        if self.bias is not None:
            yield helper.make_node("Add", ["p", "bias"], [summed])
        if self.by_mul:
            yield helper.make_node("Cast", [summed], ["c"], to=TYPES[self.dtype])
            yield helper.make_node("Mul", ["c", "scales"], ["y"])
        else:
            axis = {"axis": self.axis} if self.axis else {}
            yield helper.make_node("DequantizeLinear", [summed, "scales"], ["y"], "dq", **axis)


def part_of(shape: Shape) -> st.SearchStrategy[Shape]:
    """Shapes that broadcast to ``shape``: a scalar, of a channel, of a row, of all values..."""
    sizes = [st.sampled_from((1, size)) for size in shape]
    return st.integers(0, len(shape)).flatmap(lambda first: st.tuples(*sizes[first:]))


@st.composite
def forms(draw: st.DrawFn) -> Form:
    """Sizes agree more often than not, so that a wrong axis is not found by its size."""
    channels = draw(st.sampled_from((2, 2, 4)))
    op = draw(st.sampled_from(("MatMulInteger", "ConvInteger")))
    rows = draw(st.sampled_from(((2,), (2, 2), (1, 2, 2))))
    shape = (2, channels, 2, 2) if op == "ConvInteger" else (*rows, channels)
    by_mul = draw(st.booleans())
    scales = part_of(shape) if by_mul else st.sampled_from(((), (channels,)))
    form = Form(
        op=op,
        shape=shape,
        bias=draw(st.none() | part_of(shape)),
        scales=draw(scales),
        by_mul=by_mul,
        axis=draw(st.sampled_from((0, -1, 1, 2))),
        zeros=draw(st.sampled_from(((0, 0), (0, 0), (5, 5), (5, 0)))),
        dtype=np.dtype(draw(st.sampled_from((np.float32, np.float32, np.float16)))),
    )
    assume(form.runs)
    return form


FAST = settings(
    deadline=None,
    max_examples=10,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@FAST
@given(form=forms())
def test_a_product_of_integers_is_imported_right_or_refused(tmp_path: Path, form: Form):
    path = tmp_path / "model.onnx"
    onnx.save(form.proto(), path)
    if not form.is_float_product:
        with pytest.raises(InputError, match=r"node '.+' \(.+give the float model$"):
            load_model(path)
        return
    model = load_model(path)
    edges = sorted(map(str, model.imported.placement.edges))
    assert edges == ["w/float -> product[1]", "x -> product[0]"]
    (value,) = form.proto().graph.input
    sizes = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    # Multiples of the step: the pairs round nothing.
    x = (np.random.default_rng(8).integers(-90, 90, sizes) * STEP).astype(form.dtype)
    (expected,), (found,) = outputs(onnx.load(path), x=x), outputs(model.proto, x=x)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert sqnr(expected, found) > (50 if form.dtype == np.float16 else 100)
