"""Quantized files: the float model behind one, held against it, and `placer import`."""
