"""Findings of the campaign, each as small as it could be made: `make test` tries all of them again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from matchers.rules.model import OpRule
from tests.builders import log_text, op
from tests.fuzz.logs import Damage, Good, damaged, text_of
from tests.fuzz.ranks import FolderDamage, GoodFolder
from tests.fuzz.rule_files import Change

__all__ = ["LOGS", "RANKS", "RULE_FILES", "USER_FILES", "LogSeed"]


class LogSeed(NamedTuple):
    """Two logs, the second of them damaged."""

    good: bytes
    bad: bytes


_STEP = [
    op("tok_embeddings/op_0_embedding", 3.0, inputs=[1.0]),
    op("layers.0.wq/op_0_mm", 2.0, inputs=[9.0, 4.0], producers=["tok_embeddings/op_0_embedding", ""]),
    op("layers.0.mlp/op_0_silu", 5.0, inputs=[6.0], producers=["layers.0.wq/op_0_mm"]),
    op("output/op_0_mm", 7.0, inputs=[15.0, 8.0], producers=["layers.0.mlp/op_0_silu", ""], phase="backward"),
]
_PLAIN = log_text(_STEP).encode()


def _without(line: bytes) -> LogSeed:
    """The same log with one field fewer, in its second record."""
    start = _PLAIN.index(line, _PLAIN.index(b"[layers.0.wq"))
    return LogSeed(_PLAIN, _PLAIN[:start] + _PLAIN[_PLAIN.index(b"\n", start) + 1 :])


def _with(module: str) -> LogSeed:
    """The same log with a record more, of a module of its own."""
    return LogSeed(_PLAIN, log_text([*_STEP, op(f"layers.{module}/op_0_sin", 11.0, inputs=[12.0])]).encode())


def _alone(**fields: Any) -> LogSeed:
    """Logs of one record, which names producers that are in no log."""
    one = op("x/op_0_mm", inputs=[1.0, 2.0], producers=["y/op_0_mm", "z/op_0_mm"], **fields)
    return LogSeed(log_text([one]).encode(), log_text([one], declared=2).encode())


_CAPTURED = Good("digests", 17, 1)

LOGS: Mapping[str, LogSeed] = {
    "a change is lost, and its result stands where the input was": LogSeed(
        text_of(_CAPTURED), damaged(_CAPTURED, [Damage("lost", 1700, 0), Damage("swapped fields", 260, 16493)])
    ),
    "the only record has a lost producer and no dtype": _alone(shape=None),
    "the only record has lost producers in the backward pass": _alone(phase="backward"),
    "a module that is not compared is named by an escape sequence": _with("\x1b]52;c;cm0gLXJm\x07"),
    "a module that is not compared is named by zero bytes": _with("\x00"),
    "a statistic is missing": _without(b"  Min: "),
    "the norms are missing": _without(b"  Output hash: "),
    "the shape is missing": _without(b"  Shape: "),
}


RANKS: Mapping[str, tuple[GoodFolder, list[FolderDamage]]] = {
    "a second log says that it is that of rank 0": (GoodFolder("world", 1, 0), [FolderDamage("more", 0, 0)]),
    "the only log is that of another rank": (
        GoodFolder("copies", 1, 0),
        [FolderDamage("more", 0, 0), FolderDamage("missing", 0, 0)],
    ),
    "the only log of rank 0 says so with two digits": (
        GoodFolder("copies", 1, 0),
        [FolderDamage("doubled", 0, 57), FolderDamage("missing", 0, 0)],
    ),
    "a rank has no record left": (GoodFolder("world", 2, 0), [FolderDamage("cut", 1, 1)]),
    "norms are negative": (GoodFolder("samples", 3, 0), [FolderDamage("more", 1, 0), FolderDamage("scaled", 0, 2)]),
}

_RULE = '  - a: "l.{i}/op_{n}_add"\n    b: "m.{i}/op_{n}_add"\n'

RULE_FILES: Mapping[str, tuple[str, list[Change]]] = {
    "a removed rule comes back to where a broken entry is now": (
        f"templates:\n{_RULE}  - broken\n{_RULE.replace('m.', 'n.')}",
        [(0, 0, OpRule(a=("x",), b=("y",)))],
    ),
    "a rule whose reason is a block moves to before a comment that is indented more": (
        "templates:\n"
        + _RULE
        + "    why: |\n      some\n      text\n"
        + _RULE.replace("m.", "n.")
        + _RULE.replace("m.", "o.")
        + "\n      # deep\n",
        [(1, 0, OpRule(a=("x",), b=("y",)))],
    ),
}
"""Files, and changes that are saved one after the other, then all taken back."""

_JOURNAL = b'{"version": 1, "time": 1, "host": "h", "pid": 1, "locked": false, "text": "version: 1"}'
_SESSION = (
    b'{"version": 1, "cursor": [["x", 0], null], "query": "", "hidden": [], "order": "", "folded": false, '
    b'"filters": {}, "marks": {}, "notes": []}'
)

USER_FILES: Mapping[str, tuple[str, bytes]] = {
    "a journal that is nested deeply": ("journal", b"[" * 100_000),
    "a journal of a time beyond all times": ("journal", _JOURNAL.replace(b'"time": 1', b'"time": 1' + b"0" * 400)),
    "a journal of a process beyond all numbers": ("journal", _JOURNAL.replace(b'"pid": 1', b'"pid": 1' + b"0" * 40)),
    "a session on the infinite record": ("session", _SESSION.replace(b"0]", b"Infinity]")),
    "a session that is nested deeply": ("session", _SESSION.replace(b"{}", b"[" * 100_000)),
    "a session whose rejected rules are one text": (
        "session",
        _SESSION.replace(b'"notes"', b'"rejected": "mm", "notes"'),
    ),
}
"""The kind of each file, and what is in it."""
