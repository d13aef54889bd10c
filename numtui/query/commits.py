"""The commits between two runs that touch the source lines of a row, its function, or the lines on its data path.

A log is untrusted text. Its revisions count only as whole hashes of commits that the repository has, its files are
found by the rule of `find_source`, and git gets no text of a log besides: no pager, no hook, no external program, no
network.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matchers.comparison import Comparison
from matchers.errors import InputError
from matchers.logs.op_log import OpLog
from matchers.ops.start import table
from numtui.query.git import git_or_none
from numtui.query.source_line import find_source, split_location

__all__ = ["MAX_SOURCE", "Commit", "Repository", "Touched", "commits", "committed", "locations", "revisions",
    "uncommitted_files"]  # fmt: skip

_REVISION = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?", re.ASCII)
_MAX_COMMITS = 50
_MAX_LINES = 12
"""Source lines of the data path that are looked up, the nearest ones."""
MAX_SOURCE = 2_000_000
"""Bytes of a source file that are read."""
_LINE, _FUNCTION, _PATH = "its line", "its function", "a line on its data path"


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit: its hash, seconds since 1970, day, author and subject. Untrusted text."""

    revision: str
    time: int
    day: str
    author: str
    subject: str


@dataclass(frozen=True, slots=True)
class Touched:
    """The commits that touch `what` and nothing nearer: `its line`, `its function`, `a line on its data path`.

    The newest first.
    """

    what: str
    commits: tuple[Commit, ...]


def revisions(c: Comparison) -> tuple[str, str] | None:
    """The commits of the code of a and b; None where a log does not say."""
    a, b = map(committed, (c.a, c.b))
    return (a, b) if a and b else None


def committed(log: OpLog) -> str:
    """The commit of the code of a run; empty where its log does not say."""
    commit = table(log.header.run, "git").get("commit")
    return commit if isinstance(commit, str) and _REVISION.fullmatch(commit) else ""


def uncommitted_files(log: OpLog) -> tuple[str, ...]:
    """The files that a run had changed since its commit."""
    names = table(log.header.run, "git").get("files")
    return tuple(map(str, names)) if isinstance(names, list) else ()


def commits(c: Comparison, row: int, roots: Sequence[Path]) -> list[Touched]:
    """Return the commits that are in one run's code alone, by what of a row they touch: its line, function, data path.

    Lines are those of each run in its own code, as it was committed.

    Raises:
        InputError: there is nothing to look up, with the reason.
    """
    known = revisions(c)
    if known is None or c.flow is None:
        raise InputError("the logs do not say which commits ran")
    if known[0] == known[1]:
        raise InputError(f"both runs are of commit {known[0][:12]}{_uncommitted(c)}")
    found: dict[str, dict[str, Commit]] = {_LINE: {}, _FUNCTION: {}, _PATH: {}}
    repositories: dict[Path, Repository | None] = {}
    for side, record, (new, old) in (("a", c.row_a[row], known), ("b", c.row_b[row], known[::-1])):
        for n, location in enumerate(locations(c, side, int(record))):
            name, line = split_location(location)
            path = find_source(name, roots)
            if path is not None and path not in repositories:
                repositories[path] = Repository.of(path, known)
            repository = None if path is None else repositories[path]
            if repository is None:
                continue
            places = {_PATH if n else _LINE: (line, line)}
            if n == 0 and (function := repository.function(new, line)):
                places[_FUNCTION] = function
            for what, lines in places.items():
                found[what] |= {each.revision: each for each in repository.log(old, new, lines)}
    if not any(repositories.values()):
        raise InputError("no repository here has the row's source lines and the commits of both runs")
    seen: set[str] = set()
    told = []
    for what, of in found.items():
        rest = sorted((each for each in of.values() if each.revision not in seen), key=lambda each: -each.time)
        told.append(Touched(what, tuple(rest)))
        seen |= of.keys()
    return told


def _uncommitted(c: Comparison) -> str:
    """`; uncommitted changes of b: model.py`, where those of the two runs differ."""
    of = [table(log.header.run, "git") for log in (c.a, c.b)]
    if of[0].get("changes") == of[1].get("changes"):
        return ""
    files = zip("ab", map(uncommitted_files, (c.a, c.b)), strict=True)
    return "".join(f"; uncommitted changes of {side}: {', '.join(names)}" for side, names in files if names)


def locations(c: Comparison, side: str, record: int) -> Iterator[str]:
    """The source line of a record, then those of what made its inputs, the nearest first."""
    assert c.flow is not None
    log, flow = (c.a, c.flow.a) if side == "a" else (c.b, c.flow.b)
    left, seen, told = ([record] if record >= 0 else []), {record}, set[str]()
    while left and len(told) < _MAX_LINES:
        at = left.pop(0)
        if (location := log.location_text(at)) and location not in told:
            told.add(location)
            yield location
        makers = [maker for maker in flow[at].tolist() if maker >= 0 and maker not in seen]
        seen.update(makers)
        left += makers


@dataclass(frozen=True, slots=True)
class Repository:
    """The repository of a source file: its top folder, and the file's path in it."""

    top: str
    path: str

    @classmethod
    def of(cls, path: Path, revisions: Sequence[str]) -> Repository | None:
        """The repository of a file; None where it has none, or one without these commits."""
        real = os.path.realpath(path)
        top = git_or_none(os.path.dirname(real), "rev-parse", "--show-toplevel")
        if not top:
            return None
        folder = os.path.realpath(top.removesuffix("\n"))
        inside = os.path.commonpath((folder, real)) == folder
        known = inside and all(
            git_or_none(folder, "cat-file", "-e", f"{one}^{{commit}}") is not None for one in revisions
        )
        return cls(folder, os.path.relpath(real, folder)) if known else None

    def log(self, old: str, new: str, lines: tuple[int, int]) -> Iterator[Commit]:
        """The commits of one revision that another does not have, and that touch some lines of the file."""
        form = "--format=%H%x00%ct%x00%as%x00%an%x00%s"
        told = git_or_none(
            self.top,
            *("log", "--no-patch", "--no-ext-diff", "--no-textconv", "--no-color", f"--max-count={_MAX_COMMITS}", form),
            *(f"-L{lines[0]},{lines[1]}:{self.path}", f"{old}..{new}"),
        )
        for text in (told or "").splitlines():
            fields = text.split("\0")
            if len(fields) == 5 and fields[1].isdigit():
                yield Commit(fields[0], int(fields[1]), *fields[2:])

    def text(self, revision: str) -> str | None:
        """The file at a revision; None where it is not there, or too large."""
        source = git_or_none(self.top, "cat-file", "blob", f"{revision}:{self.path}")
        return None if source is None or len(source) > MAX_SOURCE else source

    def function(self, revision: str, line: int) -> tuple[int, int] | None:
        """First and last line of the innermost function around a line, at a revision; None for none."""
        if (source := self.text(revision)) is None:
            return None
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        inside: list[Any] = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.lineno <= line <= (node.end_lineno or node.lineno)
        ]
        node = max(inside, key=lambda each: each.lineno, default=None)
        return None if node is None else (node.lineno, node.end_lineno or node.lineno)
