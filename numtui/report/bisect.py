"""Reports of a bisection: text for people, JSON for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, TextIO

from numtui import __version__
from numtui.experiments.bisection import Blamed, Separate
from numtui.experiments.blamed_lines import Change
from numtui.experiments.environments import Changed
from numtui.experiments.signature import Findings, Signature
from numtui.query.commits import Commit
from numtui.report.text_lines import BOLD, Paint, wrapped
from numtui.text.counts import plural
from numtui.text.safe import safe_text, write_lines

__all__ = ["VERSION", "Bisection", "write_environments", "write_environments_json", "write_json", "write_text"]

VERSION: Final = 1
"""Version of the format. New fields keep it; a renamed or removed one changes it."""
_SHORT: Final = 12
_MOST: Final = 12
_DIFF = "    "


@dataclass(frozen=True, slots=True)
class Bisection:
    """Outcome of bisecting.

    Attributes:
        commits: by hash, every commit that is named.
        good, bad: hashes.
        between: number of commits that the bad revision has and the good one has not.
        command: what was captured.
        runs: number of runs, those of a resumed bisection included.
        tested: by hash, what each other commit showed, in the order of the runs.
        causes: those of the bad revision.
        changes: of the commit of each of them, what touches its lines.
        separate: causes that other commits show.
    """

    commits: Mapping[str, Commit]
    good: str
    bad: str
    between: int
    command: Sequence[str]
    runs: int
    tested: Mapping[str, Findings]
    causes: Sequence[Blamed]
    changes: Sequence[Sequence[Change]]
    separate: Sequence[Separate]

    @property
    def result(self) -> str:
        """The outcome in a sentence."""
        made = f"{plural(self.runs, 'run')} for {plural(self.between, 'commit')}"
        if not self.causes:
            return f"Nothing differs between {self.good[:_SHORT]} and {self.bad[:_SHORT]}; {made}"
        found = sum(len(each.commits) == 1 for each in self.causes)
        many = plural(len(self.causes), "cause")
        return f"{many}, the commit found of {'it' if found == len(self.causes) == 1 else f'{found:,}'}; {made}"

    @property
    def skipped(self) -> dict[str, str]:
        """By hash, why a commit tells nothing."""
        return {commit: found.trouble for commit, found in self.tested.items() if found.trouble}


def write_text(found: Bisection, out: TextIO, *, color: bool = False) -> None:
    """Write the outcome, each cause with its commit, and what else was seen on the way."""
    write_lines(_lines(found, Paint(color)), out)


def _lines(found: Bisection, paint: Paint) -> Iterator[str]:
    yield paint(BOLD, found.result)
    if found.causes:
        yield f"a is the good revision, {_named(found, found.good)}; b the one that is named"
    for blamed, changes in zip(found.causes, found.changes, strict=True):
        yield ""
        yield from _cause(found, blamed, changes, paint)
    if found.separate:
        yield ""
        yield paint(BOLD, "Separate changes, which the bad revision does not show")
        for each in found.separate[:_MOST]:
            yield from wrapped(f"{_named(found, each.commit)} has {_described(each.cause)}", "  ", "    ")
    if skipped := found.skipped:
        yield ""
        yield paint(BOLD, f"Skipped: {plural(len(skipped), 'commit')}")
        for commit, why in [*skipped.items()][:_MOST]:
            yield from wrapped(f"{_named(found, commit)}: {safe_text(why, 300)}", "  ", "    ")


def _cause(found: Bisection, blamed: Blamed, changes: Sequence[Change], paint: Paint) -> Iterator[str]:
    yield paint(BOLD, safe_text(blamed.cause.key, 200))
    yield from wrapped(_described(blamed.cause), "  ", "    ")
    if blamed.trouble:
        yield from wrapped(f"no commit found: {safe_text(blamed.trouble, 400)}", "  → ", "    ")
    if len(blamed.commits) > 1:
        yield f"  → one of {plural(len(blamed.commits), 'commit')}; those between tell nothing of it"
        yield from (f"    {_named(found, commit)}" for commit in blamed.commits[:_MOST])
    if len(blamed.commits) == 1:
        commit = found.commits[blamed.commits[0]]
        yield f"  → since {commit.revision[:_SHORT]}  {commit.day}  {safe_text(commit.author, 80)}"
        yield from wrapped(safe_text(commit.subject, 200), "    ", "    ")
        for change in changes:
            yield f"    {safe_text(change.path, 200)}: {change.what}"
            yield from (f"      {safe_text(line, 200)}" for line in change.diff.split("\n"))
            if change.again:
                yield "    it may come and go: these lines changed again in"
                yield from (f"      {_named(found, commit)}" for commit in change.again[:_MOST])
        if not changes:
            yield "    it changes no line of this operation, nor on its data path"
        if blamed.seen is not None and blamed.seen.sentence != blamed.cause.sentence:
            yield from wrapped(f"there: {_sentence(blamed.seen)}", "    ", "      ")
    yield from wrapped(f"in {found.bad[:_SHORT]}: {_sentence(blamed.cause)}", "    ", "      ")
    if blamed.gone:
        having, without = (_named(found, commit) for commit in blamed.gone)
        yield from wrapped(f"it comes and goes: {having} has it, {without} after it has not", "    ", "      ")


def _described(cause: Signature) -> str:
    error = f" by {cause.told}" if cause.told else ""
    place = f", {safe_text(cause.places[0], 200)}" if cause.places else ""
    return f"{safe_text(cause.operation, 80)}: {cause.kind}{error}, {cause.phase}{place}"


def _sentence(cause: Signature) -> str:
    return safe_text(cause.sentence, 600)


def _named(found: Bisection, commit: str) -> str:
    return f"{commit[:_SHORT]} {safe_text(found.commits[commit].subject, 100)}"


def write_json(found: Bisection, out: TextIO) -> None:
    """Write one object, in ASCII."""
    told = {
        "version": VERSION,
        "numtui": __version__,
        "result": found.result,
        "good": _commit(found, found.good),
        "bad": _commit(found, found.bad),
        "between": found.between,
        "command": list(found.command),
        "runs": found.runs,
        "causes": [
            {
                **_json(each.cause),
                "commits": [_commit(found, commit) for commit in each.commits],
                "trouble": each.trouble,
                "in_commit": None if each.seen is None else _json(each.seen),
                "changes": [asdict(change) for change in changes],
                "gone": dict(zip(("with", "without"), each.gone, strict=False)) or None,
            }
            for each, changes in zip(found.causes, found.changes, strict=True)
        ],
        "separate": [{"commit": _commit(found, each.commit), "cause": _json(each.cause)} for each in found.separate],
        "tested": [
            {"commit": commit, "trouble": each.trouble, "causes": [cause.key for cause in each.causes]}
            for commit, each in found.tested.items()
        ],
    }
    out.write(json.dumps(told, indent=1, allow_nan=False) + "\n")


def _commit(found: Bisection, commit: str) -> dict[str, Any]:
    told = found.commits[commit]
    return {"commit": told.revision, "date": told.day, "author": told.author, "subject": told.subject}


def _json(cause: Signature) -> dict[str, Any]:
    return {
        "key": cause.key,
        "operation": cause.operation,
        "module": cause.module,
        "template": cause.template,
        "phase": cause.phase,
        "kind": cause.kind,
        "asked_otherwise": cause.asked,
        "magnitude": None if math.isnan(cause.magnitude) else round(cause.magnitude),
        "error": cause.told,
        "sentence": cause.sentence,
        "places": list(cause.places),
    }


def write_environments(found: Sequence[Changed], pythons: Sequence[str], made: int, out: TextIO) -> None:
    """Write since which environment each operation gives other bits."""
    write_lines(_environment_lines(found, pythons, made), out)


def _environment_lines(found: Sequence[Changed], pythons: Sequence[str], made: int) -> Iterator[str]:
    changed, unknown = [each for each in found if each.since], [each for each in found if each.trouble]
    tried = f"{made:,} of {plural(len(pythons), 'environment')} tried"
    yield f"{len(changed):,} of {plural(len(found), 'operation')} give other bits; {tried}"
    for each in changed[:_MOST]:
        yield ""
        yield safe_text(f"{each.key}: {each.operator}", 300)
        yield safe_text(f"  → since {each.since}; {each.before} gives the bits of the first", 600)
        if not each.recorded:
            yield "    the first gives other bits than the log: another machine or version than captured it"
        for python, why in (each.skipped or {}).items():
            yield from wrapped(safe_text(f"skipped {python}: {why}", 400), "    ", "      ")
    if (more := len(changed) - _MOST) > 0:
        yield f"and {plural(more, 'more operation')}: --format json"
    for each in unknown[:_MOST]:
        yield ""
        yield from wrapped(safe_text(f"{each.key}: not known: {each.trouble}", 400), "", "    ")


def write_environments_json(found: Sequence[Changed], pythons: Sequence[str], made: int, out: TextIO) -> None:
    """Write one object, in ASCII."""
    head = {"version": VERSION, "numtui": __version__, "environments": list(pythons), "runs": made}
    out.write(json.dumps(head | {"operations": [asdict(each) for each in found]}, indent=1) + "\n")
