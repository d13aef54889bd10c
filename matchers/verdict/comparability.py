"""Differences between two runs as a whole that limit how far their rows can be compared.

If both logs have run info (matchers/ops/run_info.py), it is compared. For logs without it, differences are inferred
from the records: dtypes, use of collectives, and inputs without a recorded producer.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from matchers.arrays import Bool, Int64
from matchers.laws.law import Form
from matchers.laws.register import law
from matchers.logs.hashing import shared_ids
from matchers.logs.op_log import OpLog, Phase
from matchers.ops.arguments import tells_arguments
from matchers.ops.batch_numbers import micro_batch_numbers
from matchers.ops.dataflow import DataFlow
from matchers.ops.laws import collective, positions, rows_where
from matchers.ops.module_path import canonical
from matchers.ops.optimizer_settings import no_learning_rate, optimizer_differences
from matchers.ops.run_info import (
    HELD_BY_RANKS,
    MERGED_RANKS,
    Note,
    Severity,
    compare_run_info,
    start_of,
    tells_start,
)
from matchers.ops.start import known_digests
from matchers.pairing.pairing import Pairing
from matchers.verdict.digests import shared_inputs
from matchers.verdict.expectation import Expectation
from matchers.verdict.noise_floor import NoiseFloor
from matchers.verdict.relative_error import relative
from matchers.verdict.tolerance import EPSILON, DtypePolicy, default_tolerance

__all__ = ["Comparability", "Note", "Severity", "comparability", "other_weights"]

_MOST = 0.5
"""Fraction of the factors of matrix products whose norms must differ where the weights do; of fewer, something that was
not recorded made some.
"""
_MAX_CLAUSES = 5


@dataclass(frozen=True, slots=True)
class Comparability:
    """Differences between two runs as a whole, the most severe first."""

    notes: tuple[Note, ...] = ()

    def with_notes(self, notes: Iterable[Note]) -> Comparability:
        """The same with further notes."""
        return Comparability(tuple(sorted((*self.notes, *notes), key=lambda note: -note.severity)))

    @property
    def severity(self) -> Severity:
        """Severity of the worst note; HARMLESS without any."""
        return max((note.severity for note in self.notes), default=Severity.HARMLESS)

    @property
    def grave(self) -> tuple[Note, ...]:
        """The notes that are not harmless."""
        return tuple(note for note in self.notes if note.severity > Severity.HARMLESS)

    @property
    def sentence(self) -> str:
        """All notes that are not harmless in one sentence; empty if there are none."""
        if not self.grave:
            return ""
        clauses = [note.text for note in self.grave[:_MAX_CLAUSES]]
        if (more := len(self.grave) - len(clauses)) > 0:
            clauses.append(f"and {more} more")
        start = "Not comparable" if self.severity == Severity.FATAL else "Compare with care"
        return f"{start}: {'; '.join(clauses)}."


def comparability(
    a: OpLog,
    b: OpLog,
    pairing: Pairing,
    flow: DataFlow | None,
    *,
    policy: DtypePolicy,
    expectation: Expectation,
    red: bool,
) -> Comparability:
    """Collect the differences between two runs, from their run info and their logs.

    Args:
        a, b: the two logs.
        pairing: the pairs.
        flow: the data flow of both logs, None if not computed yet.
        policy: dtype combinations that differ throughout.
        expectation: how similar the runs are expected to be.
        red: any row is red; without red rows the inputs of the step are taken to be the same.
    """
    draws = any(_draws(log) for log in (a, b))
    notes = list(compare_run_info(a.header.run, b.header.run, draws=draws))
    notes += [*_left_out(a, "a"), *_left_out(b, "b")]
    notes += [*_rows(a), *_copies(a, "a"), *_copies(b, "b")]
    notes += [*_optimizers(a, b), *_no_rate(a, b), *_arguments(a, b), *_levels(a, b)]
    notes += [*_incomplete(a, "a"), *_incomplete(b, "b"), *_micro_batches(a, b)]
    if any(note.kind == "layout" for note in notes):
        notes += [*_one_rank(a, "a"), *_one_rank(b, "b")]
    elif red:  # a gradient that one run alone cuts is no harmless difference
        notes = [replace(note, severity=Severity.SUSPICIOUS) if note.kind == "detach" else note for note in notes]
    if expectation.noise is not None:
        notes += _noise(expectation.noise, a if expectation.noise.side == "a" else b)
    # the results' dtypes are more informative than the parameters'
    if policy:
        notes = [note for note in notes if note.kind != "dtype" or "parameters" not in note.text]
        notes.append(_policy(policy))
    # all ranks together communicate for their layout
    if not (a.header.run and b.header.run) and not any(MERGED_RANKS in log.header.run for log in (a, b)):
        notes += _communication(a, b)
    if not (tells_start(a.header.run) and tells_start(b.header.run)):
        if red:
            notes += _inferred_start(a, b, pairing, flow, policy)
    elif (differ := start_of(a.header.run, b.header.run).parameters) is not None and math.isnan(differ.error):
        notes = _softened(notes, _Given(a, b, pairing, flow), policy)
    if any(MERGED_RANKS in log.header.run for log in (a, b)):
        notes = list(map(_with_advice, notes))
    return Comparability().with_notes(notes)


def _draws(log: OpLog) -> bool:
    return any(law(name).random for name in log.ops)


def _incomplete(log: OpLog, side: str) -> Iterator[Note]:
    if log.partial:
        return
    declared = log.header.declared
    if log.complete is False:
        known = declared is not None and declared > len(log)
        many = f"{len(log):,} of {declared:,} operations" if known else f"{len(log):,} operations"
        many = "1 operation" if len(log) == 1 and not known else many
        why = f" ({log.header.incomplete})" if log.header.incomplete else ""
        yield Note(Severity.SUSPICIOUS, "incomplete", f"{side} is cut off after {many}{why}")
    elif not len(log):
        yield Note(Severity.FATAL, "incomplete", f"{side} has no operations")
    elif declared is not None and declared != len(log):
        text = f"{side} declares {declared:,} operations and has {len(log):,}"
        yield Note(Severity.SUSPICIOUS, "incomplete", text)
    if log.problem_count:
        many = f"{log.problem_count:,} place{'s' * (log.problem_count > 1)}"
        yield Note(Severity.SUSPICIOUS, "unreadable", f"{many} in {side} could not be read")


def _optimizers(a: OpLog, b: OpLog) -> Iterator[Note]:
    for each in optimizer_differences(a.header.run, b.header.run):
        x, y = each.values
        text = f"the optimizer's {each.name} is {x} in a and {y} in b{each.whose}"
        yield Note(Severity.SUSPICIOUS, "optimizer", text)


def _no_rate(a: OpLog, b: OpLog) -> Iterator[Note]:
    if all(no_learning_rate(log.header.run) for log in (a, b)):
        text = "the learning rate is 0 in both runs, so the step updates nothing: capture a later one"
        yield Note(Severity.SUSPICIOUS, "optimizer", text)


def _arguments(a: OpLog, b: OpLog) -> Iterator[Note]:
    told = [tells_arguments(log) for log in (a, b)]
    if told[0] != told[1]:
        one = "a" if told[0] else "b"
        yield Note(Severity.HARMLESS, "arguments", f"only {one}'s log has arguments: they are not compared")


def _levels(a: OpLog, b: OpLog) -> Iterator[Note]:
    if a.tells.modules != b.tells.modules:
        modules, other = ("a", "b") if a.tells.modules else ("b", "a")
        text = f"{modules} is a log of modules: {other} is compared where these end, in the forward pass"
        yield Note(Severity.HARMLESS, "modules", text)


def _left_out(log: OpLog, side: str) -> Iterator[Note]:
    for left in log.left_out:
        helps = f"; {left.helps}" if left.helps else ""
        yield Note(Severity.SUSPICIOUS, "left-out", f"{left.name} of {side} {left.why}{left.note}{helps}")


def _rows(a: OpLog) -> Iterator[Note]:
    """The rows that are compared where one run has others, too."""
    if a.rows_compared:
        yield Note(Severity.HARMLESS, "rows", f"compared by rows: {a.rows_compared}")


def _copies(log: OpLog, side: str) -> Iterator[Note]:
    """Results that one run repeats, for each sample or each head."""
    if log.held_once:
        results = f"{log.held_once:,} result{'s' * (log.held_once > 1)}"
        text = f"{side} holds {results} several times over, which the other run has once: one copy is compared"
        yield Note(Severity.HARMLESS, "copies", text)


def _one_rank(log: OpLog, side: str) -> Iterator[Note]:
    """A log that is one of several ranks in a layout that the other run has not: it holds parts, or some samples."""
    size, rank = log.header.run.get("world_size"), log.header.run.get("rank")
    if type(size) is int and size > 1 and MERGED_RANKS not in log.header.run:
        text = f"{side} is the log of rank {rank} alone: those of all {size:,} ranks, in one folder, would be merged"
        yield Note(Severity.SUSPICIOUS, "layout", text)


def _micro_batches(a: OpLog, b: OpLog) -> Iterator[Note]:
    x, y = map(_batches, (a, b))
    if a.batches > 1 or b.batches > 1:
        text = f"a has {x or 1} micro-batch{'es' * (x > 1)} in the step and b {y or 1}, which are judged together"
        yield Note(Severity.HARMLESS, "micro-batches", text)
    elif x != y and x > 0 and y > 0:
        yield Note(Severity.SUSPICIOUS, "micro-batches", f"a has {x} micro-batch{'es' * (x > 1)} in the step and b {y}")


def _batches(log: OpLog) -> int:
    """The number of micro-batches; 0 where a log numbers none."""
    if log.batches > 1:
        return log.batches
    numbered = int(log.micro_batch.max(initial=-1)) + 1
    return numbered if numbered <= 1 else int(micro_batch_numbers(log).max()) + 1


def _noise(noise: NoiseFloor, log: OpLog) -> Iterator[Note]:
    if noise.runs:
        many = int(np.count_nonzero(noise.error > 0))
        text = f"limits from {noise.source} of {noise.side}, in which {many:,} of {len(noise.keys):,} operations differ"
        yield Note(Severity.HARMLESS, "noise", text)
        return
    third = f"the noise log repeats {noise.side}"
    if not noise.complete:
        yield Note(Severity.SUSPICIOUS, "noise", "the noise log is cut off: rows it lacks are judged by their inputs")
    if noise.silent and noise.other_batch:
        yield Note(Severity.HARMLESS, "noise", f"{third} bitwise at another batch size: nothing depends on the batch")
        return
    if noise.silent:
        yield Note(Severity.SUSPICIOUS, "noise", f"{third} bitwise and shows no noise: perturb it (capture --perturb)")
        return
    how = "perturbed" if noise.perturbed else "at another batch size" if noise.other_batch else "unchanged"
    many = int(np.count_nonzero(noise.error > 0))
    yield Note(Severity.HARMLESS, "noise", f"{third}, {how}: {many:,} of {len(log):,} operations differ")
    if noise.unsteady:
        some = ", ".join(log.keys[record] for record in noise.unsteady[:_MAX_CLAUSES])
        more = f" and {len(noise.unsteady) - _MAX_CLAUSES:,} more" if len(noise.unsteady) > _MAX_CLAUSES else ""
        why = "depends on the batch" if noise.other_batch else "non-deterministic"
        what = "rows" if noise.other_batch else "inputs"
        text = f"{why}, other results from bitwise equal {what}: {some}{more}"
        yield Note(Severity.HARMLESS, "noise", text)


def _policy(policy: DtypePolicy) -> Note:
    changes = " and ".join(f"{x} in a is {y} in b" for x, y in policy)
    coarse = max((name for pair in policy for name in pair), key=lambda name: EPSILON[name])
    return Note(Severity.SUSPICIOUS, "dtype", f"{changes}: judged at the ε of {coarse} ({EPSILON[coarse]:.1e})")


def _communication(a: OpLog, b: OpLog) -> Iterator[Note]:
    many = [int(np.count_nonzero(collective(log))) for log in (a, b)]
    if (many[0] > 0) != (many[1] > 0):
        one = "a" if many[0] else "b"
        text = f"only {one} communicates ({max(many):,} collectives): tensors may be sharded differently"
        yield Note(Severity.SUSPICIOUS, "layout", text)


class _Given:
    """External inputs of the forward pass (no producer on either side), with their norms.

    One entry each: int64 `record` of a, `other` of b, and `place` among the inputs; float64 norms `x`, `y`; bool
    `tokens`, the input holds indices for a lookup, not weights.
    """

    def __init__(self, a: OpLog, b: OpLog, pairing: Pairing, flow: DataFlow | None) -> None:
        flow = flow if flow is not None else DataFlow(a, b)
        i, j = pairing.lead_a, pairing.lead_b
        compared = (a.phase[i] == Phase.FORWARD) & (b.phase[j] == Phase.FORWARD)
        i, j = i[compared], j[compared]
        owner, place, at_a, at_b = shared_inputs(a, b, i, j)
        x, y = a.inputs.value[at_a], b.inputs.value[at_b]
        given = (flow.a.value[at_a] < 0) & (flow.b.value[at_b] < 0) & np.isfinite(x) & np.isfinite(y)
        self.x, self.y, self.place = x[given], y[given], place[given]
        self.record, self.other = i[owner[given]], j[owner[given]]
        self.tokens = self.place == positions(a, lambda law: law.tokens)[self.record]
        self._of = a

    def differs(self, policy: DtypePolicy) -> Bool:
        """bool: the norms differ by more than the tolerance."""
        least = max((default_tolerance(name) for pair in policy for name in pair), default=0.0)
        limit = np.array([max(default_tolerance(name), least) for name in (*self._of.dtypes, "")])
        with np.errstate(invalid="ignore"):
            return np.asarray(relative(self.x, self.y) > limit[self._of.dtype[self.record]])

    def first(self, which: Bool) -> str:
        """Key of the first record among the entries of a mask."""
        key: str = self._of.keys[int(self.record[which].min())]
        return key


def other_weights(
    a: OpLog, b: OpLog, pairing: Pairing, flow: DataFlow | None, *, any_dtype: bool = False
) -> str | None:
    """Say how two runs begin with other weights, told by norms alone; None if they do not seem to.

    The factors of matrix products that no recorded operation made are weights, nearly all of them. Other norms may be
    those of other shards (`sharded_runs`).

    Args:
        any_dtype: also where the results have other dtypes, and so perhaps the weights.
    """
    given = _Given(a, b, pairing, flow)
    of_a, of_b, _ = shared_ids(a.dtypes, b.dtypes)
    factor = rows_where(a, lambda law: law.form == Form.PRODUCT, given.record)
    factor &= any_dtype | (of_a[a.dtype[given.record]] == of_b[b.dtype[given.other]])
    differs = factor & (given.x != given.y)
    differs &= ~_held_by_ranks(a, b, given.record) & ~_held_by_ranks(b, a, given.other)
    n, total = int(np.count_nonzero(differs)), int(np.count_nonzero(factor))
    if not n or n < _MOST * total:
        return None
    return f"{n:,} of {total:,} matrix products read other weights, {given.first(differs)} first"


def _held_by_ranks(log: OpLog, merged: OpLog, rows: Int64) -> Bool:
    """bool: ranks that were merged begin with all parameters of a record's module: their norms are of others, too.

    Each may have some of the experts, under names of its own.
    """
    held = merged.header.run.get(HELD_BY_RANKS)
    if not isinstance(held, list) or not len(rows):
        return np.zeros(len(rows), bool)
    known, of_module = set(map(str, held)), defaultdict[str, list[bool]](list)
    for name, digest in known_digests(log.header.run, "parameter_digests").items():
        of_module[name.rpartition(".")[0]].append(str(digest) in known)
    whole = np.array([all(of_module.get(canonical(name), [False])) for name in log.modules] + [False])
    return np.asarray(whole[log.module[rows]])


def _inferred_start(a: OpLog, b: OpLog, pairing: Pairing, flow: DataFlow | None, policy: DtypePolicy) -> Iterator[Note]:
    """Differing tokens and weights, for logs that do not identify the start of the step."""
    given = _Given(a, b, pairing, flow)
    if (tokens := given.tokens & given.differs(policy)).any():
        yield Note(Severity.FATAL, "batch", f"the batches differ: {given.first(tokens)} reads different tokens")
    if told := other_weights(a, b, pairing, flow):
        yield Note(Severity.FATAL, "parameters", f"the runs differ before this step: capture step 1; {told}")


def _with_advice(note: Note) -> Note:
    """The note; of other weights in other layouts, which no seed makes the same, with what does."""
    if note.kind != "parameters" or note.severity != Severity.FATAL:
        return note
    return replace(note, text=f"{note.text} (numtui capture --weights-from gives both the same)")


def _softened(notes: list[Note], given: _Given, policy: DtypePolicy) -> list[Note]:
    """Lower the severity of weights with different digests but equal norms: a reordered sum made them, and they are
    comparable.
    """
    weights = ~given.tokens
    if not weights.any() or (weights & given.differs(policy)).any():
        return notes
    extent = ", only by rounding as far as their norms show"
    return [
        Note(Severity.SUSPICIOUS, note.kind, note.text + extent)
        if note.kind == "parameters" and note.severity == Severity.FATAL
        else note
        for note in notes
    ]
