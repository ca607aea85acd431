"""TensorRT 10, TensorRT 11 and TensorRT-RTX through one code path: the module is passed in."""
