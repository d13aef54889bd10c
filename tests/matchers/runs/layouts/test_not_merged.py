"""Layouts of which no log of global tensors shows all: a difference proves nothing, unless the records prove it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from matchers.comparison import Comparison, compare
from matchers.explain.sentences import headline
from matchers.runs.layouts.read import layouts_differ, read_both
from matchers.runs.run import find_run
from matchers.status import Status
from numtui.report.gate import Allowed, failures_of
from numtui.report.options import FAIL_ON
from tests.captured import Step, write_captured

RNG = np.random.default_rng(3)
Array = NDArray[np.float64]
TOKENS = RNG.standard_normal((8, 16))
WEIGHTS = [RNG.standard_normal((16, 16)) for _ in range(3)]
NAMES = [f"layers.{k}.weight" for k in range(3)]


def forward(
    layers: Sequence[int] = (0, 1, 2), *, factor: float = 1.0, inserted: float = 0.0, divisor: float = 0.0
) -> list[Step]:
    """Matrix products with ReLU; the second one is off by a factor, or multiplied or divided in one of its own."""
    steps: list[Step] = []
    values, made = TOKENS, ""

    def step(key: str, result: Array) -> None:
        nonlocal values, made
        weights = [WEIGHTS[k]] if key.endswith("mm") else []
        steps.append(Step(key=key, gives=[result], reads=[values, *weights], made=[made, *[""] * len(weights)]))
        values, made = result, key

    for k in layers:
        step(f"layers.{k}/op_0_mm", values @ WEIGHTS[k] * (factor if k == 1 else 1.0))
        if inserted and k == 1:
            step(f"layers.{k}/op_1_mul", values * inserted)
        if divisor and k == 1:
            step(f"layers.{k}/op_1_div", values / divisor)
            steps[-1] = replace(steps[-1], fields={"arguments": {"other": divisor}})
        step(f"layers.{k}/op_2_relu", np.maximum(values, 0))
    return steps


def updates(which: Sequence[int]) -> list[Step]:
    """What the optimizer does with some of the weights."""
    return [
        Step(
            key=f"layers.{k}/op_9_div_",
            gives=[WEIGHTS[k] / 2],
            reads=[WEIGHTS[k]],
            changed={0: WEIGHTS[k] / 2},
            fields={"phase": "optimizer", "parameters": [NAMES[k]]},
        )
        for k in which
    ]


def written(
    folder: Path,
    ranks: Sequence[list[Step]],
    names: Sequence[Sequence[str]] = (),
    batches: Sequence[str] = ("00",),
    optimizers: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The folder of a run; `names` are the parameters of each rank, all of them by default."""
    folder.mkdir()
    for rank, steps in enumerate(ranks):
        held = names[rank] if names else NAMES
        info: dict[str, Any] = {"world_size": len(ranks), "rank": rank} if len(ranks) > 1 else {}
        info |= {"optimizer": optimizers[rank]} if optimizers else {}
        write_captured(
            folder / f"rank_{rank}_activations.log",
            steps,
            parameter_digests=dict.fromkeys(held, "00"),
            batch=[{"digest": batches[rank % len(batches)]}],
            **info,
        )
    return str(folder)


def one_process(folder: Path) -> str:
    return written(folder / "one", [forward() + updates((0, 1, 2))])


def compared(one: str, ranks: str) -> Comparison:
    assert layouts_differ(find_run(one), find_run(ranks))
    return compare(*read_both((f"{one}/rank_0_activations.log", ranks)))


def failed(c: Comparison) -> dict[str, str]:
    """What `numtui diff` fails on by default, by condition."""
    found: dict[str, str] = {}
    for failure in failures_of(c, FAIL_ON, Allowed(np.zeros(len(c), bool))):
        found[failure.condition] = f"{found.get(failure.condition, '')}{failure.text}; "
    return found


def divided(folder: Path, passes: list[Step]) -> str:
    """Two ranks that compute the same, of which each updates two of three weights."""
    return written(folder / "two", [passes + updates((0, 1)), passes + updates((1, 2))])


