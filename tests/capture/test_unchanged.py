"""A capture changes no bit: losses, gradients, weights, optimizer state and random state of every variant."""

from __future__ import annotations

import pytest

from tests.capture.runs import Examples
from tests.two_ranks import CAPTURED, TwoRanks

ONE_PROCESS = (
    "",
    "--ac selective",
    "--ac selective --ac-style function",
    "--ac full",
    "--ac full --ac-style function",
    "--ac full --ac-style function-reentrant",
    "--compile aot_eager",
    "--traced",
    "--dtype amp",
    "--dtype bfloat16",
    "--experts 4",
    "--experts 4 --ac full",
    "--micro-batches 2",
    "--loss chunked",
    "--tied",
    "--optimizer fused",
    "--optimizer for-loop",
    "--bug inf-softmax",
    "--parallel tp --local-tensor 2 --layers 1",
    "--parallel fsdp2 --fake-world 8",
    "--parallel tp --fake-world 2",
)


@pytest.mark.parametrize("variant", ONE_PROCESS)
def test_one_process_prints_what_it_prints_without_a_capture(examples: Examples, variant: str) -> None:
    """The last line is a digest of all that a step changes; the second step runs after the capture."""
    plain = examples.plain(variant)
    assert plain.splitlines()[-1].startswith("state ")
    run = examples.captured(variant)
    assert run.printed == plain
    assert all(log.complete and len(log.rows) > 100 for log in run.logs.values())


@pytest.mark.parametrize("variant", CAPTURED)
def test_two_ranks_print_what_they_print_without_a_capture(two_ranks: TwoRanks, variant: str) -> None:
    for plain, captured in two_ranks.printed(variant):
        assert captured == plain
    assert [log.run["rank"] for log in two_ranks.logs(variant)] == [0, 1]


@pytest.mark.parametrize(
    "options",
    [
        "--steps 1,2",
        "--save module:*",
        "--no-sketch",
        "--weights every",
        "--hash torch:sum",
        "--ops mm --min-numel 100",
        "--modules norm",
    ],
)
def test_no_setting_changes_a_bit(examples: Examples, options: str) -> None:
    assert examples.captured("", options).printed == examples.plain()
