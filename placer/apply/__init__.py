"""A placement applied to another file of its network."""
