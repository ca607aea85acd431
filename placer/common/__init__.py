"""What has no domain: atomic files, YAML with line numbers, ONNX Runtime sessions, statistics."""
