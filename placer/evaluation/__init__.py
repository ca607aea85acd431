"""Models compared with their float model: metrics with intervals, and layer by layer."""
