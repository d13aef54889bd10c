"""Summarise the comparison of one rank, and tell equal ranks by the footers of their logs."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from matchers.arrays import one_of
from matchers.causes.consequences import Cause
from matchers.comparison import Comparison
from matchers.coverage.cover import Cover
from matchers.errors import LogError
from matchers.explain.first_difference import first_difference_note, first_difference_reasons
from matchers.explain.sentences import headline
from matchers.logs.head import read_ends, read_head
from matchers.logs.op_log import Phase
from matchers.ops.run_info import Severity, start_of
from matchers.ops.start import known_digests
from matchers.runs.diff.exchange import Exchanges, Given, channel_of
from matchers.runs.diff.summary import Cell, Event, Outcome, RankSummary, Sent, place_of
from matchers.status import Role, Status

__all__ = ["absent", "equal_by_footers", "summary_of"]

_MAX_EVENTS = 12
_MAX_SENT = 400
_MAX_CELLS = 300
_MAX_CHANNELS = 100
_MAX_TEXT = 300
_MAX_NAME = 160
_MAX_NOTES = 10
_MAX_FAILURES = 40
_MAX_MESH = 8
_STATE = ("parameters_digest", "parameter_digests", "buffer_digests", "batch_digest", "batch", "end_state")
"""Entries of the run info on what the step starts from and ends with, which records need not show."""


def equal_by_footers(rank: int, path_a: str, path_b: str) -> RankSummary | None:
    """Summarise a rank whose logs have the same records by their footers; None where they must be read.

    Two logs of an older form, without a digest of their text, are equal if all digests of results are, and so are the
    sizes, the state before the step and that after it.
    """
    ends = read_ends(path_a), read_ends(path_b)
    a, b = ends
    if a is None or b is None or a.footer is None or a.footer != b.footer or not a.footer.records or a.size != b.size:
        return None
    infos = a.header.run, b.header.run
    if any(info.get("incomplete") for info in infos) or any(
        infos[0].get(name) != infos[1].get(name) for name in _STATE
    ):
        return None
    if not a.footer.content and not (a.footer.digest and infos[0].get("end_state")):
        return None
    return RankSummary(
        rank=rank,
        outcome=Outcome.EQUAL,
        paths=(path_a, path_b),
        records=(a.footer.records, b.footer.records),
        rows=a.footer.records,
        compared=a.footer.records,
        counts={Status.EQUAL.label: a.footer.records},
        **_about(*infos),
    )


def absent(rank: int, path_a: str, path_b: str, why: str) -> RankSummary:
    """Summarise a rank of which one run has no log; the path of none is empty."""
    infos = [_run_info(path) if path else {} for path in (path_a, path_b)]
    return RankSummary(rank=rank, outcome=Outcome.ABSENT, why=why, paths=(path_a, path_b), **_about(*infos))


def _run_info(path: str) -> dict[str, Any]:
    try:
        return read_head(path).run
    except (OSError, LogError):
        return {}


def summary_of(
    c: Comparison,
    rank: int,
    paths: tuple[str, str],
    *,
    failures: Iterable[tuple[str, str]] = (),
    troubles: Iterable[str] = (),
) -> RankSummary:
    """Summarise a comparison; the texts are given by who judges it as a whole (`RankSummary`)."""
    exchanges = Exchanges.of(c, rank)
    followed = sorted(c.consequences.causes, key=lambda cause: cause.rows[0])[:_MAX_EVENTS]
    difference = _difference(c, exchanges)
    causes = tuple(_cause(c, exchanges, cause, difference) for cause in followed)
    return RankSummary(
        rank=rank,
        outcome=Outcome.COMPARED,
        paths=paths,
        records=(len(c.a), len(c.b)),
        rows=len(c),
        red=int(np.count_nonzero(c.red)),
        compared=c.coverage.larger.compared + c.coverage.larger.covered,
        counts={status.label: n for status, n in c.counts.items() if n},
        causes=causes,
        cause_count=len(c.consequences.starts),
        difference=difference,
        channels=exchanges.channels[:_MAX_CHANNELS],
        sent=_sent(exchanges, Given.RED, _Follows(c, followed, causes)),
        sent_difference=_sent(exchanges, Given.DIFFERENT, _After(c, difference)),
        cells=tuple(_cells(c))[:_MAX_CELLS],
        failures=tuple((condition, text[:_MAX_TEXT]) for condition, text in failures)[:_MAX_FAILURES],
        troubles=tuple(text[:_MAX_TEXT] for text in troubles)[:_MAX_NOTES],
        notes=tuple(_notes(c))[:_MAX_NOTES],
        **_about(c.a.header.run, c.b.header.run),
    )


def _notes(c: Comparison) -> Iterator[tuple[str, str]]:
    """Facts that weaken the comparison, or explain it."""
    if c.coverage.parts:
        yield "coverage", c.coverage.sentence[:_MAX_TEXT]
    for note in c.comparability.notes:
        if note.severity > Severity.HARMLESS and note.kind != "incomplete":
            yield note.kind, note.text[:_MAX_TEXT]


def _about(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    """Facts about the rank from the run infos."""
    host = next((info["host"] for info in (a, b) if isinstance(info.get("host"), str)), "")
    return {
        "host": host[:_MAX_NAME],
        "coordinates": _numbers(a.get("mesh_coordinates")) or _numbers(b.get("mesh_coordinates")),
        "mesh": _numbers(a.get("mesh")) or _numbers(b.get("mesh")),
        "world_size": (_number(a.get("world_size")), _number(b.get("world_size"))),
        "step": (_number(a.get("step")), _number(b.get("step"))),
        "start": _start(a, b),
    }


def _start(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[str, str]:
    start = start_of(a, b)
    differ = next((of.text for of in (start.parameters, start.buffers) if of is not None), "")
    names = "\n".join(sorted(known_digests(a, "parameter_digests")))
    return differ[:_MAX_TEXT], f"{zlib.crc32(names.encode(errors='replace')):08x}" if start.told else ""


def _number(value: object) -> int | None:
    return value if type(value) is int else None


def _numbers(value: object) -> dict[str, int]:
    items = value.items() if isinstance(value, dict) else ()
    return {
        str(name)[:_MAX_NAME]: n for name, n in items if type(n) is int and abs(n) < 1 << 32 and len(items) <= _MAX_MESH
    }


def _cause(c: Comparison, exchanges: Exchanges, cause: Cause, difference: Event | None) -> Event:
    row = cause.rows[0]
    guessed = c.role[row] == Role.UNKNOWN
    if guessed and difference is not None and c.red[difference.row] and difference.row < row:
        # something uncaptured upstream is suspected, and the red rows begin before
        return replace(difference, red=cause.red)
    return _event(c, exchanges, row, headline(c, row), cause.red)


def _difference(c: Comparison, exchanges: Exchanges) -> Event | None:
    found = c.first_difference
    if found is None:
        return None
    text = "; ".join((first_difference_note(c), *first_difference_reasons(c)[:1]))
    return _event(c, exchanges, found.row, text, 0)


def _event(c: Comparison, exchanges: Exchanges, row: int, text: str, red: int) -> Event:
    i, j = int(c.row_a[row]), int(c.row_b[row])
    log, record = (c.a, i) if i >= 0 else (c.b, j)
    place = _record_of_a(c, row)
    return Event(
        row=row,
        record=place,
        key=log.keys[record][:_MAX_NAME],
        module=log.module_name(record)[:_MAX_NAME],
        op=log.op_name(record)[:_MAX_NAME],
        phase=Phase(log.phase[record]).label,
        location=log.location_text(record)[:_MAX_NAME],
        status=Status(c.status[row]).label,
        error=float(c.error[row]),
        line_a=int(c.a.line[i]) if i >= 0 else 0,
        line_b=int(c.b.line[j]) if j >= 0 else 0,
        text=text[:_MAX_TEXT],
        red=red,
        received=exchanges.behind(row),
        before=exchanges.before(place),
    )


def _record_of_a(c: Comparison, row: int) -> int:
    """The record of a in a row, or in the last row before it that has one."""
    before = c.row_a[: row + 1]
    return int(before[before >= 0][-1]) if (before >= 0).any() else 0


class _Follows:
    """The cause that a call's red input follows from."""

    def __init__(self, c: Comparison, followed: Sequence[Cause], events: Sequence[Event]) -> None:
        self._c = c
        self._row = [event.row for event in events]
        number = {cause.rows: k for k, cause in enumerate(c.consequences.causes)}
        self._of = {number[cause.rows]: k for k, cause in enumerate(followed)}

    def __call__(self, record: int) -> int:
        """Index of the event; -1 for none."""
        c = self._c
        row = int(c.at_a[record])
        makers = c.flow.a[record] if c.flow is not None else ()
        for at in (row, *(int(c.at_a[maker]) for maker in makers if maker >= 0)):
            found = self._of.get(int(c.consequences.cause_of[at]))
            if found is not None and self._row[found] <= row:
                return found
        # the producers of the input are not known: the last cause before the call
        return max((k for k, start in enumerate(self._row) if start <= row), default=-1)


