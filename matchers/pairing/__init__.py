"""Pair the operations of two logs: evidence, alignment, and the effect of rules."""
