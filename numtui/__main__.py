"""`python -m numtui`, the same as `numtui`."""

from __future__ import annotations

from numtui.cli.main import run

if __name__ == "__main__":
    run()
