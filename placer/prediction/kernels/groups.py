"""The units of one placement, grouped by kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from placer.graph import Edge
from placer.prediction.kernels.lines import writes_line
from placer.prediction.kernels.parts import CONVS, EPILOGUE, Unit, is_scaled
from placer.prediction.kernels.units import Units
from placer.rules.connected import connected

_STEPS = {"HardSigmoid": 4, "Exp": 3, "Pow": 3}
_JOINED = 2  # Steps in which the builder looks for the product behind a part of a Concat.
_FAR = 9  # Steps, more than are ever compared.

Test = Callable[[Unit], bool]


class Groups:
    """Units in the order in which they run, each in a kernel, which has a number.

    ``made``: the units and who reads whose output; ``by_number``: the kernels.
    """

    def __init__(self, made: Units) -> None:
        self.made = made
        self.units = made.units
        self.by_number = {unit.index: [unit] for unit in self.units}
        self._before: list[int] = []
        # What was asked of kernels, by their number; merging adds to it, so that a kernel of
        # thousands of units is not gone through for each one that joins it.
        self._those: dict[Test, dict[int, list[Unit]]] = {}
        self._bits: dict[int, int] = {}
        self._read: dict[int, list[Unit]] = {}

    def start(self, unit: Unit) -> None:
        """Let a unit that is new be a kernel of its own."""
        self._start([unit])

    def merge(self, one: int, other: int) -> None:
        """Let two kernels be one."""
        read = [*self._read_by(one), *self._read_by(other)] if one in self._read else []
        if one in self._bits:
            self._bits[one] |= self._bits_of(other)
        for test, found in self._those.items():
            if one in found:
                found[one] += self._meet(test, other)
        moved = self.by_number.pop(other)
        for unit in moved:
            unit.group = one
        self.by_number[one] += moved
        if one in self._read:
            self._read[one] = [w for w in dict.fromkeys(read) if w.group != one]
        self._forget(other)

    def move(self, unit: Unit, group: int) -> None:
        """Let a unit be part of another kernel than before."""
        self.remove(unit)
        unit.group = group
        self.by_number[group].append(unit)
        self._forget(group)

    def remove(self, unit: Unit) -> None:
        """Let a unit be in no kernel any more."""
        self.by_number[unit.group] = [other for other in self.of(unit) if other is not unit]
        if not self.by_number[unit.group]:
            del self.by_number[unit.group]
        self._forget(unit.group)

    def split(self, number: int) -> None:
        """Let units of a kernel that nothing in it joins any more be kernels of their own."""
        units = self.by_number[number]
        inside = {unit.index for unit in units}
        read = [
            {unit.index, *(w.index for _, w in unit.reads if w is not None and w.index in inside)}
            for unit in units
        ]
        self.by_number[number], *others = ([units[i] for i in part] for part in connected(read))
        self._forget(number)
        for part in others:
            self._start(part)

    def _start(self, units: list[Unit]) -> None:
        number = min(*self.by_number, 0) - 1
        for unit in units:
            unit.group = number
        self.by_number[number] = units

    def reorder(self, units: list[Unit]) -> None:
        """Let ``units`` be all that there are, in the order in which they run."""
        self.units = units
        for index, unit in enumerate(units):
            unit.index = index

    def of(self, unit: Unit) -> list[Unit]:
        """All units of the kernel that ``unit`` is part of."""
        return self.by_number[unit.group]

    def those(self, unit: Unit, test: Test) -> Sequence[Unit]:
        """The units of ``unit``'s kernel that meet ``test``.

        It asks for nothing that changes before ``find_dependences`` is called again.
        """
        found = self._those.setdefault(test, {})
        if unit.group not in found:
            found[unit.group] = list(filter(test, self.of(unit)))
        return found[unit.group]

    def _meet(self, test: Test, number: int) -> Sequence[Unit]:
        found = self._those[test]
        return found[number] if number in found else list(filter(test, self.by_number[number]))

    def _bits_of(self, number: int) -> int:
        if number not in self._bits:
            self._bits[number] = sum(1 << unit.index for unit in self.by_number[number])
        return self._bits[number]

    def _read_by(self, number: int) -> Sequence[Unit]:
        """The units of other kernels that units of a kernel read."""
        if number not in self._read:
            writers = (w for unit in self.by_number[number] for _, w in unit.reads if w is not None)
            self._read[number] = [w for w in dict.fromkeys(writers) if w.group != number]
        return self._read[number]

    def _forget(self, number: int) -> None:
        self._bits.pop(number, None)
        self._read.pop(number, None)
        for found in self._those.values():
            found.pop(number, None)

    def find_dependences(self) -> Sequence[int]:
        """Of each unit the units that it depends on, as bits; to be found before they are asked."""
        before: list[int] = []
        for unit in self.units:
            bits = 0
            for _, writer in unit.reads:
                if writer is not None:
                    bits |= before[writer.index] | 1 << writer.index
            before.append(bits)
        self._before = before
        self._those, self._bits, self._read = {}, {}, {}
        return tuple(before)

    def depend_together(self, number: int) -> None:
        """Let what depends on a unit of a kernel depend on all that the kernel needs.

        Otherwise two kernels might be made that wait for each other.
        """
        units = self.by_number[number]
        own = self._bits_of(number)
        needed = 0
        for unit in units:
            needed |= self._before[unit.index]
        needed &= ~own
        before = self._before
        for unit in self.units[min(unit.index for unit in units) :]:
            if unit.group == number or before[unit.index] & own:
                before[unit.index] |= needed

    def depends(self, unit: Unit, other: Unit) -> bool:
        """Whether ``unit`` needs ``other``, or is it."""
        return unit is other or bool(self._before[unit.index] >> other.index & 1)

    def have_other_path(self, first: int, second: int) -> bool:
        """Whether something outside lies between two kernels, given by their numbers."""
        starts = self._bits_of(first) | self._bits_of(second)
        read = {w.group for number in (first, second) for w in self._read_by(number)}
        return any(
            self._before[unit.index] & starts
            for number in read - {first, second}
            for unit in self.by_number[number]
        )

    def is_float(self, writer: Unit | None) -> bool:
        """Whether a tensor is written, or given, by what does not quantize it too."""
        if writer is None:
            return True
        group = self.of(writer)
        product = next((u for u in group if not u.generated), None)
        if product is not None and self.made.is_whole_norm(product) and len(group) > 1:
            return False
        if product is None or product.leaves_sums or product.role == "quantize":
            return False
        return not self._quantizes(product, group)

    def _quantizes(self, product: Unit, units: Sequence[Unit]) -> bool:
        """Whether a product's kernel writes integers: in one scale, for all readers.

        Those of matrices of integers do so, and of ConvTransposes to FP8.
        """
        transposed = product.node.op == "ConvTranspose"
        of_integers = product.scales and self.made.reads_integers(product.node)
        if not (transposed or (of_integers and product.node.op not in CONVS)):
            return False
        if {tensor for unit in units for tensor in unit.outputs} & set(self.made.graph.outputs):
            return False
        read = [edge for unit in units for edge, reader in unit.readers if reader not in units]
        one = len({self.made.form.scales.get(edge) for edge in read}) == 1
        if not one or read[0] not in self.made.form.scales:
            return False
        return not transposed or self.made.is_float8(read[0])

    def requantizes(self, edge: Edge, writer: Unit | None) -> bool:
        """Whether a Concat's kernel quantizes anew what it reads at ``edge``, which has two scales.

        What a prepared kernel writes for it alone is quantized twice before.
        """
        if writer is None or len(self.made.form.chain(edge)) < 2:
            return False
        others = writer.is_quantized_for_others(edge, self.made.form)
        return others or not self.is_float(writer)

    def is_prepared(self, units: Sequence[Unit]) -> bool:
        """Whether a kernel is one of a library for Convs and pools, which converts nothing."""
        product = next((u for u in units if not u.generated), None)
        if product is None or product.leaves_sums:
            return False
        conv = product.role == "pool" or product.node.op in CONVS
        return conv and all(u is product or u.node.op in EPILOGUE for u in units)

    def steps_behind_product(self, unit: Unit, most: int = _JOINED) -> int:
        """How many operators compute it element by element of what a prepared kernel writes.

        By the shortest way, and without the activation of a Conv's own kernel; some number above
        ``most`` where there are more, or no product is behind it, or a ConvTranspose or one whose
        sums are scaled. A HardSigmoid is four (it multiplies, adds and limits on two sides), and
        what is computed in FP32 is cast before and after.
        """
        if not unit.generated:
            product = unit.role == "product" and unit.node.op != "ConvTranspose"
            return 0 if product and not unit.leaves_sums else _FAR
        if unit.role != "pointwise" or most < 0:
            return _FAR
        steps = _STEPS.get(unit.node.op, 1)
        joined = unit.node.op in EPILOGUE and any(not u.generated for u in self.of(unit))
        left = most if joined else most - steps
        written = [writer for _, writer in unit.reads if writer is not None]
        fewest = min((self.steps_behind_product(w, left) for w in written), default=_FAR)
        return 0 if joined and fewest == 0 else min(fewest + steps, _FAR)

    def are_apart(self, parts: Sequence[Unit | None]) -> bool:
        """Whether none of ``parts``, which a Concat joins, is a product's to the builder.

        All are sums of INT8 products, made of graph inputs, or computed in the kernels of Convs, in
        three steps and more (60 small graphs).
        """
        return all(is_scaled(part) or self._is_far(part) for part in parts)

    def _is_far(self, part: Unit | None) -> bool:
        if part is None or all(unit.generated for unit in self.of(part)):
            return False
        return part.role == "pointwise" and self.steps_behind_product(part) > _JOINED

    def writes_line(self, writer: Unit | None) -> bool:
        """Whether the kernel of a one-dimensional Conv does, which writes a view (30 graphs)."""
        units = [] if writer is None else self.of(writer)
        return any(
            u.role == "product" and not u.leaves_sums and writes_line(self.made.graph, u)
            for u in units
        )

    def writes_map(self, tensor: str, writer: Unit) -> bool:
        """Whether a prepared kernel of a Conv or pool writes a map, not the tokens made of it."""
        if not self.is_float(writer) or tensor not in writer.outputs:
            return False
        return any(u.role == "pool" or u.node.op in CONVS for u in self.of(writer))
