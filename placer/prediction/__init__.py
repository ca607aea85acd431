"""What an engine is predicted to build of a placement, by the rules, and how long it takes."""
