"""From a placement to an engine's layers, as rules say."""
