"""Text report: one screen to read or paste, self-contained without the logs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TextIO

from numtui.query.view import same_file
from numtui.report.model import Report
from numtui.report.next_steps import next_steps
from numtui.report.parts import MEANING, Log, RowFacts
from numtui.report.recomputation import MismatchFacts
from numtui.report.text_lines import BOLD, MAX_SENTENCE, RED, Paint, wrapped
from numtui.text.counts import plural
from numtui.text.safe import safe_text, write_lines

__all__ = ["recompute_lines", "write_text"]

_MAX_CAUSES = 5
_MAX_BEGINNINGS = 3
_MAX_MISMATCHES = 6
_MAX_REALIGNMENTS = 3
_MAX_PROBLEMS = 3
_MAX_RULE_HINTS = 2
_MAX_RULE_NOTES = 6
_MAX_FAMILIES = 6
_MAX_NEXT = 3
_MAX_KEY = 100
_MAX_WARNING = 1500
_MAX_HARMLESS = 12


def write_text(report: Report, out: TextIO, *, color: bool = False) -> None:
    """Write the report: counts, first causes, and all caveats."""
    paint = Paint(color)
    write_lines(_lines(report, paint), out)


def _lines(r: Report, paint: Paint) -> Iterator[str]:
    yield from _sides(r, paint)
    yield ""
    if r.warning:
        yield from (paint(BOLD, line) for line in wrapped(r.warning, "", "", longest=_MAX_WARNING))
        yield ""
    yield from _result(r, paint)
    for section in (
        _first_difference(r),
        _realignments(r),
        _causes(r, paint),
        _further(r, paint),
        _tokens(r),
        _recomputed(r),
        _beginnings(r),
        _certificate(r),
        _certainty(r),
        _families(r),
        _excluded(r),
        _log_problems(r),
        _harmless(r),
        _rules(r),
        _next(r),
    ):
        lines = list(section)
        if lines:
            yield ""
            yield paint(BOLD, lines[0])
            yield from lines[1:]


def _sides(r: Report, paint: Paint) -> Iterator[str]:
    names = [safe_text(n, 40) for n in r.options.names]
    same = ": a and b are the same file" if same_file(r.comparison) else ""
    yield paint(BOLD, f"numtui: {names[0]} <-> {names[1]}{same}")
    width = max(map(len, names))
    for name, log in zip(names, r.logs, strict=True):
        yield f"  {log.side}  {name:<{width}}  {log.operations:>9,} operations  {safe_text(log.path)}"
    if r.logs[0].captured == r.logs[1].captured:
        yield from (f"  captured: {safe_text(text, 300)}" for text in (r.logs[0].captured,) if text)
    else:
        for log in r.logs:
            yield f"  captured in {log.side}: {safe_text(log.captured, 300) or 'not stated'}"
    yield from (f"  {note.text}" for note in r.comparison.comparability.notes if note.kind == "rows")
    if r.step_numbers:
        yield f"  {', '.join(r.step_numbers)}"


def _result(r: Report, paint: Paint) -> Iterator[str]:
    # Both may name a module.
    yield safe_text(r.extent, MAX_SENTENCE)
    result = safe_text(r.result, MAX_SENTENCE)
    yield paint(RED, result) if r.alarming else result
    if r.judged_by:
        yield f"Judged with {safe_text(r.judged_by, 300)}"
    if r.known:
        yield r.known
    if r.rules_note:
        yield from wrapped(f"Note: {r.rules_note}", "", "  ")
    for status, n in r.counts:
        line = f"  {n:>9,}  {status.label:<11} {MEANING[status]}"
        yield paint(RED, line) if status.red else line


def _first_difference(r: Report) -> Iterator[str]:
    if (found := r.first_difference) is None:
        return
    yield _plain(found.title)
    yield f"  {_keys(found.row)}"
    yield f"     {_facts(found.row)}"
    for reason in found.reasons:
        yield from wrapped(_plain(reason), "     ", "     ")


def _realignments(r: Report) -> Iterator[str]:
    """Yield the mispaired runs; they come before the causes, because their red rows are not real."""
    runs = [found for found in r.realignments if not found.failed]
    if not runs:
        return
    yield "Mispaired runs (fix: a in the explorer, or numtui suggest)"
    for found in runs[:_MAX_REALIGNMENTS]:
        yield from wrapped(found.explanation, "  ", "  ")
    if len(runs) > _MAX_REALIGNMENTS:
        yield f"  ... and {len(runs) - _MAX_REALIGNMENTS:,} more"


def _causes(r: Report, paint: Paint) -> Iterator[str]:
    causes, total = r.causes(_MAX_CAUSES), r.cause_count
    told = [(cause.row, cause.follows) for cause in causes]
    title = "First causes"
    if not told:
        title, told, total = "Red rows", [(row, "") for row in r.reds(_MAX_CAUSES, explained=True)], r.red
    if not told:
        return
    yield title
    for number, (row, follows) in enumerate(told, 1):
        yield f"  {number}. {paint(RED, _keys(row))}"
        yield f"     {_facts(row)}"
        yield from wrapped(row.sentence, "     ", "     ")
        for sentence in r.rows_told(row.row):
            yield from wrapped(sentence, "     ", "     ")
        if follows:
            yield from wrapped(follows, "     ", "     ")
    if total > len(told):
        yield f"  ... and {total - len(told):,} more"
    left = r.comparison.consequences.unexplained if causes else 0
    if left:
        yield f"  {plural(left, 'red row')} {'lies' if left == 1 else 'lie'} upstream of all of them"


def _further(r: Report, paint: Paint) -> Iterator[str]:
    """Yield the causes downstream of a first one."""
    found = r.further(_MAX_CAUSES)
    if not found:
        return
    yield "Further causes, independent of those above"
    for row in found:
        yield f"  {paint(RED, _keys(row))}"
        yield f"     {_facts(row)}"
        yield from wrapped(row.sentence, "     ", "     ")
    if (total := len(r.comparison.further_causes)) > len(found):
        yield f"  ... and {total - len(found):,} more"


def _recomputed(r: Report) -> Iterator[str]:
    groups = r.mismatch_groups
    if groups:
        yield "Recompute mismatches"
        yield from recompute_lines(groups)


def recompute_lines(groups: Sequence[tuple[MismatchFacts, int, str]], *, sides: bool = True) -> Iterator[str]:
    """Yield the recompute mismatches by source line: the operation, the line, the reason."""
    for found, n, told in groups[:_MAX_MISMATCHES]:
        more = f" and {n - 1:,} more" if n > 1 else ""
        side = f"{found.side}  " if sides else ""
        place = f"   {safe_text(found.location, _MAX_KEY)}" if found.location else ""
        yield f"  {side}{safe_text(found.key, _MAX_KEY)}{more}{place}"
        yield from wrapped(_plain(f"{told} (error {found.error})" if found.error else told), "     ", "     ")
    if len(groups) > _MAX_MISMATCHES:
        yield f"  ... and {len(groups) - _MAX_MISMATCHES:,} more"


def _certificate(r: Report) -> Iterator[str]:
    """Yield the evidence of a result without red rows; beside causes it would only distract."""
    if r.red or not r.certificate:
        return
    yield "Compared"
    for sentence in r.certificate:
        yield from wrapped(sentence, "  ", "  ")


def _tokens(r: Report) -> Iterator[str]:
    """Yield the tokens whose numbers differ most, and where their rows begin to."""
    if (found := r.tokens) is None:
        return
    told = f"{found.differ:,} of {found.many:,} differ beyond tolerance" if found.differ else f"{found.many:,} agree"
    yield f"Tokens: {told}; mean |a - b| {found.mean:.2g}, largest {found.most:.2g}"
    yield f"  {_keys(r.row(found.row, explained=False))}"
    for token in found.worst:
        begins = f"   begins at {_keys(r.row(token.begins, explained=False))}" if token.begins >= 0 else ""
        yield f"  {token.place}  {token.a:.6g} in a, {token.b:.6g} in b, {token.a - token.b:+.1e}{begins}"


def _beginnings(r: Report) -> Iterator[str]:
    rows = r.beginning_rows
    if len(rows) == 0:
        return
    yield f"Differences within tolerance begin in {plural(len(rows), 'row')} with bitwise equal inputs"
    for number in rows[:_MAX_BEGINNINGS].tolist():
        row = r.row(number, explained=False)
        yield f"  {_keys(row)}"
        yield f"     {_facts(row)}"
    if len(rows) > _MAX_BEGINNINGS:
        yield f"  ... and {len(rows) - _MAX_BEGINNINGS:,} more"


def _keys(row: RowFacts) -> str:
    return row.keys(lambda key: safe_text(key, _MAX_KEY))


def _facts(row: RowFacts) -> str:
    """Return status, error, phase, shape and place of a row, as far as logged."""
    parts = [row.status.label]
    if row.error:
        parts.append(f"error {_plain(row.error)}")
    parts.append(row.phase)
    parts += [safe_text(t, 60) for t in (row.shape, row.dtype) if t]
    if place := row.place(lambda text: safe_text(text, _MAX_KEY)):
        parts.append(place)
    lines = [f"{side} line {line}" for side, line in (("a", row.line_a), ("b", row.line_b)) if line]
    return f"{', '.join(parts)} ({', '.join(lines)})"


def _plain(error: str) -> str:
    """Return an error in characters that every terminal and mail has."""
    return error.replace("≥", ">=").replace("≈", "~").replace("∞", "inf")


def _certainty(r: Report) -> Iterator[str]:
    if (d := r.doubt) is None:
        return
    yield f"Uncertain pairs: {d.pairs:,} of {len(r.comparison.pairing):,} have a confidence below {d.below}"
    pair = f"{safe_text(d.a_key, _MAX_KEY)} <-> {safe_text(d.b_key, _MAX_KEY)}"
    yield f"  least certain: {pair} ({d.method}, {d.confidence:.2f})"
    if d.runner_up:
        yield f"  runner-up:     {safe_text(d.runner_up, _MAX_KEY)} ({d.runner_up_score:.2f})"


def _families(r: Report) -> Iterator[str]:
    families = [f for f in r.families if f.failed or f not in r.realignments]  # those are told above
    if not families:
        return
    yield "Known kinds of drift (numtui suggest --all explains them and proposes rules)"
    shown = [f for n, f in enumerate(families) if n < _MAX_FAMILIES or f.failed]
    told = [f"{f.name} ({f.extent})" for f in shown]
    if len(families) > len(shown):
        told.append(f"{len(families) - len(shown)} more")
    yield from wrapped(", ".join(told), "  ", "  ")


def _excluded(r: Report) -> Iterator[str]:
    if not any(r.excluded):
        return
    yield "Not captured"
    for what, ops in zip(("both", "only a", "only b"), r.excluded, strict=True):
        if ops:
            yield from wrapped(", ".join(ops), f"  {what + ':':<8}", " " * 10)


def _harmless(r: Report) -> Iterator[str]:
    """Yield harmless differences between the runs: they change at most a reduction order."""
    notes = [note.text for note in r.notes if note.weight == "harmless"]
    if not notes:
        return
    yield "Harmless differences between the runs"
    for text in notes[:_MAX_HARMLESS]:
        yield from wrapped(text, "  ", "    ")
    if len(notes) > _MAX_HARMLESS:
        yield f"  ... and {len(notes) - _MAX_HARMLESS:,} more"


def _log_problems(r: Report) -> Iterator[str]:
    told = [line for log in r.logs for line in _problems_of(log)]
    if told:
        yield "Trouble with the logs"
        yield from told


def _problems_of(log: Log) -> Iterator[str]:
    path = safe_text(log.path)
    for text in log.trouble:
        yield f"  {path}: {safe_text(text, 300)}"
    for line, message in log.problems[:_MAX_PROBLEMS]:
        yield f"  {path}:{line}: {safe_text(message, 200)}"
    if log.problem_count > _MAX_PROBLEMS:
        yield f"  {path}: {log.problem_count:,} unreadable spots in all"


def _rules(r: Report) -> Iterator[str]:
    if r.options.rules_path is None or not (r.rules or r.broken_rules):
        return
    notes = [*r.broken_rules, *(used.problem for used in r.rules if used.problem)]
    hints = [used.hint for used in r.rules if used.hint]
    dead = sum(not used.matched for used in r.rules)
    told = f"Rules: {plural(len(r.rules), 'rule')} from {safe_text(r.options.rules_path)}"
    told += f", {dead:,} unused" if dead else ""
    told += f", {len(hints):,} not needed here" if hints else ""
    told += f", {len(r.broken_rules):,} broken" if r.broken_rules else ""
    yield told
    yield from (f"  {safe_text(n, 300)}" for n in notes[:_MAX_RULE_NOTES])
    if len(notes) > _MAX_RULE_NOTES:
        yield f"  ... and {len(notes) - _MAX_RULE_NOTES:,} more"
    yield from (f"  {safe_text(n, 300)}" for n in hints[:_MAX_RULE_HINTS])
    if len(hints) > _MAX_RULE_HINTS:
        yield f"  ... and {len(hints) - _MAX_RULE_HINTS:,} more not needed here"


def _next(r: Report) -> Iterator[str]:
    """Yield the most useful commands to type next; nothing without red rows."""
    for step in islice(next_steps(r), _MAX_NEXT) if r.red else ():
        yield f"Next: {safe_text(shlex.join(step.command))}"
        yield f"  ({safe_text(step.why)})"
