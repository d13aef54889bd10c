"""Send only changed cells to the terminal: half of the bytes over SSH."""
