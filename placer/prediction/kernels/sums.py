"""Where a kernel with a reduction ends: at stored maps, moved rows and long sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from placer.graph import Graph
from placer.graph.weights import weight_input
from placer.prediction.kernels import row_activations
from placer.prediction.kernels.channels import sums_channels
from placer.prediction.kernels.full_precision import is_mean_of_squares
from placer.prediction.kernels.parts import CONVS, PRODUCTS, SQUARES, VIEWS, Unit
from placer.prediction.kernels.reductions import (
    is_large,
    is_map,
    product_shape,
    reduction,
    reduction_axes,
    sums_map,
    sums_places,
)
from placer.prediction.kernels.rows import Rows
from placer.prediction.layers.motion import NormalForm

# Activations behind which the map that a Conv wrote is turned, in the same kernel.
_TURNED_AFTER = ("HardSwish", "LeakyRelu")

# Sums that their kernel combines with what it summed; others are taken in FP32 or scale it anyway.
_COMBINED = ("ReduceMean", "ReduceMax", "ReduceMin")

Depends = Callable[[Unit, Unit], bool]
T = TypeVar("T", bound=Hashable)


class Sums:
    """Sums of the units of one placement.

    ``depends``: whether one unit needs another one; ``rows``: what moves them.
    """

    def __init__(self, graph: Graph, form: NormalForm, rows: Rows) -> None:
        self._graph, self._form, self._rows = graph, form, rows
        # ``end`` is asked of each unit behind a sum, while none is linked to others. So what it
        # asks of all that is computed of a unit is found once: rows of nodes may be long.
        self._shapes = _Behind(lambda unit: map(self._shape, unit.outputs[:1]))
        self._lengths = _Behind(self._sums_of)
        self._products = _Behind(self._reads_for_products)
        self._moved: dict[Unit, bool] = {}
        self._combined: dict[Unit, bool] = {}  # Of what sums are, with what they sum.

    def end(self, sums: Sequence[Unit], unit: Unit, depends: Depends) -> bool:
        """Whether ``unit`` is in another kernel than ``sums``, of which it reads, since that sums.

        All sums of both are alike.
        """
        summed = [u for u in sums if depends(unit, u)]
        if sum(map(self.is_row_product, sums)) > 1 and any(map(self.is_row_product, summed)):
            return True
        if any(self._ends_row(u) for u in summed):
            return self._ends_behind_row(summed, unit)
        if not summed:
            return False
        if unit.node.op == "Expand":
            return True
        if any(map(sums_channels, summed)):
            return unit.role == "reduce" or self._is_spread_over_map(unit)
        both = [reduction(self._graph, u.node) for u in (*sums, unit) if u.role == "reduce"]
        if any(one.is_shared for one in both):
            return True
        if any(self._ends_one(one, unit) for one in summed):
            return True
        if any(self._is_combined(one, unit) for one in summed):
            return False
        return any(one.ends_kernel for one in both)

    def _ends_behind_row(self, summed: Sequence[Unit], unit: Unit) -> bool:
        """Whether ``unit`` is in another kernel than ``summed``, of which some end rows."""
        if any(map(self._is_repeated, summed)):
            return True
        kernel = summed[0].group
        others = any(writer is None or writer.group != kernel for _, writer in unit.reads)
        if unit.role != "pointwise" or others:
            return True
        feeds = self._feeds_row_product(unit) or _is_squared(unit)
        return row_activations.ends_kernel(self._graph, unit, feeds)

    def _ends_one(self, summed: Unit, unit: Unit) -> bool:
        """Whether ``unit`` is in another kernel than ``summed`` by what it makes of it."""
        if self._ends_mean(summed, unit) or self._is_outgrown(summed, unit):
            return True
        if self._is_turned_back(summed, unit):
            return True
        return self._is_moved_behind(summed, unit) and not self._ends_squares(summed, unit)

    def _is_combined(self, summed: Unit, unit: Unit) -> bool:
        """Whether a kernel that sums columns of rows which it computes goes on with ``unit``.

        It combines the sums with what it summed, as deviations from a mean, once, and goes on from
        there to sums of the same columns, as variances are (40 small graphs).
        """
        inside = [w is not None and w.group == summed.group for _, w in unit.reads]
        if summed.node.op not in _COMBINED or not all(inside):
            return False
        if not reduction(self._graph, summed.node).ends_kernel:
            return False
        if any(w is summed for _, w in unit.reads):
            given = summed.reads[0][0].tensor
            return unit.role == "pointwise" and any(e.tensor == given for e, _ in unit.reads)
        axes = reduction_axes(self._graph, summed.node)
        if unit.role == "reduce":
            return reduction_axes(self._graph, unit.node) == axes
        return unit.role == "pointwise" and self._leads_to_sum(
            unit, reduction(self._graph, summed.node).length
        )

    def _ends_mean(self, mean: Unit, unit: Unit) -> bool:
        """Whether it computes of a map's means for products, or beside what else reads them.

        The kernel of a product of one row does so, or another one before that of a Conv (28 small
        graphs); what leaves, or is spread over a map again, is computed where means are taken.
        """
        if unit.role != "pointwise" or not unit.works or not sums_map(self._graph, mean.node):
            return False
        if self._spreads(unit, self._shape(mean.node.inputs[0])):
            return False
        beside = [reader for _, reader in mean.readers]
        for reader in beside:
            beside += [r for _, r in reader.readers] if reader.role == "move" else ()
        return any(r.role == "cast" or self._is_product(r) for r in beside) or bool(
            self._products.all(unit)
        )

    def _is_product(self, reader: Unit) -> bool:
        return (reader.role == "product" and not reader.integers) or self.multiplies_row(reader)

    def _reads_for_products(self, unit: Unit) -> Iterator[bool]:
        if any(self._is_product(reader) for _, reader in unit.readers):
            yield True

    def _is_outgrown(self, summed: Unit, unit: Unit) -> bool:
        """Whether a mean of all that is left of a map is spread over the map with what reads it."""
        if unit.role != "pointwise" or summed.node.op != "ReduceMean":
            return False
        size = math.prod(self._shape(summed.node.inputs[0]))
        return any(math.prod(shape) > size for shape in self._shapes.all(unit))

    def _is_spread_over_map(self, unit: Unit) -> bool:
        """Whether the sum of an INT8 Conv of few channels is spread over a map in the end.

        The map's kernel adds the bias then, and does all else that is computed of the sum.
        """
        return any(math.prod(shape[2:]) > 1 for shape in self._shapes.all(unit))

    def is_of_large_map(self, unit: Unit) -> bool:
        """Whether it sums over the places of a large map, which is turned before."""
        if unit.role != "reduce" or not sums_places(self._graph, unit.node):
            return False
        return is_large(self._graph, unit.node.inputs[0])

    def ends_turned(self, writer: Unit, unit: Unit) -> bool:
        """Whether its kernel ends with turning a map: what scales an INT8 Conv's sums, or one node.

        Whatever comes between such a kernel and a sum is computed on the turned map.
        """
        edge = unit.reads[0][0]
        if edge in self._form.scales or edge.tensor not in writer.outputs:
            return False
        if writer.role != "pointwise" or not writer.reads:
            return False
        before = writer.reads[0][1]
        if before is None or before.role != "product" or before.node.op not in CONVS:
            return False
        return not writer.works or (not before.leaves_sums and writer.node.op in _TURNED_AFTER)

    def _is_turned_back(self, summed: Unit, unit: Unit) -> bool:
        """Whether a map is stored otherwise again behind a sum, which another kernel does.

        Convs read channels that are stored last, and what leaves has them first. Sums over the
        channels of a map take it as it is, others have it turned before.
        """
        tensor = summed.node.inputs[0]
        shape = self._shape(tensor)
        if not is_map(self._graph, tensor) or not self._spreads(unit, shape):
            return False
        axes = reduction_axes(self._graph, summed.node)
        if axes != (1,) and len(shape) > 3:
            return True
        return not self._leads_to_sum(unit) and _ends(unit) != (axes == (1,))

    def _is_moved_behind(self, summed: Unit, unit: Unit) -> bool:
        """Whether rows that are scaled by their sums are moved or summed otherwise then.

        The kernel that does so scales them; what a Softmax makes is only moved there.
        """
        if self.is_row_product(summed) or not reduction(self._graph, summed.node).innermost:
            return False
        shape = self._shape(summed.node.inputs[0])
        if unit.role == "move":
            read = [math.prod(self._shape(edge.tensor)) for edge, _ in unit.reads]
            return math.prod(shape) in read and self._rows.are_moved(unit.node)
        if self._combines(summed, unit):
            return False
        if not self._spreads(unit, shape):
            return False
        length = reduction(self._graph, summed.node).length
        return not self._leads_to_sum(unit, length) and self._moves(unit)

    def _combines(self, summed: Unit, unit: Unit) -> bool:
        """Whether it computes of rows that the kernel computes and of their own sums alone.

        As deviations and their Exp: their kernel does so whatever is moved behind it. What scales
        rows by what is computed of a sum, as by the root of a mean of squares, is not of these (50
        small graphs).
        """
        read = {edge.tensor for edge, _ in unit.reads}
        self._combined[unit] = all(
            writer is not None
            and writer.group == summed.group
            and (
                writer.reads[0][0].tensor in read
                if writer.role == "reduce"
                else self._combined.get(writer, True)
            )
            for _, writer in unit.reads
        )
        return self._combined[unit]

    def _ends_squares(self, mean: Unit, unit: Unit) -> bool:
        """Whether a kernel that does nothing but take means of squares adds a number to them.

        It is cast to the engine's type there. Where the kernel computes what it squares, or casts
        what a joint product writes, it writes that and the means in FP32, and the next one adds
        (OLMo, Qwen and MobileNetV5). It goes on to what is rounded for the next one, if anything
        is (96 small graphs).
        """
        squares = mean.reads[0][1]
        if squares is None or not is_mean_of_squares(self._graph, mean.node):
            return False
        alone = all(
            w is None or not (w.group == mean.group or w.cast_behind) for _, w in squares.reads
        )
        adds = unit.node.op == "Add" and [w for _, w in unit.reads] == [mean]
        return alone and (adds or self._is_rounded_behind(unit, self._shape(mean.outputs[0])))

    def _is_rounded_behind(self, unit: Unit, shape: tuple[int, ...]) -> bool:
        """Whether a pair is behind it, or behind what alone is computed of it, all of ``shape``."""
        while unit.role == "pointwise" and self._shape(unit.outputs[0]) == shape:
            if any(edge in self._form.scales for edge, _ in unit.readers):
                return True
            if len(unit.readers) != 1:
                return False
            unit = unit.readers[0][1]
        return False

    def _moves(self, unit: Unit) -> bool:
        """Whether all that reads it in the end moves or sums elements across rows.

        What it makes with moved elements, as rotated queries, and what is computed of that is
        behind that (12 small graphs). Units in a row have all but themselves behind them.
        """
        row = [unit]
        while row[-1] not in self._moved and (alone := _alone_behind(row[-1])) is not None:
            row.append(alone)
        last = row[-1]
        moved = self._moved[last] if last in self._moved else self._all_move(last)
        self._moved.update(dict.fromkeys(row, moved))
        return moved

    def _all_move(self, unit: Unit) -> bool:
        behind = sorted(pointwise_behind(unit), key=lambda u: u.index)
        within, before = {*behind}, dict[Unit, None]()
        for u in behind:
            late = any(w in within and w not in before for _, w in u.reads)
            first = behind[0].index
            if not late and not any(_is_behind(w, within, first) for _, w in u.reads):
                before[u] = None
        return all(
            u.readers
            and all(r.role == "pointwise" or self._rows.are_moved(r.node) for _, r in u.readers)
            for u in before
        )

    def _spreads(self, unit: Unit, shape: tuple[int, ...]) -> bool:
        """Whether it, or what is computed of it, has the shape of what was summed again."""
        return unit.role == "pointwise" and shape in self._shapes.all(unit)

    def _leads_to_sum(self, unit: Unit, length: int = 0) -> bool:
        """Whether a sum, of ``length`` elements if that is given, is taken of what it makes."""
        lengths = self._lengths.all(unit)
        return length in lengths if length else bool(lengths)

    def _sums_of(self, unit: Unit) -> Iterator[int]:
        """How many elements each sum takes that reads it."""
        summed = (reader for _, reader in unit.readers if reader.role == "reduce")
        return (reduction(self._graph, reader.node).length for reader in summed)

    def _shape(self, tensor: str) -> tuple[int, ...]:
        return self._graph.type_of(tensor).shape or ()

    def is_shared(self, units: Sequence[Unit]) -> bool:
        """Whether several blocks of threads of a kernel take each of its sums."""
        sums = (u for u in units if u.role == "reduce" and not self.is_row_product(u))
        return any(reduction(self._graph, u.node).is_shared for u in sums)

    def is_row_product(self, unit: Unit) -> bool:
        """Whether it is the product of a single row, which is generated."""
        if unit.role != "reduce" or unit.node.op not in PRODUCTS:
            return False
        return math.prod(self._shape(unit.node.outputs[0])[:-1]) == 1

    def multiplies_few(self, unit: Unit) -> bool:
        """Whether it is the product of a single row of so few elements that each is an operand."""
        if (
            not unit.works
            or unit.role != "pointwise"
            or weight_input(self._graph, unit.node) is None
        ):
            return False
        rows = product_shape(self._graph, unit.node)[:-1]
        return unit.node.op in PRODUCTS and math.prod(rows) == 1

    def _ends_row(self, unit: Unit) -> bool:
        return self.is_row_product(unit) and reduction(self._graph, unit.node).ends_kernel

    def _is_repeated(self, product: Unit) -> bool:
        """Whether a row is multiplied by a square weight where it is computed.

        The next product's kernel then computes its row as well (20 small graphs).
        """
        made = self._shape(product.node.outputs[0])
        square = bool(made) and made[-1] == reduction(self._graph, product.node).length
        row = product.reads[0][1]
        while row is not None and row.node.op in VIEWS and row.reads:
            row = row.reads[0][1]
        inside = row is not None and row.group == product.group
        return square and inside and row is not None and row.role == "pointwise"

    def _feeds_row_product(self, unit: Unit) -> bool:
        """Whether only products of a single row read it: the first one's kernel adds its bias."""

        def multiplies(reader: Unit) -> bool:
            return self.is_row_product(reader) or self.multiplies_few(reader)

        return all(
            u.readers and all(multiplies(r) or r.role == "pointwise" for _, r in u.readers)
            for u in pointwise_behind(unit, multiplies)
        )

    def multiplies_row(self, unit: Unit) -> bool:
        """Whether it is the product of a row, generated in float, or a view that it reads.

        Such a kernel quantizes and dequantizes what it reads itself.
        """
        if self.is_row_product(unit):
            return True
        views = unit.node.op in VIEWS and bool(unit.readers)
        return views and all(self.multiplies_row(reader) for _, reader in unit.readers)


