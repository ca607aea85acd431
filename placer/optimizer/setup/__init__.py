"""What a run needs before its first trial: checked choices, calibration, space, engine, study."""
