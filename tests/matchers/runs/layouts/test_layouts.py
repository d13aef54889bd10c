"""One process against four ranks that compute the same: DDP, FSDP2, TP, FSDP2 × TP; and with a bug in the ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.errors import LogError
from matchers.explain.sentences import headline
from matchers.logs.op_log import OF_PARTS, OpLog
from matchers.logs.raw_record import raw_record
from matchers.ops.dataflow import sources
from matchers.ops.laws import filling
from matchers.ops.placement import MERGED
from matchers.runs.layouts.read import layouts_differ, read_both
from matchers.runs.run import Run, find_run
from matchers.status import Status
from matchers.verdict.expectation import Expect, Expectation
from numtui.report.gate import Allowed, failures_of
from numtui.report.options import FAIL_ON
from tests.bed_cases import LAYOUTS, PLAIN_LAYOUTS, Case
from tests.torch_versions import NOT_CLIPPED

HEALTHY = [pair for pair in LAYOUTS if not pair[1].bug]
FAULTY = [pair for pair in LAYOUTS if pair[1].bug]
_JUDGED_OF_PLAIN = 0.7
"""The same of plain tensors: each rank clips, and reduces in buckets, in its own way."""
_JUDGED = 0.93
"""Least share of one process' operations that are compared; with one head on each rank, transposing copies nothing."""


def run_of(folder: Path, case: Case) -> Run:
    return find_run(str(folder / case.name))


def compared(folder: Path, one: Case, parallel: Case) -> Comparison:
    """One process and the virtual log of all ranks, as the command line compares them."""
    paths = str(one.log(folder, 0)), str(parallel.log(folder, 0).parent)
    return compare(*read_both(paths), expectation=Expectation(Expect.REDUCTION_ORDER))


def failed_conditions(c: Comparison) -> set[str]:
    """The conditions on which `numtui diff` fails by default."""
    return {failure.condition for failure in failures_of(c, FAIL_ON, Allowed(np.zeros(len(c), bool)))}


def named(pair: tuple[Case, Case]) -> str:
    return pair[1].name


@pytest.mark.parametrize(
    "pair",
    [pytest.param(pair, marks=NOT_CLIPPED if pair[1].name == "layout-tp" else (), id=named(pair)) for pair in HEALTHY],
)
def test_what_computes_the_same_agrees(runs_bed: Path, pair: tuple[Case, Case]) -> None:
    c = compared(runs_bed, *pair)
    assert not c.red.any(), c.counts
    assert c.coverage.enough, c.coverage.sentence
    side = c.coverage.a
    assert side.compared >= _JUDGED * side.operations
    assert side.compared + side.covered == side.operations
    assert not c.counts[Status.SHARDED]
    assert c.b.texts(MERGED)


@pytest.mark.parametrize("pair", FAULTY, ids=named)
def test_a_bug_of_the_ranks_is_the_first_cause(runs_bed: Path, pair: tuple[Case, Case]) -> None:
    c = compared(runs_bed, *pair)
    row = c.consequences.causes[0].rows[0]
    log, record = (c.a, int(c.row_a[row])) if c.row_a[row] >= 0 else (c.b, int(c.row_b[row]))
    assert log.module_name(record).startswith(pair[1].module)


@pytest.mark.parametrize("bug", ["partial-as-replicated", "not-reduced"])
@pytest.mark.runs("layout-tp-{bug}")
def test_a_sum_that_no_collective_makes_is_the_cause_and_said_so(runs_bed: Path, bug: str) -> None:
    c = compared(runs_bed, *next(pair for pair in LAYOUTS if pair[1].name == f"layout-tp-{bug}"))
    (cause,) = c.consequences.causes
    assert headline(c, cause.rows[0]).startswith("FIRST CAUSE: each rank of b has a term")
    assert "contradiction" in failed_conditions(c)


@pytest.mark.runs("layout-ddp", "layout-ddp-not-reduced")
def test_what_ranks_contradict_each_other_in_is_noted(runs_bed: Path) -> None:
    pairs = {parallel.name: (one, parallel) for one, parallel in LAYOUTS}
    c = compared(runs_bed, *pairs["layout-ddp-not-reduced"])
    (told,) = (note.text for note in c.comparability.notes if note.kind == "ranks")
    assert told.startswith("the ranks of b contradict each other: ")
    assert "layers.1.attention.wq.weight" in told
    assert "contradiction" in failed_conditions(c)
    healthy = compared(runs_bed, *pairs["layout-ddp"])
    assert not failed_conditions(healthy)
    assert not any(note.kind == "ranks" for note in healthy.comparability.notes)


@pytest.mark.runs("layout-fsdp2+tp")
def test_the_members_of_a_merged_record(runs_bed: Path) -> None:
    """Those of each rank, in its log; a sum that only the ranks together have is in none."""
    pairs = {parallel.name: (one, parallel) for one, parallel in LAYOUTS}
    log = compared(runs_bed, *pairs["layout-fsdp2+tp"]).b
    row = next(row for row in range(len(log)) if log.op_name(row) == "bmm")
    lines = raw_record(log, row)
    members = [line.split() for line in lines if line.startswith("rank ")]
    assert [rank for _, rank, _ in members] == ["0", "1"]
    for _, _, place in members:
        path, _, line = place.rpartition(":")
        assert Path(path).read_text().split("\n")[int(line) - 1] == f"[{log.keys[row]}]"
    added = next(row for row in range(len(log)) if log.keys[row].endswith("/add_"))
    with pytest.raises(LogError, match="in no log"):
        raw_record(log, added)


