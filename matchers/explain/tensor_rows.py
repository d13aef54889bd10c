"""Sentences about the rows of a result (`numtui capture --rows`), and about the tokens whose numbers differ most."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from matchers.arrays import Bool, Float64, Int64, columns
from matchers.comparison import Comparison
from matchers.explain.facts import format_error
from matchers.laws.law import Form
from matchers.logs.op_log import OpLog
from matchers.ops.laws import law_of
from matchers.ops.tensor_rows import TensorRows, distances, rows_of
from matchers.verdict.tolerance import EPSILON, MOST_ALLOWED

__all__ = ["Token", "Tokens", "routing_sentence", "row_sentences", "worst_tokens"]

_MOST = 5
"""Rows that are named."""


@columns
class _Compared:
    """The rows of one output that both runs have, in the same order.

    Attributes:
        rows_a, rows_b: their numbers in each run.
        error: relative distance of each row; NaN if unknown.
        differ: rows that differ beyond the tolerance of the pair.
    """

    output: int
    whole_a: TensorRows
    whole_b: TensorRows
    rows_a: Int64
    rows_b: Int64
    error: Float64
    differ: Bool

    def name(self, k: int) -> str:
        """`[0, 17]`, in the numbers of a."""
        return str(list(self.whole_a.index(int(self.rows_a[k]))))

    def place(self, k: int) -> str:
        """The same with that in b, where it has another."""
        other = str(list(self.whole_b.index(int(self.rows_b[k]))))
        return self.name(k) if self.name(k) == other else f"{self.name(k)} ({other} in b)"


def _compared(c: Comparison, row: int) -> Iterator[_Compared]:
    """Yield the outputs of a pair of which both logs tell the rows."""
    if c.single or c.pair[row] < 0 or c.row_a[row] < 0 or c.row_b[row] < 0:
        return
    i, j = int(c.row_a[row]), int(c.row_b[row])
    told = rows_of(c.a, i), rows_of(c.b, j)
    for output in sorted(told[0].keys() & told[1].keys()):
        x, y = told[0][output], told[1][output]
        kept = [log.rows_kept.get(record) for log, record in ((c.a, i), (c.b, j))]
        if kept[0] is not None and kept[1] is not None:
            if output not in kept[0]:
                continue
            rows = kept[0][output], kept[1][output]
        elif x.of == y.of:
            rows = (np.arange(len(x)),) * 2
        else:
            continue
        x, y = x.taken(rows[0]), y.taken(rows[1])
        error = distances(x, y)
        limit = float(np.nan_to_num(c.tolerance[row])) if _rounds(c.a, i, output) else 0.0
        differ = (x.digest != y.digest) & ~(error <= limit)
        yield _Compared(output, told[0][output], told[1][output], *rows, error, differ)


def _rounds(log: OpLog, record: int, output: int) -> bool:
    return output > 0 or log.dtype_text(record) in EPSILON or log.dtype_text(record).startswith("complex")


def row_sentences(c: Comparison, row: int) -> Iterator[str]:
    """Yield what is known of the rows of a pair: `3 of 64 rows differ: [0, 17], [0, 18], [1, 40]`."""
    for found in _compared(c, row):
        many = len(found.rows_a)
        title = f"output {found.output}: " if found.output else ""
        which = np.flatnonzero(found.differ)
        cut = len(found.rows_a) != len(found.whole_a) or len(found.rows_b) != len(found.whole_b)
        rows = f"{'common ' * cut}row{'s' * (many != 1)}"
        equal = int(np.count_nonzero(found.error == 0))
        if not len(which):
            names = f" ({found.place(0)}{', …' * (many > 1)})" * (cut and many > 0)
            at = int(np.argmax(np.nan_to_num(found.error)))
            agree = "equal to the bit"
            if equal < many:
                agree = f"the largest error {format_error(_largest(found.error), False)} at {found.place(at)}"
            yield f"{title}{many:,} {rows}{names}: {agree}"
            continue
        worst = which[np.argsort(-np.nan_to_num(found.error[which], nan=np.inf), kind="stable")[:_MOST]]
        names = ", ".join(found.place(k) for k in sorted(worst.tolist())) + ", …" * (len(which) > _MOST)
        largest = f"; the largest error {format_error(_largest(found.error), False)} at {found.place(int(worst[0]))}"
        yield f"{title}{len(which):,} of {many:,} {rows} differ: {names}{largest * (len(which) > 1)}"


def routing_sentence(c: Comparison, row: int) -> Iterator[str]:
    """Yield how many tokens have other positions of their largest scores, and whether rounding can decide between them.

    The scores that a token has chosen agree where two candidates were equal but for rounding: `3 of 64 tokens choose
    otherwise: 2 between scores that agree within rounding, 1 between others: [0, 17]`.
    """
    if c.single or c.pair[row] < 0 or law_of(c.a, int(c.row_a[row])).form is not Form.RANK:
        return
    outputs = {found.output: found for found in _compared(c, row)}
    if not {0, 1} <= outputs.keys() or len(outputs[0].rows_a) != len(outputs[1].rows_a):
        return
    scores, chosen = outputs[0], outputs[1]
    x, y = chosen.whole_a.taken(chosen.rows_a), chosen.whole_b.taken(chosen.rows_b)
    other = x.digest != y.digest
    if not other.any():
        return
    reordered = other & (x.l1 == y.l1) & (x.l2 == y.l2)
    limit = min(float(np.nan_to_num(c.tolerance[row])), MOST_ALLOWED)
    near = other & ~reordered & (scores.error <= limit)
    far = other & ~reordered & ~near
    parts = [
        f"{np.count_nonzero(which):,} {how}"
        for which, how in (
            (reordered, "the same in another order"),
            (near, "between scores that agree within rounding"),
            (far, "between scores that do not"),
        )
        if which.any()
    ]
    places = np.flatnonzero(far).tolist()
    names = ", ".join(map(chosen.place, places[:_MOST])) + ", …" * (len(places) > _MOST)
    told = f"{np.count_nonzero(other):,} of {len(other):,} tokens choose otherwise: {', '.join(parts)}"
    yield f"{told}: {names}" if names else told


def _largest(error: Float64) -> float:
    return float(np.nanmax(error)) if np.isfinite(error).any() else float("nan")


@columns
class Token:
    """One of the tokens whose numbers differ most.

    Attributes:
        place: its indices.
        a, b: its numbers, such as log-probabilities.
        begins: the first row of the comparison in which the token's row differs beyond tolerance; -1 for none.
    """

    place: str
    a: float
    b: float
    begins: int


@columns
class Tokens:
    """The numbers that a pair has for each token.

    Attributes:
        row: of the comparison.
        many: tokens that both runs have.
        differ: how many of them differ beyond tolerance.
        mean, most: of the absolute differences.
        worst: the tokens that differ most, the worst first; none if all are equal.
    """

    row: int
    many: int
    differ: int
    mean: float
    most: float
    worst: tuple[Token, ...]


def worst_tokens(c: Comparison) -> Tokens | None:
    """The last result with one number for each token, and the tokens whose numbers differ most; None without one."""
    if c.single or not all(len(log.texts("Rows")) for log in (c.a, c.b)):
        return None
    pairs = np.flatnonzero(c.pair >= 0)
    told = {row: found for row in pairs.tolist() for found in _compared(c, row) if found.output == 0}
    last = [row for row, found in told.items() if _single(found) and _float(c, row)]
    if not last:
        return None
    found = told[last[-1]]
    a, b = found.whole_a.mean[found.rows_a], found.whole_b.mean[found.rows_b]
    apart = np.nan_to_num(np.abs(a - b), nan=np.inf)
    worst = [k for k in np.argsort(-apart, kind="stable")[:_MOST].tolist() if apart[k] > 0]
    begins = {k: _begins(told, found, k, last[-1]) for k in worst}
    return Tokens(
        last[-1],
        len(a),
        int(np.count_nonzero(found.differ)),
        float(np.mean(apart)),
        float(np.max(apart, initial=0.0)),
        tuple(Token(found.place(k), float(a[k]), float(b[k]), begins[k]) for k in worst),
    )


def _single(found: _Compared) -> bool:
    """The rows are single numbers, of more tokens than one."""
    return len(found.whole_a.of) >= 2 and found.whole_a.single


def _float(c: Comparison, row: int) -> bool:
    return c.a.dtype_text(int(c.row_a[row])) in EPSILON


def _begins(told: dict[int, _Compared], token: _Compared, k: int, last: int) -> int:
    """The first result with a row of each token in which that of one token differs."""
    many = len(token.whole_a)
    for row, found in told.items():
        if row <= last and len(found.whole_a) == many:
            at = np.flatnonzero(found.rows_a == token.rows_a[k])
            if len(at) and found.differ[at[0]]:
                return row
    return -1
