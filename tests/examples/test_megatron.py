"""The script in Megatron-LM's manner: one process, and four ranks against it."""

import math
from pathlib import Path

import pytest

from tests.bed_cases import CASES
from tests.examples.conftest import Train, Trained


@pytest.mark.parametrize("model", ["", "--dropout 0.1", "--micro-batches 2"])
def test_learns(megatron: Train, model: str) -> None:
    losses = megatron(f"--steps 12 --batch 4 --lr 3e-3 {model}").losses
    assert all(map(math.isfinite, losses))
    assert losses[-1] < losses[0] - 0.2


def test_twice_the_same_and_another_seed_not(megatron: Train) -> None:
    assert megatron("--dropout 0.1") == megatron("--dropout 0.1")
    assert megatron("").states != megatron("--seed 43").states


@pytest.mark.parametrize("way", ["--bucket 1000", "--sequence-parallel"])
def test_what_is_only_about_communication_changes_no_bit_of_one_process(megatron: Train, way: str) -> None:
    assert megatron(way) == megatron("")


@pytest.mark.parametrize("name", ["megatron-plain", "megatron-bucket"])
@pytest.mark.runs("{name}")
def test_four_ranks_agree_with_one(megatron: Train, runs_bed: Path, name: str) -> None:
    """Two data ranks see what one process sees as micro-batches."""
    alone = megatron("--micro-batches 2")
    (case,) = (case for case in CASES if case.name == name)
    for rank in range(case.ranks):
        trained = Trained.read(case.printed(runs_bed, rank).read_text())
        assert trained.losses == pytest.approx(alone.losses, rel=1e-5)
        assert trained.norms == pytest.approx(alone.norms, rel=1e-5)


def test_left_out_shows_in_the_weights_only(megatron: Train) -> None:
    planted, sound = megatron("--steps 1 --bug left-out"), megatron("--steps 1")
    assert (planted.losses, planted.norms) == (sound.losses, sound.norms)
    assert planted.states != sound.states


def test_nan_comes_in_the_step_that_was_asked_for(megatron: Train) -> None:
    planted, sound = megatron("--bug nan --bug-step 2"), megatron("")
    assert planted.losses[0] == sound.losses[0]
    assert all(map(math.isnan, planted.losses[1:]))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("--heads 3", "multiple"),
        ("--tp 3", "multiple"),
        ("--bug nonsense", "invalid"),
        ("--bug counter", "train.py"),
        ("--bug flipped-bit", "--dp"),
        ("--bug wrong-group --dp 2", "--tp"),
        ("--bug tp-dropout --tp 2", "--dropout"),
        ("--bug stale-gather --tp 2", "--sequence-parallel"),
        ("--bug nan@2", "no layer 2"),
    ],
)
def test_contradictions_end_in_a_sentence(
    megatron: Train, capsys: pytest.CaptureFixture[str], arguments: str, reason: str
) -> None:
    with pytest.raises(SystemExit):
        megatron(arguments)
    assert reason in capsys.readouterr().err


def test_a_rank_alone_is_told_to_use_torchrun(megatron: Train) -> None:
    with pytest.raises(SystemExit, match="torchrun"):
        megatron("--tp 2")
