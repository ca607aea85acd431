"""Find Q/DQ pairs that were exported as arithmetic: x / scale, Round, Clip, times the scale."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto

from placer.errors import InputError
from placer.graph.edit import reads
from placer.graph.external_data import read_tensor
from placer.graph.operators import STANDARD_DOMAINS
from placer.graph.weights import WEIGHTED_OPS
from placer.model.normalize import infer_values
from placer.model.passes.constant_nodes import constant_of
from placer.model.quantized.operators import input_at, integer
from placer.model.quantized.scales import limits_of

_BYTES = (TensorProto.INT8, TensorProto.UINT8)
# What a scale may be, and how far 1 / scale may be from its reciprocal by rounding.
_TOLERANCE: Mapping[int, float] = {
    TensorProto.FLOAT: 1e-4,
    TensorProto.FLOAT16: 1e-3,
    TensorProto.BFLOAT16: 8e-3,
}
# Types that hold integers of 8 bits and their differences.
_WIDE = frozenset({*_TOLERANCE, TensorProto.INT32, TensorProto.INT64})
_STEPS = frozenset({"Cast", "Sub", "Add", "Clip", "Round", "Identity"})
_MAX_STEPS = 16  # Two zero points, Round, Clip and Casts and Identities among them.
# What hands on values, between a pair and a linear layer.
_VIEWS = frozenset({"Identity", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Pad"})
_MIN_LAYERS = 3
# Limits of signed and unsigned integers of 4 to 8 bits; narrow ones lack their lowest value.
_RANGES = frozenset(
    limits
    for half in (8, 16, 32, 64, 128)
    for lacking in (0, 1)
    for limits in ((lacking - half, half - 1), (lacking, 2 * half - 1))
)


@dataclass(frozen=True, eq=False)
class ArithmeticPair:
    """``source``: what is quantized, a constant if ``is_constant``; ``scale``: in the shape that
    broadcasts; ``stored``: the type of integers that are stored, else 0.
    """

    source: str
    scale: np.ndarray
    zero_point: int
    lowest: int
    highest: int
    is_constant: bool
    stored: int = 0

    @property
    def dtype(self) -> int:
        """The ONNX element type of the integers."""
        fits = self.highest <= limits_of(TensorProto.INT8)[1]
        return self.stored or (TensorProto.INT8 if fits else TensorProto.UINT8)


@dataclass(frozen=True, eq=False)
class _Walked:
    """From ``start`` over ``steps``, the first one first, to a product with ``factor``."""

    start: str
    steps: list[NodeProto]
    factor: TensorProto


class PairFinder:
    """Finds the pairs of the main graph of ``proto``, which it does not change."""

    def __init__(self, proto: ModelProto, base_dir: Path) -> None:
        graph = proto.graph
        self._proto = proto
        self._base_dir = base_dir
        self._constants: Mapping[str, TensorProto] = {t.name: t for t in graph.initializer} | {
            node.output[0]: tensor
            for node in graph.node
            if node.output and (tensor := constant_of(node))
        }
        self._producer = {t: node for node in graph.node for t in node.output if t}
        self._reads = Counter(t for node in graph.node for t in reads(node))
        self._reads.update(value.name for value in graph.output)

    def pairs(self) -> dict[str, ArithmeticPair]:
        """The pairs by the tensor that they write."""
        found = ((node, self._pair(node)) for node in self._proto.graph.node)
        return {node.output[0]: pair for node, pair in found if pair is not None}

    def shows_quantizer(self, pairs: Mapping[str, ArithmeticPair]) -> bool:
        """Whether a quantizer made the file: weights are quantized, or most layers' inputs.

        Rounding is else taken for a part of the network's function, as that of an image to 8 bits.
        """
        layers = [n for n in self._proto.graph.node if _op(n) in WEIGHTED_OPS and len(n.input) > 1]
        if any(self._is_rounded_constant(layer.input[1], pairs) for layer in layers):
            return True
        read = [self._behind_views(layer.input[0]) in pairs for layer in layers]
        return sum(read) >= _MIN_LAYERS and len(read) <= 2 * sum(read)

    def _is_rounded_constant(self, tensor: str, pairs: Mapping[str, ArithmeticPair]) -> bool:
        tensor = self._behind_views(tensor)
        if tensor in pairs:
            return pairs[tensor].is_constant
        last = self._producer.get(tensor)
        walked = None if last is None else self._walk(last)
        if walked is None:
            return False
        kinds = {_op(node) for node in walked.steps}  # The exporter folded the division alone.
        return {"Round", "Clip"} <= kinds and self._constant(walked.start) is not None

    def _behind_views(self, tensor: str) -> str:
        for _ in range(_MAX_STEPS):
            node = self._producer.get(tensor)
            if node is None or _op(node) not in _VIEWS or not node.input:
                break
            tensor = node.input[0]
        return tensor

    def _pair(self, last: NodeProto) -> ArithmeticPair | None:
        """The pair that ends with ``last``, a product with the scale."""
        walked = self._walk(last)
        if walked is None:
            return None
        constant = self._constant(walked.start)
        if constant is not None and constant.data_type in _BYTES:
            return self._stored(walked, constant)
        kinds = [_op(node) for node in walked.steps]
        if sorted(k for k in kinds if k not in ("Add", "Sub", "Cast")) != ["Clip", "Round"]:
            return None
        return self._rounded(walked)

    def _walk(self, last: NodeProto) -> _Walked | None:
        """What leads to ``last``, a product with what may be a scale."""
        tensor, factor = self._operands(last, "Mul")
        if factor is None or not last.output or not self._may_be_scale(factor):
            return None
        steps = list[NodeProto]()
        for _ in range(_MAX_STEPS):
            node = self._producer.get(tensor)
            if node is None or _op(node) not in _STEPS:
                return _Walked(tensor, steps, factor)
            if self._reads[tensor] > 1 or not node.input:
                return None
            if _op(node) != "Identity":
                steps.insert(0, node)
            tensor = next((t for t in node.input if self._constant(t) is None), node.input[0])
        return None

    def _stored(self, walked: _Walked, constant: TensorProto) -> ArithmeticPair | None:
        """Integers that are cast, freed of their zero point and scaled."""
        steps, dtype = walked.steps, constant.data_type
        kinds = [_op(node) for node in steps]
        if kinds[:1] != ["Cast"] or not {*kinds} <= {"Cast", "Sub"}:
            return None
        if any(integer(n, "to") not in _WIDE for n in steps if _op(n) == "Cast"):
            return None
        scale = self._scale(walked.factor)
        if scale is None or not _fits(scale.shape, constant.dims):
            return None
        taken = self._zero_point(steps, "Sub", constant.dims)
        lowest, highest = map(int, limits_of(dtype))
        if taken is None or not lowest <= taken <= highest:
            return None
        return ArithmeticPair(walked.start, scale, taken, lowest, highest, True, dtype)

    def _rounded(self, walked: _Walked) -> ArithmeticPair | None:
        """What is divided by a scale, rounded, clipped and multiplied by the same scale."""
        steps, first = walked.steps, self._producer.get(walked.start)
        if first is None or self._reads[walked.start] > 1:
            return None
        is_quotient = _op(first) == "Div"
        source, divisor = self._operands(first, "Div" if is_quotient else "Mul")
        if divisor is None or not self._may_be_scale(divisor):
            return None
        shape = self._shape(source, max(len(walked.factor.dims), len(divisor.dims)))
        if shape is None or not _fits(walked.factor.dims, shape) or not _fits(divisor.dims, shape):
            return None
        scale = self._common_scale(walked.factor, divisor, is_quotient)
        if scale is None:
            return None
        added, taken = (self._zero_point(steps, op, shape) for op in ("Add", "Sub"))
        limits = self._limits(steps, added or 0)
        if added is None or added != taken or limits is None or not _is_in_order(steps, limits):
            return None
        if not limits[0] <= added <= limits[1]:
            return None
        is_constant = self._constant(source) is not None
        return ArithmeticPair(source, scale, added, *limits, is_constant)

    def _common_scale(
        self, factor: TensorProto, divisor: TensorProto, is_quotient: bool
    ) -> np.ndarray | None:
        """The scale that both are, ``divisor`` or else its inverse; None if they differ."""
        scale, given = self._scale(factor), self._scale(divisor)
        if scale is None or given is None or divisor.data_type != factor.data_type:
            return None
        told = given if is_quotient else 1 / given.astype(np.float64)
        return scale if _are_equal(told, scale, divisor.data_type) else None

    def _operands(self, node: NodeProto, op: str) -> tuple[str, TensorProto | None]:
        """What ``node``, an ``op``, combines with a constant, and that; "" and None else."""
        if _op(node) != op or len(node.input) != 2:
            return "", None
        left, right = node.input
        if op in ("Mul", "Add") and self._constant(right) is None:
            left, right = right, left
        return left, self._constant(right)

    def _constant(self, name: str) -> TensorProto | None:
        for _ in range(_MAX_STEPS):
            node = self._producer.get(name)
            if node is None or _op(node) != "Identity" or not node.input:
                break
            name = node.input[0]
        return self._constants.get(name)

    def _may_be_scale(self, tensor: TensorProto) -> bool:
        """By type and shape, so that no large constant is read."""
        has_values = math.prod(tensor.dims) > 0
        return has_values and tensor.data_type in _TOLERANCE and _is_vector(tensor.dims)

    def _scale(self, tensor: TensorProto) -> np.ndarray | None:
        scale = read_tensor(tensor, self._base_dir)
        values = scale.astype(np.float64)
        return scale if (np.isfinite(values) & (values > 0)).all() else None

    def _shape(self, source: str, rank: int) -> tuple[int, ...] | None:
        """As many sizes of ``source`` as are known, 0 for others; None if its rank is not.

        A factor of ``rank`` 0 or 1 leaves the shape of all but scalars as it is.
        """
        constant = self._constant(source)
        if constant is not None:
            return tuple(constant.dims)
        return (0,) if rank <= 1 else self._shapes.get(source)

    @cached_property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """Unknown shapes are missing; sizes of activations are 0, since one scale is for all."""
        try:
            values = infer_values(self._proto, {}, Path())
        except InputError:  # Said of the file where it is loaded.
            return {}
        types = {name: value.type.tensor_type for name, value in values.items()}
        return {n: (0,) * len(t.shape.dim) for n, t in types.items() if t.HasField("shape")}

    def _zero_point(self, steps: list[NodeProto], op: str, shape: Sequence[int]) -> int | None:
        """The integer that the one ``op`` adds or takes away, 0 without one; None of others."""
        nodes = [node for node in steps if _op(node) == op]
        if not nodes:
            return 0
        _, constant = self._operands(nodes[0], op)
        if len(nodes) > 1 or constant is None or not _fits(constant.dims, shape):
            return None
        return self._integer(constant)

    def _integer(self, constant: TensorProto) -> int | None:
        if math.prod(constant.dims) == 0 or not _is_vector(constant.dims):
            return None
        if constant.data_type not in _WIDE:
            return None
        values = read_tensor(constant, self._base_dir)
        value = float(values.flat[0])
        return int(value) if (values == values.flat[0]).all() and value.is_integer() else None

    def _limits(self, steps: list[NodeProto], added: int) -> tuple[int, int] | None:
        """Smallest and largest integer by the Clip, if they are those of a type of 4 to 8 bits."""
        kinds = [_op(node) for node in steps]
        place = kinds.index("Clip")
        bounds = [self._constant(input_at(steps[place], index)) for index in (1, 2)]
        values = [None if bound is None else self._integer(bound) for bound in bounds]
        low, high = values
        if low is None or high is None:
            return None
        later = added if "Add" in kinds[place:] else 0
        limits = (low + later, high + later)
        return limits if limits in _RANGES else None


def _op(node: NodeProto | None) -> str:
    """The operator of a node of ONNX's own domain, else ""."""
    return str(node.op_type) if node is not None and node.domain in STANDARD_DOMAINS else ""


