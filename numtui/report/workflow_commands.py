"""Commands that a GitHub workflow reads from standard output: `::error file=…,line=…,title=…::text`.

Text of a log is escaped by GitHub's rules; a name cannot become a command.
"""

from __future__ import annotations

import re
from typing import Final

from numtui.text.safe import safe_text

__all__ = ["MAX_ANNOTATIONS", "command", "place"]

MAX_ANNOTATIONS: Final = 10
"""GitHub shows ten errors a step."""
_PLACE: Final = re.compile(r"(.+):([1-9][0-9]*)")


def command(name: str, properties: dict[str, str], text: str) -> str:
    """Return a command: `error`, `warning` or `notice`."""
    told = ",".join(
        f"{key}={_escaped(value).replace(':', '%3A').replace(',', '%2C')}" for key, value in properties.items()
    )
    return f"::{name} {told}::{_escaped(text)}"


def place(location: str) -> dict[str, str]:
    """Return the properties of a source line, `file:line`; none where it is something else."""
    found = _PLACE.fullmatch(location)
    return {} if found is None else {"file": found[1], "line": found[2]}


def _escaped(text: str) -> str:
    return safe_text(text, 600).replace("%", "%25")
