"""Stretches that the two runs compute in other ways, between values that both have."""
