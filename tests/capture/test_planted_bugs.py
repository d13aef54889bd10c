"""From opening the logs to the line of a planted bug: `o`, and the source line of the first cause is on the screen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from matchers.comparison import compare
from matchers.explain.sentences import explain
from matchers.logs.parser import read_log
from matchers.rules.file import RuleFile
from matchers.single_run import single_run
from matchers.verdict.expectation import Expect, Expectation
from numtui.query.source_line import source_lines, split_location
from numtui.session.session import Session
from numtui.views.run_summary import breadcrumb
from tests.capture.runs import EXAMPLE, Examples, Run
from tests.torch_versions import NOT_CLIPPED
from tests.two_ranks import TwoRanks

# By bug, what both runs are given besides, and code of the line at which it is planted or shows first.
BUGS = {
    "rope-base": ("", "pairs * self.turns"),
    "softmax-scale": ("", "* self.scale"),
    "bf16-matmul": ("", "functional.linear(x.to(self.compute_dtype)"),
    "norm-eps": ("", "+ self.eps"),
    "negated-attention": ("", "-mixed"),
    "permuted-heads": ("", "mixed.roll("),
    "inf-softmax": ("", "torch.exp("),
    "accumulation-scale": ("--micro-batches 2", "/ tokens"),
    "weight-decay-off": ("", "optimizer.step()"),
}


def opened(one: Path, other: Path) -> Session:
    return Session(compare(read_log(str(one)), read_log(str(other))), RuleFile.empty("rules.yaml"))


def log_of(run: Run, rank: int = 0) -> Path:
    return run.folder / "numerics" / f"rank_{rank}_activations.log"


def code(location: str) -> str:
    """The line of source that a log names."""
    file, line = split_location(location)
    return (EXAMPLE.parent / Path(file).name).read_text(encoding="utf-8").splitlines()[line - 1]


def shown(session: Session) -> str:
    return "".join(text for text, _ in breadcrumb(session.listing, 80))


@pytest.mark.parametrize(("bug", "both", "culprit"), [(bug, *found) for bug, found in BUGS.items()])
def test_one_key_leads_to_the_culprit(examples: Examples, bug: str, both: str, culprit: str) -> None:
    runs = [examples.captured(f"{both} {planted}".strip()) for planted in ("", f"--bug {bug}")]
    session = opened(*map(log_of, runs))
    assert session.listing.next_cause().partition(": ")[0] in ("", "First difference")
    lines = source_lines(session.comparison, session.listing.cursor)
    assert any(culprit in code(line) for line in lines), lines
    assert lines[0] in shown(session)
    # and it is in the layer that has the bug
    module = session.comparison.a.module_name(max(int(session.comparison.row_a[session.listing.cursor]), 0))
    assert "layers." not in module or "layers.1" in shown(session).replace(" › ", ".")


IN_PARALLEL = {
    **{bug: BUGS[bug][1] for bug in ("rope-base", "softmax-scale", "norm-eps", "permuted-heads")},
    "bf16-matmul": "functional.linear(x.to(self.compute_dtype)",
    "detached-keys": "q @ k.transpose(-2, -1)",
}


@pytest.mark.parametrize("preset", [None, Expect.REDUCTION_ORDER])
@pytest.mark.parametrize("bug", [pytest.param("", marks=NOT_CLIPPED), *IN_PARALLEL])
def test_one_of_two_ranks_shows_the_culprit_though_it_holds_parts(
    examples: Examples, bug: str, preset: Expect | None
) -> None:
    """Tensor parallelism with norms over slices of the sequence, against one process."""
    planted = f"--bug {bug}" if bug else ""
    runs = [examples.captured(f"{form} {planted}".strip()) for form in ("", "--parallel tp --local-tensor 2")]
    alone, healthy = (read_log(str(log_of(examples.captured(form)))) for form in ("", "--parallel tp --local-tensor 2"))
    for a, b in ((alone, read_log(str(log_of(runs[1])))), (read_log(str(log_of(runs[0]))), healthy)):
        c = compare(a, b, expectation=Expectation(preset=preset))
        assert c.red.any() == bool(bug)
        assert (not bug and not c.cause.any()) or len(c.consequences.causes) == 1
        for row in np.flatnonzero(c.cause).tolist()[:1]:
            log, record = (a, int(c.row_a[row])) if c.row_a[row] >= 0 else (b, int(c.row_b[row]))
            assert IN_PARALLEL[bug] in code(log.location_text(record)), log.keys[record]
            assert log.module_name(record).startswith("layers.1.")


def test_a_detach_computes_nothing_and_is_named_with_what_is_missing(examples: Examples) -> None:
    runs = [examples.captured(planted) for planted in ("", "--bug detached-keys")]
    session = opened(*map(log_of, runs))
    session.listing.next_cause()
    (told,) = (
        note for note in explain(session.comparison, session.listing.cursor).notes if note.startswith("detach()")
    )
    line = next(word for word in told.split() if word.startswith("examples/model.py:"))
    assert code(line).strip() == "k = k.detach()"
    assert told.endswith("only in b")
    # autograd detaches what it saves, and the loop its loss; that is not written down
    assert "detached" not in read_log(str(log_of(runs[0]))).header.run
    # the cursor is where the missing branch begins: the gradient of q @ kᵀ
    lines = source_lines(session.comparison, session.listing.cursor)
    assert any("q @ k.transpose(-2, -1)" in code(line) for line in lines), lines


def test_where_a_run_makes_its_first_infinity(examples: Examples) -> None:
    log = read_log(str(log_of(examples.captured("--bug inf-softmax"))))
    session = Session(single_run(log), RuleFile.empty("rules.yaml"))
    assert session.listing.next_cause().partition(": ")[0] in ("", "First difference")
    assert "torch.exp(" in code(log.location_text(session.listing.cursor))
    assert "layers › 1 › attention" in shown(session)


def test_one_rank_sent_what_it_had_before(two_ranks: TwoRanks) -> None:
    """The rank that sent it has an operation that the other run has not; the other rank can only say who it was not."""
    healthy, planted = "--parallel fsdp2", "--parallel fsdp2 --bug stale-gather"
    sender = opened(two_ranks.path(healthy, 1), two_ranks.path(planted, 1))
    sender.listing.next_cause()
    assert "torch.zeros_like(fresh)" in code(*source_lines(sender.comparison, sender.listing.cursor))
    other = opened(two_ranks.path(healthy, 0), two_ranks.path(planted, 0))
    other.listing.next_cause()
    notes = explain(other.comparison, other.listing.cursor).notes
    assert any("another rank's differs" in note for note in notes)
