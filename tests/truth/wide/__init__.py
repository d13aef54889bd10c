"""Pairs of runs far from the example: what people run, in the forms in which they run it."""
