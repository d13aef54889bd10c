"""Subjects of the wide suite that train on several ranks, one a file; `layouts.py` divides them."""
