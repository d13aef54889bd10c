"""Many ranks: the logs of a run, its checks; two runs rank by rank (`diff`), or as one log each (`layouts`)."""
