"""What a capture promises for a GPU: `make test-gpu`."""
