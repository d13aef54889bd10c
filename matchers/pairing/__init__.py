"""Who is whose partner: evidence, alignment, and what rules change of it."""
