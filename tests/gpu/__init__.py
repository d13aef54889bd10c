"""Promises of the capture for a GPU: `make test-gpu`."""
