"""From layers to times: rooflines of GPUs, and costs measured on a device."""
