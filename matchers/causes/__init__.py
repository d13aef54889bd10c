"""First causes of a divergence, and the consequences of each."""
