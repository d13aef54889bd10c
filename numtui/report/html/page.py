"""Files of the pages, and their hashes for a page's content policy."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

__all__ = ["packaged", "source_hash"]


@cache
def packaged(name: str) -> str:
    """Return a file of this package: a style, a script, a template."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def source_hash(content: str) -> str:
    """Return the hash by which a policy allows a script or style within the page."""
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode('ascii')}"
