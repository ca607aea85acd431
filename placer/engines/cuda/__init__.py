"""CUDA through cuda-python: memory, streams, graphs, timing, and the state of the GPU."""
