"""What TensorRT logs while it builds: errors, and the layers that result."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


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
