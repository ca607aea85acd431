"""Passes of normalisation, each of which rewrites one thing; ``normalize`` runs them in order."""
