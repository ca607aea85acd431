"""Take a quantized graph apart, node by node, into the float graph that it stands for.

Every integer tensor is remembered as the float tensor it stands for and its scale, however it came
about: by QuantizeLinear, by a QOperator node, or by moving the values of another one (Cast,
Reshape, Transpose, MaxPool ...). A DequantizeLinear, or another reader of integers, then reads the
float tensor instead, and the edge is marked as quantized. What reads integers as such gets them
computed by float operators, so that the model stays what it was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from placer.errors import InputError
from placer.graph.edit import reads, rename_tensors, subgraphs
from placer.model.importing import arithmetic, dynamic, qoperator
from placer.model.importing.dynamic import Factor
from placer.model.importing.float_graph import FloatGraphBuilder
from placer.model.importing.imported import LIMITS
from placer.model.importing.qoperator import Decomposed, Operand
from placer.model.importing.quantized_tensors import INTEGERS, Quantized, Records

QUANTIZE = frozenset({"QuantizeLinear", "TRT_INT8QuantizeLinear", "TRT_FP8QuantizeLinear"})
DEQUANTIZE = frozenset({"DequantizeLinear", "TRT_INT8DequantizeLinear", "TRT_FP8DequantizeLinear"})
# Both halves of a pair in one node of another domain: QONNX and Brevitas, PyTorch's fall-through.
FAKE_QUANTIZE = frozenset(
    {"Quant", "fake_quantize_per_tensor_affine", "fake_quantize_per_channel_affine"}
)
# Hand integers on, or choose among them, so they do the same to the float values behind them.
_MOVES = frozenset(
    "Reshape Flatten Squeeze Unsqueeze Transpose Identity Slice Split Gather GatherElements "
    "GatherND Expand Tile Concat MaxPool Pad Resize DepthToSpace SpaceToDepth".split()
)
_BEFORE_RELU = frozenset(
    "Conv ConvTranspose Gemm MatMul Add Sub BatchNormalization InstanceNormalization "
    "GroupNormalization LayerNormalization".split()
)
_NODE_SUFFIX = "_quant"  # ONNX Runtime's, of nodes that it replaces.
_RESHAPES = ("Reshape", "Unsqueeze", "Squeeze")


class Dequantizer:
    """One pass over a quantized model whose nodes are sorted and named.

    ``types``: ONNX element type by tensor, as far as known. ``kept``: what those QuantizeLinear
    nodes write whose rounding and saturation are part of the function: they stay, as arithmetic.
    """

    def __init__(
        self,
        proto: ModelProto,
        types: Mapping[str, int],
        base_dir: Path,
        path: Path,
        kept: Collection[str] = (),
    ) -> None:
        self._path = path
        self._kept = frozenset(kept)
        self._types = types
        self._readers: dict[str, list[NodeProto]] = defaultdict(list)
        for node in proto.graph.node:
            for tensor in reads(node):
                self._readers[tensor].append(node)
        self._quantized: dict[str, Quantized] = {}
        self._pairs: dict[str, Quantized] = {}  # by what a DequantizeLinear writes
        self._alias: dict[str, str] = {}  # float tensor by its name in the quantized model
        self._dequantized: dict[tuple[str, ...], str] = {}
        self._factors: dict[str, Factor] = {}  # products with a scale computed at run time
        self._products: dict[str, NodeProto] = {}  # int32 results that lack their scales
        self._expanded: set[str] = set()
        self._casts = 0
        self.draft = FloatGraphBuilder(proto, base_dir)
        self.records = Records()
        for node in proto.graph.node:
            self._visit(node)
        self._finish()

    def _visit(self, node: NodeProto) -> None:
        if node.name.endswith(_NODE_SUFFIX):
            node.name = self.draft.node_names.plain(node.name, _NODE_SUFFIX)
        made = qoperator.decompose(node, self.draft.opset)
        if node.op_type in QUANTIZE:
            self._visit_quantize(node)
        elif node.op_type in DEQUANTIZE:
            self._visit_dequantize(node)
        elif node.op_type in FAKE_QUANTIZE and node.domain:
            self._visit_fake_quantize(node)
        elif made is not None:
            self._visit_qoperator(node, made)
        elif not self._visit_run_time(node):
            self._visit_other(node)

    def _visit_run_time(self, node: NodeProto) -> bool:
        """Take apart what belongs to a product whose scales come later; False for other nodes."""
        is_product = any(t in self._products for t in node.input)
        is_factor = any(t in self._factors for t in node.input)
        if node.op_type == "DynamicQuantizeLinear":
            self._visit_dynamic(node)
        elif node.op_type in dynamic.FLOAT_OPS:
            self._products[node.output[0]] = node
        elif node.op_type == "Cast" and is_product:
            self._products[node.output[0]] = self._products[node.input[0]]
        elif node.op_type == "Mul" and is_product:
            self._visit_product(node)
        elif node.op_type == "Mul" and is_factor:
            self._factors[node.output[0]] = self._factor(node, 0).times(self._factor(node, 1))
        elif node.op_type in _RESHAPES and is_factor:
            self._factors[node.output[0]] = self._factor(node, 0)
        else:
            return False
        return True

    def _visit_other(self, node: NodeProto) -> None:
        moves_weight = node.op_type in ("Transpose", "Cast") and node.input[0] in self._pairs
        if any(t in self._quantized for t in reads(node)):
            self._visit_reader_of_integers(node)
        elif self._casts_to_same_type(node):
            self._skip(node)
        elif moves_weight and self._is_weight(node):
            self._move_weight(node)
        else:
            self._copy(node)

    def _refuse(self, node: NodeProto, why: str) -> InputError:
        return InputError(
            f"{self._path}: node '{node.name}' ({node.op_type}) {why}; give the float model"
        )

    # QuantizeLinear and DequantizeLinear.

    def _visit_quantize(self, node: NodeProto) -> None:
        self.records.seen["QDQ"] += 1
        source, scale_name = node.input[0], node.input[1]
        scale = None
        if scale_name in self.draft.constants:
            scale = self.draft.array(scale_name)
        else:
            self.records.notes.append(
                f"scale of '{source}' dropped: node '{node.name}' gets it at run time"
            )
        zero_point, dtype = self._zero_point(node)
        axis, limits = _integer(node, "axis", 1), LIMITS[dtype]
        tensor = self._read(source, "", 0)
        info = Quantized(tensor, scale, zero_point, axis, *limits, dtype, symbol=scale_name)
        if node.output[0] in self._kept:
            info = self._rounded(node, info)
        self._quantize(node.output[0], source, info)

    def _rounded(self, node: NodeProto, info: Quantized) -> Quantized:
        """Round and saturate a float tensor as the pair does, by float operators."""
        scale, names = info.scale, self.draft.names
        if scale is None or scale.size != 1 or info.dtype not in INTEGERS or self.draft.opset < 11:
            raise self._refuse(node, "is part of the function and cannot be written as arithmetic")
        target = names.unused(f"{info.tensor}/rounded")
        integers = names.unused(f"{target}/integers")
        limits, point = (info.lowest, info.highest), info.zero_point
        self.draft.extend(
            arithmetic.quantize_nodes(
                info.tensor, integers, scale, point, limits, info.dtype, names
            )
        )
        self.draft.extend(arithmetic.dequantize_nodes(integers, target, scale, point, names))
        self.records.notes.append(
            f"the pair of '{info.tensor}' is part of the function: its rounding stays, as "
            "arithmetic"
        )
        return replace(info, tensor=target)

    def _zero_point(self, node: NodeProto) -> tuple[np.ndarray, int]:
        """Zero point and type of a QuantizeLinear's output."""
        name = _input(node, 2)
        if name in self.draft.constants:
            return self.draft.array(name), self.draft.constants[name].data_type
        default = TensorProto.INT8 if node.domain == "trt" else TensorProto.UINT8
        if "FP8" in node.op_type:
            default = TensorProto.FLOAT8E4M3FN
        return np.zeros((), np.int64), _integer(node, "output_dtype", 0) or default

    def _quantize(self, integers: str, source: str, info: Quantized) -> None:
        """Remember that ``integers`` stands for the float tensor of ``info``."""
        if info.tensor in self.draft.constants:
            info = replace(info, is_constant=True)
            if info.scale is not None:
                values, tensor = self.draft.array(info.tensor), self.draft.constants[info.tensor]
                self.records.add_weight(
                    tensor, values, info.scale, info.zero_point, info.axis, info.dtype
                )
        else:
            if self._stands_for_relu(info):
                info = replace(info, tensor=self._clamp(source, info))
            self.records.add_activation(info)
        self._quantized[integers] = info

    def _visit_dequantize(self, node: NodeProto) -> None:
        self.records.seen["QDQ"] += 1
        source, target = node.input[0], node.output[0]
        info = self._quantized.get(source)
        if info is not None and self._is_undone_by(info, node):
            self._stand_for(target, info)
        elif source in self.draft.constants:
            axis, block = _integer(node, "axis", 1), _integer(node, "block_size", 0)
            operand = Operand(source, node.input[1], _input(node, 2), axis)
            self._stand_for(target, self._constant(node, operand, target, block))
        else:
            self._expand_dequantize(node)

    def _is_undone_by(self, info: Quantized, node: NodeProto) -> bool:
        if info.scale is None:
            return bool(node.input[1] == info.symbol)
        if node.input[1] not in self.draft.constants:
            return False
        zero_point = self.draft.array_or_zero(_input(node, 2))
        return info.is_undone_by(self.draft.array(node.input[1]), zero_point)

    def _stand_for(self, target: str, info: Quantized) -> None:
        self._alias[target] = info.tensor
        if info.dtype != TensorProto.INT32:  # A bias is quantized by what it is added to.
            self._pairs[target] = info

    def _constant(
        self, node: NodeProto, operand: Operand, target: str = "", block: int = 0
    ) -> Quantized:
        """The float constant that ``operand``, a quantized one, stands for."""
        if operand.scale not in self.draft.constants:
            raise self._refuse(node, f"computes the scale of constant '{operand.data}'")
        key = (operand.data, operand.scale, operand.zero_point, str(operand.axis))
        scale = self.draft.array(operand.scale)
        if key not in self._dequantized:
            name = self._dequantize_constant(operand, scale, target, block)
            self._dequantized[key] = name
        return self._constant_info(self._dequantized[key], operand)

    def _constant_info(self, name: str, operand: Operand) -> Quantized:
        dtype = self.draft.constants[operand.data].data_type
        zero_point = np.zeros((), np.int64)
        return Quantized(name, None, zero_point, operand.axis, *LIMITS[dtype], dtype, True)

    def _dequantize_constant(
        self, operand: Operand, scale: np.ndarray, target: str = "", block: int = 0
    ) -> str:
        draft, axis = self.draft, operand.axis
        zero_point = draft.array_or_zero(operand.zero_point)
        integers = draft.array(operand.data)
        floats = arithmetic.dequantize(integers, scale, zero_point, axis, block)
        name = draft.set_constant(draft.names.of_float(operand.data, target), floats)
        dtype = draft.constants[operand.data].data_type
        tensor = draft.constants[name]
        self.records.add_weight(tensor, floats, scale, zero_point, axis, dtype, block)
        return name

    def _expand_dequantize(self, node: NodeProto) -> None:
        """Integers from elsewhere, a graph input for example: (q - zero point) * scale."""
        draft, source = self.draft, node.input[0]
        if source in self._quantized:
            self._expand_quantize(node, source)
        if node.input[1] not in draft.constants or draft.array(node.input[1]).size != 1:
            raise self._refuse(node, f"dequantizes '{source}' with scales that are no constant")
        zero_point, scale = draft.array_or_zero(_input(node, 2)), draft.array(node.input[1])
        part = arithmetic.dequantize_nodes(source, node.output[0], scale, zero_point, draft.names)
        draft.extend(part)
        self.records.notes.append(
            f"node '{node.name}' dequantizes '{source}', which nothing here quantizes with that "
            "scale: written as arithmetic"
        )

    def _expand_quantize(self, node: NodeProto, integers: str) -> None:
        """Compute ``integers`` by float operators, for a reader that needs them as such."""
        if integers in self._expanded:
            return
        info = self._quantized[integers]
        if info.scale is None or info.scale.size != 1 or info.dtype not in INTEGERS:
            raise self._refuse(node, f"reads the quantized values of '{info.tensor}'")
        if self.draft.opset < 11:
            raise self._refuse(node, "reads quantized values in a model of an opset below 11")
        self._expanded.add(integers)
        limits, names = (info.lowest, info.highest), self.draft.names
        part = arithmetic.quantize_nodes(
            info.tensor, integers, info.scale, info.zero_point, limits, info.dtype, names
        )
        self.draft.extend(part)
        reader = f"node '{node.name}' ({node.op_type})" if node.op_type else node.name
        self.records.notes.append(
            f"quantization of '{info.tensor}' is written as arithmetic: {reader} reads the integers"
        )

    # Where quantization alone kept values from being negative.

    def _stands_for_relu(self, info: Quantized) -> bool:
        """Whether a Relu was there before the zero point made it needless.

        ONNX Runtime's quantizer removes Relu and Clip before a QuantizeLinear with the lowest zero
        point. A float graph without them would be another function. Behind other operators, such
        a zero point says no more than that the calibration data had nothing negative there.
        """
        writer = self.draft.writer.get(info.tensor)
        is_linear = writer is not None and writer.op_type in _BEFORE_RELU
        return is_linear and info.clamps_at_zero and info.tensor not in self.draft.never_negative

    def _clamp(self, source: str, info: Quantized) -> str:
        """Write the Relu; returns the tensor that it writes."""
        draft, inner = self.draft, info.tensor
        alone = source == inner and inner not in draft.outputs
        if alone and all(map(self._is_clamping, self._readers[source])):
            outer, inner = inner, draft.names.unused(f"{inner}/linear")
            draft.rename_output(outer, inner)
        else:
            outer = draft.names.unused(f"{inner}/relu")
        self._write_clamp(inner, outer, info)
        return outer

    def _is_clamping(self, reader: NodeProto) -> bool:
        if reader.op_type not in QUANTIZE:
            return False
        zero_point, dtype = self._zero_point(reader)
        return zero_point.size == 1 and float(zero_point.item()) == LIMITS[dtype][0]

    def _write_clamp(self, inner: str, outer: str, info: Quantized) -> None:
        scale = np.ones(()) if info.scale is None else info.scale
        highest = (info.highest - info.lowest) * float(scale.item())
        op, inputs = "Relu", [inner]
        if abs(highest - 6) < 1e-5 and self.draft.opset >= 11:
            op = "Clip"
            for limit in (0, 6):
                value = np.array(limit, scale.dtype)
                inputs.append(self.draft.add_constant(f"{outer}/limit", value))
        self.draft.emit(op, f"{outer}/{op}", inputs, outer)
        self.draft.never_negative.add(outer)
        self.records.notes.append(
            f"{op} put behind '{inner}': the source's zero point clamps '{outer}' at zero"
        )

    # QOperator nodes.

    def _visit_qoperator(self, node: NodeProto, made: Decomposed) -> None:
        self.records.seen["QOperator"] += 1
        inputs = [self._operand(node, i, operand) for i, operand in enumerate(made.operands)]
        if made.bias:
            inputs.append(self._bias(node, made))
        target = node.output[0]
        if not made.scale:
            self._write_float_product(node, made, inputs)
            return
        output = self._name_of_float(target)
        self.draft.append(qoperator.float_node(made, node.name, inputs, output))
        info = self._output_info(node, output, made.scale, made.zero_point)
        if self._stands_for_relu(info):
            inner = self.draft.names.unused(f"{output}/linear")
            self.draft.rename_output(output, inner)
            self._write_clamp(inner, output, info)
        self.records.add_activation(info)
        self._quantized[target] = info

    def _write_float_product(self, node: NodeProto, made: Decomposed, inputs: list[str]) -> None:
        target = node.output[0]
        output = self.draft.names.unused(f"{target}/product") if made.added else target
        self.draft.append(qoperator.float_node(made, node.name, inputs, output))
        if made.added:
            added = self._read(made.added, "", 0)
            self.draft.emit("Add", f"{node.name}/Add", [output, added], target)

    def _operand(self, node: NodeProto, index: int, operand: Operand) -> str:
        """Float tensor behind one input, marked as quantized edge of ``node``."""
        if not operand.scale:
            return self._read(operand.data, node.name, index)
        if operand.data in self._quantized:
            info = self._quantized[operand.data]
        elif operand.data in self.draft.constants:
            info = self._constant(node, operand)
        else:
            info = self._from_integers(node, operand)
        self.draft.mark(info, node.name, index)
        return info.tensor

    def _from_integers(self, node: NodeProto, operand: Operand) -> Quantized:
        """Integers that come from elsewhere, a graph input for example, as float tensor."""
        name = self.draft.names.of_float(operand.data)
        inputs = [t for t in operand[:3] if t]
        made = helper.make_node("DequantizeLinear", inputs, [name], node.name)
        self._expand_dequantize(made)
        info = self._output_info(node, name, operand.scale, operand.zero_point)
        self.records.add_activation(info)
        self._quantized[operand.data] = info
        return info

    def _output_info(self, node: NodeProto, tensor: str, scale: str, zero_point: str) -> Quantized:
        draft = self.draft
        if scale not in draft.constants:
            raise self._refuse(node, f"computes the scale of '{tensor}'")
        known = zero_point in draft.constants
        dtype = draft.constants[zero_point].data_type if known else TensorProto.UINT8
        point = draft.array_or_zero(zero_point)
        return Quantized(tensor, draft.array(scale), point, 1, *LIMITS[dtype], dtype)

    def _name_of_float(self, integers: str) -> str:
        readers = [n for n in self._readers[integers] if n.op_type in DEQUANTIZE]
        dequantized = readers[0].output[0] if len(readers) == 1 else ""
        return self.draft.names.of_float(integers, dequantized)

    def _bias(self, node: NodeProto, made: Decomposed) -> str:
        draft = self.draft
        if made.bias not in draft.constants:
            raise self._refuse(node, "computes its bias")
        left, right = (draft.array(operand.scale) for operand in made.operands[:2])
        product = np.multiply(left.ravel(), right.ravel(), dtype=np.float64) * made.bias_factor
        floats = (draft.array(made.bias).astype(np.float64) * product).astype(left.dtype)
        self.records.seen["int32 biases"] += 1
        return draft.set_constant(draft.names.of_float(made.bias), floats)

    # Dynamic quantization.

    def _visit_dynamic(self, node: NodeProto) -> None:
        integers, scale, zero_point = node.output
        self.records.seen["dynamic"] += 1
        dtype, zero = TensorProto.UINT8, np.zeros((), np.int64)
        tensor = self._read(node.input[0], "", 0)
        info = Quantized(tensor, None, zero, 1, *LIMITS[dtype], dtype, symbol=scale)
        self._quantized[integers] = info
        self._factors[scale] = Factor((scale,), np.ones(()))
        self._factors[zero_point] = Factor((zero_point,), np.ones(()))
        self.records.add_activation(info)

    def _factor(self, node: NodeProto, index: int) -> Factor:
        name = node.input[index]
        if name in self._factors:
            return self._factors[name]
        if name in self.draft.constants:
            return dynamic.known(self.draft.array(name))
        raise self._refuse(node, "multiplies a scale with something that is none")

    def _visit_product(self, node: NodeProto) -> None:
        """Write the float product where the scales of its operands are multiplied in."""
        index = 0 if node.input[0] in self._products else 1
        product, factor = self._products[node.input[index]], self._factor(node, 1 - index)
        known = [self._quantized.get(product.input[i]) for i in (0, 1)]
        for info in known:
            rest = factor if info is None else factor.over(_scale_of(info))
            if rest is None:
                raise self._refuse(node, "does not multiply with the scales of its operands")
            factor = rest
        if known[0] is None or factor.symbols:
            raise self._refuse(node, "multiplies with the scale of another tensor")
        right = known[1] or self._integer_weight(product, factor.value)
        if known[1] is not None and not np.allclose(factor.value, 1, rtol=1e-6, atol=0):
            raise self._refuse(node, "multiplies with more than the scales")
        for position, info in enumerate((known[0], right)):
            self.draft.mark(info, product.name, position)
        inputs = [known[0].tensor, right.tensor]
        op = dynamic.FLOAT_OPS[product.op_type]
        made = helper.make_node(op, inputs, [node.output[0]], product.name)
        made.attribute.extend(product.attribute)
        self.draft.append(made)

    def _integer_weight(self, product: NodeProto, scale: np.ndarray) -> Quantized:
        data = product.input[1]
        if data not in self.draft.constants:
            raise self._refuse(product, f"reads '{data}', which is not quantized here")
        axis = 0 if product.op_type == "ConvInteger" else -1
        operand = Operand(data, "", _input(product, 3), axis)
        key = (data, *map(str, scale.ravel().tolist()))
        if key not in self._dequantized:
            flat = scale.reshape(()) if scale.size == 1 else scale.ravel()
            self._dequantized[key] = self._dequantize_constant(operand, flat.astype(np.float32))
        return self._constant_info(self._dequantized[key], operand)

    # Fake quantization of other domains.

    def _visit_fake_quantize(self, node: NodeProto) -> None:
        self.records.seen["fake quantization"] += 1
        names = [t for t in node.input[1:] if t]
        if any(name not in self.draft.constants for name in names):
            raise self._refuse(node, "computes its scale")
        scale, zero_point, *rest = (self.draft.array(name) for name in names)
        if node.op_type == "Quant":
            lowest, highest = _quant_limits(node, int(rest[0].item()))
            axis = next((i for i, size in enumerate(scale.shape) if size > 1), 0)
        else:
            *axes, low, high = (int(value.item()) for value in rest)
            lowest, highest, axis = float(low), float(high), axes[0] if axes else 1
        if highest - lowest > 255:
            raise self._refuse(node, f"quantizes to {highest - lowest:.0f} steps, above 8 bits")
        dtype = TensorProto.INT8 if lowest < 0 else TensorProto.UINT8
        source, point = self._read(node.input[0], "", 0), zero_point.astype(np.int64)
        info = Quantized(source, scale, point, axis, lowest, highest, dtype)
        integers = self.draft.names.unused(f"{node.output[0]}/quantized")
        self._quantize(integers, node.input[0], info)
        self._stand_for(node.output[0], self._quantized[integers])

    # Other nodes.

    def _visit_reader_of_integers(self, node: NodeProto) -> None:
        infos = [self._quantized[t] for t in node.input if t in self._quantized]
        first = self._quantized.get(node.input[0]) if node.input else None
        to = _integer(node, "to", 0)
        if first is not None and node.op_type == "Cast" and to in LIMITS:
            self._casts += 1
            self._quantized[node.output[0]] = replace(first, dtype=to)
        elif first is not None and node.op_type == "Clip" and self._has_limits(node):
            self._narrow(node, first)
        elif infos and self._moves(node, infos):
            self._move(node, infos[0])
        else:
            for tensor in dict.fromkeys(t for t in reads(node) if t in self._quantized):
                self._expand_quantize(node, tensor)
            self._copy(node)

    def _has_limits(self, node: NodeProto) -> bool:
        return all(_input(node, index) in self.draft.constants for index in (1, 2))

    def _narrow(self, node: NodeProto, info: Quantized) -> None:
        """A Clip between Q and DQ: PyTorch's way to write a narrower type, e.g. [-127, 127]."""
        low, high = (float(self.draft.array(name).item()) for name in node.input[1:3])
        narrow = replace(info, lowest=max(low, info.lowest), highest=min(high, info.highest))
        self._quantized[node.output[0]] = narrow
        if not info.is_constant and info.scale is not None:
            self.records.activations.pop(info.tensor, None)
            self.records.add_activation(narrow)

    def _moves(self, node: NodeProto, infos: Sequence[Quantized]) -> bool:
        """Whether ``node`` only moves integers, all of one scale and none a constant."""
        if node.op_type not in _MOVES or any(info.is_constant for info in infos):
            return False
        data = node.input if node.op_type == "Concat" else node.input[:1]
        return all(t in self._quantized for t in data) and len({i.key for i in infos}) == 1

    def _move(self, node: NodeProto, info: Quantized) -> None:
        """Let a node that moves integers move the float values behind them."""
        copy = NodeProto.FromString(node.SerializeToString())
        for index, tensor in enumerate(node.input):
            if tensor in self._quantized:
                copy.input[index] = self._quantized[tensor].tensor
                self.draft.mark(self._quantized[tensor], node.name, index)
            elif node.op_type == "Pad" and index == 2 and tensor:
                copy.input[index] = self._padding(node, tensor, info)
            else:
                copy.input[index] = self._read(tensor, node.name, index)
        for index, target in enumerate(node.output):
            if target:
                moved = replace(info, tensor=self._name_of_float(target))
                copy.output[index] = moved.tensor
                self._quantized[target] = moved
                self.records.add_activation(moved)
        self.draft.append(copy)

    def _padding(self, node: NodeProto, tensor: str, info: Quantized) -> str:
        if tensor not in self.draft.constants or info.scale is None or info.scale.size != 1:
            raise self._refuse(node, "pads integers with a value that is no constant")
        value = arithmetic.dequantize(self.draft.array(tensor), info.scale, info.zero_point, 0)
        return self.draft.add_constant(f"{tensor}/float", value)

    def _is_weight(self, node: NodeProto) -> bool:
        info = self._pairs[node.input[0]]
        known = info.is_constant and info.tensor in self.records.weights
        return known and node.output[0] not in self.draft.outputs

    def _move_weight(self, node: NodeProto) -> None:
        """Transpose or cast a dequantized constant here, so that its scale moves along."""
        info = self._pairs[node.input[0]]
        scale, values = self.records.weights[info.tensor], self.draft.array(info.tensor)
        axis = scale.axis
        if node.op_type == "Transpose":
            order = _order(node, values.ndim)
            values, axis = np.transpose(values, order), order.index(axis) if values.ndim else 0
        else:
            values = values.astype(helper.tensor_dtype_to_np_dtype(_integer(node, "to", 0)))
        target = node.output[0]
        name = self.draft.set_constant(self.draft.names.of_float(target, target), values)
        self.records.keep_weight(self.draft.constants[name], scale.scale, axis)
        if len(self._readers[node.input[0]]) == 1:
            del self.records.weights[info.tensor]
        self._stand_for(target, replace(info, tensor=name))

    def _casts_to_same_type(self, node: NodeProto) -> bool:
        """ModelOpt's exporter writes a Cast before Q and behind DQ, whatever the type."""
        known = node.op_type == "Cast" and node.output[0] not in self.draft.outputs
        return known and self._types.get(node.input[0]) == _integer(node, "to", 0)

    def _skip(self, node: NodeProto) -> None:
        source, target = node.input[0], node.output[0]
        self._alias[target] = self._read(source, "", 0)
        if source in self._pairs:
            self._pairs[target] = self._pairs[source]

    def _copy(self, node: NodeProto) -> None:
        copy = NodeProto.FromString(node.SerializeToString())
        for index, tensor in enumerate(node.input):
            copy.input[index] = self._read(tensor, node.name, index)
        for graph in subgraphs(copy):
            for inner in graph.node:
                rename_tensors(inner, lambda tensor: self._alias.get(tensor, tensor))
        self.draft.append(copy)

    def _read(self, tensor: str, node: str, index: int) -> str:
        """Float tensor that the input ``index`` of ``node`` reads, of no node if that is empty."""
        if tensor in self._pairs and node:
            self.draft.mark(self._pairs[tensor], node, index)
        self._refuse_run_time(tensor, f"node '{node}' reads" if node else "a node reads")
        return self._alias.get(tensor, tensor)

    def _refuse_run_time(self, tensor: str, reader: str) -> None:
        if tensor in self._products or tensor in self._factors:
            raise InputError(
                f"{self._path}: {reader} '{tensor}', part of a dynamic quantization that placer "
                "cannot take apart; give the float model"
            )

    # The graph's outputs.

    def _finish(self) -> None:
        draft = self.draft
        if self._casts:
            self.records.notes.append(f"{self._casts} Cast nodes between Q and DQ dropped")
        new_name: dict[str, str] = {}
        fixed = {*draft.inputs, *draft.outputs, *draft.constants}
        for index, output in enumerate(draft.outputs):
            self._refuse_run_time(output, "the graph returns")
            if output in self._quantized:
                self._expand_quantize(NodeProto(name=f"graph output '{output}'"), output)
            elif output in self._alias:
                source = self._alias[output]
                if output in self._pairs:
                    draft.mark(self._pairs[output], "", index)
                if source == output:
                    continue
                if source in fixed or source in new_name:  # Two names that must both survive.
                    inner = new_name.get(source, source)
                    draft.emit("Identity", f"{output}/Identity", [inner], output)
                else:
                    new_name[source] = output
        draft.rename(new_name)
        self.records.rename(new_name)


def _scale_of(info: Quantized) -> Factor:
    if info.scale is None:
        return Factor((info.symbol,), np.ones(()))
    return dynamic.known(info.scale)


def _input(node: NodeProto, index: int) -> str:
    return str(node.input[index]) if index < len(node.input) else ""


def _integer(node: NodeProto, name: str, default: int) -> int:
    return next((int(a.i) for a in node.attribute if a.name == name), default)


def _order(node: NodeProto, rank: int) -> list[int]:
    """The permutation of a Transpose."""
    given = next((list(a.ints) for a in node.attribute if a.name == "perm"), [])
    return given or list(range(rank))[::-1]


def _quant_limits(node: NodeProto, bits: int) -> tuple[float, float]:
    """Limits of QONNX's operator Quant, as its definition says."""
    narrow = _integer(node, "narrow", 0)
    if _integer(node, "signed", 1):
        return -(2.0 ** (bits - 1)) + narrow, 2.0 ** (bits - 1) - 1
    return 0.0, 2.0**bits - 1 - narrow
