"""Options of a report: formats, conditions that fail a comparison, names and paths."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from numtui.report.known_differences import AllowList

__all__ = [
    "CONDITIONS",
    "CONDITIONS_OF_RUN",
    "FAIL_ON",
    "FAIL_ON_OF_RUN",
    "FORMATS",
    "OF_ONE_LOG",
    "SUFFIXES",
    "ReportOptions",
    "Target",
    "format_of",
    "found_rules",
]

FORMATS = MappingProxyType(
    {
        "text": "for people, one screen",
        "jsonl": "for programs, an object per row",
        "json": "for programs, everything",
        "csv": "for tables and numpy",
        "markdown": "for an issue",
        "html": "an interactive page in one file",
        "junit": "for CI",
        "github": "annotations of a GitHub workflow",
    }
)
"""The formats, and the purpose of each."""

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
"""Format by the suffix of a file name."""

CONDITIONS = MappingProxyType(
    {
        "diverged": "a row is red",
        "contradiction": "the ranks of a run that are merged contradict each other",
        "origin": "there is a first cause",
        "unmatched": "an operation is unpaired",
        "first-difference": "a compared operation differs, however little",
        "stale-rule": "a rule or an allowed difference is broken or unused",
        "incomplete": "a log is cut off or damaged",
        "not-compared": "a half, phase, module or rank was not compared, or a region not understood",
        "not-comparable": "the two runs cannot be compared",
        "recompute-mismatch": "a recomputed copy differs from its original",
    }
)
"""Conditions on which a comparison can fail, with their meaning."""

OF_ONE_LOG = ("diverged", "incomplete", "recompute-mismatch")
"""The conditions that hold for one log, too."""

FAIL_ON = ("diverged", "contradiction", "incomplete", "not-compared")
"""The conditions unless the user names others. Where nothing was compared, a comparison fails in any case."""

CONDITIONS_OF_RUN = MappingProxyType(
    {
        "finding": "a check does not hold",
        "not-checked": "no check could be made",
        "incomplete": "a check could not be made, or a rank's log is missing or cut off",
    }
)
"""Conditions on which a run that is checked by itself can fail, with their meaning."""

FAIL_ON_OF_RUN = ("finding", "not-checked")
"""Those unless the user names others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """Options of a report.

    Attributes:
        names: names of the sides.
        paths: paths to reopen the two logs, None where impossible (standard input).
        step: the one that is read of logs that have several; None for all.
        rules_path: the applied rule file, None without one.
        rules_found: a rule file that was found in the current folder and not named by the user, None without one; it is
            applied if it is `rules_path` too.
        fail_on: some of `CONDITIONS`.
        allow: known differences that do not fail the comparison, None without any.
        overview: name of the page of all ranks, in the folder of this one's page; None without one.
    """

    names: tuple[str, str] = ("a", "b")
    paths: tuple[str, str] | None = None
    step: int | None = None
    rules_path: str | None = None
    rules_found: str | None = None
    fail_on: tuple[str, ...] = FAIL_ON
    allow: AllowList | None = None
    overview: str | None = None


class Target(NamedTuple):
    """Format and file of a report; a file of None is standard output."""

    form: str
    path: Path | None = None


def format_of(path: str) -> str | None:
    """Return the format by the suffix of a file name, None where unknown."""
    return SUFFIXES.get(PurePath(path).suffix.lower())


def found_rules(path: str, *, applied: bool) -> str:
    """Return what is said of a rule file that the user did not name."""
    if applied:
        return f"the rules of {path} are applied: it was found in this folder, not named with -r"
    return f"{path} was found in this folder and is not applied (-r {path} or --auto-rules applies it)"
