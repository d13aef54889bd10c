"""The terminal without Textual: tty, clipboard, progress line."""
