"""The case that is judged, and the findings so far: the arguments of every judge, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Float64, Int64, columns
from matchers.logs.op_log import OpLog
from matchers.ops.dataflow import DataFlow
from matchers.ops.last_contents import LastContents
from matchers.ops.recomputation import Mismatch
from matchers.ops.shards import Shards
from matchers.pairing.pairing import Pairing
from matchers.status import Status
from matchers.verdict.content_verdicts import ContentVerdicts
from matchers.verdict.expectation import Expect, Expectation
from matchers.verdict.judge import Verdicts, dtype_policy
from matchers.verdict.judged import Judged
from matchers.verdict.reason import Reason
from matchers.verdict.tolerance import DtypePolicy

if TYPE_CHECKING:
    from matchers.verdict.error_propagation import Arithmetic
    from matchers.verdict.records import Place, RecomputeMismatch
    from matchers.verdict.slots import SlotVerdict

__all__ = ["Case", "Earlier", "Judgement", "Last"]


@dataclass(slots=True)
class Earlier:
    """Findings of the last judgement that the next one of the same logs, with other pairs, reuses; the judges set them.

    Attributes:
        by_itself: the verdict on each pair by itself.
        noise: that on pairs without what is noise, and what the log b of these depends on (`cancellation`).
        lists: the verdicts on operations on lists of other lengths, by records.
        last: the whole.
    """

    by_itself: Judged | None = None
    noise: tuple[Judged, tuple[NDArray[Any], ...]] | None = None
    lists: Mapping[tuple[int, int], SlotVerdict | None] = field(default_factory=dict)
    last: Last | None = None


@columns
class Case:
    """Two logs, their pairs, and what the user expects of them.

    Attributes:
        i, j: int64[p], the leads of the pairs.
        shards: the parts of tensors that the records hold.
        rtol: float64[p], tolerances of rules, or of the expectation; NaN for none.
        policy: combinations of dtypes that are expected.
        excluded: bool[p], pairs that a rule ignores.
        contents: what each run leaves in named tensors.
        copies: recomputed copies of each run that do not repeat their originals.
        earlier: what the next judgement need not find again.
    """

    a: OpLog
    b: OpLog
    pairing: Pairing
    flow: DataFlow
    shards: Shards
    expectation: Expectation
    i: Int64
    j: Int64
    rtol: Float64
    policy: DtypePolicy
    excluded: Bool
    contents: tuple[LastContents, LastContents]
    copies: tuple[tuple[Mismatch, ...], tuple[Mismatch, ...]]
    earlier: Earlier

    @classmethod
    def of(cls, a: OpLog, b: OpLog, pairing: Pairing, expectation: Expectation, rtol: Float64, **given: Any) -> Case:
        """Complete a case; `rtol`: tolerances of the user's rules by pair, which apply under any expectation."""
        i, j = pairing.lead_a, pairing.lead_b
        if expectation.rtol is not None:
            rtol = np.where(np.isnan(rtol), expectation.rtol, rtol)
        preset = expectation.preset
        policy = () if preset == Expect.BITWISE else dtype_policy(a, b, i, j, every=preset == Expect.LOW_PRECISION)
        return cls(a, b, pairing, expectation=expectation, i=i, j=j, rtol=rtol, policy=policy, **given)

    def made_by(self, at_a: Int64, at_b: Int64) -> Int64:
        """int64: the pair that made some inputs, at their places among all of a and of b; -1 for none."""
        one, other = self.flow.a.value[at_a], self.flow.b.value[at_b]
        pair = np.where(one >= 0, self.pairing.of_a[one], -1)
        return np.where((other >= 0) & (pair == self.pairing.of_b[other]), pair, -1)

    def same_but_excluded(self, other: Case) -> bool:
        """True if another case of the same logs has the same pairs and tolerances; rules may ignore others of them."""
        return (
            self.expectation is other.expectation
            and self.contents is other.contents
            and self.policy == other.policy
            and np.array_equal(self.rtol, other.rtol, equal_nan=True)
            and all(
                np.array_equal(getattr(self.pairing, column.name), getattr(other.pairing, column.name))
                for column in fields(Pairing)
            )
        )

    @property
    def bitwise(self) -> bool:
        """True if any difference is red, unless a tolerance of the user covers it."""
        return self.expectation.preset == Expect.BITWISE


@columns
class Judgement:
    """The verdicts so far, and what judges found on the way.

    Attributes:
        b: log b as it is judged, without a factor of its losses and without noise.
        i, j: int64[p], the records whose results are compared: the leads, or the wholes of their parts.
        parts: bool[p], the leads hold different parts of their tensors, so their norms tell nothing about each other.
        settled: bool[p], judged by what the pair was given: no error of its inputs explains it.
        noise: names of parameters and states of an optimizer that are noise.
        scaled: bool[p], losses and gradients that differ by `loss_scale`.
        cancellation: by pair, how many times a sum that cancels its terms are.
        beside: by pair and slot (see `Values`), the error of such a sum among results that are judged without it.
        loss_scale: the factor between the gradients of a and those of b before they are reduced.
        arithmetic: the differences that float arithmetic explains; None unless requested.
        contents: what each run leaves in named tensors.
        mismatches: recomputed copies that do not repeat their originals.
        of_records: verdicts on single records, by side and record.
    """

    verdicts: Verdicts
    b: OpLog
    i: Int64
    j: Int64
    parts: Bool
    settled: Bool
    scaled: Bool
    cancellation: Mapping[int, float] = field(default_factory=dict)
    beside: Mapping[tuple[int, int], float] = field(default_factory=dict)
    noise: frozenset[str] = frozenset()
    loss_scale: float = 1.0
    arithmetic: Arithmetic | None = None
    contents: ContentVerdicts = field(default_factory=ContentVerdicts)
    mismatches: tuple[RecomputeMismatch, ...] = ()
    of_records: Mapping[Place, SlotVerdict] = field(default_factory=dict)

    @classmethod
    def of(cls, case: Case, verdicts: Verdicts) -> Judgement:
        """The beginning: each pair is judged by itself."""
        nothing = np.zeros(len(case.i), bool)
        return cls(verdicts, case.b, case.i, case.j, parts=nothing, settled=nothing, scaled=nothing)

    @property
    def red_records(self) -> list[Place]:
        """The single records that are red."""
        return [place for place, slot in self.of_records.items() if slot.status.red]

    def claimed(
        self, which: Bool | Int64, status: Status | NDArray[np.int8], reason: Reason | NDArray[np.int8], **columns: Any
    ) -> Judgement:
        """The same with other verdicts on some pairs, see `Verdicts.claimed`."""
        return replace(self, verdicts=self.verdicts.claimed(which, status, reason, **columns))


@columns
class Last:
    """A judgement.

    Attributes:
        before_sums: int8[p], the statuses that `judge_sums` was given.
        found: the result, with log b as it is.
    """

    case: Case
    before_sums: NDArray[np.int8]
    found: Judgement
