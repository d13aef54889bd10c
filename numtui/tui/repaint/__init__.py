"""Only the cells that changed go over the line: half of the bytes over SSH."""
