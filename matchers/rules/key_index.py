"""Find the rows of a log by key, template or glob, without a Python step per row.

A key is split at its last `/`: the 90,000 keys of a large log have some two thousand distinct heads (modules with the
slash) and eight thousand tails (`op_3_mul`). Templates are matched against those, globs against whole keys; numpy maps
the matches to rows.

A row is found by its key as logged and, if different, by its key with the module renamed by the rules, and by what
another tool's log calls it. An index lives as long as its log.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from itertools import count
from typing import Final

import numpy as np

from matchers.arrays import Bool, Int64, marked
from matchers.logs.imported.format import NATIVE_KEY
from matchers.logs.op_log import OpLog
from matchers.rules.kept import Kept
from matchers.rules.pattern import Captures, Glob, Pattern
from matchers.rules.text_index import TextIndex

__all__ = ["KeyIndex", "Matches", "index_of", "key_reference", "warm"]

Matches = list[tuple[Captures, Int64]]
"""The captures of each key that matches a template, and the rows with that key; ordered by first row."""

_NUMBERED: Final = re.compile(r"#0*([1-9][0-9]{0,8})\Z")
_NO_ROWS: Final[Int64] = np.zeros(0, np.int64)
_MAX_KEPT: Final = 50_000
_MASK: Final = _MAX_KEPT // 256
"""Weight of a mask of all rows among what is kept of globs."""
_MAX_PAIRS: Final = 1 << 20
"""Templates and their pairs that are kept for the next call."""
_NUMBERS: Final = count()
_AT_ONCE: Final = 1 << 15
"""Number of keys split at a time, which bounds the temporary texts in memory."""


class _KeyTable:
    """Keys of some rows, in row order.

    `head`, `tail`: int32 per row, into `heads` and `tails`; `code` combines the two, and `order` sorts the rows by it.
    """

    def __init__(self, keys: Sequence[str], rows: Int64) -> None:
        head_number: dict[str | None, int] = {}
        self._tail_of: dict[str, int] = {}
        self.rows = rows
        self.head = np.empty(len(keys), np.int32)
        self.tail = np.empty(len(keys), np.int32)
        for start in range(0, len(keys), _AT_ONCE):
            here = slice(start, start + _AT_ONCE)
            parts = [key.rpartition("/") for key in keys[here]]
            # None stands for "no slash", unlike an empty head; the slash is added back below, to fewer texts.
            self.head[here] = [
                head_number.setdefault(head if slash else None, len(head_number)) for head, slash, _ in parts
            ]
            self.tail[here] = [self._tail_of.setdefault(tail, len(self._tail_of)) for _, _, tail in parts]
        self.heads = ["" if head is None else f"{head}/" for head in head_number]
        self.tails = list(self._tail_of)
        self._head_of = {head: at for at, head in enumerate(self.heads)}
        self.code = self.head.astype(np.int64) * max(len(self.tails), 1) + self.tail
        self.order = np.argsort(self.code, kind="stable")
        self.sorted = self.code[self.order]

    @cached_property
    def _halves(self) -> tuple[TextIndex, TextIndex]:
        """The heads and the tails, for searches."""
        return TextIndex(self.heads), TextIndex(self.tails)

    @cached_property
    def _distinct(self) -> tuple[TextIndex, Int64]:
        """The distinct keys; those of number k have the places `runs[k]` to `runs[k + 1]` in `order`."""
        starts = np.flatnonzero(np.diff(self.sorted, prepend=-1))
        head, tail = np.divmod(self.sorted[starts], max(len(self.tails), 1))
        keys = (self.heads[h] + self.tails[t] for h, t in zip(head.tolist(), tail.tolist(), strict=True))
        return TextIndex(keys), np.append(starts, len(self.sorted))

    def named(self, key: str) -> Int64:
        """The rows with exactly this key, in order."""
        head, slash, tail = key.rpartition("/")
        h, t = self._head_of.get(head + slash), self._tail_of.get(tail)
        if h is None or t is None:
            return _NO_ROWS
        code = h * len(self.tails) + t
        first, last = self.sorted.searchsorted(code), self.sorted.searchsorted(code, "right")
        return self.rows[self.order[first:last]]

    def globbed(self, glob: Glob) -> Int64:
        """Rows whose key matches."""
        keys, runs = self._distinct
        hits = keys.globbed(glob)
        if not hits:
            return _NO_ROWS
        hit = marked(hits, len(keys))
        return np.asarray(self.rows[self.order[np.repeat(hit, np.diff(runs))]])

    def may_have(self, pattern: Pattern) -> bool:
        """False if no key has all the plain texts of a template."""
        head, tail = pattern.halves
        in_heads, in_tails = self._halves
        return in_heads.may_match(head.literals) and in_tails.may_match(tail.literals)

    def matching(self, pattern: Pattern) -> Matches:
        """The keys that match a template."""
        head_pattern, tail_pattern = pattern.halves
        in_heads, in_tails = self._halves
        by_head = in_heads.matching(head_pattern)
        by_tail = in_tails.matching(tail_pattern) if by_head else {}
        if not by_tail:
            return []
        head_ok, tail_ok = np.zeros(len(self.heads), bool), np.zeros(len(self.tails), bool)
        head_ok[list(by_head)], tail_ok[list(by_tail)] = True, True
        hit = self.order[head_ok[self.head[self.order]] & tail_ok[self.tail[self.order]]]
        if not len(hit):
            return []
        code = self.code[hit]
        cuts = np.flatnonzero(np.diff(code)) + 1
        begins = np.concatenate(([0], cuts))
        ends = np.concatenate((cuts, [len(hit)]))
        rows = self.rows[hit]
        out: Matches = []
        shared = head_pattern.kinds.keys() & tail_pattern.kinds.keys()
        by_first_row = np.argsort(rows[begins], kind="stable")
        for begin, end in zip(begins[by_first_row].tolist(), ends[by_first_row].tolist(), strict=True):
            at = hit[begin]
            head, tail = by_head[int(self.head[at])], by_tail[int(self.tail[at])]
            if any(head[name] != tail[name] for name in shared):
                continue
            out.append(({**head, **tail}, rows[begin:end]))
        return out


class KeyIndex:
    """The keys of one log, under their logged names, those that the rules give their modules, and another tool's.

    Lookups are kept, because rules change one at a time.

    Attributes:
        number: another one for each index of the process.
        size: number of rows.
        pairs: what templates pair with the rows of other logs, kept for those who make the pairs.
    """

    def __init__(self, size: int, of_log: _PerLog, renamed: _KeyTable | None) -> None:
        self.number = next(_NUMBERS)
        self.size = size
        self._of_log = of_log
        self._renamed = renamed
        self._nothing: Bool = np.zeros(size, bool)
        self._nothing.setflags(write=False)
        self._masks = Kept[Bool](_MAX_KEPT)
        self._found = Kept[Int64](_MAX_KEPT)
        self._read = Kept[Matches](_MAX_KEPT)
        self.pairs = Kept[object](_MAX_PAIRS)

    @cached_property
    def _tables(self) -> Sequence[_KeyTable]:
        """The keys as logged, renamed, and of another tool."""
        found = (self._of_log.names, self._renamed, self._of_log.native)
        return [table for table in found if table is not None]

    def named(self, key: str) -> Int64:
        """Rows with this key, in order; other keys count only if no logged key is equal."""
        return next((rows for table in self._tables if len(rows := table.named(key))), _NO_ROWS)

    def find(self, reference: str) -> Int64:
        """Rows named by a key, or by `key#k`, the k-th row with that key.

        `#` is special only if the whole text is not itself a key.
        """
        rows = self._found.get(reference)
        if rows is None:
            rows = self.named(reference)
            if not len(rows) and (numbered := _NUMBERED.search(reference)) is not None:
                k = int(numbered.group(1))
                rows = self.named(reference[: numbered.start()])[k - 1 : k]
            self._found.put(reference, rows)
        return rows

    def glob(self, text: str) -> Bool:
        """bool[n]: rows whose key matches; text that is an exact key is not interpreted as a glob."""
        mask = self._masks.get(text)
        if mask is not None:
            return mask
        found = [self.find(text)]
        if not len(found[0]):
            found = [table.globbed(Glob.of(text)) for table in self._tables]
        if not any(map(len, found)):
            return self._masks.put(text, self._nothing)
        mask = np.zeros(self.size, bool)
        for rows in found:
            mask[rows] = True
        mask.setflags(write=False)
        return self._masks.put(text, mask, _MASK)

    def may_have(self, pattern: Pattern) -> bool:
        """False if certainly no key matches a template."""
        return any(table.may_have(pattern) for table in self._tables)

    def template(self, pattern: Pattern) -> Matches:
        """The keys that match a template; a row counts under its logged key first."""
        out = self._read.get(pattern.parts)
        if out is None:
            out = self._matching(pattern)
            self._read.put(pattern.parts, out, len(out) + 1)
        return out

    def _matching(self, pattern: Pattern) -> Matches:
        out = self._tables[0].matching(pattern)
        for table in self._tables[1:]:
            if not (others := table.matching(pattern)):
                continue
            taken = np.zeros(self.size, bool)
            for _, rows in out:
                taken[rows] = True
            more = ((captures, rows[~taken[rows]]) for captures, rows in others)
            out = sorted([*out, *(found for found in more if len(found[1]))], key=lambda found: int(found[1][0]))
        return out


class _PerLog:
    """Cached data of one log: its names, and an index for each recent renaming of its modules."""

    def __init__(self, log: OpLog) -> None:
        self.names = _KeyTable(log.keys, np.arange(len(log)))
        self.indices = Kept[KeyIndex](4)
        self._native = log.texts(NATIVE_KEY)

    @cached_property
    def native(self) -> _KeyTable | None:
        """The names that another tool's log has; None for a log of our own."""
        rows = self._native.rows.astype(np.int64)
        return _KeyTable([self._native[row] for row in rows.tolist()], rows) if len(rows) else None


