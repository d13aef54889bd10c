"""One log by itself, in the columns of a comparison, so that every view and report can show it.

Without a partner nothing is equal; a single run shows where its numbers become non-finite: an operation with NaN or Inf
in its output is red, and one that produces them from finite inputs is a first cause. So is a recomputed copy that does
not repeat what it did in the forward pass.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar

import numpy as np

from matchers.arrays import Bool, marked
from matchers.comparison import Comparison, Progress
from matchers.explain.facts import InputFact, facts_of, inputs_of
from matchers.explain.notes import recompute_note
from matchers.explain.sentences import Explanation, explain, recomputed
from matchers.logs.columns import KeyColumn, Ragged
from matchers.logs.op_log import Header, OpLog
from matchers.ops.collectives import unfinished
from matchers.ops.dataflow import DataFlow
from matchers.ops.nonfinite import broken, broken_text, reads_broken
from matchers.ops.recomputation import recompute_mismatches
from matchers.rules.model import RuleSet
from matchers.status import Role, Status
from matchers.verdict.comparability import Comparability
from matchers.verdict.reason import Reason
from matchers.verdict.records import RecomputeMismatch

__all__ = ["SingleRun", "dtype_changes", "explain_single", "explained", "single_run"]

_LARGEST = {"float16": 65504.0, "float8_e4m3fn": 448.0, "float8_e4m3fnuz": 240.0, "float8_e5m2": 57344.0}
"""Maximum finite value of the dtypes with a narrow range."""
_NEAR = 0.1
"""Fraction of that maximum from which overflow is reported as close."""


@dataclass(frozen=True)
class SingleRun(Comparison):
    """Every record of `a` is a row; `b` is empty.

    `error` is the largest magnitude in the output, inf for NaN or Inf, NaN where the log does not give it.
    """

    single: ClassVar[bool] = True

    @property
    def comparability(self) -> Comparability:
        """Empty: there is no second run."""
        return Comparability()

    def with_rules(self, rules: RuleSet, *, progress: Progress | None = None) -> Comparison:  # noqa: ARG002
        """Return self: rules concern pairs."""
        return self


def single_run(log: OpLog) -> SingleRun:
    """Present one log as a comparison with an empty one."""
    n = len(log)
    nothing = _without_records(log)
    flow = DataFlow(log, nothing)
    nan, inf = broken(log)
    odd = nan | inf
    read_nan, read_inf = (reads_broken(log, flow.a, made, kind) for made, kind in ((nan, np.isnan), (inf, np.isinf)))
    # NaN from Inf (Inf - Inf, Inf · 0) is a failure of its own, beside the one that produced the Inf.
    cause = (odd & ~read_nan & ~read_inf) | (nan & ~read_nan & read_inf)
    status = np.full(n, Status.PENDING, np.int8)
    reason = np.full(n, Reason.PENDING, np.int8)
    early = unfinished(log)
    odd &= ~early
    for which, to, why in (
        (log.recompute, Status.RECOMPUTE, Reason.RECOMPUTED),
        (early, Status.UNFINISHED, Reason.UNFINISHED),
        (odd, Status.NAN, Reason.NON_FINITE),
    ):
        status[which], reason[which] = to, why
    extremes = np.abs(log.stats[2:4])
    known = ~np.isnan(extremes).all(axis=0)
    largest = np.full(n, math.nan)
    largest[known] = np.nanmax(extremes[:, known], axis=0)
    largest[odd] = math.inf
    largest[early] = math.nan
    mismatches = tuple(RecomputeMismatch("a", mismatch) for mismatch in recompute_mismatches(log))
    other = marked([m.mismatch.row for m in mismatches if m.red], n)
    other &= ~odd
    status[other], reason[other] = Status.DIVERGED, Reason.RECOMPUTED_OTHERWISE
    role = np.where(odd, np.where(cause, Role.ORIGIN, Role.RECEIVER), Role.NONE)
    role[other] = Role.ORIGIN
    return SingleRun.unjudged(
        log,
        nothing,
        np.arange(n, dtype=np.int32),
        np.full(n, -1, np.int32),
        verdict=status,
        reason=reason,
        error=largest,
        role=role.astype(np.int8),
        cause=(cause & odd) | other,
        flow=flow,
        recompute_mismatches=mismatches,
    )


def dtype_changes(log: OpLog, flow: Ragged) -> Bool:
    """bool[n]: operations that return floats of another dtype than one of their inputs; `flow` as from `sources`."""
    floating = np.array(["float" in name for name in log.dtypes] + [False], bool)
    reader, maker = flow.row[flow.value >= 0], flow.value[flow.value >= 0]
    returned, read = log.dtype[reader], log.dtype[maker]
    return marked(reader[floating[returned] & floating[read] & (returned != read)], len(log))


def explained(c: Comparison, row: int) -> Explanation:
    """Explain a row, of two logs or of one."""
    return explain_single(c, row) if isinstance(c, SingleRun) else explain(c, row)


def explain_single(c: SingleRun, row: int) -> Explanation:
    """Explain one operation of a single run."""
    inputs = inputs_of(c, row)
    return Explanation(
        headline=_headline(c, row, inputs),
        pairing="",
        notes=tuple(_notes(c, row, inputs)),
        facts=tuple(facts_of(c, row)),
        inputs=inputs,
    )


def _headline(c: SingleRun, row: int, inputs: tuple[InputFact, ...]) -> str:
    if c.status[row] == Status.NAN:
        return _mishap(c, row, inputs)
    if c.status[row] == Status.DIVERGED:
        return f"FIRST CAUSE: {recomputed(c, row)}"
    if c.status[row] == Status.UNFINISHED:
        return "unfinished: read before the communication completed, the numbers mean nothing"
    largest = float(c.error[row])
    size = "" if math.isnan(largest) else f"finite, up to {largest:.3g}"
    if c.status[row] == Status.RECOMPUTE:
        return "recomputed copy: run again in the backward pass" + (f"; {size}" if size else "")
    logged = len(c.a.outputs[row]) or not np.isnan(c.a.stats[:, row]).all()
    return size or ("no minimum or maximum logged" if logged else "no statistics logged")


def _mishap(c: SingleRun, row: int, inputs: tuple[InputFact, ...]) -> str:
    what = broken_text(c.a, row)
    if not c.cause[row]:
        for fact in inputs:
            if fact.producer_a >= 0 and c.status[fact.producer_a] == Status.NAN:
                return f"{what}; input {fact.position} from {c.a.keys[fact.producer_a]} is already non-finite"
        return f"{what}; an input is already non-finite"
    if any(fact.producer_a >= 0 and c.status[fact.producer_a] == Status.NAN for fact in inputs) or any(
        math.isinf(x) for x in c.a.inputs[row].tolist()
    ):
        return f"TURNS Inf INTO NaN: the output has {what}; an input holds Inf, none NaN"
    return f"FIRST CAUSE: the output has {what}; {'all inputs are finite' if inputs else 'no inputs'}"


def _notes(c: SingleRun, row: int, inputs: tuple[InputFact, ...]) -> list[str]:
    log = c.a
    notes = [recompute_note(log, found)] if (found := c.mismatch_at.get(row)) is not None else []
    dtype = log.dtype_text(row)
    for fact in inputs:
        read = log.dtype_text(fact.producer_a) if fact.producer_a >= 0 else ""
        if "float" in dtype and "float" in read and read != dtype:
            notes.append(f"dtype boundary: input {fact.position} is {read}, the output {dtype}")
    limit, largest = _LARGEST.get(dtype), float(c.error[row])
    if limit is not None and math.isfinite(largest) and largest > _NEAR * limit:
        notes.append(f"{largest / limit:.0%} of the {dtype} maximum ({limit:,.0f}): close to overflow")
    return notes


def _without_records(log: OpLog) -> OpLog:
    """A log without records, in columns as those of another."""

    def none(column: Any) -> Any:
        if isinstance(column, Ragged):
            return Ragged(column.start[:1], column.value[:0])
        return column[..., :0] if isinstance(column, np.ndarray) else column

    said = [of.name for of in fields(log) if of.default is MISSING and of.default_factory is MISSING]
    bare = {"path": "", "header": Header(), "keys": KeyColumn(b""), "extra": {}}
    return OpLog(**{name: none(getattr(log, name)) for name in said} | bare)
