"""Dumps of torch's flight recorder: the last collectives of each rank, and who is missing in one."""
