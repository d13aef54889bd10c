"""Elements of two tensors: which differ, where, and a pattern that says how, proved on the bits."""
