"""One run: what is asked for, set-up, trials, the search loop, the final choice, the result."""
