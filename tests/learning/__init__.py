"""Tests of placer.learning."""
