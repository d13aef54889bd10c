"""Reports on the comparison of two runs of many ranks."""
