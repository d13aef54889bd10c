"""Planted faults of ranks: each does what the table of cases says, and nothing else is broken."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.bed_cases import CASES, Case
from tests.capture.logs import Log, Row
from tests.examples.conftest import Train, Trained

BY_NAME = {case.name: case for case in CASES}
HEALTHY = {(case.script, case.arguments): case for case in CASES if not case.bug}
FAULTY = [case for case in CASES if case.bug and not case.dies]
named = pytest.mark.parametrize("case", FAULTY, ids=lambda case: case.name)


def log(folder: Path, case: Case, rank: int) -> Log:
    return Log.read(case.log(folder, rank))


def trained(folder: Path, case: Case) -> list[Trained]:
    """What each rank printed."""
    return [Trained.read(case.printed(folder, rank).read_text()) for rank in range(case.ranks)]


@dataclass(frozen=True)
class Change:
    """The first that a log has otherwise than that of the healthy run.

    Attributes:
        parameters: Those that differ before the step.
        row: The first record that differs, None without one.
        received: It is the result of the same collective of the same values: the difference is from another rank.
    """

    parameters: list[str]
    row: Row | None
    received: bool

    @classmethod
    def between(cls, healthy: Log, faulty: Log) -> Change:
        old, new = (log.run["parameter_digests"] for log in (healthy, faulty))
        parameters = [name for name in new if old[name] != new[name]]
        # gloo copies a result into place during the wait, unless that runs in a thread of its own
        for one, other in zip(*([row for row in log if row.op != "copy_"] for log in (healthy, faulty)), strict=False):
            same = [one.fields.get(name) == other.fields.get(name) for name in ("Group", "Input digests", "Digest")]
            if (one.module, one.op) != (other.module, other.op) or not all(same):
                return cls(parameters, other, "Group" in one.fields and same[:2] == [True, True])
        return cls(parameters, None, received=False)


@pytest.mark.parametrize("case", HEALTHY.values(), ids=lambda case: case.name)
def test_healthy_ranks_agree(runs_bed: Path, case: Case) -> None:
    runs = trained(runs_bed, case)
    assert all(map(math.isfinite, [*runs[0].losses, *runs[0].norms]))
    for rank, run in enumerate(runs):
        assert (run.losses, run.norms) == (runs[0].losses, runs[0].norms)
        assert log(runs_bed, case, rank).complete


@pytest.mark.parametrize("layout", ["ddp", "fsdp2"])
@pytest.mark.parametrize("form", ["", "--tied", "--experts 4", "--freeze embedding.*", "--unused"])
@pytest.mark.runs("{layout}", "{layout}-tied", "{layout}-experts", "{layout}-freeze", "{layout}-unused")
def test_four_ranks_agree_with_one(train: Train, runs_bed: Path, layout: str, form: str) -> None:
    alone = train(f"--steps 1 --micro-batches 4 {form}")
    for rank in trained(runs_bed, BY_NAME["-".join([layout, *form.replace("--", "").split()[:1]])]):
        assert rank.losses == pytest.approx(alone.losses, rel=1e-5)
        assert rank.norms == pytest.approx(alone.norms, rel=1e-4)


@named
def test_a_fault_begins_on_its_ranks_and_reaches_the_others_by_communication(runs_bed: Path, case: Case) -> None:
    healthy = HEALTHY[case.script, case.arguments]
    for rank in range(case.ranks):
        change = Change.between(log(runs_bed, healthy, rank), log(runs_bed, case, rank))
        # The first data rank draws its parameters with the seed of all.
        at_fault = rank in case.culprits and not (case.bug == "not-broadcast" and not change.parameters)
        corrupt = case.check == "collectives compute"
        assert (bool(change.parameters) or (change.row is not None and not change.received) or corrupt) == (
            at_fault or corrupt
        )
        if corrupt and at_fault:
            assert change.row is not None
            assert (change.row.module, change.row.op) == (case.module, case.op)


@named
def test_what_is_to_be_named_is_in_the_logs(runs_bed: Path, case: Case) -> None:
    for rank in case.culprits:
        found = log(runs_bed, case, rank)
        assert not case.parameter or any(fnmatch(name, case.parameter) for name in found.run["parameter_digests"])
        if case.op:
            rows = found.of(case.op, case.module)
            assert any(case.source in row.fields["Stack"] for row in rows)
            groups = [tuple(json.loads(row.fields["Group"])["ranks"]) for row in rows if "Group" in row.fields]
            assert not groups or set(groups) & set(case.groups)
    assert set(case.culprits) <= set(case.suspects) <= set(range(case.ranks))


@pytest.mark.parametrize("layout", ["ddp", "tp", "fsdp2+tp", "megatron"])
@pytest.mark.runs("{layout}-flipped-bit")
def test_one_bit_of_one_parameter_of_one_rank_is_flipped(runs_bed: Path, layout: str) -> None:
    case = BY_NAME[f"{layout}-flipped-bit"]
    healthy = HEALTHY[case.script, case.arguments]
    for rank in range(case.ranks):
        change = Change.between(log(runs_bed, healthy, rank), log(runs_bed, case, rank))
        assert change.parameters == [case.parameter] * (rank in case.culprits)


@pytest.mark.parametrize("layout", ["ddp", "megatron"])
@pytest.mark.runs("{layout}-not-broadcast")
def test_every_rank_with_data_of_its_own_draws_its_own_matrices(runs_bed: Path, layout: str) -> None:
    case = BY_NAME[f"{layout}-not-broadcast"]
    for group in case.groups:
        digests = [log(runs_bed, case, rank).run["parameter_digests"] for rank in group]
        for name in digests[0]:
            vector = "norm" in name
            assert len({rank[name] for rank in digests}) == (1 if vector else len(group))


def clipped(folder: Path, case: Case) -> list[Row]:
    """Per rank, the record that reads all gradients, before they are clipped."""
    return [log(folder, case, rank)["clip_grad_norm_/op_0__foreach_norm"] for rank in range(case.ranks)]


@pytest.mark.parametrize(("bug", "values"), [("not-reduced", 4), ("wrong-group", 2), ("sum-not-mean", 1)])
@pytest.mark.runs("ddp-{bug}")
def test_one_gradient_is_not_the_same_on_all_ranks(runs_bed: Path, bug: str, values: int) -> None:
    """One value per rank, per half of them, or (though a wrong one) for all."""
    case = BY_NAME[f"ddp-{bug}"]
    rows = clipped(runs_bed, case)
    for name, *digests in zip(rows[0].parameters, *(row.input_digests for row in rows), strict=True):
        assert len(set(digests)) == (values if name == f"{case.parameter}.grad" else 1)
        if values == 2:
            assert all(len({digests[rank] for rank in group}) == 1 for group in case.groups)


@pytest.mark.runs("ddp-sum-not-mean")
def test_one_gradient_is_averaged_where_the_others_are_summed(runs_bed: Path) -> None:
    """The other sums are formed in another order, as the bucket has another length."""
    case = BY_NAME["ddp-sum-not-mean"]
    healthy, faulty = clipped(runs_bed, BY_NAME["ddp"])[0], clipped(runs_bed, case)[0]
    norms = ([float(norm) for norm in row.fields["Input hashes"].split(", ")] for row in (healthy, faulty))
    for name, old, new in zip(healthy.parameters, *norms, strict=True):
        assert new == pytest.approx(old / (4 if name == f"{case.parameter}.grad" else 1), rel=1e-5)


@pytest.mark.parametrize("layout", ["none", "ddp", "fsdp2", "tp", "fsdp2+tp", "megatron"])
@pytest.mark.runs("{layout}-left-out")
def test_one_rank_updates_all_but_one_parameter(runs_bed: Path, layout: str) -> None:
    case = BY_NAME[f"{layout}-left-out"]
    for rank in range(case.ranks):
        found = log(runs_bed, case, rank)
        updated = {changed.get("name") for row in found if row.phase == "optimizer" for changed in row.mutated}
        updated |= {name for row in found if row.phase == "optimizer" for name in row.parameters}
        missing = set(found.run["parameter_digests"]) - updated
        assert missing == ({case.parameter} if rank in case.culprits else set())


@pytest.mark.parametrize("name", ["none-ac-dropout", "none-counter", "none-rng-not-restored"])
@pytest.mark.runs("{name}")
def test_a_recomputed_layer_has_the_same_bits_but_for_the_fault(runs_bed: Path, name: str) -> None:
    case = BY_NAME[name]
    originals = defaultdict(list)
    different = []
    for row in log(runs_bed, case, 0):
        if row.phase == "forward":
            originals[row.module, row.op].append(row.digests)
        elif "Recompute" in row.fields and originals[row.module, row.op].pop(0) != row.digests:
            different.append((row.module, row.op))
    assert different[:1] == ([(case.module, case.op)] if case.bug else [])


@pytest.mark.runs("megatron-skipped-collective")
def test_a_rank_that_skips_a_collective_leaves_cut_off_logs(runs_bed: Path) -> None:
    """Its group goes on with another collective in the place of the one that it skipped."""
    (case,) = (case for case in CASES if case.dies)
    logs = [log(runs_bed, case, rank) for rank in range(case.ranks)]
    assert not any(found.complete for found in logs)
    (group,) = case.groups
    calls = [[(row.module, row.op) for row in logs[rank] if "Group" in row.fields] for rank in group]
    first = next(pair for pair in zip(*calls, strict=False) if len(set(pair)) > 1)
    skipper = group.index(case.culprits[0])
    assert first[1 - skipper] == (case.module, case.op)
    assert first[skipper] != (case.module, case.op)
