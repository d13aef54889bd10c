"""Kept operations of a comparison: which rows have them, replays of these, and their results beside the logs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from capture.keeping.bundle import BundleError, read_bundle
from capture.keeping.form import RESULT, bundle_folder
from capture.keeping.replay import Kept, Running, Variant, replayed, variants
from matchers.comparison import Comparison
from matchers.errors import InputError
from matchers.files.atomic_write import atomic_writer
from matchers.logs.op_log import OpLog
from matchers.logs.parser import read_log
from matchers.logs.raw_record import MEMBERS
from numtui.paths import small_text
from numtui.report.collectives import from_parts
from numtui.report.replay import as_json, case_json
from numtui.report.replayed import Case, Replayed

__all__ = ["KEPT", "REPLAYED", "KeptOperations", "read_result", "replay_result", "replayed_cases", "store_case",
    "store_cases"]  # fmt: skip

_MOST_LINES: Final = 6
KEPT, REPLAYED = "◇", "◆"
"""Signs of rows."""


class KeptOperations:
    """The operations kept beside the logs of a comparison. Making it reads the bundles.

    Attributes:
        trouble: why a bundle cannot be read; empty if there is none, or it can.
    """

    def __init__(self, c: Comparison) -> None:
        self.trouble = ""
        self._logs = (c.a,) if c.single else (c.a, c.b)
        self._calls = [self._of_ranks(log) if log.members else self._of_log(log) for log in self._logs]
        self.read_results()

    def _of_log(self, log: OpLog) -> dict[int, tuple[Kept, ...]]:
        """Return the kept call of each record."""
        found = self._read(log.path)
        return {
            k: (found[key],)
            for k, key in enumerate(log.keys if found else ())
            if key in found and _is_of(key, _recorded(found[key].call), log, k)
        }

    def _of_ranks(self, log: OpLog) -> dict[int, tuple[Kept, ...]]:
        """Return the kept calls of the ranks that each record of merged logs stands for, where all have kept it."""
        at: dict[str, Kept] = {}
        for rank, path in log.members.items():
            if found := self._read(path):
                own = read_log(path)
                at |= {f"{rank}:{own.line[k]}": found[key] for k, key in enumerate(own.keys) if key in found}
        told = {row: text.split() for row, text in log.texts(MEMBERS).items()} if at else {}
        return {row: tuple(at[one] for one in of) for row, of in told.items() if of and all(one in at for one in of)}

    def _read(self, log: str) -> dict[str, Kept]:
        folder = bundle_folder(Path(log))
        if not folder.is_dir():
            return {}
        try:
            return {call["key"]: Kept(folder, call) for call in read_bundle(folder).calls}
        except BundleError as error:
            self.trouble = str(error)
            return {}

    def read_results(self) -> None:
        """Read again what replays have shown."""
        self._cases = list(_cases(self._logs)) if self.any else []

    @property
    def any(self) -> bool:
        """True if anything was kept."""
        return any(self._calls)

    def sides(self, c: Comparison, row: int) -> dict[str, tuple[Kept, ...]]:
        """Return the kept calls of a row, by side, of merged ranks those of each; none where nothing was kept."""
        found = zip("ab", self._calls, (c.row_a, c.row_b), strict=False)
        return {side: kept for side, calls, of in found if (kept := calls.get(int(of[row]), ()))}

    def shown(self, c: Comparison, row: int) -> list[str]:
        """Return what a replay of a row's calls has shown; empty without one."""
        return _told(self._cases, c, row) if self._cases else []

    def sign(self, c: Comparison, row: int) -> str:
        """Return the sign of a row: replayed, kept, neither."""
        kept = self.any and bool(self.sides(c, row))
        return " " if not kept else REPLAYED if self.shown(c, row) else KEPT

    def replay(self, sides: Mapping[str, Kept], python: str, running: Running) -> Case:
        """Run a row's kept calls again, and leave the result in the first bundle that has one.

        Raises:
            ReplayError: it cannot be run, or was cancelled.
            OSError: the result cannot be written.
        """
        (case,) = replayed_cases([("", "", sides)], python=python, running=running)
        store_case(next(iter(sides.values())).folder, case)
        return case


def replay_result(c: Comparison, row: int) -> Iterator[str]:
    """Yield what the replay of a row's operation has shown, if it was of the operations that these logs record."""
    if not any(log.members for log in (c.a, c.b)):
        yield from _told(_cases((c.a,) if c.single else (c.a, c.b)), c, row)


