"""OpenVINO's CPU plugin: candidates compiled, run, timed and read layer by layer."""
