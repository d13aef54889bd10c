"""Ranks that read parts of a batch, in any order of its micro-batches."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.captured import Step, summary, write_captured
from tests.matchers.runs.layouts.ranks import compared

SAMPLES = np.random.default_rng(0).normal(size=(4, 3, 8)).astype(np.float32)


def write(path: Path, samples: list[int], rank: int = 0, ranks: int = 1, steps: Sequence[Step] = ()) -> None:
    """Write the log of a run that reads these samples, a micro-batch each.

    Args:
        steps: the first comes before the samples, the others after them.
    """
    written = list(steps[:1])
    for number, sample in enumerate(samples):
        fields = {"micro_batch": number}
        kept = np.maximum(SAMPLES[sample], 0)
        key, then = f"net/op_{2 * number}_relu", f"net/op_{2 * number + 1}_exp"
        written.append(Step(key=key, gives=[kept], reads=[SAMPLES[sample]], fields=fields))
        written.append(Step(key=then, gives=[np.exp(kept)], reads=[kept], made=[key], fields=fields))
    batch = [{"digest": str(rank)}]
    written += steps[1:]
    write_captured(path, written, world_size=ranks, rank=rank, parameter_digests={"weight": "00"}, batch=batch)


@pytest.mark.parametrize("samples", [[[0, 1], [2, 3]], [[0, 2], [1, 3]], [[2, 3], [0, 1]], [[0, 3], [1, 2]]])
def test_micro_batches_of_ranks_have_the_order_of_one_process(tmp_path: Path, samples: list[list[int]]) -> None:
    (tmp_path / "run").mkdir()
    for rank, of_rank in enumerate(samples):
        write(tmp_path / "run" / f"rank_{rank}_activations.log", of_rank, rank, len(samples))
    write(tmp_path / "one.log", [0, 1, 2, 3])
    c = compared(str(tmp_path / "one.log"), str(tmp_path / "run"))
    assert not c.red.any()
    assert c.coverage.a.compared == c.coverage.a.operations == 8
    assert c.a.micro_batch[c.row_a].tolist() == c.b.micro_batch[c.row_b].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("samples", [[[0, 1], [2, 3]], [[0, 2], [1, 3]]])
@pytest.mark.parametrize("turned", [False, True])
def test_micro_batches_of_ranks_have_the_order_of_as_many_ranks(
    tmp_path: Path, samples: list[list[int]], turned: bool
) -> None:
    runs = {"two": samples, "four": [[0], [1], [2], [3]]}
    for name, of_run in runs.items():
        (tmp_path / name).mkdir()
        for rank, of_rank in enumerate(of_run):
            write(tmp_path / name / f"rank_{rank}_activations.log", of_rank, rank, len(of_run))
    a, b = (str(tmp_path / name) for name in (reversed(runs) if turned else runs))
    c = compared(a, b)
    assert not c.red.any()
    assert c.coverage.a.compared == c.coverage.b.compared == 8
    assert c.a.micro_batch[c.row_a].tolist() == c.b.micro_batch[c.row_b].tolist()


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_copies_of_the_model_are_merged_like_its_updates(tmp_path: Path, factor: float) -> None:
    """An average of the weights begins as a copy of them, before anything is known of the model."""
    weight = np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32)

    def averaged(shard: NDArray[np.float32], placement: dict[str, Any] | None) -> list[Step]:
        copy = Step(key="ema/op_0_clone", gives=[shard], reads=[shard], fields={"phase": "prepare"})
        after = {"phase": "after", "parameters": ["", "weight"]}
        result = summary(shard * np.float32(0.9), placement=placement)
        return [copy, Step(key="ema/op_1_lerp_", gives=[result], reads=[shard] * 2, made=[copy.key, ""], fields=after)]

    write(tmp_path / "one.log", [0, 1], steps=averaged(weight, None))
    (tmp_path / "run").mkdir()
    for rank in range(2):
        where = {"mesh": {"dp": 2}, "placements": ["Shard(0)"], "shape": [4, 6], "offsets": [2 * rank, 0]}
        shard = weight[2 * rank :][:2] * np.float32(factor if rank else 1)
        write(tmp_path / "run" / f"rank_{rank}_activations.log", [rank], rank, 2, averaged(shard, where))
    c = compared(str(tmp_path / "one.log"), str(tmp_path / "run"))
    red = {c.a.keys[int(c.row_a[row])] for row in np.flatnonzero(c.red)}
    assert red == (set() if factor == 1 else {"ema/op_0_clone", "ema/op_1_lerp_"})
    assert (c.pair >= 0).all()


def test_ranks_of_which_one_is_cut_off_are(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    for rank in range(2):
        write(tmp_path / "run" / f"rank_{rank}_activations.log", [rank], rank, 2)
    write(tmp_path / "one.log", [0, 1])
    assert compared(str(tmp_path / "one.log"), str(tmp_path / "run")).b.complete
    log = tmp_path / "run" / "rank_1_activations.log"
    log.write_bytes(log.read_bytes()[:-300])
    c = compared(str(tmp_path / "one.log"), str(tmp_path / "run"))
    assert c.b.complete is False
    (note,) = (note for note in c.comparability.notes if note.kind == "incomplete")
    assert note.text.endswith("(the log of rank 1 is cut off)")


def test_one_rank_of_several_is_told_to_be_one(tmp_path: Path) -> None:
    write(tmp_path / "one.log", [0, 1])
    write(tmp_path / "rank_1_activations.log", [1], 1, 2)
    told = [
        note.text
        for note in compared(str(tmp_path / "one.log"), str(tmp_path / "rank_1_activations.log")).comparability.notes
    ]
    assert "b is the log of rank 1 alone: those of all 2 ranks, in one folder, would be merged" in told


def with_total(path: Path, samples: list[int], rank: int, ranks: int) -> None:
    """Write the log of a run that adds up the losses of these samples between the passes."""
    total, key = np.float32(0), "train/op_0_zeros"
    steps = [Step(key=key, gives=[total[()]], fields={"phase": "prepare"})]
    for number, sample in enumerate(samples):
        fields, made = {"micro_batch": number}, f"net/op_{2 * number}_relu"
        loss, of = np.float32(SAMPLES[sample].sum())[()], f"net/op_{2 * number + 1}_sum"
        steps.append(Step(key=made, gives=[SAMPLES[sample]], reads=[SAMPLES[sample] * 2], fields=fields))
        steps.append(Step(key=of, gives=[loss], reads=[SAMPLES[sample]], made=[made], fields=fields))
        steps.append(Step(key=f"net/op_{9 + number}_mul", gives=[loss], fields={**fields, "phase": "backward"}))
        added, before = f"train/op_{1 + number}_add_", total
        total = np.float32(total + loss)[()]
        phase = {"phase": "prepare"}
        steps.append(Step(key=added, gives=[total], reads=[before, loss], made=[key, of], fields=phase))
        key = added
    batch = [{"digest": str(rank)}]
    write_captured(path, steps, world_size=ranks, rank=rank, parameter_digests={"weight": "00"}, batch=batch)


def test_a_running_total_is_of_the_micro_batch_that_it_adds(tmp_path: Path) -> None:
    """A capture counts when a model is called, and gives what comes between the passes no number."""
    (tmp_path / "run").mkdir()
    for rank, samples in enumerate(([0, 1], [2, 3])):
        with_total(tmp_path / "run" / f"rank_{rank}_activations.log", samples, rank, 2)
    with_total(tmp_path / "one.log", [0, 1, 2, 3], 0, 1)
    c = compared(str(tmp_path / "one.log"), str(tmp_path / "run"))
    totals = [row for row in range(len(c)) if c.a.op_name(int(c.row_a[row])) == "add_"]
    assert len(totals) == 4
    assert not c.red.any()
    assert c.b.stats[4, c.row_b[totals]] == pytest.approx(c.a.stats[4, c.row_a[totals]])


@pytest.mark.parametrize("parts", [False, True])
def test_replicas_together_begin_with_what_each_begins_with(tmp_path: Path, parts: bool) -> None:
    """What only one of several tensors is alike in may be a part; and what ranks end with, they need not share."""
    runs = [
        {
            "parameter_digests": {"weight": "0a" if rank * parts else "0b", "scale": "0c"},
            "end_state": {"weight": [f"{rank:016x}", 1.0, 0.0], "scale": ["0" * 16, 1.0, 0.0]},
        }
        for rank in range(2)
    ]
    for rank, run in enumerate(runs):
        of_rank = [Step(key="net/op_0_relu", gives=[SAMPLES[rank]], reads=[SAMPLES[rank]])]
        write_captured(tmp_path / f"rank_{rank}_activations.log", of_rank, world_size=2, rank=rank, **run)
    write(tmp_path / "one.log", [0, 1])
    known = compared(str(tmp_path / "one.log"), str(tmp_path)).b.header.run
    assert known.get("parameter_digests", {}).keys() == (set() if parts else {"weight", "scale"})
    assert known.get("end_state", {}).keys() == (set() if parts else {"scale"})


def test_the_end_of_a_whole_is_that_of_its_slices(tmp_path: Path) -> None:
    """Of ranks 0 and 2 that hold the same slice, one counts."""
    parts = np.arange(8.0, dtype=np.float32).reshape(2, 4)
    for rank in range(4):
        held = summary(parts[rank % 2])
        assert held.sketch is not None
        entry = ["0f" * 8, held.l2, held.mean, b64encode(held.sketch).decode()]
        placed = {"placements": ["Shard(0)"], "shape": [8], "offsets": [4 * (rank % 2)]}
        of_rank = [Step(key="net/op_0_relu", gives=[SAMPLES[rank]], reads=[SAMPLES[rank]])]
        write_captured(
            tmp_path / f"rank_{rank}_activations.log",
            of_rank,
            world_size=4,
            rank=rank,
            parameter_digests={"weight": "0a" * 8},
            parameter_placements={"weight": placed},
            end_state={"weight": entry},
        )
    write(tmp_path / "one.log", [0, 1, 2, 3])
    run = compared(str(tmp_path / "one.log"), str(tmp_path)).b.header.run
    digest, norm, _, sketch = run["end_state"]["weight"]
    assert norm == pytest.approx(float(np.linalg.norm(parts)))
    both = [np.frombuffer(of, "<f8") for part in parts if (of := summary(part).sketch) is not None]
    assert np.frombuffer(b64decode(sketch), "<f8") == pytest.approx(sum(both))
    assert digest != run["parameter_digests"]["weight"]  # it has changed
