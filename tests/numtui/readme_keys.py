"""The README's table of keys, from the registry of actions: `python -m tests.numtui.readme_keys --readme README.md`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from numtui.actions import ACTIONS, help_of

__all__ = ["main", "readme_table", "update_readme"]


def readme_table() -> str:
    """Return the table of keys in Markdown."""
    lines = ["| key | does |", "| --- | --- |"]
    for heading, rows in help_of(ACTIONS):
        lines.append(f"| **{heading}** | |")
        for row in rows:
            # A bar would end the cell, in a code span too.
            keys = " ".join(f"`{label}`".replace("|", "\\|") for label in row.label.split(" "))
            lines.append(f"| {keys} | {row.help} |")
    return "\n".join(lines)


_START, _END = "<!-- keys -->", "<!-- /keys -->"


def update_readme(text: str) -> str:
    """Return the README with the table between its two markers replaced.

    Raises:
        ValueError: the markers are missing.
    """
    before, start, rest = text.partition(_START)
    _, end, after = rest.partition(_END)
    if not start or not end:
        raise ValueError(f"the markers {_START} and {_END} are missing")
    return f"{before}{_START}\n{readme_table()}\n{_END}{after}"


def main(arguments: list[str] | None = None) -> int:
    """Print the table of keys, or put it into a file with `--readme FILE`."""
    parser = argparse.ArgumentParser(prog="python -m tests.numtui.readme_keys", description=main.__doc__)
    parser.add_argument("--readme", type=Path, metavar="FILE")
    chosen = parser.parse_args(arguments)
    if chosen.readme is None:
        sys.stdout.write(readme_table() + "\n")
        return 0
    chosen.readme.write_text(update_readme(chosen.readme.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
