"""Many ranks: the logs of a run, and the checks of one run against itself."""
