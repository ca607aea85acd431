"""The rule language: its schema, matching, and the sites that matches give rise to."""
