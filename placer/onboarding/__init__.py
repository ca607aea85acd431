"""``placer onboard``: many models from one manifest, each in a process of its own."""
