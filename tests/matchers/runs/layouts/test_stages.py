"""Stages of a pipeline are one graph: what one sends, the next one reads."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.logs.parser import read_log
from matchers.ops.unused_passes import unused_passes
from matchers.runs.check import check_run
from matchers.runs.finding import Check
from matchers.runs.layouts.read import layouts_differ, read_both
from matchers.runs.layouts.stages import with_stages_joined
from matchers.runs.rank_logs import RankLogs
from matchers.runs.run import find_run
from matchers.status import Status
from tests.captured import Step, captured_log, write_captured

RNG = np.random.default_rng(4)
WEIGHTS = [RNG.standard_normal((6, 6)) for _ in range(2)]
BATCHES = [RNG.standard_normal((4, 6)) for _ in range(2)]


def group(nth: int, peer: int, first: int = 0) -> dict[str, Any]:
    return {"group": {"ranks": [first, first + 1], "nth": nth, "peer": first + peer, "name": str(first)}}


def product(layer: int, number: int, read: Any, made: str, *, name: int, factor: float = 1.0) -> Step:
    """The product of a layer, which a log may name otherwise."""
    return Step(
        key=f"layers.{name}/op_{number}_mm",
        gives=[read @ WEIGHTS[layer] * factor],
        reads=[read, WEIGHTS[layer]],
        made=[made, ""],
        fields={"micro_batch": number},
    )


def whole() -> list[Step]:
    """Two micro-batches through both layers."""
    steps: list[Step] = []
    for number, batch in enumerate(BATCHES):
        steps.append(product(0, number, batch, "", name=0))
        steps.append(product(1, number, batch @ WEIGHTS[0], steps[-1].key, name=1))
    return steps


def first(batches: Sequence[Any] = BATCHES, rank: int = 0, peer: int = 1) -> list[Step]:
    """The first stage: some micro-batches, and what it sends of them."""
    steps: list[Step] = []
    for number, batch in enumerate(batches):
        made, sent = product(0, number, batch, "", name=0), group(number, peer, rank)
        steps += [made, Step(key=f"run/op_{number}_send", reads=made.gives, made=[made.key], fields=sent)]
    return steps


def second(
    *, name: int = 1, factor: float = 1.0, batches: Sequence[Any] = BATCHES, rank: int = 0, peer: int = 0
) -> list[Step]:
    """The second stage, after it received all."""
    received = [batch @ WEIGHTS[0] for batch in batches]
    got = [
        Step(
            key=f"run/op_{nth}_recv_",
            reads=[None],
            changed={0: of},
            fields={**group(nth, peer, rank), "phase": "prepare"},
        )
        for nth, of in enumerate(received)
    ]
    return [*got, *(product(1, k, of, got[k].key, name=name, factor=factor) for k, of in enumerate(received))]


def written(
    folder: Path,
    ranks: list[list[Step]],
    names: list[list[str]],
    batches: Sequence[str] = ("", "", "", ""),
    *,
    first: int = 0,
) -> str:
    """Write a run whose even ranks (odd ones with `first=1`) have the first stage."""
    digests = {"layers.0.weight": f"{1:016x}", "layers.1.weight": f"{2:016x}"}
    folder.mkdir()
    for rank, (steps, own) in enumerate(zip(ranks, names, strict=True)):
        info: dict[str, Any] = {"world_size": len(ranks), "rank": rank} if len(ranks) > 1 else {}
        held = dict(zip(own, list(digests.values())[(rank + first) % 2 :], strict=False))
        info |= {"batch": [{"digest": batches[rank]}]} if batches[rank] else {}
        write_captured(folder / f"rank_{rank}_activations.log", steps, parameter_digests=held, **info)
    return str(folder)


def compared(folder: Path, other: list[Step], name: int = 1) -> Comparison:
    one = written(folder / "one", [whole()], [["layers.0.weight", "layers.1.weight"]])
    two = written(folder / "two", [first(), other], [["embed.weight"], [f"layers.{name}.weight"]])
    assert layouts_differ(find_run(one), find_run(two))
    return compare(*read_both((f"{one}/rank_0_activations.log", two)))


@pytest.mark.parametrize("name", [1, 0], ids=["named as in one process", "counted anew"])
def test_stages_are_compared_as_one_graph(name: int, tmp_path: Path) -> None:
    c = compared(tmp_path, second(name=name), name)
    assert not c.red.any()
    assert c.counts[Status.EQUAL] == len(c.a) == len(c.b) == 4
    assert not c.coverage.parts


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_pipelines_beside_each_other_are_micro_batches(factor: float, tmp_path: Path) -> None:
    """Each of two reads one of the micro-batches; the second stage of the second one may have a bug."""
    stages = [
        step
        for k, of in enumerate(BATCHES)
        for step in (first([of], 2 * k), second(batches=[of], rank=2 * k, factor=factor if k else 1.0))
    ]
    names = [["embed.weight"], ["layers.1.weight"]] * 2
    one = written(tmp_path / "one", [whole()], [["layers.0.weight", "layers.1.weight"]])
    two = written(tmp_path / "two", stages, names, ["0a", "0b", "0c", "0d"])
    assert layouts_differ(find_run(one), find_run(two))
    c = compare(*read_both((f"{one}/rank_0_activations.log", two)))
    assert len(c.a) == len(c.b) == 4
    assert [c.a.keys[int(c.row_a[row])] for row in np.flatnonzero(c.red)] == ["layers.1/op_1_mm"] * (factor != 1)
    assert not c.coverage.parts


@pytest.mark.parametrize("factor", [1.0, 1.01])
@pytest.mark.parametrize("anew", [False, True], ids=["named as in one process", "counted anew"])
def test_pipelines_that_are_divided_otherwise_are_each_one_graph(factor: float, anew: bool, tmp_path: Path) -> None:
    """Of the other run, the first stage is on the second rank; the first run's stages may count from zero."""
    names = [["layers.0.weight"], ["layers.1.weight"]]
    own = [["layers.0.weight"], ["layers.0.weight"]] if anew else names
    one = written(tmp_path / "one", [first(), second(name=int(not anew))], own)
    two = written(tmp_path / "two", [second(factor=factor, peer=1), first(peer=0)], names[::-1], first=1)
    assert layouts_differ(find_run(one), find_run(two))
    assert not layouts_differ(find_run(one), find_run(one))
    c = compare(*read_both((one, two)))
    assert len(c.a) == len(c.b) == 4
    assert {c.b.keys[int(c.row_b[row])] for row in np.flatnonzero(c.red)} == (
        {"layers.1/op_0_mm", "layers.1/op_1_mm"} if factor != 1 else set()
    )
    assert not c.coverage.parts


