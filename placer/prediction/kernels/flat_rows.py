"""What the kernel of a product of rows that a Reshape flattened computes behind it.

Evidence: layers that the builder of TensorRT-RTX 1.7.1 logs for sm89, of GPT-2 and 120 small graphs
of one and two batches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from placer.prediction.kernels.dissolved import BIAS
from placer.prediction.kernels.flattened import OF_BATCHES
from placer.prediction.kernels.parts import Unit
from placer.prediction.kernels.units import Units

_PASSED_ON = ("Add", "LayerNormalization")


class FlatRows:
    """The flattened rows of one placement."""

    def __init__(self, made: Units) -> None:
        self._graph, self._flat = made.graph, made.flat

    def are_of(self, product: Unit) -> bool:
        """Whether a Reshape of the model makes batches of what ``product`` writes."""
        return product.node.name in self._flat

    def may_follow(self, unit: Unit, product: Unit, others: Sequence[Unit]) -> bool:
        """Whether a product of flattened rows goes on with ``unit``, which reads ``others``, too.

        A MatMul of a single batch adds no constants, which a Gemm does behind its bias.
        """
        if others or any(writer is None for _, writer in unit.reads):
            return self._adds_rows(unit, product, others)
        if unit.node.op in (*OF_BATCHES, "Erf"):
            return False
        one = math.prod((self._graph.type_of(product.node.outputs[0]).shape or (0,))[:-2]) == 1
        biased = any(r.node.name == f"{product.node.name}{BIAS}" for _, r in product.readers)
        return biased or not one or len(unit.node.inputs) == 1

    def _adds_rows(self, unit: Unit, product: Unit, others: Sequence[Unit]) -> bool:
        """Whether it adds other rows, of a sum or norm that is read elsewhere as well.

        Not if what the product reads was shaped again behind another one.
        """
        if unit.node.op != "Add" or len(others) != 1 or len(unit.reads) != 2:
            return False
        (other,) = others
        known = other.generated and other.node.op in _PASSED_ON and len(other.readers) > 1
        return known and self._stay_flat(product.reads[0][1])

    def _stay_flat(self, writer: Unit | None) -> bool:
        """Whether rows are read as they were written, flat where another product did so.

        Those that several nodes read are shaped again first, but for SiLU and GELU with Erf.
        """
        while writer is not None and writer.role == "pointwise":
            made = [w for _, w in writer.reads if w is not None]
            if writer.node.name.endswith(BIAS) or not made:
                break
            writer = min(made, key=lambda unit: unit.index)
        if writer is None or writer.node.name.removesuffix(BIAS) not in self._flat:
            return True
        behind = [reader for _, reader in writer.readers]
        ops = {reader.node.op for reader in behind}
        ops_then = {r.node.op for reader in behind for _, r in reader.readers}
        return len(behind) == 1 or ops == {"Sigmoid", "Mul"} or "Erf" in ops | ops_then
