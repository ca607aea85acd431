"""Epilogues: what precompiled kernels compute behind a product."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass

from onnx import TensorProto

from placer.graph import Edge
from placer.graph.transposes import order_of
from placer.graph.weights import weight_input
from placer.prediction.kernels.added_lines import leaves_to_lines, turned_with
from placer.prediction.kernels.cut_maps import adds_padded, is_of_padded
from placer.prediction.kernels.cut_parts import is_cut_in_float, is_quantized_in_parts
from placer.prediction.kernels.flat_rows import FlatRows
from placer.prediction.kernels.flattened import OF_BATCHES, Flattened, batches
from placer.prediction.kernels.following import Following
from placer.prediction.kernels.gates import Gates
from placer.prediction.kernels.line_rows import is_turned_as_written
from placer.prediction.kernels.lines import LINE_RANK, is_shared, may_follow, writes_line
from placer.prediction.kernels.parts import (
    ACTIVATIONS,
    CONVS,
    PRODUCTS,
    SQUARES,
    VIEWS,
    Unit,
    is_padded,
    resizes,
    sums_few,
)
from placer.prediction.kernels.rows_of_maps import makes_rows
from placer.prediction.kernels.shared_operands import reads_inputs
from placer.prediction.kernels.shuffled import is_shuffled
from placer.prediction.kernels.turned_rows import TurnedRows
from placer.prediction.kernels.units import Units
from placer.prediction.kernels.views import (
    SWAPPED,
    becomes_map,
    is_matrix_conv,
    shapes_map,
)

_OUTPUTS = 2  # Of a generated kernel of a Conv.
# What adds the results of two Convs to each other.
_ADDS = frozenset({"Add", "Sum", "Mean"})
# What no product's kernel computes: a generated one behind it does, with all that is not prepared
# (TensorRT-RTX 1.7.1, 38 operators behind Convs and MatMuls).
_BEHIND = frozenset(
    {"PRelu", "Softplus", "Selu", "Mish", "ThresholdedRelu", "Sign", "Floor", "Ceil", "Round"}
    | {"Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh"}
)
# These compute in FP32, whatever they read, and so begin with a cast of their own.
_CASTS_FIRST = frozenset({"LayerNormalization", "LRN"})


@dataclass(frozen=True)
class _Behind:
    """What counts of the product of which ``Epilogues`` asks whether a unit is taken along.

    ``casts_apart``: casts behind it are kernels of their own, as of several batches, or of sums of
    maps of more channels. ``one_matrix``: its rows stay one matrix of all samples, of which no map
    is made (eight small graphs). ``spreads``: a Conv that is a matrix product, whose kernel
    computes what spreads over a map (12, of gates). ``line``: a Conv's line, of which sums leave
    what they read to its kernel (19).
    """

    casts_apart: bool = False
    one_matrix: bool = False
    spreads: bool = False
    line: bool = False


_ANY = _Behind()


class Epilogues:
    """The units that the kernel of a float product computes as well.

    ``groups``: units by number of their kernel; ``before``: of each unit those that it depends on,
    as bits; ``gates``: see there; ``joins_floats``: whether a unit is a Concat whose parts are
    written there.
    """

    def __init__(
        self,
        made: Units,
        units: Sequence[Unit],
        groups: Mapping[int, list[Unit]],
        before: Sequence[int],
        gates: Gates,
        joins_floats: Callable[[Unit], bool],
    ) -> None:
        self._joins_floats = joins_floats
        self._units, self._groups, self._before = units, groups, before
        self._graph, self._form, self._branches = made.graph, made.form, made.branches
        self._scales_integers = made.scales_integers
        self._turned, self._columns = TurnedRows(made), made.columns
        self._outputs, self._flat = frozenset(made.graph.outputs), FlatRows(made)
        self._flattened = Flattened(made.graph, made.form, groups)
        self._gates = gates

    def of_product(self, product: Unit) -> list[Unit]:
        """The pointwise nodes that a float product computes itself; none of joined products."""
        if len(product.outputs) > 1:
            return []
        count = 0 if product.turned else batches(self._graph, product.node)
        if count > 1 or (product.integers and product.node.op not in CONVS):
            return self._rectified(product)
        region, best = self._region(product, count)
        if not region:
            return []
        chain, prepared = region[1:best], self._prepared(region)
        if chain and self._writes_beside(product, chain[-1]):
            return prepared
        adds = any(adds_padded(self._graph, unit, region) for unit in chain[-1:])
        if len(prepared) == len(chain) or product.integers:
            return prepared
        if chain and self._is_taken_along(product, chain, region[best:], count, adds):
            return prepared
        if turned := turned_with(self._graph, product, chain):
            return [*turned, *chain]
        is_alone = adds or writes_line(self._graph, product)
        is_alone = is_alone or count > 0 or self._flat.are_of(product)
        beside = [] if is_alone else self._beside(product, chain)
        return prepared if beside is None else [*chain, *beside]

    def _is_taken_along(
        self,
        product: Unit,
        chain: Sequence[Unit],
        rest: Sequence[Unit],
        count: int,
        adds: bool,
    ) -> bool:
        """Whether what follows takes the end of ``chain`` along, and with it what ``chain`` does.

        ``rest``: what else the kernel might compute. ``count``: of the product's batches. ``adds``:
        whether its end adds maps of more channels.
        """
        line = writes_line(self._graph, product)  # All else reads a view of it (24 graphs).
        behind = _Behind(
            casts_apart=bool(count) or adds or self._flat.are_of(product),
            one_matrix=count > 0,
            spreads=is_matrix_conv(self._graph, product.node),
            line=line,
        )
        if self._is_pulled(chain[-1], behind) or is_shuffled(self._graph, product, chain[-1]):
            return True
        if any(map(_is_summed, rest)):
            return True
        is_line = line and is_shared(chain[-1])
        return is_line or leaves_to_lines(self._graph, product, chain, _CASTS_FIRST)

    def _region(self, product: Unit, count: int) -> tuple[list[Unit], int]:
        """The product and what may follow it in its kernel, and how many of them write one tensor.

        Nothing at all where a unit reads turned rows alone. ``count``: of the product's batches.
        """
        region, best = [product], 1
        within, live, padded = {product}, [product], is_padded(self._graph, product)
        shapes = self._shapes_of(product)
        following = Following(self._units, product)
        following.add_readers(product)
        for unit in following:
            if not self._is_free(product, unit, within):
                continue
            others = [w for _, w in unit.reads if w is not None and w not in within]
            if not count and self._turned.are_only_turned(unit, region):
                return [], 0
            if not self._may_follow(unit, region, others):
                continue
            if unit.outputs and self._graph.type_of(unit.outputs[0]).shape not in shapes:
                continue
            if padded and any(adds_padded(self._graph, done, region) for done in region):
                break
            region.append(unit)
            within.add(unit)
            following.add_readers(unit)
            live = [u for u in (*live, unit) if self._leaves(u, within)]
            if live == [unit]:
                best = len(region)
        return region, best

    def _shapes_of(self, product: Unit) -> set[tuple[int, ...] | None]:
        """Those of what it sums, and of what its kernel computes of that."""
        shape = self._graph.type_of(product.node.outputs[0]).shape
        return {shape, (shape[0], *shape[:0:-1])} if product.turned and shape else {shape}

    def _is_free(self, product: Unit, unit: Unit, within: Container[Unit | None]) -> bool:
        """Whether a product's kernel may do it: in no other one, and in float inside of it."""
        if not self._may_end(product, unit) or len(self._groups[unit.group]) > 1:
            return False
        return not any(edge in self._form.scales for edge, writer in unit.reads if writer in within)

    def _may_follow(self, unit: Unit, region: Sequence[Unit], others: Sequence[Unit]) -> bool:
        """Whether the kernel of a product that computes ``region`` may compute ``unit``."""
        product = region[0]
        if self._gates.end_before(product, unit):
            return False
        if writes_line(self._graph, product) and not may_follow(
            self._graph, unit, region, self._gates.functions
        ):
            return False
        if self._flat.are_of(product):
            if not self._flat.may_follow(unit, product, others):
                return False
        elif (
            batches(self._graph, product.node)
            and not product.turned
            and not self._is_of_matrices(unit, region, others)
        ):
            return False
        if any(self._comes_later(other, product, unit) for other in others):
            return False
        if product.node.op in CONVS and self._is_of_samples(unit):
            return False
        if others and is_matrix_conv(self._graph, product.node):
            # A matrix product adds maps before its activation (45 small graphs).
            return all(done.node.op == "Add" for done in (*region[1:], unit))
        return product.node.op not in PRODUCTS or not any(map(self._flattens_map, others))

    def _is_of_samples(self, unit: Unit) -> bool:
        """Whether it spreads one number over each channel of each of several samples (12 graphs).

        So a step's row is added to maps of several samples or frames, as in U-Nets for diffusion.
        """
        shapes = [self._graph.type_of(edge.tensor).shape or () for edge, _ in unit.reads]
        made = self._graph.type_of(unit.outputs[0]).shape if unit.outputs else None
        return made is not None and any(
            shape[:1] == made[:1] != (1,) and len(shape) == len(made) and math.prod(shape[2:]) == 1
            for shape in shapes
            if shape != made
        )

    def _rectified(self, product: Unit) -> list[Unit]:
        """The Relu that alone reads what a product of many batches makes."""
        readers = [reader for edge, reader in product.readers if edge not in self._form.scales]
        alone = len(product.readers) == len(readers) == 1 and not self._leaves(product, readers)
        return readers if alone and readers[0].node.op == "Relu" else []

    def _beside(self, product: Unit, chain: Sequence[Unit]) -> list[Unit] | None:
        """What else is computed of what a Conv's generated kernel makes alone, as an output more.

        The norm of what a block passes on, as RepVGG adds it behind the next Conv. None: there are
        more outputs, or what follows takes one along, and another kernel does all that is computed
        of the Conv (eight small graphs). Of a matrix product it does if anything is quantized of
        what is computed of it alone (40).
        """
        passed_on = [unit for unit in (product, *chain) if set(unit.outputs) & self._outputs]
        if passed_on:
            return []
        shape = self._graph.type_of(product.node.outputs[0]).shape
        done, beside, matrix = [product, *chain], list[Unit](), product.node.op in PRODUCTS
        following = Following(self._units, product)
        for unit in done:
            following.add_readers(unit)
        for unit in following:
            if unit.role != "pointwise" or unit in done or not self._may_end(product, unit):
                continue
            made = all(writer in done for _, writer in unit.reads)
            if not made or not unit.reads or len(self._groups[unit.group]) > 1:
                continue
            quantized = any(edge in self._form.scales for edge, _ in (*unit.reads, *unit.readers))
            if quantized and matrix:
                return None
            if quantized or self._graph.type_of(unit.outputs[0]).shape != shape:
                continue
            done.append(unit)
            beside.append(unit)
            following.add_readers(unit)
        if matrix:
            return []
        outputs = sum(self._leaves(unit, done) for unit in done)
        taken_along = any(map(self._is_pulled, beside))
        return None if taken_along or outputs > _OUTPUTS else beside

    def _comes_later(self, other: Unit, product: Unit, unit: Unit) -> bool:
        """Whether ``other`` is known after ``product`` only: another product, or what reads it.

        What is generated from earlier tensors, such as a Resize, runs before (a feature pyramid),
        and so do pools of them and, of two Convs that are not added as they are, the second one. Of
        products of activations the builder's own order tells (30 small graphs).
        """
        if is_of_padded(self._graph, other) and is_padded(self._graph, product):
            return other.index < product.index  # The first of two adds, as the maps are cut.
        apart = not self._before[other.index] >> product.index & 1
        if apart and (products := self._products_beside(other, product)):
            place = self._branches[product.node.name]
            return any(self._branches[u.node.name] > place for u in products)
        if other.index < product.index or not apart:
            return other.index >= product.index
        convs = product.node.op in CONVS and other.role == "product" and other.node.op in CONVS
        runs_before = convs and not other.leaves_sums and not self._adds_float(other, unit)
        return not (other.generated or other.role == "pool" or runs_before)

    def _products_beside(self, other: Unit, product: Unit) -> list[Unit]:
        """Products of activations that ``other`` is or reads, if ``product`` is one, too."""
        if not self._multiplies_activations(product):
            return []
        written = [other, *(writer for _, writer in other.reads if writer is not None)]
        return [unit for unit in written if self._multiplies_activations(unit)]

    def _adds_float(self, other: Unit, unit: Unit) -> bool:
        """Whether ``unit`` adds what ``other`` writes without a pair between them."""
        return unit.node.op in _ADDS and not any(
            edge in self._form.scales for edge, writer in unit.reads if writer is other
        )

    def _multiplies_activations(self, unit: Unit) -> bool:
        """Whether it is a MatMul whose operands are made by nodes, no weights and no inputs."""
        return (
            unit.role == "product"
            and unit.node.op == "MatMul"
            and weight_input(self._graph, unit.node) is None
            and not reads_inputs(self._graph, unit.node)
        )

    def _may_end(self, product: Unit, unit: Unit) -> bool:
        """Whether a product's kernel does it; a cast only of a single matrix, and for no sort."""
        if unit.node.op in _BEHIND or sums_few(unit) or unit.casts_for_float32:
            return False
        powers = unit.node.op == "Pow" and not self._is_half(unit)
        if unit.role != "cast" and (powers or unit.node.op == "Erf"):
            # In FP32, of what is cast in any case.
            return len(self._graph.edges_of(unit.node.inputs[0])) == 1
        if unit.role != "cast":
            return unit.role == "pointwise"
        batch = (self._graph.type_of(product.node.outputs[0]).shape or (0, 0))[:-2]
        one = math.prod(batch) == 1 or weight_input(self._graph, product.node) is None
        one = one or product.turned
        return product.node.op not in CONVS and one and not self._flat.are_of(product)

    def _is_half(self, unit: Unit) -> bool:
        """Whether the file has what it reads in FP16, which placer casts for no power then."""
        return self._graph.type_of(unit.node.inputs[0]).dtype == TensorProto.FLOAT16

    def _prepared(self, region: Sequence[Unit]) -> list[Unit]:
        """What of a region the kernel of a Conv does that nothing is generated for."""
        epilogue: list[Unit] = []
        if region[0].node.op not in CONVS or region[0].grouped:
            return epilogue
        viewed = region[0].integers and writes_line(self._graph, region[0])
        for unit in region[1:3]:
            if viewed and any(reader.node.op in VIEWS for _, reader in unit.readers):
                break  # What reads a view of a line of integers computes it.
            sums = unit.node.op == "Add" and not epilogue and self._adds_map(unit)
            active = unit.node.op in ACTIVATIONS and all(u.node.op == "Add" for u in epilogue)
            done = [region[0], *epilogue, unit]
            if not (sums or active) or [u for u in done if self._leaves(u, done)] != [unit]:
                break
            epilogue.append(unit)
        return epilogue

    def _adds_map(self, unit: Unit) -> bool:
        """Whether it adds another map, be it one of constants, as positions are (15 graphs)."""
        made = self._graph.type_of(unit.outputs[0]).shape
        return all(self._graph.type_of(t).shape == made for t in unit.node.inputs)

    def _is_pulled(self, unit: Unit, behind: _Behind = _ANY) -> bool:
        """Whether what follows takes ``unit`` along: a sum, Resize, cast, broadcast, or its Q.

        What is written into a joined tensor is there before (necks of YOLO, 12 small graphs).
        """
        if unit.casts or self._joined_by([reader for _, reader in unit.readers]):
            return False
        if is_quantized_in_parts(unit, self._graph, self._form):
            return True
        if self._is_turned_behind(unit, behind.one_matrix):
            return True
        return any(self._pulls(reader, edge, unit, behind) for edge, reader in unit.readers)

    def _is_turned_behind(self, unit: Unit, one_matrix: bool) -> bool:
        """Whether a map or a line is made of what ``unit`` writes; ``one_matrix``: see _Behind."""
        readers = [reader for _, reader in unit.readers]
        turned = () if one_matrix else (becomes_map, shapes_map)
        if any(turns(self._graph, reader.node) for reader in readers for turns in turned):
            return True
        if len(readers) > 1 and any(map(self._makes_line, readers)):
            return True
        if any(makes_rows(self._graph, self._form, reader) for reader in readers):
            return True
        if one_matrix or unit.node.op in CONVS:
            return False
        beside = [w for reader in readers if reader.role == "pointwise" for _, w in reader.reads]
        return any(w is not None and self._flattens_map(w) for w in beside)

    def _pulls(self, reader: Unit, edge: Edge, unit: Unit, behind: _Behind) -> bool:
        """Whether ``reader`` is a reason to compute ``unit`` beside it; ``edge``: what it reads."""
        if reader.casts_for_float32 and _rectifies_product(unit):
            return False
        if behind.casts_apart and reader.role == "cast" and not reader.casts_for_float32:
            return False
        if len(unit.readers) == 1 and (reader.role == "cast" or reader.node.op in _CASTS_FIRST):
            return True
        if _squares(reader) or reader.node.op in _BEHIND or self._quantizes(unit, edge):
            return True
        return self._changes_shape(reader, edge, unit, behind)

    def _changes_shape(self, reader: Unit, edge: Edge, unit: Unit, behind: _Behind) -> bool:
        """Whether ``reader``, see ``_pulls``, resizes, sums or spreads what it reads."""
        read = edge.tensor if edge.tensor in self._columns else unit.node.outputs[0]
        shape = self._graph.type_of(read).shape
        views = len(shape or ()) == LINE_RANK  # What resizes a line reads a view of it.
        if resizes(reader) and not views:
            return True
        if reader.role == "reduce":
            return not (behind.line or reader.node.op in (*_CASTS_FIRST, *SQUARES))
        if reader.role != "pointwise" or behind.spreads or sums_few(reader):
            return False
        return bool(reader.outputs) and self._graph.type_of(reader.outputs[0]).shape != shape

    def _quantizes(self, unit: Unit, edge: Edge) -> bool:
        """Whether what reads ``unit`` along ``edge`` quantizes it.

        Where a cast reads it, too, another kernel does (16 small graphs).
        """
        if any(reader.role == "cast" for _, reader in unit.readers):
            return False
        return edge in self._form.scales and not is_cut_in_float(unit, self._form)

    def _makes_line(self, unit: Unit) -> bool:
        """Whether it turns rows to a Conv's line where they are written."""
        if order_of(self._graph, unit.node) != SWAPPED or unit.role != "move":
            return False
        convs = bool(unit.readers) and all(r.node.op in CONVS for _, r in unit.readers)
        return convs and is_turned_as_written(self._graph, unit.node)

    def _flattens_map(self, unit: Unit) -> bool:
        """Whether it makes rows of a float map that a generated kernel has turned.

        No product's kernel adds them: the builder adds the map (20 small graphs). What scales the
        sums of an INT8 Conv makes rows itself.
        """
        if unit.node.op != "Reshape" or unit.role != "move" or len(unit.reads) != 1:
            return False
        given, made = (
            self._graph.type_of(tensor).shape or ()
            for tensor in (unit.node.inputs[0], unit.node.outputs[0])
        )
        turned = unit.reads[0][1]
        known = turned is not None and turned.node.op == "Transpose" and turned.generated
        if turned is not None and any(w and self._scales_integers(w) for _, w in turned.reads):
            return False
        known = known and (len(given), len(made)) == (4, 3)
        return known and (given[0], given[-1]) == (made[0], made[-1])

    def _writes_beside(self, product: Unit, unit: Unit) -> bool:
        """Whether a Conv reads one part of a joined tensor and ``unit`` writes another one.

        A generated kernel does not read what it writes; prepared ones do (blocks of ELAN, eight
        small graphs). Depthwise Convs read a copy. Nor does a matrix product write a part (12).
        """
        if product.node.op not in CONVS or product.depthwise:
            return False
        written = self._joined_by([r for _, r in unit.readers])
        if is_matrix_conv(self._graph, product.node):
            return bool(written)
        tensors = {edge.tensor for edge, _ in product.reads}
        sources = [w for _, w in product.reads if w is not None]
        readers = [r for w in sources for edge, r in w.readers if edge.tensor in tensors]
        return bool(self._joined_by(readers) & written)

    def _joined_by(self, readers: Sequence[Unit]) -> set[int]:
        """Those of ``readers`` that join floats in place, by index, and what joins them again."""
        joined: set[int] = set()
        for reader in readers:
            if self._joins_floats(reader):
                joined |= {reader.index, *self._joined_by([r for _, r in reader.readers])}
        return joined

    def _leaves(self, unit: Unit, region: Container[Unit]) -> bool:
        if unit.role == "cast":
            return True
        leaves = any(t in self._graph.outputs for t in unit.outputs)
        leaves = leaves and not any(reader.role == "cast" for _, reader in unit.readers)
        return leaves or any(reader not in region for _, reader in unit.readers)

    def _is_of_matrices(self, unit: Unit, region: Sequence[Unit], others: Sequence[Unit]) -> bool:
        """Whether ``unit`` computes row by row of what a product of several batches makes."""
        if len([w for _, w in unit.reads if w in region]) + len(others) < len(unit.reads):
            return False
        return unit.node.op not in OF_BATCHES and all(map(self._flattened.is_matrix, others))


def _rectifies_product(unit: Unit) -> bool:
    """Whether it is a Relu of what a product sums, which is part of the product itself."""
    writer = unit.reads[0][1]
    return unit.node.op == "Relu" and writer is not None and writer.role == "product"


def _is_summed(unit: Unit) -> bool:
    """Whether a kernel sums what it writes, as the squares of a norm behind a residual are."""
    return any(reader.role == "reduce" for _, reader in unit.readers)


def _squares(unit: Unit) -> bool:
    """Whether it makes the squares of a large map for the kernel that sums them."""
    return unit.role == "move" and unit.node.op in SQUARES
