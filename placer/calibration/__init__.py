"""Data sets, statistics of activations, and the methods that turn them into ranges."""
