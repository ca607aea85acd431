"""Engines with estimated latencies, of predicted plans and of those that NVIDIA's builder makes."""
