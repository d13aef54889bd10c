"""The rows of a comparison as frozen columns, one row per line of the screen.

Rows follow the dispatch order of a; operations that only b has stand between them at their place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Float64, Hash, Int32, Int64, columns, marked, stable_order
from matchers.graph import renamed, union
from matchers.logs.columns import Ragged
from matchers.logs.hashing import shared_ids
from matchers.logs.op_log import OpLog
from matchers.ops.dataflow import downstream
from matchers.ops.micro_batches import of_other_ranks
from matchers.ops.run_info import MERGED_RANKS, start_of
from matchers.ops.start import Start
from matchers.pairing.pairing import Method, Pairing
from matchers.regions.find import Regions, find_regions
from matchers.status import Role, Status
from matchers.verdict.reason import Reason

if TYPE_CHECKING:
    from typing_extensions import Self

    from matchers.ops.dataflow import DataFlow
    from matchers.pairing.features import Copies
    from matchers.verdict.judge import Verdicts
    from matchers.verdict.slots import SlotVerdict

__all__ = ["Edges", "Rows", "Stretch"]

_Completed = TypeVar("_Completed", bound="Rows")


@columns
class Edges:
    """The data flow between rows, of both runs together and of each by itself."""

    both: Ragged
    a: Ragged
    b: Ragged


@dataclass(frozen=True, slots=True)
class Stretch:
    """The unjudged operations among which a first cause was looked for.

    Attributes:
        end: the pair, or its row, that shows the divergence.
        count: number of operations that lead to it.
        reads: place of an input that no operation made and that differs, -1 if the first operation was named.
    """

    end: int
    count: int
    reads: int = -1


@dataclass(frozen=True, eq=False, repr=False)
class Rows:
    """The r rows of a comparison, column by column.

    Attributes:
        row_a, row_b: int64[r], the record shown on each side (the lead of a group), -1 when there is none.
        pair: int64[r], index into `pairing`, -1 for an unpaired row.
        verdict: int8[r] of `Status`, from the evidence alone.
        reason: int8[r] of `Reason`, the finding that decided the row's status.
        excluded_by: int32[r], the number of the rule that ignores the row, -1 for none.
        error: float64[r], relative error; NaN when there is nothing to compare; inf for NaN or Inf in the values.
        bound: bool[r], the error is only a lower bound (equal norms do not bound the error); otherwise it is an
            estimate, or 0 for equal bits.
        inputs_equal: bool[r], the inputs of both sides are bitwise equal by their digests, so any difference in the
            row, red or not, arises in the operation itself.
        tolerance: float64[r], the error up to which the row counts as close (larger for Min and Max than for norms, see
            verdict/tolerance.py); NaN when not judged.
        role: int8[r] of `Role`, NONE for rows that are not red.
        cause: bool[r], the row is a first cause: a red row, an unpaired one, one of parts that cannot be judged (see
            `stretches`), one that agrees in print or within tolerance while a view, split, clone or cast of its result
            does not, or one that a rule ignores although red rows follow from it that no other first cause explains.
        original: int32[r], the row that a recomputed copy repeats; -1 for other rows, and for copies paired in their
            own right.
        at_a, at_b: int64[n_a], int64[n_b], the row that shows each record (members of a group: the pair's row).
        slots: by row, the further output or the parameter that `status` and `error` are about; no entry for rows judged
            by their first output.
        parts: bool[r], the two sides hold different parts of their tensors; empty for a preview.
        stretches: by row, the stretch that a first cause stands for.
        likes: by unpaired row of a, the unpaired row of b that does the same and was asked something else.
        flow: the data flow of both logs; None for a preview.
        recomputed: bool[n_a] and bool[n_b], activation checkpointing ran the record again; None when not computed.
    """

    a: OpLog
    b: OpLog
    pairing: Pairing
    row_a: Int64
    row_b: Int64
    pair: Int64
    verdict: NDArray[np.int8]
    reason: NDArray[np.int8]
    excluded_by: Int32
    error: Float64
    bound: Bool
    inputs_equal: Bool
    tolerance: Float64
    role: NDArray[np.int8]
    cause: Bool
    original: Int32
    at_a: Int64
    at_b: Int64
    slots: Mapping[int, SlotVerdict] = field(default_factory=dict)
    parts: Bool = field(default_factory=lambda: np.zeros(0, bool))
    stretches: Mapping[int, Stretch] = field(default_factory=dict)
    likes: Mapping[int, int] = field(default_factory=dict)
    flow: DataFlow | None = field(default=None, repr=False, compare=False)
    recomputed: tuple[Bool, Bool] | None = field(default=None, repr=False, compare=False)

    single: ClassVar[bool] = False
    """True for one log by itself (`matchers.single_run`)."""

    @classmethod
    def of(
        cls,
        a: OpLog,
        b: OpLog,
        copies: tuple[Copies, Copies],
        pairing: Pairing,
        verdicts: Verdicts,
        parts: Bool,
        excluded: tuple[Int32, Int32],
        flow: DataFlow,
    ) -> Rows:
        """Put pairs and unpaired records in screen order, without causes.

        Args:
            copies: the recomputed copies of each log.
            pairing: the pairs.
            verdicts: by pair, from the evidence alone.
            parts: bool[p], the two sides hold different parts of their tensors.
            excluded: by record of a and of b, the number of the rule that ignores it, -1 for none.
            flow: data flow of both logs.
        """
        of_a, of_b = copies
        layout = _Layout.of(pairing)
        column = layout.column
        unpaired_a, unpaired_b = (
            _unpaired_status(of_a.original, a, Status.ONLY_A),
            _unpaired_status(of_b.original, b, Status.ONLY_B),
        )
        verdict = column(verdicts.status, unpaired_a, unpaired_b).astype(np.int8)
        excluded_a, excluded_b = excluded
        # the extra entry serves rows without a record on that side
        by_a, by_b = np.append(excluded_a, -1)[layout.row_a], np.append(excluded_b, -1)[layout.row_b]
        excluded_by = np.where(by_a >= 0, by_a, by_b)
        reason = column(verdicts.reason, Reason.ONLY_ONE_RUN, Reason.ONLY_ONE_RUN)
        reason[verdict == Status.RECOMPUTE], reason[excluded_by >= 0] = Reason.RECOMPUTED, Reason.RULE
        return cls(
            a=a,
            b=b,
            pairing=pairing,
            row_a=layout.row_a,
            row_b=layout.row_b,
            pair=layout.pair,
            verdict=verdict,
            reason=reason.astype(np.int8),
            excluded_by=excluded_by.astype(np.int32),
            error=column(verdicts.error, np.nan, np.nan),
            bound=column(verdicts.bound, False, False),
            inputs_equal=column(verdicts.inputs_equal, False, False),
            tolerance=column(verdicts.limit, np.nan, np.nan),
            role=np.zeros(len(verdict), np.int8),
            cause=np.zeros(len(verdict), bool),
            original=layout.originals(
                verdict == Status.RECOMPUTE, excluded_by >= 0, of_a.original, of_b.original, pairing
            ),
            at_a=layout.at_a,
            at_b=layout.at_b,
            slots={int(layout.row_of_pair[k]): slot for k, slot in verdicts.slots.items()},
            parts=column(parts, False, False),
            flow=flow,
            recomputed=(of_a.repeat, of_b.repeat),
        )

    def with_unpaired(self, verdicts: Mapping[tuple[str, int], SlotVerdict]) -> Rows:
        """The same rows with verdicts on unpaired records, by side and record; those on paired ones are left out."""
        verdicts = {place: slot for place, slot in verdicts.items() if self.pair[self._row_of(*place)] < 0}
        if not verdicts:
            return self
        out = replace(
            self,
            **{
                name: getattr(self, name).copy()
                for name in ("verdict", "reason", "error", "bound", "inputs_equal", "tolerance")
            },
            slots={**self.slots, **{self._row_of(*place): slot for place, slot in verdicts.items()}},
        )
        for place, slot in verdicts.items():
            row = self._row_of(*place)
            out.verdict[row], out.error[row], out.bound[row] = slot.status, slot.error, slot.bound
            out.tolerance[row], out.inputs_equal[row] = slot.limit, slot.alone
            if out.excluded_by[row] < 0:
                out.reason[row] = slot.reason
        return out

    def _row_of(self, side: str, record: int) -> int:
        return int((self.at_a if side == "a" else self.at_b)[record])

    @classmethod
    def unjudged(cls, a: OpLog, b: OpLog, row_a: Int64, row_b: Int64, **given: Any) -> Self:
        """Rows without pairs, verdicts and causes; `given`: columns that say more."""
        n = len(row_a)
        none, no, nan, zero = np.full(n, -1, np.int32), np.zeros(n, bool), np.full(n, np.nan), np.zeros(n, np.int8)
        blank: dict[str, Any] = {
            "verdict": np.full(n, Status.PENDING, np.int8),
            "reason": np.full(n, Reason.PENDING, np.int8),
            "at_a": np.arange(len(a)),
            "at_b": np.arange(len(b)),
            **dict.fromkeys(("pair", "excluded_by", "original"), none),
            **dict.fromkeys(("error", "tolerance"), nan),
            **dict.fromkeys(("bound", "inputs_equal", "cause"), no),
            "role": zero,
        }
        return cls(a=a, b=b, pairing=Pairing.none(len(a), len(b)), row_a=row_a, row_b=row_b, **blank | given)

    def completed(self, cls: type[_Completed], **given: Any) -> _Completed:
        """The rows as such an object, with other causes or further fields, and with what was computed of them."""
        out = cls(**{column.name: getattr(self, column.name) for column in fields(Rows)} | given)
        vars(out).update(
            {name: vars(self)[name] for name in ("covered", "edges_by_run", "regions", "start") if name in vars(self)}
        )
        return out

    def __len__(self) -> int:
        return len(self.row_a)

    @cached_property
    def status(self) -> NDArray[np.int8]:
        """int8[r] of `Status`: IGNORED where a rule excludes the row, else its verdict."""
        return np.where(self.excluded_by >= 0, np.int8(Status.IGNORED), self.verdict)

    @cached_property
    def red(self) -> Bool:
        """bool[r]: rows whose status needs attention (diverged, NaN or shape mismatch)."""
        return np.asarray(self.status >= Status.SHAPE)

    @cached_property
    def unread(self) -> Bool:
        """bool[r]: rows in which only outputs differ that no operation depends on."""
        return marked([row for row, slot in self.slots.items() if slot.reason == Reason.UNREAD_OUTPUT], len(self))

    @cached_property
    def counts(self) -> dict[Status, int]:
        """Number of rows per status, zeros included."""
        n = np.bincount(self.status, minlength=len(Status))
        return {s: int(n[s]) for s in Status}

    @property
    def logs(self) -> tuple[tuple[str, OpLog], ...]:
        """The logs with the names of their sides."""
        return (("a", self.a),) if self.single else (("a", self.a), ("b", self.b))

    @property
    def edges(self) -> Ragged:
        """The rows that made what each row reads in either run, itself not; ascending; empty for a preview."""
        return self.edges_by_run.both

    @cached_property
    def edges_by_run(self) -> Edges:
        """The same, also of each run by itself."""
        if self.flow is not None:
            return self._edges(self.flow.a, self.flow.b)
        none = Ragged(np.zeros(len(self) + 1, np.int64), np.zeros(0, np.int64))
        return Edges(none, none, none)

    def edges_of(self, flow_a: Ragged, flow_b: Ragged) -> Edges:
        """The same by another data flow of the two logs."""
        flow = self.flow
        same = flow is not None and flow_a is flow.a and flow_b is flow.b
        return self.edges_by_run if same else self._edges(flow_a, flow_b)

    def _edges(self, flow_a: Ragged, flow_b: Ragged) -> Edges:
        of_runs = [
            renamed(flow.start, flow.value, at, len(self)) for flow, at in ((flow_a, self.at_a), (flow_b, self.at_b))
        ]
        return Edges(*(Ragged(*of) for of in (union(*of_runs), *of_runs)))

    @cached_property
    def start(self) -> Start:
        """The tensors with which the two runs begin the step, as far as they differ, by the headers of their logs."""
        return start_of(self.a.header.run, self.b.header.run)

    @property
    def merged(self) -> bool:
        """One of the runs is of ranks, read as one: these compute parts, and exchange them."""
        return any(MERGED_RANKS in log.header.run for log in (self.a, self.b))

    @property
    def understood(self) -> bool:
        """False if ranks compute for each other what neither log shows, so that a difference need not be one."""
        return not any(of.layout for log in (self.a, self.b) for of in log.left_out)

    @cached_property
    def row_of_pair(self) -> Int64:
        """int64[p]."""
        out = np.zeros(len(self.pairing), np.int64)
        out[self.pair[self.pair >= 0]] = np.flatnonzero(self.pair >= 0)
        return out

    @cached_property
    def regions(self) -> Regions:
        """The stretches that the two runs compute in other ways."""
        assert self.flow is not None
        status = self.status[self.row_of_pair]
        return find_regions(self.a, self.b, self.pairing, status, self.flow, understood=self.understood)

    @cached_property
    def covered(self) -> Bool:
        """bool[r]: rows in a region whose results agree."""
        return np.concatenate([self.regions.covered(side) for side in ("a", "b")])[self._record]

    @cached_property
    def phase(self) -> NDArray[np.int8]:
        """int8[r] of `Phase`."""
        return self.by_row(lambda log: log.phase)

    def may_lead_to(self, row: int) -> Bool:
        """bool[r]: rows that may lead to what differs at one: not those whose results agree, which its phase keeps."""
        return ~self.covered | (self.phase == self.phase[row])

    @cached_property
    def of_other_ranks(self) -> Bool:
        """bool[r]: rows of micro-batches that other ranks of the other run have computed."""
        (a, b), p = (self.a, self.b), self.pairing
        at = self.at_a[of_other_ranks(a, b, p.of_a >= 0)], self.at_b[of_other_ranks(b, a, p.of_b >= 0)]
        return marked(np.concatenate(at), len(self))

    def reached(self, start: Hash) -> Hash:
        """uint64[r], the bits of `start` that arrive at each row over rows that are not bitwise equal."""
        return downstream(self.edges, start, (self.status != Status.EQUAL) | (start != 0))

    def by_row(self, of: Callable[[OpLog], NDArray[Any]]) -> NDArray[Any]:
        """A column of the logs by row: of a's record where there is one, else of b's."""
        return np.concatenate((of(self.a), of(self.b)))[self._record]

    @cached_property
    def module(self) -> Int64:
        """int64[r]: numbers of the modules of rows, one for a name in both runs; -1 outside of all."""
        of_a, of_b, _ = shared_ids(self.a.modules, self.b.modules)
        return self.by_row(lambda log: (of_a if log is self.a else of_b)[log.module])

    @cached_property
    def _record(self) -> Int64:
        """int64[r], the record that a row shows, among those of a and then of b."""
        return np.where(self.row_a >= 0, self.row_a, len(self.a) + self.row_b)

    def shown(self, row: int) -> tuple[OpLog, int]:
        """The log and the record that a row shows: a's where there is one, else b's."""
        record = int(self.row_a[row])
        return (self.a, record) if record >= 0 else (self.b, int(self.row_b[row]))

    def count(self, role: Role) -> int:
        """Number of rows with a role."""
        return int(np.count_nonzero(self.role == role))

    def side(self, name: str) -> tuple[OpLog, Int64]:
        """The log of side `a` or `b`, and the record of it in each row (-1 for none)."""
        return (self.a, self.row_a) if name == "a" else (self.b, self.row_b)

    def members(self, row: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The records of a and of b that a row combines."""
        if self.pair[row] >= 0:
            return self.pairing.members(int(self.pair[row]))
        a, b = int(self.row_a[row]), int(self.row_b[row])
        return ((a,) if a >= 0 else ()), ((b,) if b >= 0 else ())


@columns
class _Layout:
    """The order of pairs and unpaired records on screen.

    Attributes:
        order: int64[r], for each row its entry among the pairs, then the unpaired records of a, then those of b.
        alone_a, alone_b: the unpaired records, ascending.
        row_of_pair: int64[p], at least one entry.
    """

    order: Int64
    alone_a: Int64
    alone_b: Int64
    row_a: Int64
    row_b: Int64
    pair: Int64
    at_a: Int64
    at_b: Int64
    row_of_pair: Int64

    @classmethod
    def of(cls, pairing: Pairing) -> _Layout:
        pairs = len(pairing)
        alone_a, alone_b = np.flatnonzero(pairing.of_a < 0), np.flatnonzero(pairing.of_b < 0)
        # an unpaired record of b follows the row of the last paired record of b before it
        n_b = len(pairing.of_b)
        last = np.maximum.accumulate(np.where(pairing.of_b >= 0, np.arange(n_b), -1)) if n_b else np.zeros(0, int)
        behind = last[alone_b]
        place_b = np.where(behind >= 0, pairing.lead_a[pairing.of_b[behind]] if pairs else -1, -1)
        # those of b at one place are ascending, and come behind the others
        order = stable_order(np.concatenate((pairing.lead_a, alone_a, place_b)))

        none_a, none_b = np.full(len(alone_a), -1), np.full(len(alone_b), -1)
        row_a = np.concatenate((pairing.lead_a, alone_a, none_b))[order]
        row_b = np.concatenate((pairing.lead_b, none_a, alone_b))[order]
        pair = np.concatenate((np.arange(pairs), none_a, none_b))[order]
        paired, alone = np.flatnonzero(pair >= 0), np.flatnonzero(pair < 0)
        row_of_pair = np.zeros(max(pairs, 1), np.int64)
        row_of_pair[pair[paired]] = paired
        at = []
        for row, of in ((row_a, pairing.of_a), (row_b, pairing.of_b)):
            at.append(row_of_pair[of])
            own = alone[row[alone] >= 0]
            at[-1][row[own]] = own
        return cls(order, alone_a, alone_b, row_a, row_b, pair, at[0], at[1], row_of_pair)

    def column(self, of_pairs: NDArray[Any], of_a: Any, of_b: Any) -> NDArray[Any]:
        """A column by row, built from one by pair and one by record of each side (or a constant for unpaired ones)."""
        unpaired = [
            values[alone] if isinstance(values, np.ndarray) else np.full(len(alone), values)
            for values, alone in ((of_a, self.alone_a), (of_b, self.alone_b))
        ]
        return np.concatenate((of_pairs, *unpaired))[self.order]

    def originals(self, again: Bool, excluded: Bool, of_a: Int64, of_b: Int64, pairing: Pairing) -> Int32:
        """int32[r]: the row that a recomputed copy repeats, -1 for other rows.

        Args:
            again: by row, the row is an unpaired copy.
            excluded: by row, a rule ignores it.
            of_a, of_b: by record, the record that it repeats, -1 for none.
            pairing: copies of paired originals are pairs with the method DATAFLOW.
        """
        again = again & ~excluded
        again[self.pair >= 0] |= pairing.method[self.pair[self.pair >= 0]] == Method.DATAFLOW
        original = np.full(len(self.pair), -1, np.int32)
        for source_of, row, at in ((of_b, self.row_b, self.at_b), (of_a, self.row_a, self.at_a)):
            mine = np.flatnonzero(again & (row >= 0))
            source = source_of[row[mine]]
            original[mine] = np.where(source >= 0, at[np.maximum(source, 0)], -1)
        return original


def _unpaired_status(original: Int64, log: OpLog, status: Status) -> NDArray[np.int8]:
    """Status of unpaired records: RECOMPUTE for a copy that activation checkpointing ran again, else `status`."""
    return np.where((original >= 0) | log.recompute, np.int8(Status.RECOMPUTE), np.int8(status))