def in_parts(
    folder: Path, passes: list[Step], batches: Sequence[str] = ("00", "11"), *, skips: bool = False, turns: bool = False
) -> str:
    """Two ranks that send each other parts of a sequence, of which the first may skip what it received.

    Args:
        turns: an all-to-all hands on all to one other rank, as torch's ring does.
    """

    def receiving(peer: int) -> list[Step]:
        fields: dict[str, Any] = {"group": {"ranks": [0, 1], "nth": 0, "peer": peer}}
        received = Step(key="layers.0/op_0_recv_", reads=[None], changed={0: TOKENS * 2}, fields=fields)
        if turns:
            fields = {"group": {"ranks": [0, 1], "nth": 0}, "arguments": {"output_split_sizes": [1 - peer, peer]}}
            received = Step(key="layers.0/op_0_all_to_all_single", gives=[TOKENS * 2], reads=[TOKENS], fields=fields)
        used = Step(key="layers.0/op_1_neg", gives=[-TOKENS * 2], reads=[TOKENS * 2], made=[received.key])
        return [received, *([] if skips and peer else [used]), *passes]

    return written(folder / "two", [receiving(1), receiving(0)], batches=batches)


def test_updates_that_ranks_divide_are_compared_wherever_they_are_computed(tmp_path: Path) -> None:
    c = compared(one_process(tmp_path), divided(tmp_path, forward()))
    assert not c.red.any()
    assert not failed(c)
    assert c.counts[Status.EQUAL] == len(c.a)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_an_update_of_one_rank_alone_is_named(which: int, tmp_path: Path) -> None:
    """By the first rank alone, by both, by the second alone."""
    passes = [[*forward(), *updates(own)] for own in ((0, 1), (1, 2))]
    for steps in passes:
        for at, step in enumerate(steps):
            if step.key == f"layers.{which}/op_9_div_":
                steps[at] = replace(step, gives=[WEIGHTS[which] / 3], changed={0: WEIGHTS[which] / 3})
    c = compared(one_process(tmp_path), written(tmp_path / "two", passes))
    assert [c.b.keys[int(c.row_b[row])] for row in np.flatnonzero(c.cause)] == [f"layers.{which}/op_9_div_"]


@pytest.mark.parametrize(
    ("a", "b", "apart"),
    [
        ([(), ()], [(2,), (0,)], True),
        ([(2,), (0,)], [(0,), (2,)], True),
        ([(2,), (0,)], [(2,), (0,)], False),
        ([(), ()], [(0,), (0,)], False),
    ],
    ids=["one does", "otherwise", "alike", "left out everywhere"],
)
def test_runs_that_divide_updates_otherwise_have_no_partners(
    a: list[tuple[int, ...]], b: list[tuple[int, ...]], apart: bool, tmp_path: Path
) -> None:
    """As many ranks with the same parameters: which of these an optimizer lacks, tells."""
    runs = []
    for name, lacking in (("a", a), ("b", b)):
        steps = [forward() + updates([k for k in range(3) if k not in of]) for of in lacking]
        optimizers = [{"held": 3 - len(of), "not_held": [NAMES[k] for k in of]} for of in lacking]
        runs.append(written(tmp_path / name, steps, optimizers=optimizers))
    assert layouts_differ(*map(find_run, runs)) is apart
    if apart:
        c = compare(*read_both((runs[0], runs[1])))
        assert not c.red.any()
        assert not failed(c)


def test_ranks_of_which_one_updates_less_are_no_divided_optimizer(tmp_path: Path) -> None:
    """A parameter that one rank leaves out is a mistake, and no layout."""
    two = written(tmp_path / "two", [forward() + updates((0, 1, 2)), forward() + updates((0, 1))])
    assert compared(one_process(tmp_path), two).coverage.understood


def test_stages_of_a_pipeline_are_not_understood(tmp_path: Path) -> None:
    stages = [forward((0, 1)), forward((2,))]
    c = compared(one_process(tmp_path), written(tmp_path / "two", stages, [NAMES[:2], NAMES[2:]]))
    assert not c.red.any()
    assert failed(c)["not-compared"]
    assert [part.ranks for part in c.coverage.parts if part.layout] == [(1,)]
    assert c.counts[Status.EQUAL] == 4


@pytest.mark.parametrize("skips", [True, False])
@pytest.mark.parametrize("batches", [("00", "11"), ("00",)])
def test_parts_of_a_sequence_are_understood_also_if_a_rank_skips_blocks(
    tmp_path: Path, batches: Sequence[str], skips: bool
) -> None:
    """Ranks with one batch may send each other what they like: they are merged by what they hold."""
    c = compared(one_process(tmp_path), in_parts(tmp_path, forward(), batches=batches, skips=skips))
    assert c.coverage.understood


