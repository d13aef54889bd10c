"""One row in words and numbers."""
