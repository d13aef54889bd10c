"""Kernels for the statistics of a tensor: C on the host, Triton or plain torch elsewhere."""
