"""Detectors for known kinds of drift between two runs' names and operations, with rules for them."""
