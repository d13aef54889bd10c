"""Storms on a terminal: keys, pastes and sizes, faster than anybody types, then a signal; nothing is lost."""

from __future__ import annotations

import random
import signal

from tests.pty.test_signals import Work, end_by

__all__ = ["storm"]

_KEYS = (
    *("j", "k", "G", "g", "n", "v", "\x1b", "?", "q", "c", "C", "r", "/wq\r", "=", "S", "\t", "\x10", "B", "P", "I"),
    *("\x1b[A", "\x1b[6~", "\x1b[1;5D", "\x1bOP", "17G", "fwq\r", ":mark", "\x0c"),
)
"""Nothing that changes a rule, also where a panel takes the first letter: no space, which switches one off, no letters
that answer questions, no `tt`, which generalises a pair."""
_PASTES = (
    *("attention", "two\nlines\n", "\x1b[31mred", "\x07\x00", "é\u202e🙂", "x" * 5_000, ":q!\r", "\x1b[200~twice", ""),
)
_ENDS = (
    *(signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM),
    *(signal.SIGPROF, signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS),
)
_WIDTHS, _HEIGHTS = (1, 2, 7, 30, 59, 60, 61, 80, 133, 300), (1, 2, 5, 13, 14, 24, 70)


def storm(seed: int, work: Work, gusts: int = 300) -> None:
    """One storm over a program with an unsaved rule and a note, which are both there afterwards."""
    chance = random.Random(seed)
    pace = chance.choice((0, 0, 0.01, 0.03))
    with work.under_way(PYTHONFAULTHANDLER="1") as t:
        for _ in range(gusts):
            if t.process.poll() is not None:
                break
            if chance.random() < 0.7:
                t.resize(chance.choice(_WIDTHS), chance.choice(_HEIGHTS))
            if chance.random() < 0.1:
                t.type(f"\x1b[200~{chance.choice(_PASTES)}\x1b[201~")
            else:
                t.type(chance.choice(_KEYS))
            t.read(pace)
        end_by(chance.choice(_ENDS), t)
    assert work.is_kept(), (work.notes, work.unsaved)
