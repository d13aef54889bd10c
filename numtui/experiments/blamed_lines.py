"""The part of a commit's changes that touches the source lines of a cause."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from numtui.experiments.worktree import Worktree
from numtui.query.commits import Repository
from numtui.query.source_line import split_location

__all__ = ["Change", "changes_of"]

_HUNK = re.compile(r"^@@ -\d+(?:,\d+)? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)
_MAX_LINES = 60
_TELLING, _MOST = 8, 8
"""Characters of a line that no other line has by chance; lines of a change that are looked for."""


@dataclass(frozen=True, slots=True)
class Change:
    """Hunks of a commit.

    Attributes:
        path: the file in the repository.
        what: of the cause they touch: `its line`, `its function`, `a line on its data path`; `elsewhere in its file`
            where they touch none of these.
        diff: as `git diff` writes them; cut after 60 lines.
        again: hashes of the other commits that brought or took away one of these lines, the oldest first.
    """

    path: str
    what: str
    diff: str
    again: tuple[str, ...] = ()


def changes_of(worktree: Worktree, commit: str, places: Sequence[str], between: str = "") -> tuple[Change, ...]:
    """Return what a commit changed of the nearest source lines that it touches.

    Args:
        places: `model.py:12`, in the code of this commit, the cause's own first.
        between: a range of commits, of which some may have changed these lines again.
    """
    files = tuple(worktree.files(commit))
    told: dict[str, Change] = {}
    elsewhere: list[Change] = []
    for number, place in enumerate(places):
        name, line = split_location(place)
        path = _path_of(name, files)
        if path is None or path in told:
            continue
        hunks = [*_hunks(worktree.changes(commit, path))]
        if number:
            near = [("a line on its data path", (line, line))]
        else:
            near = [("its line", (line, line))]
            if around := Repository(str(worktree.repository), path).function(commit, line):
                near.append(("its function", around))
            elsewhere = [Change(path, "elsewhere in its file", _cut([text for *_, text in hunks]))] if hunks else []
        for what, (first, last) in near:
            touched = [text for begin, end, text in hunks if begin <= last and first <= end]
            if touched and path not in told:
                told[path] = Change(path, what, _cut(touched))
        if told and not number:
            break
    found = told.values() or elsewhere
    return tuple(replace(each, again=_again(worktree, commit, each, between)) for each in found)


def _again(worktree: Worktree, commit: str, change: Change, between: str) -> tuple[str, ...]:
    """Return the commits of a range that changed how often a file has a line that a change brought or took away."""
    lines = [line[1:].strip() for line in change.diff.split("\n") if line[:1] in ("+", "-")]
    lines = [line for line in dict.fromkeys(lines) if len(line) >= _TELLING][:_MOST] if between else []
    found = {other for line in lines for other in worktree.altering(line, change.path, between)} - {commit}
    return tuple(worktree.in_order(found, between)) if found else ()


def _path_of(name: str, files: Sequence[str]) -> str | None:
    """Return the file that a log calls `name`: the end of its path, perhaps from a folder above the repository on."""
    likely = (f for f in files if f == name or f.endswith(f"/{name}") or name.endswith(f"/{f}"))
    return max(likely, key=len, default=None)


def _hunks(diff: str) -> Iterator[tuple[int, int, str]]:
    """Yield first and last line in the new file, and text, of each hunk."""
    begins = [found.start() for found in _HUNK.finditer(diff)]
    for start, end in pairwise([*begins, len(diff)]):
        text = diff[start:end].rstrip("\n")
        found = _HUNK.match(text)
        assert found is not None
        first, many = int(found[1]), int(found[2] or 1)
        yield first, first + max(many, 1) - 1, text


def _cut(hunks: Sequence[str]) -> str:
    lines = "\n".join(hunks).split("\n")
    more = len(lines) - _MAX_LINES
    return "\n".join([*lines[:_MAX_LINES], *([f"… {more:,} more lines"] if more > 0 else [])])
