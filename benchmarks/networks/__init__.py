"""Networks that benchmarks measure, search and predict on; README.md says which are which."""
