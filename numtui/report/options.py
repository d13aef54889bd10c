"""How a report is written: formats, conditions that fail a comparison, names and paths."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from numtui.report.known_differences import AllowList

__all__ = ["CONDITIONS", "FORMATS", "SUFFIXES", "ReportOptions", "Target", "format_of"]

FORMATS = MappingProxyType(
    {
        "text": "for people, one screen",
        "jsonl": "for programs, an object per row",
        "json": "for programs, all that is known",
        "csv": "for tables and numpy",
        "markdown": "for an issue",
        "html": "a page to look around in, in one file",
        "junit": "for CI",
        "github": "annotations of a GitHub workflow",
    }
)
"""The formats, and whom each is for."""

SUFFIXES = MappingProxyType(
    {
        ".txt": "text",
        ".jsonl": "jsonl",
        ".json": "json",
        ".csv": "csv",
        ".md": "markdown",
        ".html": "html",
        ".htm": "html",
        ".xml": "junit",
    }
)
"""The format that the end of a file's name asks for."""

CONDITIONS = MappingProxyType(
    {
        "diverged": "a row is red",
        "origin": "there is a first cause",
        "unmatched": "an operation has no partner",
        "stale-rule": "a rule, or an allowed difference, is broken or of no use",
        "incomplete": "a log is cut off or damaged",
        "not-comparable": "the two runs cannot be compared",
    }
)
"""What a comparison can fail on, and when it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """How a report is written.

    Attributes:
        names: what the sides are called.
        paths: the two logs as they can be opened again, None where they cannot (standard input).
        rules_path: the file that the rules came from, None without one.
        fail_on: some of `CONDITIONS`.
        allow: known differences that the comparison does not fail on, None without any.
    """

    names: tuple[str, str] = ("a", "b")
    paths: tuple[str, str] | None = None
    rules_path: str | None = None
    fail_on: tuple[str, ...] = ("diverged",)
    allow: AllowList | None = None


class Target(NamedTuple):
    """A report to be written: its format, and the file; None for standard output."""

    form: str
    path: Path | None = None


def format_of(path: str) -> str | None:
    """The format that a file's name asks for, None where it says nothing."""
    return SUFFIXES.get(PurePath(path).suffix.lower())
