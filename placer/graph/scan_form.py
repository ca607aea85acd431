"""What the attributes of a Scan say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnx import NodeProto


@dataclass(frozen=True)
class ScanForm:
    """The attributes of a Scan; ``states``: how many state variables it has.

    Source: operator Scan of ONNX opset 16. A damaged file may have any number of states.
    """

    states: int
    attributes: Mapping[str, Sequence[int]]

    @staticmethod
    def of(node: NodeProto) -> ScanForm:
        """Read them from ``node``."""
        scanned = next((a.i for a in node.attribute if a.name == "num_scan_inputs"), 0)
        return ScanForm(len(node.input) - scanned, {a.name: a.ints for a in node.attribute})

    def axis(self, side: str, position: int) -> int:
        """The axis that a scan ``input`` or ``output`` runs along; 0 if none is given."""
        return self._value(f"scan_{side}_axes", position)

    def is_reversed(self, side: str, position: int) -> bool:
        """Whether a scan ``input`` or ``output`` runs from its end."""
        return self._value(f"scan_{side}_directions", position) == 1

    def _value(self, name: str, position: int) -> int:
        values = self.attributes.get(name, ())
        return int(values[position]) if position < len(values) else 0
