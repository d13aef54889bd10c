"""Subjects of one process, one a file."""
