"""Probes of single decisions: the noise that each site, group and rule causes at the outputs."""
