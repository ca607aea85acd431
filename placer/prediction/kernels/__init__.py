"""Plans of an engine that generates its kernels, TensorRT-RTX: which nodes each one computes."""
