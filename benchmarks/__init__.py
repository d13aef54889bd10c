"""Benchmarks, run by hand; see README.md."""
