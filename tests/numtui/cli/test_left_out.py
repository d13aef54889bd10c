"""Ranks without comparison are said in the headline, the notes, JSON, the exit code and the explorer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from matchers.comparison import compare
from matchers.runs.layouts.read import read_both
from matchers.verdict.expectation import Expect, Expectation
from numtui.cli.main import main
from numtui.report.gate import fails
from numtui.views.run_summary import all_agree
from tests.builders import Op, log_text, training_step

OPS = training_step()


def times(factor: float) -> list[Op]:
    """The step with all numbers multiplied, as a rank that went wrong prints them."""

    def scaled(values: Sequence[float | str]) -> list[float]:
        return [float(value) * factor for value in values]

    def wrong(op: Op) -> Op:
        l2, least, largest, mean = scaled([value or 0.0 for value in (op.l2, op.min, op.max, op.mean)])
        outputs, inputs = scaled(op.outputs), scaled(op.inputs)
        return replace(op, l2=l2, min=least, max=largest, mean=mean, outputs=outputs, inputs=inputs)

    return [wrong(op) for op in OPS]


GOOD, NAN, SCALED = OPS, times(float("nan")), times(100.0)


def run_of(name: str, *ranks: list[Op]) -> str:
    for rank, ops in enumerate(ranks):
        path = Path(name, f"rank_{rank}_activations.log")
        path.parent.mkdir(exist_ok=True)
        path.write_text(log_text(ops), encoding="utf-8")
    return name


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("a", "b", "options", "left"),
    [
        ([GOOD] * 4, [GOOD], [], {("a", 1, 2, 3)}),
        ([GOOD] * 4, [GOOD] * 2, [], {("a", 1, 2, 3), ("b", 1)}),
        ([GOOD] * 4, [GOOD] * 3, [], {("a", 1, 2, 3), ("b", 1, 2)}),
        ([GOOD], [GOOD, NAN], [], {("b", 1)}),
        ([GOOD], [GOOD, SCALED], [], {("b", 1)}),
        ([GOOD] * 2, [GOOD, NAN], ["--merged"], {("a", 1), ("b", 1)}),
        ([GOOD] * 2, [GOOD, SCALED], ["--merged"], {("a", 1), ("b", 1)}),
    ],
    ids=["1-of-4", "2-of-4", "3-of-4", "nan", "scaled", "nan-merged", "scaled-merged"],
)
def test_ranks_that_are_left_out_are_named_everywhere(
    a: list[list[Op]],
    b: list[list[Op]],
    options: list[str],
    left: set[tuple[str | int, ...]],
    turned: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sides = (run_of("a", *a), run_of("b", *b))
    if turned:
        sides = (run_of("x", *b), run_of("y", *a))
        left = {("ab"[side == "a"], *ranks) for side, *ranks in left}
    also = [f"--also=r.{suffix}" for suffix in ("json", "jsonl", "md", "html", "xml")]
    assert main(["diff", *sides, *options, "--no-cache", *also]) == 1
    said = capsys.readouterr()
    headline = next(line for line in said.out.split("\n") if line.startswith("Not compared: "))
    report = json.loads(Path("r.json").read_text())
    assert {(part["side"], *part["ranks"]) for part in report["coverage"]["parts"] if part["ranks"]} == left
    assert not report["coverage"]["enough"]
    for part in report["coverage"]["parts"]:
        named = f"{part['name']} of {part['side']}"
        assert named in headline
        assert f"fails on not-compared: {named}" in said.err
        assert any(note["text"].startswith(f"{named} {part['why']}: ") for note in report["notes"])
        assert all(named in Path(f"r.{suffix}").read_text() for suffix in ("md", "html", "xml"))
    assert main(["diff", *sides, *options, "--no-cache", "--format", "github", "--fail-on", "not-compared"]) == 1
    assert main(["diff", *sides, *options, "--no-cache", "--format", "jsonl"]) == 1
    assert main([*sides, *options, "--no-cache"]) == 1, "the explorer without a terminal"


def test_the_first_screen_says_it() -> None:
    c = compare(
        *read_both((f"{run_of('a', GOOD)}/rank_0_activations.log", run_of("b", GOOD, NAN))),
        expectation=Expectation(Expect.REDUCTION_ORDER),
    )
    assert all_agree(c).startswith(f"Not compared: rank 1 of b ({len(OPS):,}), which could not be merged; ")
    assert fails(c)


def test_a_rank_of_the_world_without_a_log_is_named_where_ranks_are_merged(capsys: pytest.CaptureFixture[str]) -> None:
    for run in ("a", "b"):
        Path(run).mkdir()
        for rank in (0, 2):
            info = {"world_size": 4, "rank": rank, "batch": [{"digest": "00"}]}
            Path(run, f"rank_{rank}_activations.log").write_text(log_text(OPS, run=info))
    assert main(["diff", "a", "b", "--merged", "--no-cache"]) == 1
    assert "fails on not-compared: ranks 1, 3 of a left no log" in capsys.readouterr().err