def _per_log(log: OpLog) -> _PerLog:
    """What is kept with the log's keys."""
    if log.keys.search is None:
        log.keys.search = _PerLog(log)
    assert isinstance(log.keys.search, _PerLog)
    return log.keys.search


def index_of(log: OpLog, modules: Sequence[str]) -> KeyIndex:
    """The index of a log with its modules renamed to `modules` (entry by entry of `log.modules`)."""
    kept, names = _per_log(log), tuple(modules)
    return kept.indices.get(names) or kept.indices.put(
        names, KeyIndex(len(log), kept, _renamed(log, kept.names, names))
    )


def _renamed(log: OpLog, raw: _KeyTable, modules: tuple[str, ...]) -> _KeyTable | None:
    """The names of the rows whose modules the rules rename."""
    changed = np.fromiter((new != old for new, old in zip(modules, log.modules, strict=True)), bool, len(modules))
    if not changed.any():
        return None
    rows = np.flatnonzero((log.module >= 0) & changed[log.module]).astype(np.int64)
    module, tail = log.module[rows].tolist(), raw.tail[rows].tolist()
    return _KeyTable([f"{modules[m]}/{raw.tails[t]}" for m, t in zip(module, tail, strict=True)], rows)


def key_reference(log: OpLog, row: int, *, once: bool = False) -> str:
    """The text that names exactly this row in a rule: its key, with `#k` appended if the key repeats.

    `once` avoids building an index: a single key is found in a hundredth of the time.
    """
    key: str = log.keys[row]
    # Several raw keys may decode to the same non-ASCII text.
    once = once and log.keys.search is None and key.isascii() and not {"\\", "\n"} & set(key)

    def named(text: str) -> Int64:
        return log.keys.rows(text.encode()) if once else _per_log(log).names.named(text)

    rows = named(key)
    if len(rows) == 1:
        return key
    number = int(np.searchsorted(rows, row)) + 1
    # A logged key that reads like a numbered one would take precedence; one more zero avoids it.
    zeros = ""
    while len(named(f"{key}#{zeros}{number}")):
        zeros += "0"
    return f"{key}#{zeros}{number}"


def warm(log: OpLog) -> None:
    """Build the index that the first rule about this log needs (about half a microsecond per operation)."""
    _per_log(log)
