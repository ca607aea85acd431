"""What was decided, what the engine makes of it, and which changes would help."""
