"""Compact logs: what a record shares with an earlier one is not written again, but refers to that record.

The grammar is in docs/log-format.md. The lines of a plain record go in, fewer come out, and from those the reader
(`matchers.logs.compact`) gets the same columns. A record that does not fit the short forms keeps its plain lines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from .log_format import escape, pack_json

__all__ = ["CompactLines"]

_TENSOR = ("Shape", "Counts", "Placement")
_SOURCE = ("Location", "Phase", "Stack", "Recompute", "Micro-batch")
_CALL = ("Overload", "Arguments", "Inputs")
_NUMBERS = ("L2 norm", "Min", "Max", "Mean", "Output hash", "Digest", "Sketch")
_INPUTS = frozenset({"Input producers", "Input hashes", "Input digests"})
_JSON = ("Mutated", "Group", "Exchanged")
_NOT_READ = ("nan", "-")


class CompactLines:
    """The records of one log so far, as far as later ones may refer to them. Records are told by their `Seq`."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        """`names` are those of the parameters in the run info, in its order."""
        self._names = {escape(name): str(number) for number, name in enumerate(names)}
        self._tensors: dict[tuple[str | None, ...], int] = {}
        self._sources: dict[tuple[str | None, ...], int] = {}
        self._calls: dict[tuple[str | None, ...], int] = {}
        # by a digest of 128 bits: the texts would take as much memory as the log
        self._numbers: dict[bytes, int] = {}
        self._made: dict[str, tuple[int, tuple[str, str] | None]] = {}
        """Last record of each key, with hash and digest of its first output."""
        self._seen: dict[tuple[str, str], str] = {}
        """Reference to the first output or input with this hash and digest."""

    def fold(self, lines: Sequence[str]) -> list[str]:
        """Return the compact lines of the next record; `lines` are its plain ones, with the empty one at the end."""
        key = lines[0][1:-1]
        fields: dict[str, str] = dict([line[2:].split(": ", 1) for line in lines[1:-1]])
        seq = int(fields["Seq"])
        out = [lines[0]]
        like = [self._like(table, fields, names, seq) for table, names in self._tables()]
        if any(like):
            out.append(f"  Like: {like[0] or '-'} {like[1] or '-'}")
        first = _first_output(fields)
        if first is not None:
            self._seen.setdefault(first, f"@{seq}")
        short = {"Out": self._out(fields, seq), "From": self._from(fields, seq), "Named": self._named(fields)}
        short["Call"] = self._like(self._calls, fields, _CALL, seq)
        out += [f"  {name}: {value}" for name, value in short.items() if value is not None]
        self._made[key] = seq, first
        for name, value in fields.items():
            packed = name in _JSON or (name.startswith("Output ") and name != "Output hash")
            out.append(f"  {name}: {pack_json(value) if packed else value}")
        out.append("")
        return out

    def _tables(self) -> tuple[tuple[dict[tuple[str | None, ...], int], tuple[str, ...]], ...]:
        return (self._tensors, _TENSOR), (self._sources, _SOURCE)

    @staticmethod
    def _like(
        table: dict[tuple[str | None, ...], int], fields: dict[str, str], names: tuple[str, ...], seq: int
    ) -> str | None:
        """Take the fields that an earlier record has alike out of `fields`, and return that record's number."""
        values = tuple([fields.get(name) for name in names])
        if values[0] is None and names is not _CALL:  # `Shape` or `Location`: too little to be worth it
            return None
        if not any(values):
            return None
        earlier = table.setdefault(values, seq)
        if earlier == seq:
            return None
        _take(fields, names)
        return str(earlier)

    def _out(self, fields: dict[str, str], seq: int) -> str | None:
        """Take the numbers of the only output out of `fields`; None if they have no short form."""
        names = tuple([name for name in _NUMBERS if name in fields])
        if "Digest" not in names or "Output hash" not in names or "," in fields["Output hash"]:
            return None
        values = [fields[name] for name in names]
        whole = "\n".join((*names, *values)).encode()
        earlier = self._numbers.setdefault(hashlib.blake2b(whole, digest_size=16).digest(), seq)
        if earlier != seq:
            value = f"@{earlier} {fields['Digest']}"
        elif names[:6] == _NUMBERS[:6]:
            value = " ".join(values)
        else:
            return None
        _take(fields, names)
        return value

    def _from(self, fields: dict[str, str], seq: int) -> str | None:
        """Take producers, hashes and digests of the inputs out of `fields`; None if they have no short form."""
        if not fields.keys() >= _INPUTS:
            return None
        producers = fields["Input producers"].split(";")
        contents = list(zip(fields["Input hashes"].split(", "), fields["Input digests"].split(", "), strict=False))
        if len(contents) != len(producers) or " " in fields["Input producers"]:
            return None
        entries = []
        for k, (key, content) in enumerate(zip(producers, contents, strict=True)):
            made, made_content = self._made.get(key, (None, None))
            entry = "-" if not key else f"[{key}]" if made is None else str(made)
            if content == _NOT_READ:
                entry += " -"
            elif made is None or content != made_content:
                seen = self._seen.setdefault(content, f"@{seq}.{k}")
                # the record cannot refer to itself: its inputs may be resolved in any order
                known = seen.partition(".")[0] != f"@{seq}"
                entry += f" {seen}" if known else f" {content[0]} {content[1]}"
            entries.append(entry)
        _take(fields, _INPUTS)
        return ";".join(entries)

    def _named(self, fields: dict[str, str]) -> str | None:
        """Take the names of parameters out of `fields`; None if one of them is not in the run info."""
        if "Parameter" not in fields:
            return None
        entries = []
        for name in fields["Parameter"].split(";"):
            base, dot, state = (name, "", "") if name in self._names else name.rpartition(".")
            if name and base not in self._names:
                return None
            entries.append(name and f"{self._names[base]}{dot}{state}")
        _take(fields, ("Parameter",))
        return ";".join(entries)


def _first_output(fields: Mapping[str, str]) -> tuple[str, str] | None:
    """Return hash and digest of the first output, None if one of them is unknown."""
    if "Output hash" not in fields or "Digest" not in fields:
        return None
    first = fields["Output hash"].partition(", ")[0], fields["Digest"].partition(", ")[0]
    return None if first == _NOT_READ else first


def _take(fields: dict[str, str], names: Iterable[str]) -> None:
    for name in names:
        fields.pop(name, None)