@pytest.mark.parametrize("later", [1, 0], ids=["of both logs", "of one"])
def test_messages_before_the_log_of_the_other_end_begins_have_none(later: int, tmp_path: Path) -> None:
    """A log lacks messages before the first pass, such as shapes; the numbers go on."""
    told = Step(key="run/op_9_send", reads=[BATCHES[0]], made=[""], fields=group(0, 1))
    stages = [first(), second()]
    for step, by in [(step, by) for steps, by in zip(stages, (1, later), strict=True) for step in steps]:
        if "group" in step.fields:
            step.fields["group"]["nth"] += by
    names = [["layers.0.weight"], ["layers.1.weight"]]
    two = written(tmp_path / "two", [[told, *stages[0]], stages[1]], names)
    findings = [one.text for one in check_run(find_run(two)).findings]
    assert findings == ([] if later else ["rank 1 receives 2 of 3 messages"])
    one = written(tmp_path / "one", [whole()], [["layers.0.weight", "layers.1.weight"]])
    c = compare(*read_both((f"{one}/rank_0_activations.log", two)))
    assert not c.red.any()
    why = "rank 0 sends rank 1 3 messages, which receives 2"
    assert [(left.why.partition("; ")[2], left.helps) for left in c.b.left_out] == (
        [] if later else [(why, "capture the whole step on all ranks")]
    )


