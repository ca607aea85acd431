"""What to try next: descents and an integer program over what the models predict."""
