"""What `numtui diff` writes: one model of a comparison, a module per format."""
