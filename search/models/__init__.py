"""What trials say of the latency and the noise of placements that were not tried."""