@pytest.mark.parametrize("turns", [False, True])
def test_rings_of_two_sizes_are_not_understood(tmp_path: Path, turns: bool) -> None:
    (tmp_path / "a").mkdir()
    ring = Path(in_parts(tmp_path / "a", forward(), turns=turns))
    steps = [[*forward()] for _ in range(4)]
    four = written(tmp_path / "four", steps, batches=("00", "11", "22", "33"))
    assert not compare(*read_both((str(ring), four))).coverage.understood


def test_two_pipelines_whose_messages_no_log_shows_are_not_understood(tmp_path: Path) -> None:
    stages = [forward((0, 1)), forward((2,))]
    one = written(tmp_path / "one", [*stages, *stages], [NAMES[:2], NAMES[2:]] * 2)
    other = written(tmp_path / "other", stages, [NAMES[:2], NAMES[2:]])
    c = compare(*read_both((one, other)))
    assert not c.cause.any()
    assert not c.coverage.understood
    assert "not-compared" in failed(c)


@pytest.mark.parametrize(
    ("options", "cause"),
    [({"factor": 1.001}, "layers.1/op_0_mm"), ({"inserted": 1.001}, "layers.1/op_1_mul")],
    ids=["another result", "inserted"],
)
def test_what_the_records_prove_is_the_first_cause_all_the_same(
    tmp_path: Path, options: dict[str, float], cause: str
) -> None:
    stages = [forward((0, 1), **options), forward((2,))]
    c = compared(one_process(tmp_path), written(tmp_path / "two", stages, [NAMES[:2], NAMES[2:]]))
    (row,) = np.flatnonzero(c.cause)
    assert c.b.keys[int(c.row_b[row])] == cause
    assert headline(c, int(row)).startswith("FIRST CAUSE")
    assert "diverged" in failed(c)
    assert "not-compared" in failed(c)


@pytest.mark.parametrize(("divisors", "proven"), [((64, 32), False), ((0.5, 0.25), True)])
def test_counts_of_samples_prove_nothing(tmp_path: Path, divisors: tuple[float, float], proven: bool) -> None:
    one = written(tmp_path / "one", [forward(divisor=divisors[0]) + updates((0, 1, 2))])
    stages = [forward((0, 1), divisor=divisors[1]), forward((2,))]
    c = compared(one, written(tmp_path / "two", stages, [NAMES[:2], NAMES[2:]]))
    assert [c.a.keys[int(row)] for row in c.row_a[c.cause]] == ["layers.1/op_1_div"] * proven
    assert "not-compared" in failed(c)


def test_what_no_merged_log_tells_is_not_equal(tmp_path: Path) -> None:
    """Ranks hold parts of other tensors, which two and four of them computed."""
    runs = []
    for many, x in ((2, TOKENS), (4, TOKENS + 1)):
        parts = np.split(x, many, axis=1)
        steps = [Step(key="layers.0/op_0_tanh", reads=[part], gives=[np.tanh(part)]) for part in parts]
        runs.append(written(tmp_path / str(many), [[step, *updates((0, 1, 2))] for step in steps]))
    c = compare(*read_both((runs[0], runs[1])))
    assert not c.inputs_equal[c.row_a == 0].any()


@pytest.mark.parametrize(("norms", "apart"), [((3.0, 4.0), True), ((3.0, 5.0), False), ((None, None), False)])
def test_ranks_that_deal_out_one_batch_otherwise_have_no_partners(
    tmp_path: Path, norms: tuple[float | None, float | None], apart: bool
) -> None:
    """Other parts of one batch have its norm together; another batch has not, and old logs do not tell."""
    runs = []
    for name, batches in (("a", ({"digest": "00", "l1": 2.0}, {"digest": "11", "l1": 5.0})),
                          ("b", ({"digest": "22", "l1": norms[0]}, {"digest": "33", "l1": norms[1]}))):  # fmt: skip
        (tmp_path / name).mkdir()
        for rank, batch in enumerate(batches):
            path = tmp_path / name / f"rank_{rank}_activations.log"
            digests = dict.fromkeys(NAMES, "00")
            write_captured(path, forward(), parameter_digests=digests, batch=[batch], world_size=2, rank=rank)
        runs.append(find_run(str(tmp_path / name)))
    assert layouts_differ(*runs) is apart
