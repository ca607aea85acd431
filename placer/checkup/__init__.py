"""A small suite that shows what an engine really does on this machine: ``placer doctor --full``."""
