"""Costs of layers, measured on a real engine, and their errors: ``placer fit``."""
