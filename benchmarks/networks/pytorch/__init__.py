"""Networks that PyTorch's exporters write: a module for each set."""
