"""Known differences: a file of rows allowed to differ without failing the comparison, each with a reason.

Unlike a rule it changes no verdict: an allowed row stays red in every report; only the exit code ignores it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from matchers.arrays import Bool
from matchers.comparison import Comparison
from matchers.errors import RulesError
from matchers.files.yaml_tree import Lines, Node, TreeError, read_tree
from matchers.rules.key_index import index_of
from matchers.status import Role, Status
from matchers.typed_number import typed_number
from numtui.paths import small_text
from numtui.report.gate import Allowed

__all__ = ["AllowEntry", "AllowList", "load_allow_list"]


@dataclass(frozen=True, slots=True)
class AllowEntry:
    """One known difference.

    Attributes:
        match: glob over the keys of either side.
        why: the reason, in the user's words.
        statuses: allowed statuses of the rows; empty for any.
        up_to: largest allowed relative error; inf for any.
        consequences: also allow rows that only follow from these.
        line: 1-based line of the file.
    """

    match: str
    why: str
    statuses: frozenset[Status]
    up_to: float
    consequences: bool
    line: int


@dataclass(frozen=True, slots=True)
class AllowList:
    """Entries of a file of known differences."""

    path: str
    entries: tuple[AllowEntry, ...]

    def apply(self, c: Comparison) -> Allowed:
        """Return the rows of a comparison that the entries allow."""
        rows, explained, stale = np.zeros(len(c), bool), np.zeros(len(c), bool), []
        judged = c.red | c.cause | (c.status == Status.ONLY_A) | (c.status == Status.ONLY_B)
        for entry in self.entries:
            found = judged & _matching(c, entry)
            rows |= found
            if entry.consequences:
                explained |= found
            if not found.any():
                stale.append(f"{self.path}:{entry.line}: no failing row matches '{entry.match}'")
        return Allowed(rows | _consequences(c, explained), tuple(stale))


def _matching(c: Comparison, entry: AllowEntry) -> Bool:
    found = np.zeros(len(c), bool)
    for log, records in ((c.a, c.row_a), (c.b, c.row_b)):
        # The extra entry serves record -1: no record on this side.
        found |= np.append(index_of(log, tuple(log.modules)).glob(entry.match), False)[records]
    if entry.statuses:
        found &= np.isin(c.status, list(entry.statuses))
    if entry.up_to < math.inf:
        # Rows without an error (one side only, shape mismatch) exceed no limit.
        found &= ~(c.error > entry.up_to)
    return found


def _consequences(c: Comparison, explained: Bool) -> Bool:
    """Extend the `explained` rows by the red ones that follow from nothing else.

    A receiver follows from the red producers of its inputs. Where the log does not name the producers, it may follow
    from any first cause before it, so all of these must be explained.
    """
    if c.flow is None or not explained.any():
        return explained
    out = explained.copy()
    guilty = c.red | c.cause
    others = np.flatnonzero(c.cause & ~explained)
    unexplained_from = int(others[0]) if len(others) else len(c)
    for row in np.flatnonzero((c.role == Role.RECEIVER) & ~c.cause & ~explained).tolist():
        sources = [
            int(at[maker])
            for flow, record, at in ((c.flow.a, int(c.row_a[row]), c.at_a), (c.flow.b, int(c.row_b[row]), c.at_b))
            for maker in flow[record]
            if maker >= 0
        ]
        red = [source for source in sources if guilty[source] and source != row]
        out[row] = all(out[source] for source in red) if red else row < unexplained_from
    return out


_FIELDS: Final = ("match", "why", "status", "up_to", "consequences")

_STATUSES: Final = {s.label: s for s in Status if s.red or s in (Status.ONLY_A, Status.ONLY_B)}
"""Statuses that can be allowed: the others never fail."""


def load_allow_list(path: Path) -> AllowList:
    """Read a file of known differences.

    Raises:
        RulesError: the file cannot be read or contains an unknown entry: an entry that is silently skipped would
            weaken the gate.
    """
    try:
        text = small_text(path, "list of known differences").removeprefix("\ufeff")
    except OSError as error:
        raise RulesError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise RulesError(f"{path}: is not UTF-8 text") from None
    lines = Lines(text)
    try:
        return AllowList(str(path), tuple(_entry(node, lines) for node in _entries(read_tree(text).root)))
    except TreeError as error:
        spot = f"{path}:{lines.number(error.index) + 1}:{lines.column(error.index) + 1}"
        raise RulesError(f"{spot}: {error}") from None


def _entries(root: Node) -> list[Node]:
    if root.kind != "map":
        raise TreeError("expected 'version: 1' and 'allow:' with a list", root.start)
    found: list[Node] = []
    for key, value in root.pairs:
        if key.text == "version":
            if value.text != "1":
                raise TreeError("expected 'version: 1'", value.start)
        elif key.text != "allow":
            raise TreeError(f"unknown section '{key.text}'; known are version and allow", key.start)
        elif value.kind != "list" and not value.null:
            raise TreeError("'allow' must be a list, each entry beginning with '- '", value.start)
        else:
            found += value.items
    return found


def _entry(node: Node, lines: Lines) -> AllowEntry:
    if node.kind != "map":
        raise TreeError("expected 'match: …' and 'why: …'", node.start)
    values: dict[str, Node] = {}
    for key, value in node.pairs:
        if key.text not in _FIELDS or key.text in values:
            again = " is given twice" if key.text in values else f" is unknown; known are {', '.join(_FIELDS)}"
            raise TreeError(f"'{key.text}'{again}", key.start)
        values[key.text] = value
    for name in ("match", "why"):
        if name not in values or values[name].kind != "text" or values[name].null:
            raise TreeError(f"an allowed difference needs '{name}' as text", node.start)
    return AllowEntry(
        match=values["match"].text,
        why=values["why"].text,
        statuses=_statuses(values.get("status")),
        up_to=_up_to(values.get("up_to")),
        consequences=_yes(values.get("consequences")),
        line=lines.number(node.start) + 1,
    )


def _statuses(node: Node | None) -> frozenset[Status]:
    if node is None:
        return frozenset()
    texts = node.items if node.kind == "list" else [node]
    for text in texts:
        if text.text not in _STATUSES:
            raise TreeError(f"'status' is one of {', '.join(_STATUSES)}, not '{text.text}'", text.start)
    return frozenset(_STATUSES[text.text] for text in texts)


def _up_to(node: Node | None) -> float:
    if node is None:
        return math.inf
    value = typed_number(node.text)
    if not value >= 0:
        raise TreeError(f"'up_to' is a relative error such as 1.0e-3, not '{node.text}'", node.start)
    return value


def _yes(node: Node | None) -> bool:
    if node is None:
        return False
    if node.text not in {"true", "false"}:
        raise TreeError(f"'consequences' is true or false, not '{node.text}'", node.start)
    return node.text == "true"
