"""From a placement to a Q/DQ model and back, and the type of what is not quantized."""

from placer.qdq.insert import Inserter

__all__ = ["Inserter"]
