"""What a run searches for. Importing it costs nothing, as the command line's help needs it."""

from __future__ import annotations

from typing import Literal

# Throughput: inferences per second with several requests in flight.
Objective = Literal["latency", "throughput"]
