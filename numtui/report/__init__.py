"""Reports of `numtui diff`: one model of a comparison, a module per format."""
