"""Words for the comparison of two runs, shared by the reports and the screen; names of logs are made safe in them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from matchers.runs.diff.classes import Kind, RankClass, common_place
from matchers.runs.diff.comparison import RunComparison
from matchers.runs.diff.origins import Origin, Reached
from matchers.runs.diff.summary import Event, Outcome, Received
from numtui.report.evidence_basis import broken_entries
from numtui.report.gate import NOT_COMPARED
from numtui.text.counts import plural
from numtui.text.ranks import ranks_words
from numtui.text.safe import safe_text

__all__ = [
    "began",
    "by_words",
    "class_ranks",
    "class_state",
    "class_words",
    "event_lines",
    "event_place",
    "notes",
    "order_words",
    "reached_words",
    "reasons",
    "result",
    "runs_words",
    "short_name",
]

_MAX_NAME = 100
_MAX_SENTENCE = 300
_CHANNEL_RANGE = re.compile(r"(\d{1,7})(?:-(\d{1,7})(?::(\d{1,7}))?)?", re.ASCII)


def runs_words(c: RunComparison) -> str:
    """Return the runs and their extent: `good <-> bad: 64 ranks, step 2, mesh dp 8 × tp 8`."""
    told = [plural(len(c.summaries), "rank")]
    steps = {step for summary in c.summaries.values() for step in summary.step if step is not None}
    if len(steps) == 1:
        told.append(f"step {steps.pop()}")
    mesh: Mapping[str, int] = next((s.mesh for s in c.summaries.values() if s.mesh), {})
    if mesh:
        told.append("mesh " + " × ".join(f"{safe_text(name, 20)} {size}" for name, size in mesh.items()))
    a, b = (safe_text(name, _MAX_NAME) for name in c.names)
    return f"{a} <-> {b}: {', '.join(told)}"


def result(c: RunComparison) -> str:
    """Return the outcome in one sentence."""
    rest = "".join(f"; {text}" for text in _weaker(c))
    if c.nothing:
        return f"Nothing was compared{rest}"
    missing = " and ".join(_not_compared(c))
    if c.red:
        many = f"{len(c.red):,} of {plural(len(c.summaries), 'rank')} {'is' if len(c.red) == 1 else 'are'} red"
        left = f"; {missing} not compared" if missing else ""
        return f"{many}; {_where_all_began(c.causes.origins)}{left}{rest}"
    if odd := tuple(c.odd_starts):
        many = f"{len(odd):,} of {plural(len(c.summaries), 'rank')} {'begins' if len(odd) == 1 else 'begin'}"
        left = f"; {missing} not compared" if missing else ""
        return f"{many} with other weights or buffers: {ranks_words(odd)}{left}{rest}"
    close = sum(len(each.ranks) for each in c.classes if each.kind == Kind.CLOSE)
    read = sum(summary.read for summary in c.summaries.values())
    agree = plural(read, "rank agrees", "ranks agree") + (f", {close:,} of them within tolerance" if close else "")
    return (f"Not compared: {missing}; {agree}" if missing else f"No divergence: {agree}") + rest


def _not_compared(c: RunComparison) -> Iterator[str]:
    if c.uncompared:
        yield ranks_words(c.uncompared)
    if partly := [rank for rank, s in c.summaries.items() if any(name == NOT_COMPARED for name, _ in s.failures)]:
        yield f"parts of {ranks_words(partly)}"


def _weaker(c: RunComparison) -> Iterator[str]:
    """Yield what else a reader of the headline has to know."""
    if cut := [rank for rank, summary in c.summaries.items() if summary.troubles]:
        yield f"the logs of {ranks_words(cut)} are not whole"
    if c.broken_rules:
        yield broken_entries(len(c.broken_rules))


def _where_all_began(origins: Sequence[Origin]) -> str:
    if len(origins) == 1:
        return f"it began on {ranks_words(tuple(origins[0].events))}"
    first = ranks_words(tuple(origins[0].events)) if origins else "no rank"
    return f"it began at {len(origins):,} places, first on {first}" if origins else "where it began is not known"


def notes(c: RunComparison) -> Iterator[str]:
    """Yield what weakens the comparison, or explains it; of each kind what the first rank says."""
    by_kind: dict[str, dict[int, str]] = {}
    for rank, summary in c.summaries.items():
        for kind, text in summary.notes:
            by_kind.setdefault(kind, {}).setdefault(rank, text)
    for texts in by_kind.values():
        first = next(iter(texts))
        only = f" (rank {first}; the others alike)" if len(set(texts.values())) > 1 else ""
        yield f"{ranks_words(tuple(texts))}: {safe_text(texts[first], _MAX_SENTENCE)}{only}"
    read = c.outcomes(Outcome.COMPARED)
    if len(read) > 1 and not any(c.summaries[rank].channels for rank in read):
        yield "The logs name no process groups: what ranks received from each other is not known"


def reasons(c: RunComparison) -> Iterator[str]:
    """Yield what is missing: ranks without a log, logs that cannot be read or are cut off."""
    by_text: dict[str, list[int]] = {}
    for rank, summary in c.summaries.items():
        for text in (*((summary.why,) if summary.why else ()), *summary.troubles):
            by_text.setdefault(text, []).append(rank)
    for text, ranks in by_text.items():
        yield f"{ranks_words(ranks)}: {safe_text(text, _MAX_SENTENCE)}"
    if c.missing:
        yield f"{ranks_words(c.missing)}: neither run has a log"


def short_name(name: str) -> str:
    """Return a name from a log for a line."""
    return safe_text(name, _MAX_NAME)


def began(c: RunComparison, origin: Origin) -> str:
    """Return where an origin began: `rank 2 · dp=1, tp=0`."""
    ranks = sorted(origin.events)
    place = common_place(ranks, c.summaries)
    return ranks_words(ranks) + (f" · {safe_text(place, _MAX_NAME)}" if place else "")


def event_place(event: Event) -> str:
    """Return key, phase and source line of an event."""
    status = safe_text(event.status, _MAX_NAME)
    only = f" ({status.replace('-', ' in ', 1)})" if status.startswith("only-") else ""
    told = [f"{safe_text(event.key, _MAX_NAME)}{only}", safe_text(event.phase, _MAX_NAME)]
    if event.location:
        told.append(safe_text(event.location, _MAX_NAME))
    return ", ".join(told)


def event_lines(event: Event) -> str:
    """Return the lines of an event in the logs: `a line 12, b line 13`."""
    return ", ".join(f"{side} line {line}" for side, line in (("a", event.line_a), ("b", event.line_b)) if line)


def reached_words(origin: Origin) -> list[str]:
    """Return how an origin reached other ranks, a line for each way: `ranks 0, 1, 3 through all_reduce (sum) of …`."""
    ways: dict[tuple[str, str], list[int]] = {}
    for rank, reached in sorted(origin.reached.items()):
        ways.setdefault((reached.by.does, reached.event.key), []).append(rank)
    lines = []
    for (_, key), ranks in ways.items():
        first = origin.reached[ranks[0]]
        groups = {origin.reached[rank].by.channel for rank in ranks}
        through = by_words(first.by, len(groups))
        lines.append(f"{ranks_words(ranks)} through {through}{_from(ranks, origin.reached)}, at {short_name(key)}")
    return lines


def _from(ranks: Sequence[int], reached: Mapping[int, Reached]) -> str:
    senders = sorted({sender for rank in ranks for sender in reached[rank].senders})
    return f", from {ranks_words(senders)}" if senders else ""


def by_words(by: Received, groups: int = 1) -> str:
    """Return a collective or message in words: `all_reduce (sum) of ranks 0–3`, or of several groups."""
    told = safe_text(by.does, 60)
    members = by.channel.rpartition(" ")[2]
    if ">" in members:
        return told
    if groups > 1:
        return f"{told} of {groups:,} groups"
    ranks = _members(members)
    return f"{told} of {ranks_words(ranks)}" if ranks else told


def _members(ranges: str) -> list[int]:
    """The ranks of a channel; empty for more than a line can say."""
    found: list[int] = []
    for part in ranges.split(","):
        match = _CHANNEL_RANGE.fullmatch(part)
        if match is None or len(found) > 1 << 16:
            return []
        first, last, stride = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        found += range(first, min(last, first + (1 << 16)) + 1, max(stride, 1))
    return found


def order_words(number: int, origins: Sequence[Origin]) -> str:
    """Return the order of an origin (its index) among the others; empty where there is one only."""
    if len(origins) < 2:
        return ""
    after = origins[number].after
    if after:
        return f"after {', '.join(str(k + 1) for k in after[:5])}, by their collectives"
    unordered = [k + 1 for k, other in enumerate(origins) if k != number and number not in other.after]
    return f"in no known order to {', '.join(map(str, unordered[:5]))}" if unordered else ""


def class_ranks(each: RankClass) -> str:
    """Return the ranks of a class, and the coordinate that only they have: `ranks 0–3 · tp=0`."""
    return ranks_words(each.ranks) + (f" · {safe_text(each.place, _MAX_NAME)}" if each.place else "")


def class_state(each: RankClass) -> str:
    """Return the state of a class in a word or two: `red`, `agree`, `equal`."""
    if each.kind == Kind.NOT_COMPARED:
        return "not compared"
    return {Kind.RED: "red", Kind.CLOSE: "within tolerance", Kind.EQUAL: "agree"}[each.kind]


def class_words(c: RunComparison, each: RankClass) -> str:
    """Return what the ranks of a class have in common."""
    if each.kind == Kind.NOT_COMPARED:
        whys = list(dict.fromkeys(c.summaries[rank].why for rank in each.ranks))
        return safe_text(whys[0], _MAX_SENTENCE) + (f" and {len(whys) - 1:,} other reasons" if len(whys) > 1 else "")
    if each.kind == Kind.EQUAL:
        by_footers = sum(c.summaries[rank].outcome == Outcome.EQUAL for rank in each.ranks)
        if by_footers == len(each.ranks):
            return "same records by the footers of their logs"
        return f"{by_footers:,} of them by the footers of their logs" if by_footers else "no difference"
    told = []
    if each.kind == Kind.RED:
        reds = [c.summaries[rank].red for rank in each.ranks]
        spread = f"{min(reds):,}" if min(reds) == max(reds) else f"{min(reds):,}–{max(reds):,}"
        told.append(f"{spread} red {'row' if max(reds) == 1 else 'rows'}")
    if each.origins and len(c.traced.origins) > 1:
        told.append(f"began at {', '.join(str(k + 1) for k in each.origins[:5])}")
    return ", ".join(told)
