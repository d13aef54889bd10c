"""Random damage to everything that the program reads, writes and is told: strategies, named seeds, and a driver."""
