"""Reports of replays: text for people, JSON for programs."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, TextIO

from numtui import __version__
from numtui.report.elements import element_lines
from numtui.report.replayed import Case, Replayed, asked_otherwise, certificate, other_inputs, verdict
from numtui.report.text_lines import BOLD, Paint, wrapped
from numtui.text.counts import plural
from numtui.text.safe import safe_text, write_lines

__all__ = ["VERSION", "as_json", "case_json", "write_json", "write_survey", "write_text"]

VERSION: Final = 1
"""Version of the format. New fields keep it; a renamed or removed one changes it."""
_MOST_REASONS: Final = 12


def write_text(weights: Sequence[str], cases: Sequence[Case], out: TextIO, *, color: bool = False) -> None:
    """Write what differs of the weights, and each case: its operation, whose bits each side gives, and the verdict."""
    told = [line for text in weights for line in wrapped(text, "", "    ")]
    write_lines([*told, *([""] if told else []), *_lines(cases, Paint(color))], out)


def _lines(cases: Sequence[Case], paint: Paint) -> Iterator[str]:
    ranks = {side.rank for case in cases for side in case.sides.values()}
    for case in cases:
        one = next(iter(case.sides.values()))
        first = one.call
        keys = dict.fromkeys(safe_text(side.call["key"], 200) for side in case.sides.values())
        yield paint(BOLD, " ⇄ ".join(keys) + (f" on rank {one.rank}" if len(ranks) > 1 else ""))
        yield from wrapped(f"{first['operator']}" + (f"; {case.why}" if case.why else ""), "  ", "    ")
        for side, replayed in case.sides.items():
            distance = replayed.distance(side)
            far = f", {distance[1]:.3g} ε from float64" if distance and math.isfinite(distance[1]) else ""
            yield from wrapped(f"{side}  {certificate(case, side)}{far}", "  ", "     ")
        for told in element_lines(case):
            yield from wrapped(told, "  ", "    ")
        yield from wrapped(verdict(case), "  → ", "    ")
        yield ""


def write_survey(name: str, calls: Sequence[Replayed], missed: int, out: TextIO) -> None:
    """Write how many operations of a bundle replay to the bits of the log, and the reasons of the others."""
    good = sum(call.certified for call in calls)
    rate = f" ({100 * good / len(calls):.1f} %)" if calls else ""
    lines = [f"{name}: {good:,} of {plural(len(calls), 'operation')} replay to the bits of the log{rate}"]
    if missed:
        lines.append(f"  {plural(missed, 'operation')} could not be kept: `missed` in its manifest says why")
    for way, many in Counter(call.together for call in calls if call.together).most_common():
        lines += wrapped(f"{plural(many, 'collective')}: {way}", "  ", "    ")
    reasons = Counter((call.call["operator"], call.odd) for call in calls if not call.certified)
    for (operator, reason), many in reasons.most_common(_MOST_REASONS):
        lines += wrapped(f"{many:,} × {operator}: {reason}", "  ", "    ")
    write_lines(lines, out)


def write_json(weights: Sequence[str], cases: Sequence[Case], out: TextIO) -> None:
    """Write one object, in ASCII."""
    out.write(json.dumps(as_json(weights, cases), indent=1, allow_nan=False) + "\n")


def as_json(weights: Sequence[str], cases: Sequence[Case]) -> dict[str, Any]:
    """Return the same, ready for JSON; an infinite distance is null."""
    head = {"version": VERSION, "numtui": __version__, "weights": list(weights)}
    return head | {"cases": list(map(case_json, cases))}


def case_json(case: Case) -> dict[str, Any]:
    """Return a case, ready for JSON."""
    both = len(case.sides) > 1
    return {
        "why": case.why,
        "verdict": verdict(case),
        "asked_otherwise": asked_otherwise(case) if both else [],
        "other_inputs": other_inputs(case) if both else [],
        "elements": list(element_lines(case)),
        "sides": {side: _side(case, side, replayed) for side, replayed in case.sides.items()},
    }


def _side(case: Case, side: str, replayed: Replayed) -> dict[str, Any]:
    told = {other: replayed.distance(other) for other in case.sides}
    finite = {other: found if found and math.isfinite(found[0]) else None for other, found in told.items()}
    gave = {name: replayed.gave(name) for name in replayed.results}
    return {
        "key": replayed.call["key"],
        "rank": replayed.rank,
        "operator": replayed.call["operator"],
        "certified": replayed.certified,
        "certificate": certificate(case, side),
        "recorded": list(replayed.recorded),
        "gave": {name: list(bits) for name, bits in gave.items() if bits is not None},
        "not_run": {
            name: str(found.get("refused") or found.get("failed"))
            for name, found in replayed.results.items()
            if not found.keys().isdisjoint(("refused", "failed"))
        },
        "from_float64": {
            other: found and {"relative": found[0], "epsilons": found[1]} for other, found in finite.items()
        },
    }
