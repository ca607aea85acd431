"""Which nodes of a model the nodes of ONNX Runtime's optimized graph cover, each one's own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

import onnx
import onnx.numpy_helper

from placer.engines.onnxruntime.aliases import (
    aliases_of,
    folded,
    is_invented,
    without_effect,
)
from placer.graph.operators import PAIR_OPS
from placer.plan.readers.onnx_graph import original_name

_TRANSPOSE, _RESHAPE = "Transpose", "Reshape"
_JOINED = "_new_reshape"
_BIASED = "/MatMulAddFusion"
_ELEMENTWISE = frozenset(
    "Add Clip Concat Div Erf HardSigmoid LayerNormalization LeakyRelu Mul QLinearAdd QLinearConcat "
    "QLinearLeakyRelu QLinearMul QLinearSigmoid QLinearSoftmax Relu Sigmoid SkipLayerNormalization "
    "Softmax Sub Tanh".split()
)
_MOVES = frozenset("Expand Flatten Gather Reshape Slice Split Squeeze Transpose Unsqueeze".split())
_FEW = 8  # Axes that a Slice cuts.
_PRODUCT = "FusedMatMul"  # A MatMul that reads operands as they lie before Transposes.


def _constants(model: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """All constants by the tensors that hold them."""
    for tensor in model.initializer:
        yield tensor.name, tensor
    for node in model.node:
        if node.op_type == "Constant":
            yield from ((node.output[0], a.t) for a in node.attribute if a.name == "value")


class Coverage:
    """Assigns the nodes of a model to the nodes of its optimized graph, each to one.

    A Q/DQ pair changes no data, so the tensors around it count as one here. A node of the
    optimized graph then covers what it is named after, the only reader of a constant that it
    reads, and what lies between its inputs and its outputs and is not another's. Linear in the
    size of both graphs. ``types``: of the model's tensors, ONNX's names in lower case.
    """

    def __init__(
        self,
        model: onnx.GraphProto,
        fused: onnx.GraphProto,
        types: Mapping[str, str] | None = None,
    ) -> None:
        self._fused = fused.node
        no_ops = without_effect(model, fused, types or {})
        gone = no_ops.keys() | folded(model, fused)
        self._alias = aliases_of(model, fused, no_ops.values())
        self._compute = {
            n.name: n for n in model.node if n.op_type not in PAIR_OPS and n.name not in gone
        }
        self._producers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        for node in self._compute.values():
            for tensor in node.output:
                self._producers[self._alias(tensor)].append(node)
        self._constants = {tensor.name for tensor in (*model.initializer, *fused.initializer)}
        self._indices = {
            name: onnx.numpy_helper.to_array(tensor).tobytes()
            for name, tensor in _constants(model)
            if tensor.data_type == onnx.TensorProto.INT64 and list(tensor.dims) <= [_FEW]
        }
        self._makers = {
            self._alias(tensor): index
            for index, node in enumerate(self._fused)
            if node.op_type not in PAIR_OPS
            for tensor in node.output
        }

    def nodes(self) -> list[tuple[str, ...]]:
        """For each node of the optimized graph, the names of the nodes that it covers."""
        owner = self._by_constant() | self._by_name()
        owner |= self._parts(owner) | self._biases(owner)
        owner |= self._equal_slices(owner)
        borders = self._borders()
        for index, node in enumerate(self._fused):
            if node.op_type not in PAIR_OPS and not is_invented(node, self._compute):
                self._walk(index, node, borders[index], owner)
        owner |= self._moved_transposes(owner)
        owner |= self._multiplied_transposes(owner)
        owner |= self._joined_reshapes(owner)
        names_of: dict[int, list[str]] = defaultdict(list)
        for name, index in owner.items():
            names_of[index].append(name)
        return [tuple(sorted(names_of[index])) for index in range(len(self._fused))]

    def _biases(self, owner: Mapping[str, int]) -> dict[str, int]:
        """The Add behind each MatMul that became a Gemm with it, whose bias may be integers now."""
        products = {i for i, node in enumerate(self._fused) if node.name.endswith(_BIASED)}
        home_of = {
            self._alias(node.output[0]): owner[node.name]
            for node in self._compute.values()
            if owner.get(node.name) in products and node.op_type == "MatMul"
        }
        return {
            node.name: home_of[tensor]
            for node in self._compute.values()
            if node.op_type == "Add"
            for tensor in map(self._alias, node.input)
            if tensor in home_of
        }

    def _parts(self, owner: Mapping[str, int]) -> dict[str, int]:
        """The Slices of a tensor that became one Split, which is called after one of them."""
        splits = {
            (node.op_type, self._alias(node.input[0])): owner[node.name]
            for node in self._compute.values()
            if node.name in owner and self._fused[owner[node.name]].op_type == "Split"
        }
        parts = ((n, splits.get((n.op_type, self._alias(n.input[0])))) for n in self._slices())
        return {n.name: index for n, index in parts if index is not None and n.name not in owner}

    def _equal_slices(self, owner: Mapping[str, int]) -> dict[str, int]:
        """The Slices that cut the same as one that is left, as states of a recurrent layer do."""
        home_of = {self._cut(n): owner[n.name] for n in self._slices() if n.name in owner}
        cuts = {n.name: self._cut(n) for n in self._slices() if n.name not in owner}
        return {name: home_of[cut] for name, cut in cuts.items() if cut in home_of}

    def _cut(self, node: onnx.NodeProto) -> tuple[str | bytes, ...]:
        """What a Slice reads, and where it cuts that."""
        return self._alias(node.input[0]), *(self._indices.get(t, t) for t in node.input[1:])

    def _slices(self) -> list[onnx.NodeProto]:
        return [node for node in self._compute.values() if node.op_type == "Slice"]

    def _moved_transposes(self, owner: Mapping[str, int]) -> dict[str, int]:
        """The optimizer moves a Transpose behind what follows it, under a name of its own."""
        taken = set(owner.values())
        new = [i for i, n in enumerate(self._fused) if n.op_type == _TRANSPOSE and i not in taken]
        gone = [n.name for n in self._compute.values() if n.op_type == _TRANSPOSE]
        gone = [name for name in gone if name not in owner]
        return dict(zip(gone, new, strict=True)) if len(gone) == len(new) else {}

    def _multiplied_transposes(self, owner: Mapping[str, int]) -> dict[str, int]:
        """The optimizer moves Transposes past a Reshape into the product that reads it."""
        products = {i for i, node in enumerate(self._fused) if node.op_type == _PRODUCT}
        readers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        for node in self._compute.values():
            for tensor in {self._alias(t) for t in node.input if t}:
                readers[tensor].append(node)
        home_of: dict[str, int] = {}
        # The model's nodes are in topological order, so what follows a Transpose is settled.
        for node in reversed(list(self._compute.values())):
            if node.op_type != _TRANSPOSE or node.name in owner:
                continue
            after = readers[self._alias(node.output[0])]
            while len(after) == 1 and after[0].op_type == _RESHAPE:
                after = readers[self._alias(after[0].output[0])]
            homes = {owner.get(n.name, home_of.get(n.name)) for n in after}
            if len(homes) == 1 and (home := homes.pop()) in products and home is not None:
                home_of[node.name] = home
        return home_of

    def _joined_reshapes(self, owner: Mapping[str, int]) -> dict[str, int]:
        """The optimizer joins a Reshape to one that it made itself, under a name of its own; the
        walk then takes it for a part of what reads it, or finds it nowhere.
        """
        taken = set(owner.values())
        readers: dict[str, list[int]] = defaultdict(list)
        for index, node in enumerate(self._fused):
            for tensor in node.input:
                readers[tensor].append(index)
        home_of: dict[str, int] = {}
        for index, node in enumerate(self._fused):
            after = readers[node.output[0]]
            if not node.name.endswith(_JOINED) or index in taken or len(after) != 1:
                continue
            if self._fused[after[0]].op_type == _RESHAPE:
                continue
            nodes = [self._compute[n] for n, home in owner.items() if home == after[0]]
            lost = self._reshapes_of(nodes, owner)
            if len(lost) == 1:
                home_of[lost[0]] = index
        return home_of

    def _reshapes_of(self, nodes: Sequence[onnx.NodeProto], owner: Container[str]) -> Sequence[str]:
        """The Reshapes among ``nodes``, and those before them that have no ``owner``."""
        before = [n for m in nodes for t in m.input for n in self._producers[self._alias(t)]]
        lost = [n.name for n in nodes if n.op_type == _RESHAPE]
        return lost + [n.name for n in before if n.op_type == _RESHAPE and n.name not in owner]

    def _by_name(self) -> dict[str, int]:
        owner: dict[str, int] = {}
        for index, node in enumerate(self._fused):
            if node.op_type in PAIR_OPS or is_invented(node, self._compute):
                continue
            name = node.name if node.name in self._compute else original_name(node.name)
            if name in self._compute:
                owner.setdefault(name, index)
        return owner

    def _by_constant(self) -> dict[str, int]:
        """Nodes that alone read a constant that one node of the optimized graph reads.

        Equal constants become one: a node may read what was another one's of its operator.
        """
        readers = self._readers(self._compute.values())
        fused = [node for node in self._fused if node.op_type not in PAIR_OPS]
        index_of = {id(node): index for index, node in enumerate(self._fused)}
        owner = {}
        for tensor, optimized in self._readers(fused).items():
            originals = readers.get(tensor, [])
            if len(optimized) == len(originals) == 1 and not self._is_another(
                optimized[0], originals[0]
            ):
                owner[originals[0].name] = index_of[id(optimized[0])]
        return owner

    def _is_another(self, fused: onnx.NodeProto, original: onnx.NodeProto) -> bool:
        """Whether ``fused`` has the name of another node than ``original``."""
        named = self._compute.get(fused.name)
        return (
            named is not None
            and named is not original
            and named.op_type == fused.op_type
            and original.op_type in _MOVES | {fused.op_type}
        )

    def _readers(self, nodes: Iterable[onnx.NodeProto]) -> dict[str, list[onnx.NodeProto]]:
        constants = {self._alias(tensor) for tensor in self._constants}
        readers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        for node in nodes:
            for tensor in {self._alias(t) for t in node.input if t}:
                if tensor in constants:
                    readers[tensor].append(node)
        return readers

    def _borders(self) -> list[set[str]]:
        """Tensors at which each node's walk ends: those that it reads and, where the optimizer
        invented one of these, those that the node reads which writes it.
        """
        borders: list[set[str]] = []
        for index, node in enumerate(self._fused):
            border = {self._alias(tensor) for tensor in node.input if tensor}
            for tensor in list(border):
                maker = self._makers.get(tensor)
                if tensor not in self._producers and maker is not None and maker < index:
                    border |= borders[maker]
            borders.append(border)
        return borders

    def _walk(
        self, index: int, start: onnx.NodeProto, border: set[str], owner: dict[str, int]
    ) -> None:
        waiting = [self._alias(tensor) for tensor in start.output if tensor]
        seen = set(border)
        while waiting:
            tensor = waiting.pop()
            if tensor in seen:
                continue
            seen.add(tensor)
            for node in self._producers.get(tensor, ()):
                if not _may_cover(start, node) or owner.setdefault(node.name, index) == index:
                    waiting += [self._alias(t) for t in node.input if t]


def _may_cover(fused: onnx.NodeProto, node: onnx.NodeProto) -> bool:
    """Whether what ``fused`` computes can have ``node`` in it, which else is gone.

    Transposes undo one another through what is between them, and a Relu or Clip goes where the
    quantization of what moves its result implies it.
    """
    if node.op_type == _TRANSPOSE:
        return fused.op_type not in _ELEMENTWISE
    return node.op_type not in ("Relu", "Clip") or fused.op_type not in _MOVES