@pytest.mark.runs("layout-ddp", "layout-fsdp2")
def test_two_layouts_of_several_ranks(runs_bed: Path) -> None:
    """Both are merged; the samples of four data ranks are not those of two."""
    ddp, fsdp = (
        str(parallel.log(runs_bed, 0).parent)
        for _, parallel in LAYOUTS
        if parallel.name in ("layout-ddp", "layout-fsdp2")
    )
    c = compare(*read_both((ddp, fsdp)), expectation=Expectation(Expect.REDUCTION_ORDER))
    assert not c.red.any()
    assert c.coverage.a.compared + c.coverage.a.covered > 0.8 * c.coverage.a.operations  # DDP's copies and collectives


def merged_of(folder: Path, name: str) -> OpLog:
    """The virtual log of a layout, as one process' log is compared with it."""
    one, parallel = next(pair for pair in LAYOUTS if pair[1].name == name)
    return read_both((str(one.log(folder, 0)), str(parallel.log(folder, 0).parent)))[1]


@pytest.mark.runs("layout-fsdp2", "layout-fsdp2+tp")
def test_the_parts_of_two_layouts_are_not_equal_because_only_parts_were_read(runs_bed: Path) -> None:
    cases = {parallel.name: str(parallel.log(runs_bed, 0).parent) for _, parallel in LAYOUTS}
    a, b = read_both((cases["layout-fsdp2"], cases["layout-fsdp2+tp"]))
    assert OF_PARTS in a.digests.value
    assert OF_PARTS not in b.digests.value


@pytest.mark.runs("layout-fsdp2+tp")
def test_flat_buffers_and_what_other_ranks_add_to_them_are_not_merged(runs_bed: Path) -> None:
    """Two ranks of tensor parallelism read one batch; their gradients are reduced with the ranks of the other one."""
    log = merged_of(runs_bed, "layout-fsdp2+tp")
    buffers = np.flatnonzero(filling(log)).tolist()
    assert buffers
    assert not any(row in log.texts("Mutated") for row in buffers)
    flow = sources(log)
    scattered = {row for row in range(len(log)) if log.op_name(row) == "_reduce_scatter_base_"}
    reading = [row for row in range(len(log)) if scattered & set(flow[row].tolist()) and not log.updates[row]]
    assert reading
    assert (log.shape[[*scattered, *reading]] < 0).all()  # of no known whole


@pytest.mark.runs("layout-fsdp2+tp")
def test_norms_of_parts_do_not_add_up_but_their_powers_do(runs_bed: Path) -> None:
    log = merged_of(runs_bed, "layout-fsdp2+tp")
    clipping = [row for row in range(len(log)) if log.module_name(row) == "clip_grad_norm_"]
    told = log.texts(MERGED)
    assert {told[row] for row in clipping if log.op_name(row) == "div"} == {"4 ranks, unknown"}
    assert told[next(row for row in clipping if log.op_name(row) == "pow")] == "4 ranks, partial, summed up later"


def test_which_runs_are_merged(runs_bed: Path) -> None:
    """Those with other numbers of ranks, all of whose logs are there, and say of what they are parts."""
    one, ddp = (run_of(runs_bed, case) for case in LAYOUTS[-1])
    assert layouts_differ(one, ddp)
    assert not layouts_differ(ddp, ddp)
    lacks = Run(ddp.name, {rank: path for rank, path in ddp.paths.items() if rank != 2})
    assert not layouts_differ(one, lacks)
    assert all(layouts_differ(*(run_of(runs_bed, case) for case in pair)) for pair in PLAIN_LAYOUTS)


@pytest.mark.parametrize("pair", PLAIN_LAYOUTS, ids=named)
def test_parts_of_plain_tensors(runs_bed: Path, pair: tuple[Case, Case]) -> None:
    """Tensor × data parallelism in Megatron's manner: which parts ranks hold is inferred from shapes and norms."""
    c = compared(runs_bed, *pair)
    if pair[1].bug:
        assert c.a.module_name(int(c.row_a[c.consequences.causes[0].rows[0]])) == pair[1].module
        assert "contradiction" in failed_conditions(c)
        return
    assert not c.red.any(), c.counts
    side = c.coverage.a
    assert side.compared >= _JUDGED_OF_PLAIN * side.operations
    assert side.compared + side.covered == side.operations
    assert not failed_conditions(c)
    told = " ".join(c.b.texts(MERGED).values())
    assert all(text in told for text in ("shard like its parameter", "by its norm", "masked and summed up later"))


@pytest.mark.runs("layout-tp", "layout-fsdp2")
def test_equally_many_ranks_are_merged_where_they_have_no_partners(runs_bed: Path) -> None:
    """Ranks that read one batch, and hold parts of it, against ranks that read one each."""
    cases = {parallel.name: parallel for _, parallel in LAYOUTS}
    tp, fsdp = (run_of(runs_bed, cases[name]) for name in ("layout-tp", "layout-fsdp2"))
    assert layouts_differ(tp, fsdp)
    assert not layouts_differ(fsdp, fsdp)
