"""Find the rows of a log by key, template or glob, without a Python step per row.

A key is split at its last `/`: the 90,000 keys of a large log have some two thousand distinct heads (modules with the
slash) and eight thousand tails (`op_3_mul`). Templates are matched against those, globs against whole keys; numpy maps
the matches to rows.

A row is found by its key as logged and, if different, by its key with the module renamed by the rules. An index lives
as long as its log.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from matchers.arrays import Bool, Int64
from matchers.logs.op_log import OpLog
from matchers.rules.pattern import Glob, Pattern
from matchers.rules.text_index import TextIndex

__all__ = ["KeyIndex", "index_of", "key_reference", "warm"]

_NUMBERED: Final = re.compile(r"#0*([1-9][0-9]{0,8})\Z")
_NO_ROWS: Final[Int64] = np.zeros(0, np.int64)
_MAX_MASKS: Final = 256
_MAX_FOUND: Final = 50_000
_AT_ONCE: Final = 1 << 15
"""Number of keys split at a time, which bounds the temporary texts in memory."""


class _KeyTable:
    """Keys of some rows, in row order.

    `head`, `tail`: int32 per row, into `heads` and `tails`; `code` combines the two, and `order` sorts the rows by it.
    """

    __slots__ = (
        "_head_of", "_in_heads", "_in_keys", "_in_tails", "_runs", "_tail_of", "code", "head", "heads", "order", "rows",
        "sorted", "tail", "tails",
    )  # fmt: skip

    def __init__(self, keys: Sequence[str], rows: Int64) -> None:
        head_number: dict[str | None, int] = {}
        tail_of: dict[str, int] = {}
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
            self.tail[here] = [tail_of.setdefault(tail, len(tail_of)) for _, _, tail in parts]
        self.heads = ["" if head is None else f"{head}/" for head in head_number]
        self.tails = list(tail_of)
        self._head_of = {head: at for at, head in enumerate(self.heads)}
        self._tail_of = tail_of
        self.code = self.head.astype(np.int64) * max(len(tail_of), 1) + self.tail
        self.order = np.argsort(self.code, kind="stable")
        self.sorted = self.code[self.order]
        self._in_heads: TextIndex | None = None
        self._in_tails: TextIndex | None = None
        self._in_keys: TextIndex | None = None
        """Distinct keys; those of number k have the places `_runs[k]` to `_runs[k + 1]` in `order`."""

    def named(self, key: str) -> Int64:
        """The rows with exactly this key, in order."""
        head, slash, tail = key.rpartition("/")
        h, t = self._head_of.get(head + slash), self._tail_of.get(tail)
        if h is None or t is None:
            return _NO_ROWS
        return self.coded(h * len(self.tails) + t)

    def coded(self, code: int) -> Int64:
        first, last = self.sorted.searchsorted(code), self.sorted.searchsorted(code, "right")
        return self.rows[self.order[first:last]]

    def _halves(self) -> tuple[TextIndex, TextIndex]:
        """The heads and the tails, for searches."""
        if self._in_heads is None or self._in_tails is None:
            self._in_heads, self._in_tails = TextIndex(self.heads), TextIndex(self.tails)
        return self._in_heads, self._in_tails

    def globbed(self, glob: Glob) -> Int64:
        """Rows whose key matches."""
        if self._in_keys is None:
            starts = np.flatnonzero(np.diff(self.sorted, prepend=-1))
            self._runs = np.append(starts, len(self.sorted))
            head, tail = np.divmod(self.sorted[starts], max(len(self.tails), 1))
            self._in_keys = TextIndex(
                self.heads[h] + self.tails[t] for h, t in zip(head.tolist(), tail.tolist(), strict=True)
            )
        hits = self._in_keys.globbed(glob)
        if not hits:
            return _NO_ROWS
        hit = np.zeros(len(self._in_keys), bool)
        hit[hits] = True
        return np.asarray(self.rows[self.order[np.repeat(hit, np.diff(self._runs))]])

    def may_have(self, pattern: Pattern) -> bool:
        """False if no key has all the plain texts of a template."""
        head, tail = pattern.split()
        in_heads, in_tails = self._halves()
        return in_heads.may_match(head.literals) and in_tails.may_match(tail.literals)

    def matching(self, pattern: Pattern) -> list[tuple[dict[str, int | str], Int64]]:
        """The captures of each matching key, and the rows with that key; ordered by first row."""
        head_pattern, tail_pattern = pattern.split()
        in_heads, in_tails = self._halves()
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
        out: list[tuple[dict[str, int | str], Int64]] = []
        shared = head_pattern.kinds.keys() & tail_pattern.kinds.keys()
        by_first_row = np.argsort(rows[begins], kind="stable")
        for begin, end in zip(begins[by_first_row].tolist(), ends[by_first_row].tolist(), strict=True):
            at = hit[begin]
            head, tail = by_head[int(self.head[at])], by_tail[int(self.tail[at])]
            if any(head[name] != tail[name] for name in shared):
                continue
            out.append((head | tail, rows[begin:end]))
        return out


class KeyIndex:
    """The keys of one log, under their logged names and under those that the rules give their modules.

    Lookups are cached, because rules change one at a time; `cache` is for derived data of callers.
    """

    __slots__ = (
        "__weakref__",
        "_found",
        "_full",
        "_kept",
        "_masks",
        "_nothing",
        "_raw",
        "_read",
        "_renamed",
        "cache",
        "size",
    )

    def __init__(self, size: int, raw: _KeyTable, renamed: _KeyTable | None) -> None:
        self.size = size
        self._raw = raw
        self._renamed = renamed
        self._nothing: Bool = np.zeros(size, bool)
        self._nothing.setflags(write=False)
        self._masks: dict[str, Bool] = {}
        self._full = 0
        """Masks that are kept and not `_nothing`, which takes no memory."""
        self._found: dict[str, Int64] = {}
        self._read: dict[tuple[object, ...], list[tuple[dict[str, int | str], Int64]]] = {}
        self._kept = 0
        self.cache: dict[Any, Any] = {}

    def named(self, key: str) -> Int64:
        """Rows with this key, in order; renamed keys count only if no logged key is equal."""
        rows = self._raw.named(key)
        return rows if len(rows) or self._renamed is None else self._renamed.named(key)

    def find(self, reference: str) -> Int64:
        """Rows named by a key, or by `key#k`, the k-th row with that key.

        `#` is special only if the whole text is not itself a key.
        """
        rows = self._found.get(reference)
        if rows is None:
            rows = self.named(reference)
            if not len(rows) and "#" in reference:
                numbered = _NUMBERED.search(reference)
                if numbered is not None:
                    k = int(numbered.group(1))
                    rows = self.named(reference[: numbered.start()])[k - 1 : k]
            if len(self._found) >= _MAX_FOUND:
                self._found.clear()
            self._found[reference] = rows
        return rows

    def glob(self, text: str) -> Bool:
        """bool[n]: rows whose key matches; text that is an exact key is not interpreted as a glob."""
        mask = self._masks.get(text)
        if mask is None:
            found = [self.find(text)]
            if not len(found[0]):
                found = [table.globbed(Glob.of(text)) for table in self._tables()]
            mask = self._nothing
            if any(map(len, found)):
                mask = np.zeros(self.size, bool)
                for rows in found:
                    mask[rows] = True
                mask.setflags(write=False)
                self._full += 1
            if self._full > _MAX_MASKS or len(self._masks) >= _MAX_FOUND:
                self._masks.clear()
                self._full = 0
            self._masks[text] = mask
        return mask

    def _tables(self) -> tuple[_KeyTable, ...]:
        return (self._raw,) if self._renamed is None else (self._raw, self._renamed)

    def may_have(self, pattern: Pattern) -> bool:
        """False if certainly no key matches a template."""
        return any(table.may_have(pattern) for table in self._tables())

    def template(self, pattern: Pattern) -> list[tuple[dict[str, int | str], Int64]]:
        """Captures and rows per matching key; a row counts under its logged key first."""
        out = self._read.get(pattern.parts)
        if out is None:
            out = self._read_all(pattern)
            self._kept += len(out) + 1
            if self._kept > _MAX_FOUND:
                self._read.clear()
                self._kept = len(out) + 1
            self._read[pattern.parts] = out
        return out

    def _read_all(self, pattern: Pattern) -> list[tuple[dict[str, int | str], Int64]]:
        out = self._raw.matching(pattern)
        renamed = [] if self._renamed is None else self._renamed.matching(pattern)
        if renamed:
            taken = np.zeros(self.size, bool)
            for _, rows in out:
                taken[rows] = True
            for captures, rows in renamed:
                free = rows[~taken[rows]]
                if len(free):
                    out.append((captures, free))
            out.sort(key=lambda found: int(found[1][0]))
        return out


class _PerLog:
    """Cached data of one log: its names, and an index for each recent renaming of its modules."""

    __slots__ = ("indices", "names")

    def __init__(self, log: OpLog) -> None:
        self.names = _KeyTable(log.keys, np.arange(len(log)))
        self.indices: dict[tuple[str, ...], KeyIndex] = {}


# Logs are neither hashable nor weakly referable; the array of their key offsets is weakly referable and lives as long.
_KEPT: dict[int, tuple[weakref.ref[Any], _PerLog]] = {}


def _kept(log: OpLog) -> _PerLog | None:
    anchor = log.keys.start
    kept = _KEPT.get(id(anchor))
    return kept[1] if kept is not None and kept[0]() is anchor else None


def _per_log(log: OpLog) -> _PerLog:
    out = _kept(log)
    if out is None:
        anchor = log.keys.start
        identity = id(anchor)
        out = _PerLog(log)
        _KEPT[identity] = (weakref.ref(anchor, lambda _: _KEPT.pop(identity, None)), out)
    return out


def _named(log: OpLog, key: str, once: bool) -> Int64:
    """The rows with exactly this key."""
    # Several raw keys may decode to the same non-ASCII text.
    if once and _kept(log) is None and key.isascii() and not {"\\", "\n"} & set(key):
        return log.keys.rows(key.encode())
    return _per_log(log).names.named(key)


def index_of(log: OpLog, modules: Sequence[str]) -> KeyIndex:
    """The index of a log with its modules renamed to `modules` (entry by entry of `log.modules`)."""
    kept = _per_log(log)
    names = tuple(modules)
    index = kept.indices.get(names)
    if index is None:
        if len(kept.indices) >= 4:
            kept.indices.clear()
        index = kept.indices[names] = KeyIndex(len(log), kept.names, _renamed(log, kept.names, names))
    return index


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
    rows = _named(log, key, once)
    if len(rows) == 1:
        return key
    number = int(np.searchsorted(rows, row)) + 1
    # A logged key that reads like a numbered one would take precedence; one more zero avoids it.
    zeros = ""
    while len(_named(log, f"{key}#{zeros}{number}", once)):
        zeros += "0"
    return f"{key}#{zeros}{number}"


def warm(log: OpLog) -> None:
    """Build the index that the first rule about this log needs (about half a microsecond per operation)."""
    _per_log(log)
