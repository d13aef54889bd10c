"""Subjects whose ranks hold other parts of one graph: stages, slices of parameters, shares of the update."""