def _is_squared(unit: Unit) -> bool:
    """Whether a sum of squares reads it, or what alone is computed of it."""
    while True:
        readers = [reader for _, reader in unit.readers]
        if any(reader.role == "reduce" and reader.node.op in SQUARES for reader in readers):
            return True
        if len(readers) != 1 or readers[0].role != "pointwise":
            return False
        unit = readers[0]


class _Behind(Generic[T]):
    """What holds of a unit or of any pointwise one that is computed of it, found once for each."""

    def __init__(self, of: Callable[[Unit], Iterable[T]]) -> None:
        self._of, self._known = of, dict[Unit, frozenset[T]]()

    def all(self, unit: Unit) -> frozenset[T]:
        """What holds of any of them."""
        known, waiting = self._known, [unit]
        while waiting:
            last = waiting[-1]
            readers = [reader for _, reader in last.readers if reader.role == "pointwise"]
            missing = [reader for reader in readers if reader not in known]
            if missing and last not in known:
                waiting += missing
                continue
            waiting.pop()
            if last not in known:
                known[last] = frozenset(self._of(last)).union(*(known[r] for r in readers))
        return known[unit]


def _alone_behind(unit: Unit) -> Unit | None:
    """The pointwise unit that alone reads it and reads nothing else."""
    if len(unit.readers) != 1:
        return None
    reader = unit.readers[0][1]
    return reader if reader.role == "pointwise" and len(reader.reads) == 1 else None


