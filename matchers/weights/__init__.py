"""Logs of weights: reading, comparing, and the first step at which two runs diverge."""
