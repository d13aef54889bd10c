"""Files of the user and of the cache: written in one step, locked, bounded, and YAML with its places."""