def pointwise_behind(unit: Unit, ends: Callable[[Unit], bool] = lambda _: False) -> Iterator[Unit]:
    """``unit`` and the pointwise units that are computed of it without others between.

    Each once, as paths to a unit may be many; none that ``ends`` holds for, nor what is behind it.
    """
    waiting, seen = [unit], {id(unit)}
    while waiting:
        unit = waiting.pop()
        yield unit
        for _, reader in unit.readers:
            if reader.role == "pointwise" and id(reader) not in seen and not ends(reader):
                seen.add(id(reader))
                waiting.append(reader)


def _is_behind(unit: Unit | None, units: Container[Unit], first: int) -> bool:
    """Whether it is none of ``units`` but moves what they make, or is computed of that.

    ``first``: the least of their indices.
    """
    waiting, seen = [unit], set[int]()
    while waiting:
        unit = waiting.pop()
        if unit is None or unit in units or id(unit) in seen or unit.index < first:
            continue
        if any(writer in units for _, writer in unit.reads):
            return True
        seen.add(id(unit))
        waiting += [writer for _, writer in unit.reads]
    return False


def _ends(unit: Unit) -> bool:
    """Whether Convs and pools read what is computed in the end."""
    waiting, seen = [unit], {id(unit)}
    while waiting:
        readers = [r for _, r in waiting.pop().readers if r.role != "cast"]
        if not readers:
            return False
        for reader in readers:
            if reader.role in ("product", "pool") or reader.pads_integers or id(reader) in seen:
                continue
            seen.add(id(reader))
            waiting.append(reader)
    return True
