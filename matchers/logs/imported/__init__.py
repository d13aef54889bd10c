"""Logs of other tools, read as they are: one module a format, recognised by content."""
