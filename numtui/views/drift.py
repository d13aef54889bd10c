"""Name drift of a pair: differing segments, the original of a recomputed copy, the wait of a collective."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from matchers.comparison import Comparison
from matchers.pairing.features import LogFeatures
from matchers.pairing.pairing import Method
from matchers.status import Status
from numtui.report.parts import MEANING
from numtui.text.lines import Line, window, wrap
from numtui.text.names import MAX_KEY_LENGTH, marked_keys
from numtui.text.safe import safe_text
from numtui.views.panels import Entry, row_line
from numtui.views.table import number_of

__all__ = ["drift_entries", "drift_facts", "drift_title", "how_it_is", "key_lines"]


def key_lines(c: Comparison, i: int, j: int, width: int) -> list[Line]:
    """Return the keys of a record of a and of b (-1: none) with their rows, stacked."""
    number = len(str(len(c)))
    if i >= 0 and j >= 0:
        keys = marked_keys(c.a.keys[i], c.b.keys[j])
        rows = int(c.at_a[i]), int(c.at_b[j])
    else:
        log, record, at = (c.a, i, c.at_a) if i >= 0 else (c.b, j, c.at_b)
        one: Line = [(safe_text(log.keys[record], MAX_KEY_LENGTH), "")]
        keys, rows = (one, []) if i >= 0 else ([], one), (int(at[record]), int(at[record]))
    out: list[Line] = []
    for side, line, row in zip("ab", keys, rows, strict=True):
        if line:
            head: Line = [(f" {str(row + 1).rjust(number)} ", "dim"), (f"{side} ", "dim")]
            out.append([*head, *window(line, width - number - 5)])
    return out


_BY_RULE = {Method.OVERRIDE: "by a pairs rule", Method.TEMPLATE: "by a template"}


def how_it_is(c: Comparison, i: int, j: int) -> str:
    """Describe how two records are compared: paired or not, method and verdict."""
    row = int(c.at_a[i]) if i >= 0 else int(c.at_b[j])
    label = MEANING[Status(int(c.status[row]))]
    pair = int(c.pair[row])
    if pair < 0 or i < 0 or j < 0:
        return label
    if c.at_b[j] != row:
        return "no pair"
    method = Method(int(c.pairing.method[pair]))
    how = _BY_RULE.get(method) or f"{method.label} {c.pairing.confidence[pair]:.2f}"
    number = number_of(c, row)
    return f"{how}, {label}{f' {number}' if c.red[row] else ''}"


def drift_facts(c: Comparison, i: int, j: int) -> Iterator[tuple[str, int]]:
    """Explain drifted names: sentences, each with the row it names. `i` or `j` is -1 where one run has none."""
    if c.matching is None:
        return
    f = c.matching.features
    for name, side, at, record in (("a", f.a, c.at_a, i), ("b", f.b, c.at_b, j)):
        if record >= 0:
            for sentence, other in _of_side(side, record):
                row = int(at[other])
                yield (
                    f"{name} {sentence.format(f'{safe_text(side.log.keys[other], MAX_KEY_LENGTH)} (row {row + 1})')}",
                    row,
                )


def _of_side(side: LogFeatures, record: int) -> Iterator[tuple[str, int]]:
    """Yield sentences with a placeholder for another record, and that record."""
    original = int(side.original[record])
    if original >= 0:
        yield "repeats {}: activation checkpointing ran it again", original
    value = int(side.lead[record])
    if value >= 0:
        yield "only starts it: the value arrives with {}", value
    for step in np.flatnonzero(side.lead == record).tolist():
        yield "is the wait: it carries the value of what {} started", step


def drift_entries(c: Comparison, row: int, width: int) -> list[Entry]:
    """Return panel entries of a row: its names, the pairing, and the explaining rows."""
    i, j = int(c.row_a[row]), int(c.row_b[row])
    entries = [Entry((*key_lines(c, i, j, width), [(f"   {how_it_is(c, i, j)}", "dim")]))]
    for sentence, other in drift_facts(c, i, j):
        entries.append(Entry(tuple([(f" {text}", "")] for text in wrap(sentence, width - 2))))
        entries.append(Entry((row_line(c, other, width, tag="   "),), other))
    return entries


def drift_title(c: Comparison, row: int) -> str:
    """Summarise the relation of a row's names."""
    i, j = int(c.row_a[row]), int(c.row_b[row])
    if i < 0 or j < 0:
        return f"only {'a' if j < 0 else 'b'} has this"
    return "the names are equal" if c.a.keys[i] == c.b.keys[j] else "how the names differ"
