"""Programs that are killed while they save: each file is as before the save or as after it, and whole.

A program of its own: `python -m tests.fuzz.kills COUNT SEED` prints the number of kills. It forks the processes that it
kills, which a program with threads should not.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

from matchers.rules.file import RuleFile
from matchers.rules.model import PairRule, RuleSet
from numtui.session.journal import Journal
from numtui.session.store import NOWHERE, SavedSession, SessionStore
from tests.fuzz.folders import fast_folder

__all__ = ["kill_while_saving"]

_LONGEST_SECONDS = 0.02


def _rules(number: int) -> RuleSet:
    """Rules of which the file is some kilobytes long, other ones for each number."""
    return RuleSet(tuple(PairRule(a=(f"x/op_{number}_mm",), b=(f"y/op_{k}_mm",)) for k in range(20 + number % 50)))


def _number(file: RuleFile) -> int:
    """The number that its rules were made for; 0 without any."""
    return next((int(rule.a[0].split("_")[1]) for rule in file.rules.of(PairRule)), 0)


def _save_on_and_on(folder: Path, told: int) -> None:
    file, journal = RuleFile.open(folder / "rules.yaml"), Journal("a", "b", folder / "rules.yaml", folder=folder / "j")
    store = SessionStore("a", "b", folder=folder)
    for number in count(_number(file) + 1):
        rules = _rules(number)
        file = file.save(rules)
        journal.write(file.text)
        store.save(SavedSession(query=str(number), notes={NOWHERE: "x" * (number % 5_000)}))
        os.write(told, b".")


def kill_while_saving(chance: random.Random, folder: Path) -> None:
    """Kill one process that saves, and look at what it leaves; the folder is that of the kill before."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _save_on_and_on(folder, write)
        finally:
            os._exit(1)
    os.close(write)
    # After the first save of all three it may be anywhere.
    started = os.read(read, 1) == b"."
    time.sleep(chance.uniform(0, _LONGEST_SECONDS))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.close(read)
    assert started
    assert os.WIFSIGNALED(status), "the process that saves ended by itself"
    file = RuleFile.load(folder / "rules.yaml")
    number = _number(file)
    assert file.rules == _rules(number), "half of a rule file"
    journal = Journal("a", "b", folder / "rules.yaml", folder=folder / "j")
    found = journal.pending()
    assert found is not None, "no unsaved rules are offered"
    (folder / "offered.yaml").write_text(found.rules, encoding="utf-8")
    offered = RuleFile.load(folder / "offered.yaml").rules
    assert offered in (_rules(number), _rules(number - 1)), "half of a journal"
    journal.clear()
    store = SessionStore("a", "b", folder=folder)
    kept = store.load()
    assert store.problem is None, store.problem
    last = int(kept.query)
    assert number - 1 <= last <= number, f"session {last} beside rules {number}"
    assert kept.notes == {NOWHERE: "x" * (last % 5_000)}, "half of a session"


def main() -> None:
    """Kill so many processes, one after the other over the same files."""
    kills, chance = int(sys.argv[1]), random.Random(sys.argv[2])
    with tempfile.TemporaryDirectory(dir=fast_folder()) as folder:
        for number in range(kills):
            kill_while_saving(chance, Path(folder))
            print(number + 1, flush=True)


if __name__ == "__main__":
    main()
