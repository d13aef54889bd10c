"""Subjects whose ranks divide matrices, sequences and samples by hand."""
