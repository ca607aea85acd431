"""The command line: a file per command, which holds its options and what it prints."""
