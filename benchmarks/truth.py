"""Table of the truth suite: is the first cause where the bug was planted?

    python -m benchmarks.truth [--model M] [--form F] [--bug B] [--seed N] [--keep DIR] [--verbose]
    python -m benchmarks.truth --wide [--model SUBJECT] [--seed N] [--keep DIR] [--verbose]

Captures the models of tests/truth with and without each bug in each form, compares each pair as `numtui diff` does, and
prints counts by form and by model. `--keep` reuses the logs of an earlier run, unless the model has changed since, so
that comparing again takes seconds; use another folder when the capture has changed. Needs torch.
`--wide`: the pairs of tests/truth/wide, on a seed of the commit's.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.truth.captures import capture_all
from tests.truth.forms import FORMS, Case, cases
from tests.truth.judge import Found, Outcome, judged_all
from tests.truth.wide.captures import capture_all as capture_runs
from tests.truth.wide.judge import Answer, answers, needed
from tests.truth.wide.subject import chosen

_BUGS = (Outcome.RIGHT, Outcome.HOP, Outcome.WRONG, Outcome.MISSED)


def main(arguments: Sequence[str] | None = None) -> int:
    """Capture, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="extend", nargs="+", default=[])
    parser.add_argument("--form", action="extend", nargs="+", default=[], choices=[form.name for form in FORMS])
    parser.add_argument("--bug", action="extend", nargs="+", default=[], help="names of bugs; none: agreeing pairs")
    parser.add_argument("--seed", type=int, action="extend", nargs="+", default=[])
    parser.add_argument("--keep", type=Path, metavar="DIR", help="folder of logs; those in it are not captured again")
    parser.add_argument("--verbose", action="store_true", help="list the cases that are not right, and why")
    parser.add_argument("--wide", action="store_true", help="the wide suite; --model names its subjects")
    args = parser.parse_args(arguments)
    if args.wide:
        return _wide(args)
    chosen = list(cases(args.model, args.form, args.bug, args.seed or [1]))
    with ExitStack() as stack:
        folder = args.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        start = time.perf_counter()
        capture_all((run for case in chosen for run in case.runs), folder)
        captured = time.perf_counter()
        found = judged_all(chosen, folder)
    took = captured - start, time.perf_counter() - captured
    print(f"{len(found)} cases; {took[0]:.0f} s capturing, {took[1]:.0f} s comparing\n")
    print(_table("form", found, lambda case: case.form.name))
    print(_table("model", found, lambda case: case.model))
    print(_summary(found))
    if without_effect := [one.case.name for one in found if one.case.bug and not one.changed]:
        print("bugs that change no bit:", ", ".join(without_effect))
    if args.verbose:
        for one in found:
            if not one.good or one.further:
                print(_told(one))
    return 0


def _wide(args: argparse.Namespace) -> int:
    """The wide suite; fails where a healthy pair is not healthy, or a bug none."""
    seed = args.seed[0] if args.seed else int(_git_commit()[:6], 16)
    pairs = chosen(args.model, seed)
    with ExitStack() as stack:
        folder = args.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        start = time.perf_counter()
        capture_runs(needed(pairs), folder)
        captured = time.perf_counter()
        found = answers(pairs, folder)
    print(f"seed {seed}: {len(found)} pairs; {captured - start:.0f} s capturing, ", end="")
    print(f"{time.perf_counter() - captured:.0f} s comparing\n")
    for title, key in (("subject", _subject), ("form of b", _form), ("all", lambda _: "")):
        print(_rows(title, found, key))
    print(_by_reason(found))
    for one in found:
        if not one.sound:
            print(f"NO SUCH PAIR {one.case.name}: {one.beyond[0]} values beyond the limit, {one.beyond[1]:.3g} times")
        if args.verbose and (one.outcome not in ("right", "quiet") or one.findings):
            print(f"{one.outcome.upper()} {one.case.name}: {one.found.said}{'; check: ' * bool(one.findings)}", end="")
            print("; ".join(one.findings))
    return int(not all(one.sound for one in found))


def _subject(one: Answer) -> str:
    return one.case.a.subject


def _form(one: Answer) -> str:
    return f"{one.case.b.subject} {one.case.b.form}"


def _git_commit() -> str:
    return subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout


_OF_BUGS = ("right", "one hop off", "wrong", "unknown", "missed")
_OF_HEALTHY = ("quiet", "unknown", "red")


