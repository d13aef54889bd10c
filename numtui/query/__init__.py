"""Filter, sort, group and follow the rows of a comparison."""
