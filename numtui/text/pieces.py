"""Types of styled text: a line is a list of pieces, each a text and a role."""

from __future__ import annotations

__all__ = ["Line", "Piece"]

Piece = tuple[str, str]
"""A text and its role, "" for plain."""

Line = list[Piece]
