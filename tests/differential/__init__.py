"""Differential tests: random graphs through a real engine and the predictor of its plans."""
