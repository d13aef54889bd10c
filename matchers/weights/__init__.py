"""Logs of weights: read, compared, and where two runs part."""
