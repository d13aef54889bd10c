"""All ranks of a run as one log of global tensors, which is compared like any log."""
