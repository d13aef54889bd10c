"""Subjects whose ranks read parts of each sequence: attention over all of it, gathered or in a ring."""
