"""Two runs, rank by rank: what each rank's comparison comes to, which ranks are alike, where it began."""