class _After:
    """All differences follow from the first one."""

    def __init__(self, c: Comparison, difference: Event | None) -> None:
        self._c = c
        self._difference = difference

    def __call__(self, record: int) -> int:
        found = self._difference
        return 0 if found is not None and found.row <= self._c.at_a[record] else -1


def _sent(exchanges: Exchanges, least: Given, event_of: _Follows | _After) -> tuple[Sent, ...]:
    """The calls whose input differs, in ranges."""
    calls = []
    for record, given in exchanges.given.items():
        if given >= least and (event := event_of(record)) >= 0:
            call = exchanges.calls[record]
            calls.append((channel_of(call, sends=True), event, call.nth))
    ranges: list[Sent] = []
    for channel, event, nth in sorted(set(calls)):
        last = ranges[-1] if ranges else None
        if last is not None and (last.channel, last.event, last.last + 1) == (channel, event, nth):
            ranges[-1] = Sent(channel, last.first, nth, event)
        else:
            ranges.append(Sent(channel, nth, nth, event))
    return tuple(sorted(ranges, key=lambda sent: sent.first)[:_MAX_SENT])


def _cells(c: Comparison) -> Iterator[Cell]:
    """The step in order: stretches of one phase and one place, joined where they come back.

    What one run alone has counts only where nothing vouches for it: else the other has it in another form.
    """
    explained = one_of(c.status, (Status.ONLY_A, Status.ONLY_B)) & ~c.cause & (c.coverage.cover != Cover.UNCOVERED)
    status = np.where(explained, np.int8(Status.SAME_PRINT), c.status)
    code = np.full(len(c), -1, np.int64)
    stretches: dict[tuple[int, str], int] = {}
    for log, record in ((c.b, c.row_b), (c.a, c.row_a)):  # a last: its record takes precedence
        rows = np.flatnonzero(record >= 0)
        places = [place_of(name)[:_MAX_NAME] for name in (*log.modules, "")]
        phase, module = log.phase[record[rows]], log.module[record[rows]]
        code[rows] = [
            stretches.setdefault((p, places[m]), len(stretches))
            for p, m in zip(phase.tolist(), module.tolist(), strict=True)
        ]
    found, first = np.unique(code, return_index=True)
    names = list(stretches)
    for k in found[np.argsort(first)].tolist():
        rows = np.flatnonzero(code == k)
        worst = rows[int(status[rows].argmax())]
        phase, place = names[k]
        red = int(np.count_nonzero(c.red[rows]))
        yield Cell(Phase(phase).label, place, Status(status[worst]).label, red, _record_of_a(c, int(worst)))