def _cases(logs: Sequence[OpLog]) -> Iterator[dict[str, Any]]:
    """Yield the cases of the results beside logs; of b's alone those that name it so."""
    for side, log in zip("ab", logs, strict=False):
        if not log.members:
            cases = read_result(bundle_folder(Path(log.path)))
            yield from (case for case in cases if side == "a" or side in case["sides"])


def _told(cases: Iterable[Mapping[str, Any]], c: Comparison, row: int) -> list[str]:
    records = {"a": (c.a, int(c.row_a[row]))} | ({} if c.single else {"b": (c.b, int(c.row_b[row]))})
    for case in cases:
        sides = case["sides"]
        known = bool(sides) and sides.keys() <= records.keys()
        if known and all(_is_of(one.get("key"), one.get("recorded"), *records[side]) for side, one in sides.items()):
            told = [case.get("verdict"), *(case.get("elements") or ())]
            return [text for text in told[:_MOST_LINES] if isinstance(text, str)]
    return []


def _recorded(call: Mapping[str, Any]) -> list[str]:
    return [*call["digests"]["returned"], *call["digests"]["left"]]


def _is_of(key: object, recorded: object, log: OpLog, record: int) -> bool:
    """Return True if a call is a record of a log: by its key, and by the digests of what it returned."""
    if record < 0 or key != log.keys[record] or not isinstance(recorded, list):
        return False
    digests = [f"{digest:016x}" for digest in log.digests[record].tolist()]
    return all(x in (y, "-") for x, y in zip(recorded, digests, strict=False))


def _name(sides: Mapping[str, Mapping[str, Any]]) -> list[tuple[object, ...]]:
    """Return what names a case: side, key and digests of each side."""
    return [(name, side.get("key"), side.get("recorded")) for name, side in sides.items()]


def replayed_cases(
    pairs: Sequence[tuple[str, str, Mapping[str, Kept]]],
    *,
    ways: Sequence[Variant] = (),
    imports: Sequence[str] = (),
    python: str,
    running: Running | None = None,
) -> list[Case]:
    """Run kept calls again.

    Args:
        pairs: reason, run that has no such operation, and calls by side.
        ways: how; all that may give other bits by default.

    Raises:
        ReplayError: as `capture.keeping.replay.replayed`.
    """
    calls = [(sides, one) for _, _, sides in pairs for one in sides.values()]
    run = [(sides, one) for sides, one in calls if "group" not in one.call]
    kept, against = [one for _, one in run], [sides for sides, _ in run]
    ways = ways or variants([each.call for each in kept])
    options: Any = {"imports": imports, "python": python, "running": running}
    found = replayed(kept, ways, against=against, **options) if kept else []
    names = [way.name for way in ways]
    results = [dict(zip(names, of_call, strict=True)) for of_call in zip(*found, strict=True)]
    came = {id(one): result for one, result in zip(kept, results, strict=True)}
    came |= {id(one): from_parts(one) for _, one in calls if "group" in one.call}
    return [
        Case(why, {side: Replayed(one.call, came[id(one)], one.folder) for side, one in sides.items()}, lacks)
        for why, lacks, sides in pairs
    ]


def read_result(folder: Path) -> list[dict[str, Any]]:
    """Return the cases of the result in a bundle; none where there is none that can be read."""
    try:
        told = json.loads(small_text(folder / RESULT, "result"))
    except (OSError, ValueError, RecursionError, InputError):
        return []
    cases = told.get("cases") if isinstance(told, dict) else None
    return [case for case in cases if _is_case(case)] if isinstance(cases, list) else []


def _is_case(case: Any) -> bool:
    sides = case.get("sides") if isinstance(case, dict) else None
    return isinstance(sides, dict) and all(isinstance(side, dict) for side in sides.values())


def store_cases(folder: Path, weights: Sequence[str], cases: Sequence[Case]) -> None:
    """Write the result of a replay into the bundle of the first run.

    Raises:
        OSError: it cannot be written.
    """
    _write(folder, as_json(weights, cases))


def store_case(folder: Path, case: Case) -> None:
    """Put a case first in the result of a bundle, in place of an earlier one of the same operation.

    Raises:
        OSError: it cannot be written.
    """
    told = case_json(case)
    others = [each for each in read_result(folder) if _name(each["sides"]) != _name(told["sides"])]
    _write(folder, as_json((), ()) | {"cases": [told, *others]})


def _write(folder: Path, told: Mapping[str, Any]) -> None:
    with atomic_writer(folder / RESULT, mode=0o600) as out:
        out.write(json.dumps(told, indent=1, allow_nan=False) + "\n")
