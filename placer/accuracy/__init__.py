"""Metrics of outputs, the gates on them, and their evaluation."""
