"""Two gloo ranks, simulated ranks and a fake world against one process."""

import math

import pytest

from tests.examples.conftest import Train, Trained
from tests.two_ranks import TwoRanks


def trained(two_ranks: TwoRanks, variant: str) -> list[Trained]:
    """Per rank, a run without a capture."""
    return [Trained.read(plain) for plain, *_ in two_ranks.printed(variant)]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("--micro-batches 2", "--parallel fsdp2"),
        ("--micro-batches 2", "--parallel fsdp2 --ac selective"),
        ("--micro-batches 2 --experts 4", "--parallel fsdp2 --experts 4"),
        ("--micro-batches 2", "--parallel ddp"),
        ("--micro-batches 4", "--parallel ddp --micro-batches 2"),
        ("", "--parallel tp"),
        ("", "--parallel fsdp2+tp"),
    ],
)
def test_two_ranks_agree_with_one(train: Train, two_ranks: TwoRanks, one: str, two: str) -> None:
    """Data ranks see what one process sees as micro-batches; each rank prints the numbers of all."""
    alone = train(one)
    for rank in trained(two_ranks, two):
        assert rank.losses == pytest.approx(alone.losses, rel=1e-5)
        assert rank.norms == pytest.approx(alone.norms, rel=1e-4)


def test_checkpoints_change_no_bit_of_a_shard(two_ranks: TwoRanks) -> None:
    assert trained(two_ranks, "--parallel fsdp2 --ac selective") == trained(two_ranks, "--parallel fsdp2")


def test_stale_gather_shows_in_the_first_loss(two_ranks: TwoRanks) -> None:
    sound, stale = (trained(two_ranks, f"--parallel fsdp2{bug}")[0].losses for bug in ("", " --bug stale-gather"))
    assert abs(stale[0] - sound[0]) > 1e-3
    assert all(map(math.isfinite, stale))


def test_a_rank_alone_is_told_to_use_torchrun(train: Train) -> None:
    with pytest.raises(SystemExit, match="torchrun"):
        train("--parallel fsdp2")


@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
@pytest.mark.parametrize(
    ("one", "simulated"),
    [
        ("--kv-heads 4", "--kv-heads 4 --parallel tp --local-tensor 4"),
        ("--micro-batches 4", "--parallel fsdp2 --local-tensor 4"),
        ("--micro-batches 4", "--parallel fsdp2+tp --local-tensor 8"),
    ],
)
def test_simulated_ranks_agree_with_one_process(train: Train, one: str, simulated: str) -> None:
    alone, ranks = train(one), train(simulated)
    assert ranks.losses == pytest.approx(alone.losses, rel=1e-5)
    assert ranks.norms == pytest.approx(alone.norms, rel=1e-4)


@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
@pytest.mark.parametrize("parallel", ["fsdp2", "tp", "fsdp2+tp"])
def test_fake_world_runs_and_repeats(train: Train, parallel: str) -> None:
    """Nothing is communicated, so its numbers mean nothing; but they are the same each time."""
    run = f"--parallel {parallel} --fake-world 8 --heads 8 --kv-heads 8"
    assert train(run).states == train(run).states
