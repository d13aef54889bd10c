"""The command line: arguments, sub-commands, configuration; no Textual at import."""