def _is_vector(dims: Sequence[int]) -> bool:
    return sum(size > 1 for size in dims) <= 1


def _fits(dims: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether a constant of ``dims`` broadcasts to ``shape`` without changing it."""
    if len(dims) > len(shape):
        return False
    tail = shape[len(shape) - len(dims) :]
    return all(size in (1, known) for size, known in zip(dims, tail, strict=True))


def _are_equal(left: np.ndarray, right: np.ndarray, dtype: int) -> bool:
    """Whether two scales are equal once they are broadcast."""
    rank = max(left.ndim, right.ndim)
    shapes = [(1,) * (rank - a.ndim) + a.shape for a in (left, right)]
    if shapes[0] != shapes[1]:
        return False
    first, second = (a.astype(np.float64).ravel() for a in (left, right))
    return np.allclose(first, second, rtol=_TOLERANCE[dtype], atol=0)


def _is_in_order(steps: list[NodeProto], limits: tuple[int, int]) -> bool:
    """Whether Casts come behind Round, lose nothing, and the zero point is taken away last."""
    kinds = {_op(node) for node in steps}
    done, is_narrow = set[str](), False
    for node in steps:
        left = (kinds & {"Round", "Clip", "Add"}) - done
        if _op(node) == "Cast":
            to = integer(node, "to")
            is_narrow = to in _BYTES
            if is_narrow and (left or not _holds(to, limits)):
                return False
            if "Round" in left or not (is_narrow or to in _WIDE):
                return False
        elif is_narrow or (_op(node) == "Sub" and left):
            return False
        done.add(_op(node))
    return True


def _holds(dtype: int, limits: tuple[int, int]) -> bool:
    lowest, highest = limits_of(dtype)
    return lowest <= limits[0] and limits[1] <= highest
