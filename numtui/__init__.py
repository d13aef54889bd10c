"""numtui shows where two training runs part, operation by operation, in a terminal."""

__version__ = "0.1.0"
