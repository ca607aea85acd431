"""One trial: what is proposed, built, measured and judged."""
