"""numtui finds where two training runs diverge, operation by operation, in a terminal."""

__version__ = "0.1.0"
