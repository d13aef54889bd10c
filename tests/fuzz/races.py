"""Programs that save one rule file at once, some of them killed: each save is in the file, or was refused.

A program of its own, as `tests.fuzz.kills`: `python -m tests.fuzz.races COUNT SEED` prints the number of races.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from matchers.rules.file import RuleFile, RulesBusyError, RulesChangedError
from matchers.rules.model import PairRule
from tests.fuzz.folders import fast_folder

__all__ = ["race"]

_SAVES = 4
"""That each process tries: whoever is refused reads the file again and goes on."""
_LONGEST_SECONDS = 0.02


def _save_some(path: Path, name: str, begin: int, told: int) -> None:
    """Save rules of its own, one after the other, and tell which of the saves succeeded."""
    os.read(begin, 1)  # its end, for all at once
    for number in range(_SAVES):
        own = f"{name}_{number}"
        file = RuleFile.open(path)
        try:
            file.save(file.rules.adding(PairRule(a=(own,), b=(own,))), patience=0.01)
        except (RulesChangedError, RulesBusyError):
            continue
        os.write(told, f"{own}\n".encode())


def race(chance: random.Random, path: Path) -> None:
    """Let two to four processes save the file, kill one of them half of the time, and look at what is there."""
    if chance.random() < 0.3:
        path.unlink(missing_ok=True)
    before = _saved(path)
    (begin, go), (read, told) = os.pipe(), os.pipe()
    children = []
    for number in range(chance.randint(2, 4)):
        child = os.fork()
        if child == 0:
            try:
                os.close(go)
                _save_some(path, f"{chance.getrandbits(64):x}_{number}", begin, told)
            except BaseException as error:  # noqa: BLE001 - whatever it is, it fails the race
                os.write(told, f"! {type(error).__name__}: {error}\n".encode())
            finally:
                os._exit(0)
        children.append(child)
    for descriptor in (begin, told, go):
        os.close(descriptor)
    if chance.random() < 0.5:
        time.sleep(chance.uniform(0, _LONGEST_SECONDS))
        os.kill(chance.choice(children), signal.SIGKILL)
    with os.fdopen(read) as lines:
        heard = lines.read().splitlines()
    for child in children:
        os.waitpid(child, 0)
    failed = [line for line in heard if line.startswith("!")]
    assert not failed, failed
    lost = (before | {*heard}) - _saved(path)
    assert not lost, f"{len(lost)} of {len(heard)} saves are lost: {sorted(lost)}"


def _saved(path: Path) -> set[str]:
    file = RuleFile.open(path)
    assert not file.rules.problems, file.rules.problems
    return {rule.a[0] for rule in file.rules.of(PairRule)}


def main() -> None:
    """Hold so many races, one after the other over the same file."""
    races, chance = int(sys.argv[1]), random.Random(sys.argv[2])
    with tempfile.TemporaryDirectory(dir=fast_folder()) as folder:
        path = Path(folder, "rules.yaml")
        for number in range(races):
            race(chance, path)
            print(number + 1, flush=True)


if __name__ == "__main__":
    main()
