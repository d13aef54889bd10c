"""Curves of runs over steps, such as the loss: read from logs, printed lines and event files, and compared."""
