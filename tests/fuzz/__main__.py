"""The campaign: `make fuzz SECONDS=600 SEED=1`; every kind gets its share of the time, and the counts add up over runs.

What fails is printed with all that is needed to make it a seed (`tests/fuzz/seeds.py`); the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from matchers.files.atomic_write import atomic_write
from tests.fuzz.folders import fast_folder
from tests.fuzz.full_disks import NOT_PERMITTED
from tests.fuzz.imported import check_imported, damaged_files
from tests.fuzz.logs import check_damage, log_pairs
from tests.fuzz.ranks import check_folder, folder_pairs
from tests.fuzz.rule_files import CHANGES, check_saves, files
from tests.fuzz.storms import storm
from tests.fuzz.user_files import check_read, user_files
from tests.ignored_signals import hear_again
from tests.pty.test_signals import Work

_CHUNK = 500
"""Random examples between two looks at the clock, or until the first failure, which is made small."""

Campaign = Callable[[int, float, Path], Iterator[tuple[int, str]]]
"""Given a seed, the end in monotonic seconds, and a folder: yields how many tries were made and what failed, if any."""


def _examples(strategy: st.SearchStrategy[Any], check: Callable[[Path, Any], int]) -> Campaign:
    def campaign(seed: int, end: float, folder: Path) -> Iterator[tuple[int, str]]:
        chance = random.Random(seed)
        while time.monotonic() < end:
            tried, failed = 0, False

            @seeded(chance.getrandbits(64))
            @settings(
                max_examples=_CHUNK,
                database=None,
                deadline=None,
                report_multiple_bugs=False,
                phases=[Phase.generate, Phase.shrink],
                suppress_health_check=list(HealthCheck),
            )
            @given(strategy)
            def attempt(example: Any) -> None:
                nonlocal tried, failed
                if not failed and time.monotonic() > end:
                    return
                try:
                    done = check(folder, example)
                except Exception:
                    failed = True
                    raise
                tried += 0 if failed else done

            try:
                attempt()
            except Exception:  # noqa: BLE001 - whatever it is, it is told, and the campaign goes on
                yield tried + 1, traceback.format_exc()
            else:
                yield tried, ""

    return campaign


def _once(check: Callable[..., None]) -> Callable[[Path, Any], int]:
    def tried(_: Path, example: Any) -> int:
        check(*example)
        return 1

    return tried


def _read(folder: Path, example: tuple[str, bytes]) -> int:
    kind, data = example
    own = Path(tempfile.mkdtemp(dir=folder))
    try:
        check_read(own, kind, data)
    finally:
        shutil.rmtree(own)
    return 1


def _storms(seed: int, end: float, folder: Path) -> Iterator[tuple[int, str]]:
    chance = random.Random(seed)
    while time.monotonic() < end:
        number = chance.getrandbits(32)
        own = Path(tempfile.mkdtemp(dir=folder))
        for name in ("STATE", "CONFIG", "CACHE"):
            os.environ[f"XDG_{name}_HOME"] = str(own / name)
        try:
            storm(number, Work(own))
        except (AssertionError, OSError) as error:
            told = f"{type(error).__name__}: {error}"
            crashes = "".join(path.read_text(encoding="utf-8") for path in own.rglob("crash-*"))
            yield 1, f"storm {number}: {told[:300]} … {told[300:][-3000:]}\n{crashes}"
        else:
            yield 1, ""
        shutil.rmtree(own)


def _program(module: str, *before: str) -> Campaign:
    """A module that is run by itself and prints how many tries it has made."""

    def campaign(seed: int, end: float, folder: Path) -> Iterator[tuple[int, str]]:
        command = [*before, sys.executable, "-m", module, "1000000", str(seed)]
        if before and shutil.which(before[0]) is None:
            print(f"{module}: not tried, as {before[0]} is not installed")
            return
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            assert process.stdout is not None
            text = ""
            for line in process.stdout:
                if line.strip().isdigit():
                    yield 1, ""
                else:
                    text += line
                if time.monotonic() > end:
                    process.terminate()
                    break
            else:
                process.wait()
                refused = process.returncode == NOT_PERMITTED or "unshare failed" in text
                if refused:
                    print(text.strip() or f"{module}: not permitted here")
                else:
                    yield 1, f"{' '.join(command)}\n{text}"

    return campaign


CAMPAIGNS: Mapping[str, tuple[float, Campaign]] = {
    "log pairs": (0.4, _examples(log_pairs, _once(check_damage))),
    "logs of other tools": (0.1, _examples(damaged_files(), check_imported)),
    "ranks": (0.05, _examples(folder_pairs, check_folder)),
    "rule-file edit-saves": (
        0.2,
        _examples(st.tuples(files(), CHANGES), lambda folder, one: check_saves(folder / "rules.yaml", *one)),
    ),
    "user files": (0.05, _examples(user_files(), _read)),
    "kills while saving": (0.05, _program("tests.fuzz.kills")),
    "races of saves": (0.02, _program("tests.fuzz.races")),
    "libraries": (0.02, _program("tests.fuzz.libraries")),
    "memory": (0.1, _program("tests.fuzz.memory")),
    "full disks": (0.03, _program("tests.fuzz.full_disks", "unshare", "--mount")),
    "terminal storms": (0.2, _storms),
}
"""The share of the time of each, and how it is done."""


def _default_tally() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache, "numtui", "fuzz.json")


def _known(path: Path) -> dict[str, dict[str, int]]:
    with suppress(FileNotFoundError, ValueError):
        found: dict[str, dict[str, int]] = json.loads(path.read_text(encoding="utf-8"))
        return found
    return {}


def _run(name: str, seed: int, seconds: float) -> tuple[int, int]:
    """Tries and failures of one campaign; failures are printed."""
    tried = failures = 0
    with tempfile.TemporaryDirectory(dir=fast_folder()) as folder:
        for more, failure in CAMPAIGNS[name][1](seed, time.monotonic() + seconds, Path(folder)):
            tried += more
            if failure:
                failures += 1
                print(f"--- {name}\n{failure}", flush=True)
    return tried, failures


def main() -> int:
    """Run the campaigns, add their counts to those of earlier runs, and print a table of both."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--seconds", type=float, default=600.0, help="time for all campaigns together")
    parser.add_argument("--seed", type=int, help="of everything that is random; printed where none is given")
    parser.add_argument("--only", action="append", choices=list(CAMPAIGNS), help="only this campaign; may be repeated")
    parser.add_argument("--tally", type=Path, default=_default_tally(), help="where the counts add up (%(default)s)")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    names = options.only or list(CAMPAIGNS)
    print(f"seed {seed}, counts in {options.tally}", flush=True)
    hear_again()
    # The user's own state and settings are neither read nor written.
    whole = sum(CAMPAIGNS[name][0] for name in names)
    found = {}
    with tempfile.TemporaryDirectory() as home:
        os.environ.update({f"XDG_{name}_HOME": os.path.join(home, name) for name in ("STATE", "CONFIG", "CACHE")})
        for name in names:
            found[name] = _run(name, seed, options.seconds * CAMPAIGNS[name][0] / whole)
    tally = _known(options.tally)
    for name, (tried, failures) in found.items():
        one = tally.setdefault(name, {"tried": 0, "failures": 0})
        one["tried"] += tried
        one["failures"] += failures
    options.tally.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(options.tally, json.dumps(tally, indent=1).encode())
    print(f"{'':<22}{'this run':>10}{'failures':>10}{'all runs':>12}{'failures':>10}")
    for name, one in tally.items():
        tried, failures = found.get(name, (0, 0))
        print(f"{name:<22}{tried:>10,}{failures:>10,}{one['tried']:>12,}{one['failures']:>10,}")
    return int(any(failures for _, failures in found.values()))


if __name__ == "__main__":
    sys.exit(main())
