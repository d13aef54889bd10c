"""What the numbers of a pair say: equal, close, diverged, or not comparable."""
