"""Damaged and hostile inputs: mutators, the process they run in, and a corpus of what was found."""
