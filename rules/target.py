"""The engine and GPU that rules are read for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from packaging.specifiers import SpecifierSet

from placer.common.processor import UNKNOWN_PROCESSOR, Processor

if TYPE_CHECKING:  # An engine's process has targets but no rules, which take long to import.
    from placer.rules.condition import Condition

Typing = Literal["strong", "weak"]


@dataclass(frozen=True)
class Target:
    """What a candidate is built for; None where it is not known.

    ``engine_version``: e.g. ``10.8``. ``compute_capability``: e.g. ``8.6``.
    ``typing``: ``strong``, or ``weak`` where the engine chooses among FP32 and FP16.
    ``base``: ONNX name of the type of what is not quantized, e.g. ``float16``.
    ``integer``: of what is quantized where a site has no format of its own, e.g. ``int8``; see
    ``Pack.target``.
    ``processor``: of engines that run on a CPU.
    """

    engine_version: str | None = None
    compute_capability: str | None = None
    typing: Typing | None = None
    processor: Processor = UNKNOWN_PROCESSOR
    base: str | None = None
    integer: str | None = None

    def meets(self, condition: Condition) -> bool:
        """Whether ``condition`` holds; what is not known is taken to fit, but integers are INT8."""
        return (
            _contains(condition.engine_versions, self.engine_version)
            and _contains(condition.compute_capability, self.compute_capability)
            and condition.integers in (None, self.integer or "int8")
            and (condition.typing is None or self.typing in (None, condition.typing))
            and (
                condition.base is None
                or self.base is None
                or (condition.base == "float") == (self.base == "float")
            )
            and _fits(condition.signed_products, self.processor.signed_products)
            and _fits(condition.avx512, self.processor.avx512)
            and _fits(condition.exact_products, self.processor.exact_products)
        )


ANY_TARGET = Target()


def _fits(demanded: bool | None, known: bool | None) -> bool:
    return demanded is None or known in (None, demanded)


def _contains(versions: str | None, version: str | None) -> bool:
    if versions is None or version is None:
        return True
    return SpecifierSet(versions).contains(version, prereleases=True)