def _rows(title: str, found: Sequence[Answer], key: Callable[[Answer], str]) -> str:
    """Outcomes by a property of the pairs; `place`: module and phase are right."""
    groups: dict[str, list[Answer]] = {}
    for one in found:
        groups.setdefault(key(one), []).append(one)
    rows: list[Sequence[object]] = [(title, "bugs", *_OF_BUGS, "place", "healthy", *_OF_HEALTHY, "check")]
    for name, members in groups.items():
        bugs = [one for one in members if one.case.bug]
        healthy = [one for one in members if not one.case.bug]
        counts = [sum(one.outcome == outcome for one in bugs) for outcome in _OF_BUGS]
        clean = [sum(one.outcome == outcome for one in healthy) for outcome in _OF_HEALTHY]
        placed = sum(one.found.placed for one in bugs)
        alone = sum(bool(one.findings) for one in healthy)
        rows.append((name, len(bugs), *counts, placed, len(healthy), *clean, alone))
    return _aligned(rows)


def _by_reason(found: Sequence[Answer]) -> str:
    """Counts by the reason of the first cause: said, at the line, in the module and phase, on a healthy pair."""
    rows: list[Sequence[object]] = [("reason of the first cause", "said", "right", "place", "false")]
    for reason in sorted({one.found.reason for one in found} - {""}):
        said = [one for one in found if one.found.reason == reason]
        bugs = [one for one in said if one.case.bug]
        right = sum(one.outcome == "right" for one in bugs)
        rows.append((reason, len(said), right, sum(one.found.placed for one in bugs), len(said) - len(bugs)))
    return _aligned(rows)


def _table(title: str, found: Sequence[Found], key: Callable[[Case], str]) -> str:
    """Counts by a property of the cases."""
    head = (title, "bugs", *(outcome.value for outcome in _BUGS), "false causes", ">1", "clean", "not", "false reds")
    rows: list[Sequence[object]] = [head]
    groups: dict[str, list[Found]] = {}
    for one in found:
        groups.setdefault(key(one.case), []).append(one)
    for name, members in [*groups.items(), ("all", list(found))]:
        bugs = [one for one in members if one.case.bug]
        clean = [one for one in members if not one.case.bug]
        rows.append(
            (
                name,
                len(bugs),
                *(sum(one.outcome == outcome for one in bugs) for outcome in _BUGS),
                sum(one.further for one in bugs),
                sum(one.further > 1 for one in bugs),
                len(clean),
                sum(one.outcome == Outcome.RED for one in clean),
                sum(one.red for one in clean),
            )
        )
    return _aligned(rows)


def _aligned(rows: Sequence[Sequence[object]]) -> str:
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
    return "".join(
        "  ".join(str(cell).rjust(width) if i else str(cell).ljust(width) for i, (cell, width) in pairs) + "\n"
        for row in rows
        for pairs in [list(enumerate(zip(row, widths, strict=True)))]
    )


def _summary(found: Sequence[Found]) -> str:
    """The targets: same form all right or one hop off, other forms 95 % right and none missed, agreeing pairs quiet."""
    same = [one for one in found if one.case.bug and one.case.form.name == "same"]
    other = [one for one in found if one.case.bug and one.case.form.name != "same"]
    clean = [one for one in found if not one.case.bug]
    near = sum(one.outcome in (Outcome.RIGHT, Outcome.HOP) for one in same)
    right = sum(one.outcome == Outcome.RIGHT for one in other)
    share = f" ({right / len(other):.1%})" if other else ""
    return (
        f"same form: {near} of {len(same)} right or one hop off; other forms: {right} of {len(other)} right{share}, "
        f"{sum(one.outcome == Outcome.MISSED for one in other)} missed; "
        f"agreeing pairs: {sum(one.outcome == Outcome.QUIET for one in clean)} of {len(clean)} quiet\n"
    )


def _told(one: Found) -> str:
    """A case, what was said, and the truth."""
    case = one.case
    text = f"{one.outcome.value.upper()} {case.name} (seed {case.seed}), {one.further} further: {one.said}\n"
    if case.bug is None:
        return text
    truth = case.bug.parameters or ", ".join(sorted(case.bug.lines))
    return text + f"    truth: {case.bug.module or 'any module'}, {case.bug.phase or 'any phase'}, {truth}\n"


if __name__ == "__main__":
    sys.exit(main())