def test_other_weights_in_another_layout_name_the_option_that_gives_both_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = written(tmp_path / "one", [whole()], [["layers.0.weight", "layers.1.weight"]])
    monkeypatch.setattr(sys.modules[__name__], "WEIGHTS", [1.5 * weight for weight in WEIGHTS])
    two = written(tmp_path / "two", [first(), second()], [["layers.0.weight"], ["layers.1.weight"]])
    c = compare(*read_both((f"{one}/rank_0_activations.log", two)))
    assert "numtui capture --weights-from gives both the same" in c.comparability.sentence


def test_a_bug_in_the_second_stage_is_its_own(tmp_path: Path) -> None:
    c = compared(tmp_path, second(factor=1.01))
    assert {c.b.keys[int(c.row_b[row])] for row in np.flatnonzero(c.cause)} <= {"layers.1/op_0_mm", "layers.1/op_1_mm"}
    assert c.cause.any()


def test_a_rank_with_several_stages_has_several_turns_in_a_pass(tmp_path: Path) -> None:
    """Layers 0 and 2 are on one rank, 1 and 3 on the other; what either computes is one log, in the order of layers."""
    ranks, read = [list[Step](), list[Step]()], BATCHES[0]
    for layer in range(4):
        rank, got = layer % 2, f"run/op_{layer}_recv_" if layer else ""
        if got:
            message = {**group((layer - 1) // 2, 1 - rank), "phase": "prepare"}
            ranks[rank].append(Step(key=got, reads=[None], changed={0: read}, fields=message))
        made = product(rank, 0, read, got, name=layer)
        ranks[rank].append(made)
        if layer < 3:
            sent = group(layer // 2, 1 - rank)
            ranks[rank].append(Step(key=f"run/op_{layer}_send", reads=made.gives, made=[made.key], fields=sent))
        read = read @ WEIGHTS[rank]
    run = find_run(written(tmp_path / "two", ranks, [["layers.0.weight"], ["layers.1.weight"]]))
    (log,) = with_stages_joined(RankLogs(run, {k: read_log(path) for k, path in run.paths.items()})).logs.values()
    assert list(log.keys) == [f"layers.{layer}/op_0_mm" for layer in range(4)]


def dry(number: int) -> Step:
    """A pass over memory to which nothing was written."""
    step = product(1, number, np.full((4, 6), np.nan), "", name=1)
    return Step(key=step.key, gives=[np.full((4, 6), np.nan)], reads=[BATCHES[0]], fields=step.fields)


def passes(table: Any = None) -> list[Step]:
    """A pass that tells shapes, and one of each batch, whose product is added to a gradient; each may copy a table."""
    steps = list[Step]()
    for number in range(3):
        if table is not None:
            fields = {"micro_batch": number}
            steps.append(
                Step(key=f"layers.1/op_{number}_clone", gives=[table], reads=[table], made=[""], fields=fields)
            )
        steps.append(product(1, number, BATCHES[number - 1], "", name=1) if number else dry(0))
        read = {"phase": "optimizer", "parameters": ["layers.1.weight"]}
        if number:
            made = steps[-1]
            key = f"layers.1/op_{number}_add_"
            steps.append(Step(key=key, gives=made.gives, reads=made.gives, made=[made.key], fields=read))
    return steps


def test_a_pass_that_tells_shapes_alone_is_no_micro_batch() -> None:
    assert unused_passes(captured_log(passes())).tolist() == [True, False, False, False, False]
    assert not unused_passes(captured_log(passes()[1:])).any()


def test_a_table_that_each_pass_copies_does_not_make_such_a_pass_used() -> None:
    """Its copy has the bits of the table, which later passes read."""
    table = RNG.standard_normal((4, 6))
    assert np.flatnonzero(unused_passes(captured_log(passes(table)))).tolist() == [0, 1]


def test_uninitialised_memory_of_such_a_pass_is_no_finding(tmp_path: Path) -> None:
    kept = product(1, 1, BATCHES[0], "", name=1)
    used = Step(
        key="layers.1/op_9_add_", gives=kept.gives, reads=kept.gives, made=[kept.key], fields={"phase": "optimizer"}
    )
    run = written(tmp_path / "run", [[dry(0), kept, used]], [["layers.1.weight"]])
    assert not [one for one in check_run(find_run(run)).findings if one.check is Check.FINITE]
