"""Verdicts on pairs by their numbers: equal, close, diverged or not comparable."""
