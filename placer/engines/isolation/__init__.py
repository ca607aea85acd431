"""An engine in a process of its own: what its crash, hang or hunger ends is that process."""

from placer.engines.isolation.engine import IsolatedCompiled, IsolatedEngine, IsolatedSaved
from placer.engines.isolation.process import Limits
from placer.engines.isolation.protocol import EngineSpec

__all__ = ["EngineSpec", "IsolatedCompiled", "IsolatedEngine", "IsolatedSaved", "Limits"]
