"""What the rules make of a model: `placer explain`, without what it prints."""
