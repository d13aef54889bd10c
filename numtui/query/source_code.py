"""Source code around the lines of a row: of the commit that ran, where its repository is at hand, else as it is now."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from matchers.comparison import Comparison
from matchers.errors import InputError
from matchers.logs.op_log import OpLog
from numtui.query.commits import MAX_SOURCE, Repository, committed, uncommitted_files
from numtui.query.source_line import find_source, split_location

__all__ = ["Excerpt", "excerpts"]

_AROUND = 6
"""Lines shown before and after the statement."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Lines of a source file around the one that a log names. Untrusted text.

    Attributes:
        sides: `a`, `b`, or `a and b` where both read the same.
        place: as the log names it.
        version: the commit that they are of; empty for the file as it is now.
        first: number of the first line, from 1.
        lines: the lines; none where the line is not there.
        marked: by index into `lines`, the characters of the call, or of the whole statement: from and to.
    """

    sides: str
    place: str
    version: str
    first: int = 0
    lines: tuple[str, ...] = ()
    marked: tuple[tuple[int, int, int], ...] = ()


def excerpts(c: Comparison, row: int, roots: Sequence[Path]) -> list[Excerpt]:
    """Return the code of a row, of both sides where it differs. Reads files and runs git: not for the screen's thread.

    Raises:
        InputError: the logs name no line, or no file here has it.
    """
    found: list[Excerpt] = []
    names = []
    for (side, log), record in zip(c.logs, (int(c.row_a[row]), int(c.row_b[row])), strict=False):
        location = log.location_text(record) if record >= 0 else ""
        if not location:
            continue
        name, line = split_location(location)
        names.append(name)
        if (path := find_source(name, roots)) is None:
            continue
        version, text = _text(log, name, path)
        mine = _excerpt(text, line, log.op_name(record).strip("_"), Excerpt(side, location, version))
        same = found and (found[0].lines, found[0].marked) == (mine.lines, mine.marked)
        if same and (mine.lines or found[0].place == location):
            found[0] = replace(found[0], sides="a and b")
        else:
            found.append(mine)
    if not names:
        raise InputError("no source line logged for this row")
    if not found:
        where = "start numtui in the source tree, or name it in the setting `sources`"
        raise InputError(f"{' and '.join(dict.fromkeys(names))} not found here; {where}")
    return found


def _text(log: OpLog, name: str, path: Path) -> tuple[str, str]:
    """The commit that ran and its text of a file; empty and the file's own text where that is not known."""
    changed = any(file.endswith(name) or name.endswith(file) for file in uncommitted_files(log))
    if (commit := committed(log)) and not changed:
        repository = Repository.of(path, (commit,))
        if repository is not None and (text := repository.text(commit)) is not None:
            return commit, text
    try:
        with path.open("rb") as file:
            return "", file.read(MAX_SOURCE).decode("utf-8", "replace")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None


def _excerpt(text: str, line: int, op: str, about: Excerpt) -> Excerpt:
    """The lines around a statement, with its call of an operation marked, or else all of it."""
    lines = text.splitlines()
    if not 0 < line <= len(lines):
        return about
    start, end, marked = line, line, [(line, 0, len(lines[line - 1]))]
    if (statement := _statement(text, line)) is not None:
        start, end = _span(statement)
        calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call) and _called(node).strip("_") == op]
        calls = [node for node in calls if _span(node)[0] <= line <= _span(node)[1]]
        marked = [*_marks(calls[0] if len(calls) == 1 else statement, lines)]
    first = max(start - _AROUND, 1)
    shown = tuple(lines[first - 1 : end + _AROUND])
    return replace(about, first=first, lines=shown, marked=tuple((n - first, begin, to) for n, begin, to in marked))


def _statement(text: str, line: int) -> ast.stmt | None:
    """The innermost statement of a line that holds no other ones; None where it cannot be told."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    inside = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and not hasattr(node, "body") and _span(node)[0] <= line <= _span(node)[1]
    ]
    return inside[0] if inside else None


def _called(call: ast.Call) -> str:
    """The last name of what is called."""
    of = call.func
    return of.attr if isinstance(of, ast.Attribute) else of.id if isinstance(of, ast.Name) else ""


def _span(node: ast.stmt | ast.expr) -> tuple[int, int]:
    return node.lineno, node.end_lineno or node.lineno


def _marks(node: ast.stmt | ast.expr, lines: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """The characters of a node, line by line: number of the line, from and to. Python counts them as bytes."""
    first, last = _span(node)
    for number in range(first, last + 1):
        raw = lines[number - 1].encode()
        begin = node.col_offset if number == first else len(raw) - len(raw.lstrip())
        end = node.end_col_offset if number == last and node.end_col_offset is not None else len(raw)
        yield number, len(raw[:begin].decode("utf-8", "replace")), len(raw[:end].decode("utf-8", "replace"))
