"""The engines that compile, run and measure candidates."""
