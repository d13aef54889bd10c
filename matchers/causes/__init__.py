"""First causes of a divergence, and what follows from each."""
