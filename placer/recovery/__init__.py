"""Accuracy recovered at equal layers: ranges, and weights and biases of the same shapes."""
