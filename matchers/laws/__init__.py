"""The register of operations: what each does to its tensors. No other room knows the name of an operation."""
