"""What to try next: the space, models of latency and noise, samplers, the study."""
