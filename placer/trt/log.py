"""What TensorRT logs while it builds: errors, and the layers that result."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from placer.plan import Layer, Port


class BuildLog:
    """Collects what the builder logs."""

    def __init__(self, errors: Iterable[str] = ()) -> None:
        self.errors: list[str] = list(errors)
        self.lines: list[str] = []

    def attach(self, module: Any) -> Any:
        """Return a logger of ``module`` that writes here."""
        log = self

        class Logger(module.ILogger):  # type: ignore[misc]
            def __init__(self) -> None:
                module.ILogger.__init__(self)

            def log(self, severity: Any, message: str) -> None:
                if severity in (module.ILogger.ERROR, module.ILogger.INTERNAL_ERROR):
                    log.errors.append(message)
                log.lines += message.splitlines()

        return Logger()

    def reason(self) -> str:
        """The first error that tells something, without the complaint that there is no GPU."""
        lines = [line.strip() for message in self.errors for line in message.splitlines()]
        telling = [
            line
            for line in lines
            if line and not line.startswith("Invalid Node") and "Cuda Runtime" not in line
        ]
        return (telling or lines or ["the builder gave no reason"])[0]


_LAYER = re.compile(r"^Name: (?P<name>.*?), LayerType: (?P<op>[^,]*), (?P<rest>Inputs: .*)$")
_PORT = re.compile(
    r"\{ Name: (?P<name>[^,]*), [^{}]*?Datatype: (?P<dtype>\w+)(, Format: (?P<format>[^}]*))? ?\}"
)


def parse_layers(lines: list[str]) -> Iterator[Layer]:
    """Layers from a build log at VERBOSE with DETAILED profiling verbosity.

    ``nodes`` are the ONNX nodes a layer came from, Q/DQ nodes left out.
    """
    for line in lines:
        match = _LAYER.match(line)
        if match is None:
            continue
        inputs, _, rest = match["rest"].partition("Outputs: [")
        inputs = inputs.partition("Constants: [")[0]
        outputs, _, metadata = rest.partition("TacticName:")
        nodes = re.findall(r"\[ONNX Layer: ([^\]]*)\]", metadata)
        yield Layer(
            name=match["name"],
            op=match["op"],
            nodes=tuple(sorted({n for n in nodes if not _is_pair(n)})),
            inputs=_ports(inputs),
            outputs=_ports(outputs),
        )


def _is_pair(node: str) -> bool:
    return re.search(r"(Quantize|Dequantize)Linear(_\d+)?$", node) is not None


def _ports(section: str) -> tuple[Port, ...]:
    return tuple(
        Port(match["dtype"].lower(), (match["format"] or "").strip(), match["name"])
        for match in _PORT.finditer(section)
    )
