"""Known ways in which the names and operations of two runs drift apart, and rules for them."""
