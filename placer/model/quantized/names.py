"""Names of float tensors behind quantized ones, as the float model's readers know them."""

from __future__ import annotations

import re

from placer.graph.names import UnusedNames

# As ONNX Runtime's quantizer, placer and PyTorch's exporter add them.
_SUFFIX = re.compile(
    r"(?:_quantized|(?<!de)quantized|/quantized(?:_\d+)?|_QuantizeLinear_Output|_DequantizeLinear_Output"
    r"|/dequantized(?:_\d+)?|_QuantizeLinear_Input)$"
)


class Names(UnusedNames):
    """Names of tensors and nodes of a float model that the quantized one does not have."""

    def plain(self, name: str, suffix: str) -> str:
        """``name`` without ``suffix`` if that is not taken; taken from now on."""
        shorter = name.removesuffix(suffix)
        if not shorter or shorter in self._taken:
            return name
        self._taken.add(shorter)
        return shorter

    def of_float(self, quantized: str, dequantized: str = "") -> str:
        """Name of the float tensor that ``quantized`` stands for and ``dequantized`` copies.

        What is left without the quantizer's suffix, if that is not taken.
        """
        for name in (quantized, dequantized):
            plain = _SUFFIX.sub("", name)
            if name and plain != name and plain not in self._taken:
                self._taken.add(plain)
                return plain
        return dequantized or self.unused(f"{quantized}/float")
