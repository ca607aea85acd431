"""The types in which tensors pass from one generated kernel to another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from onnx import numpy_helper

from placer.graph import Edge, Graph, Node
from placer.graph.kept import kept
from placer.plan import Port
from placer.prediction.kernels.channels import sums_channels
from placer.prediction.kernels.full_precision import is_mean_of_squares
from placer.prediction.kernels.fusion import Kernels
from placer.prediction.kernels.lines import IN_PARTS
from placer.prediction.kernels.parts import (
    CONVS,
    CUT,
    IN_FLOAT32,
    NORMED,
    NORMS,
    PLACES,
    SQUARES,
    Unit,
    is_concat,
    resizes,
)
from placer.prediction.kernels.units import Units
from placer.prediction.layers.claims import FLOAT
from placer.prediction.layers.conversions import type_name
from placer.prediction.layers.motion import Scale

_SMALLEST_NORMAL = 2.0**-14  # Of FP16.


class KernelPorts:
    """What the kernels of one placement read and write.

    ``base`` and ``integer``: ONNX names of the engine's types.
    """

    def __init__(self, units: Units, kernels: Kernels, base: str, integer: str) -> None:
        self._units, self._kernels = units, kernels
        self._graph, self._form = units.graph, units.form
        self._groups = kernels.groups
        self._base, self._integer = base, integer

    def inputs(self, units: Sequence[Unit]) -> Iterator[tuple[Edge, Port]]:
        """What a kernel of ``units`` reads, and at which edges."""
        inside = set(units)
        for unit in units:
            for edge, writer in unit.reads:
                if writer is None:
                    yield edge, Port(self._units.outside(edge.tensor), tensor=edge.tensor)
                elif writer not in inside:
                    tensor = self._units.shaped_as.get(edge.tensor, edge.tensor)
                    yield edge, Port(self.edge_type(edge, writer, unit), tensor=tensor)

    def outputs(self, units: Sequence[Unit]) -> Iterator[Port]:
        """What it writes, once for each reader."""
        inside = set(units)
        for unit in units:
            for edge, reader in unit.readers:
                if reader not in inside:
                    tensor = self._units.shaped_as.get(edge.tensor, edge.tensor)
                    yield Port(self.edge_type(edge, unit, reader), tensor=tensor)
            if unit.role == "cast" and _leaves_graph(unit.reads[0][0]):
                edge = unit.reads[0][0]
                yield Port(self._units.outside(edge.tensor), tensor=edge.tensor)
            if unit.sorts:
                yield from self._sorted(unit)
            cast = {edge.tensor for edge, reader in unit.readers if reader.role == "cast"}
            for tensor in unit.outputs if unit.role != "cast" else ():
                if tensor in self._graph.outputs and tensor not in cast:
                    yield Port(self._units.outside(tensor), tensor=tensor)

    def _sorted(self, unit: Unit) -> Iterator[Port]:
        """What a sort writes whether it is read or not."""
        given = unit.node.inputs[0]
        is_float = given not in self._graph.types or self._graph.type_of(given).is_float
        integers = "" if is_float else type_name(self._graph, given)
        if unit.node.op in PLACES:
            yield Port(integers or self._base, tensor=f"{unit.outputs[0]}/maximum")
        else:
            yield from map(Port, (integers or FLOAT, "int64"), ("", ""), unit.outputs)

    def integer_at(self, edge: Edge) -> str:
        """The type of what is quantized at ``edge``."""
        scale = self._form.scales.get(edge)
        return self._integer if scale is None or scale.format is None else scale.format

    def edge_type(self, edge: Edge, writer: Unit, reader: Unit) -> str:
        """The type in which a tensor passes from one kernel to another."""
        known = self._written_type(edge, writer, reader)
        if known is None:
            known = self._given_type(edge.tensor, writer, reader)
        if known is None:
            known = self._type_of_pair(edge, writer, reader)
        if known is not None:
            return known
        if self._passes_float32(edge, writer, reader):
            return FLOAT
        if self._passes_floats(edge, writer, reader):
            return self._base
        return self._rounded_type(edge, writer, reader)

    def _written_type(self, edge: Edge, writer: Unit, reader: Unit) -> str | None:
        """The type of what is dequantized, cast, cut or summed up for itself, whoever reads it."""
        kept = writer.pools_integers or (writer.in_place and reader.role == "cast")
        if kept or self._dequantizes(writer):
            return self.integer_at(edge) if kept else self._base
        if edge.input_index == NORMED or writer.casts:
            return FLOAT
        if edge.input_index == CUT:
            passed = self._is_quantized(reader) and (writer.scales or self._units.is_mha(writer))
            passed = passed and None not in self._scales(reader)
            return self.integer_at(edge) if passed else self._base
        if writer.leaves_sums and edge.input_index < 0:
            return FLOAT if writer.node.op in CONVS else self._base
        return None

    def _type_of_pair(self, edge: Edge, writer: Unit, reader: Unit) -> str | None:
        """The type that a kernel which only quantizes writes, or a pool of integers reads."""
        if writer.role in ("quantize", "pair"):
            padded = reader.generated and any(r.pads_integers for _, r in writer.readers)
            shared = writer.role == "pair" and (padded or is_concat(reader))
            written = shared or writer.writes_integers(reader)
            return self.integer_at(edge) if written else self._base
        return self.integer_at(edge) if reader.pools_integers else None

    def _passes_float32(self, edge: Edge, writer: Unit, reader: Unit) -> bool:
        """Whether what passes is neither rounded nor in the type of floats."""
        rounds = edge in self._form.scales and reader.integers
        if self._stays_float32(edge.tensor, writer, reader) and not rounds:
            return True  # Generated kernels round what they read of it (96 small graphs).
        is_cast = self._is_cast(edge.tensor, writer, reader)
        return is_cast and not self._kernels.is_float(writer)

    def _passes_floats(self, edge: Edge, writer: Unit, reader: Unit) -> bool:
        """Whether floats pass although there may be a pair, as ``reader`` rounds them itself."""
        if self._is_resized(edge, writer, reader):
            return True
        norms = any(unit.alone and unit.node.op in NORMS for unit in (writer, reader))
        computes_floats = self._kernels.sums.multiplies_row(reader) or sums_channels(reader)
        joins_sums = writer.role == "reduce" and is_concat(reader)
        apart = self._kernels.quantizes_apart(writer) or self._is_of_squares(writer)
        return norms or computes_floats or joins_sums or apart

    def _is_of_squares(self, writer: Unit) -> bool:
        """Whether it computes of means of squares where these are taken, but not of the rows.

        The next kernel rounds what it writes, as far as that is not rounded twice (96 graphs).
        """
        shape = self._graph.type_of(writer.outputs[0]).shape if writer.outputs else None
        return writer.role == "pointwise" and any(
            self._graph.type_of(unit.outputs[0]).shape == shape
            for unit in self._groups[writer.group]
            if unit.role == "reduce" and is_mean_of_squares(self._graph, unit.node)
        )

    def _rounded_type(self, edge: Edge, writer: Unit, reader: Unit) -> str:
        """The type of integers where a pair is there and ``writer`` may write them."""
        scale = self._form.scales.get(edge)
        if scale is not None and self._units.is_mha(writer) and self._is_quantized(writer):
            return self.integer_at(edge)
        if scale is None or self._kernels.is_float(writer):
            again = reader.in_place and writer.role == "pointwise"  # A Concat that runs twice.
            return self._integer if scale is None and again else self._base
        integers = reader.integers and not self._units.masks(edge, reader)
        joined = integers or self._is_part(edge, writer)
        joined = joined or self._is_joined(edge, writer, reader)
        passed_on = joined or self._is_passed_on(edge, writer)
        return self.integer_at(edge) if passed_on else self._base

    def _given_type(self, tensor: str, writer: Unit, reader: Unit) -> str | None:
        """The type of places of maxima, of what is sorted, and of what is no float."""
        is_float = tensor not in self._graph.types or self._graph.type_of(tensor).is_float
        if writer.sorts and writer.node.op in PLACES:
            return "int32"
        if is_float:
            wide = any(u.node.op in IN_FLOAT32 and u.role != "cast" for u in (writer, reader))
            return FLOAT if wide else None
        return type_name(self._graph, tensor)

    def _is_resized(self, edge: Edge, writer: Unit, reader: Unit) -> bool:
        """Whether a pair is at a Resize between kernels that compute element by element.

        The one before it rounds, and the one behind casts to integers or only scales: what passes
        is in float. Integers are there for products and Concats (see ``Resized``).
        """
        if edge not in self._form.scales or not (resizes(writer) or resizes(reader)):
            return False
        sharing = [r for e, r in writer.readers if e.tensor == edge.tensor]
        if resizes(reader) and any(is_concat(behind) for _, behind in reader.readers):
            return False
        return writer.generated and all(
            r.generated and not is_concat(r) and (r.role == "pointwise" or resizes(r))
            for r in sharing
        )

    def _stays_float32(self, tensor: str, writer: Unit, reader: Unit) -> bool:
        """Whether a tensor is no FP16 where ``reader`` reads it.

        What a generated kernel casts for a power of its own, it passes on as that to the kernel
        that scales it by the sums of powers, not to others, as residuals are. What joint products
        write, others cast (150 small graphs and four decoders).
        """
        if tensor not in self._units.float32 or writer.cast_behind:
            return False
        return not self._is_powered(tensor, writer) or self._reads_sums(writer, reader)

    def _is_powered(self, tensor: str, writer: Unit) -> bool:
        """Whether the kernel that writes a tensor takes powers of it, too."""
        return any(
            edge.tensor == tensor and reader.node.op == "Pow" and reader.group == writer.group
            for edge, reader in writer.readers
        )

    def _reads_sums(self, writer: Unit, reader: Unit) -> bool:
        """Whether the kernel of ``reader`` reads sums that the kernel of ``writer`` takes."""
        read = (w for unit in self._groups[reader.group] for _, w in unit.reads if w is not None)
        return any(w.role == "reduce" and w.group == writer.group for w in read)

    def _is_cast(self, tensor: str, writer: Unit, reader: Unit) -> bool:
        """Whether the reader, or a power in the writer's kernel, needs the tensor in FP32.

        Both kernels are those of one norm then: the reader's takes the sums as well, and divides.
        What is multiplied by a reciprocal is cast anew (20 small graphs).
        """
        if reader.node.op == "Expand" and _computes_tiny(self._graph, writer.node):
            return True
        if reader.node.op == "Add" and _computes_tiny(self._graph, reader.node):
            summed = self._graph.producer.get(writer.node.inputs[0])
            return summed is None or summed.op not in SQUARES  # Roots of sums were cast before.
        if reader.node.op == "Mul":
            return False
        return self._reads_sums(writer, reader) and self._is_powered(tensor, writer)

    def _scales(self, writer: Unit) -> set[Scale | None]:
        return {self._form.scales.get(edge) for edge, _ in writer.readers}

    def _is_quantized(self, writer: Unit) -> bool:
        """Whether all readers quantize what an attention writes, which it then does itself."""
        return len(self._scales(writer)) == 1

    def _is_passed_on(self, edge: Edge, writer: Unit) -> bool:
        """Whether a pair's float readers dequantize: its DQ is one node, in one kernel.

        It lies in the kernel that quantizes if a reader does, or if a float product reads it. Of
        a tensor of several scales generated kernels read floats, and so does what is computed in
        parts, which reads its operand several times.
        """
        scale = self._form.scales[edge]
        if writer.writes_other(edge, self._form):
            return False
        sharing = [
            reader
            for other, reader in writer.readers
            if other.tensor == edge.tensor and self._form.scales.get(other) == scale
        ]
        floats = [
            r
            for r in sharing
            if not (r.integers or r.pads_integers or self._is_cut_quantized(r, writer))
        ]
        if any(r.node.op in IN_PARTS for r in floats):
            return False
        if len(floats) == len(sharing) and self._leaves_float(edge.tensor, writer):
            return False
        return all(
            r.generated
            and r.group != writer.group
            and not self._kernels.is_prepared(self._groups[r.group])
            for r in floats
        )

    def _dequantizes(self, unit: Unit) -> bool:
        """Whether it makes floats of integers, as of a MaxPool's, or of joined ones."""
        if unit.role != "cast":
            return False
        ((edge, writer),) = unit.reads
        integers = writer is not None and (writer.pools_integers or writer.in_place)
        return edge in self._form.scales or integers

    def _is_part(self, edge: Edge, writer: Unit) -> bool:
        """Whether it reads a part of joined integers, which are there in no other type."""
        scale = self._form.scales[edge]
        return any(
            other.tensor == edge.tensor
            and self._form.scales.get(other) == scale
            and self._kernels.is_in_place(reader)
            for other, reader in writer.readers
        )

    def _is_joined(self, edge: Edge, writer: Unit, reader: Unit) -> bool:
        """Whether a Concat reads the integers of a pair that others read floats of.

        It joins integers, whoever else reads the pair: the kernel that writes the tensor writes
        both. Where all that read the pair are such Concats and others read the tensor as it was
        before, they quantize it themselves (60 small graphs).
        """
        scale = self._form.scales[edge]
        if not is_concat(reader) or writer.group == reader.group:
            return False
        if writer.writes_other(edge, self._form):
            return False
        if len({self._form.last(part) for part, _ in reader.reads}) > 1:
            return False
        sharing = [
            other
            for e, other in writer.readers
            if e.tensor == edge.tensor and self._form.scales.get(e) == scale
        ]
        others = [r for r in sharing if not is_concat(r) or r.group == writer.group]
        return bool(others) or not self._leaves_float(edge.tensor, writer)

    def _leaves_float(self, tensor: str, writer: Unit) -> bool:
        """Whether anything reads what is not quantized: floats are there then.

        Parts that are cut out in the same kernel and all quantized are no floats.
        """
        return any(
            edge.tensor == tensor
            and edge not in self._form.scales
            and not self._is_cut_quantized(reader, writer)
            for edge, reader in writer.readers
        )

    def _is_cut_quantized(self, unit: Unit, writer: Unit) -> bool:
        parts = unit.role == "move" and unit.group == writer.group and bool(unit.readers)
        return parts and all(edge in self._form.scales for edge, _ in unit.readers)


def _leaves_graph(edge: Edge) -> bool:
    """Whether the tensor does; what the engine adds of its own reads at negative inputs."""
    return edge.is_graph_output and edge.input_index >= 0


@kept
def _computes_tiny(graph: Graph, node: Node) -> bool:
    """Whether it reads a number that FP16 does not hold with all digits, so that it is in FP32."""
    constants = [graph.initializers[t] for t in node.inputs if t in graph.initializers]
    if not constants or math.prod(constants[0].dims) != 1:
        return False
    return 0 < abs(float(numpy_helper.to_array(constants[0]).ravel()[0])) < _SMALLEST_NORMAL
