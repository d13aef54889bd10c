"""Disks that fill up while something is saved: the old file or the new one, whole, and a sentence for the old one.

A program of its own, in a mount namespace of its own: `unshare --mount python -m tests.fuzz.full_disks COUNT SEED`
prints the number of disks. Where nothing may be mounted it ends with code 3 and says so.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from matchers.errors import RulesError
from matchers.rules.file import RuleFile
from matchers.rules.model import PairRule, RuleSet
from numtui.session.journal import Journal
from numtui.session.store import NOWHERE, SavedSession, SessionStore

__all__ = ["NOT_PERMITTED", "save_on_a_full_disk"]

NOT_PERMITTED = 3
"""Exit code where nothing may be mounted."""

_DISK = 512 << 10
_PAGE = 4 << 10


def _rules(number: int, size: int) -> RuleSet:
    return RuleSet(tuple(PairRule(a=(f"x/op_{number}_mm",), b=(f"y/op_{k}_mm",)) for k in range(size)))


def _fill(path: Path, free: int) -> None:
    """Leave so many bytes free on the disk."""
    with suppress(OSError), path.open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(_PAGE))
    os.truncate(path, max(path.stat().st_size // _PAGE * _PAGE - free, 0))


def save_on_a_full_disk(chance: random.Random, disk: Path) -> None:
    """Save rules, journal and session on an empty disk, then on one with little room, then with room again."""
    old, new = chance.randint(0, 300), chance.randint(0, 1_000)
    path, folder = disk / "rules.yaml", disk / "state"
    file, journal = RuleFile.open(path).save(_rules(1, old)), Journal("a", "b", path, folder=folder)
    journal.write(file.text)
    store = SessionStore("a", "b", folder=folder)
    store.save(SavedSession(query="old"))
    assert (journal.problem, store.problem) == (None, None)
    _fill(disk / "filler", chance.randrange(0, 24) * _PAGE)

    try:
        file.save(_rules(2, new))
        saved = True
    except RulesError as error:
        assert "make room and save again" in str(error)  # noqa: PT017 - both ways are looked at
        saved = False
    assert RuleFile.load(path).rules == (_rules(2, new) if saved else file.rules)
    text = "x" * chance.randint(1, 80_000)
    journal.write(text)
    journal.close()
    later = Journal("a", "b", path, folder=folder)
    found = later.pending()
    assert found is not None
    assert found.rules == (text if journal.problem is None else file.text), journal.problem
    notes = {NOWHERE: "x" * chance.randint(1, 80_000)}
    store.save(SavedSession(query="new", notes=notes))
    now = SessionStore("a", "b", folder=folder).load()
    assert now == (SavedSession(query="new", notes=notes) if store.problem is None else SavedSession(query="old"))

    (disk / "filler").unlink()
    RuleFile.load(path).save(_rules(3, new))
    store.save(SavedSession(query="newer"))
    assert store.problem is None
    assert SessionStore("a", "b", folder=folder).load().query == "newer"
    left = [one.name for one in disk.rglob("*") if one.name.endswith(".part")]
    assert not left, f"left behind: {left}"


def main() -> None:
    """Fill so many disks."""
    disks, chance = int(sys.argv[1]), random.Random(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        for number in range(disks):
            mounted = subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "numtui-fuzz", folder],
                check=False,
                capture_output=True,
                text=True,
            )
            if mounted.returncode:
                print(f"full disks: not tried, as nothing may be mounted here ({mounted.stderr.strip()})")
                sys.exit(NOT_PERMITTED)
            try:
                save_on_a_full_disk(chance, Path(folder))
            finally:
                subprocess.run(["umount", "--lazy", folder], check=True)
            print(number + 1, flush=True)


if __name__ == "__main__":
    main()
