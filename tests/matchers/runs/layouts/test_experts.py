"""Ranks with experts of their own, to which tokens of all ranks travel, are one model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matchers.comparison import Comparison
from matchers.runs.layouts.read import layouts_differ
from matchers.runs.run import find_run
from tests.captured import Step, write_captured
from tests.matchers.runs.layouts.ranks import compared

RNG = np.random.default_rng(5)
TOKENS, SHARED, *EXPERTS = (RNG.standard_normal(shape) for shape in ((8, 6), (6, 6), (6, 6), (6, 6)))
"""Of four tokens of each rank the even ones go to expert 0, the odd ones to expert 1."""


def shared(tokens: Any) -> Step:
    return Step(key="shared/op_0_mm", gives=[tokens @ SHARED], reads=[tokens, SHARED], made=["", ""])


def expert(which: int, made: str, *, name: int, factor: float = 1.0) -> Step:
    rows = (TOKENS @ SHARED)[which::2]
    gives = [rows @ EXPERTS[which] * factor]
    return Step(key=f"experts.{name}/op_0_mm", gives=gives, reads=[rows, EXPERTS[which]], made=[made, ""])


def combined(rows: Any, *made: str) -> Step:
    parts = [(rows @ SHARED)[which::2] @ EXPERTS[which] for which in (0, 1)]
    return Step(key="moe/op_1_cat", gives=[np.concatenate(parts)], reads=parts, made=list(made))


def exchanged(nth: int, rows: Any, made: str) -> Step:
    group = {"group": {"ranks": [0, 1], "nth": nth, "name": "0"}}
    return Step(
        key=f"moe/op_{nth}_alltoall_base_", reads=[None, rows], made=["", made], changed={0: rows}, fields=group
    )


def written(folder: Path, ranks: list[list[Step]], names: list[list[str]]) -> str:
    folder.mkdir()
    digests = {"shared.weight": f"{1:016x}", "experts.0.weight": f"{2:016x}", "experts.1.weight": f"{3:016x}"}
    for rank, (steps, own) in enumerate(zip(ranks, names, strict=True)):
        info: dict[str, Any] = {"world_size": len(ranks), "rank": rank} if len(ranks) > 1 else {}
        held = {"shared.weight": digests["shared.weight"]}
        held |= {name: digests[f"experts.{rank + k}.weight"] for k, name in enumerate(own)}
        path = folder / f"rank_{rank}_activations.log"
        batch = [{"digest": f"{rank}{len(ranks)}", "shape": [len(TOKENS) // len(ranks), 6]}]
        write_captured(path, steps, parameter_digests=held, batch=batch, **info)
    return str(folder)


def one_and_two(folder: Path, *, renumbered: bool, factor: float) -> Comparison:
    first = shared(TOKENS)
    experts = [expert(which, first.key, name=which) for which in (0, 1)]
    whole = [first, *experts, combined(TOKENS, *(of.key for of in experts))]
    ranks, names = list[list[Step]](), list[list[str]]()
    for rank, tokens in enumerate((TOKENS[:4], TOKENS[4:])):
        name = 0 if renumbered else rank
        begun = shared(tokens)
        sent = exchanged(0, (TOKENS @ SHARED)[rank::2], begun.key)
        own = expert(rank, sent.key, name=name, factor=factor if rank else 1.0)
        back = exchanged(2, own.gives[0], own.key)
        ranks.append([begun, sent, own, back, combined(tokens, back.key, back.key)])
        names.append([f"experts.{name}.weight"])
    one = written(folder / "one", [whole], [["experts.0.weight", "experts.1.weight"]])
    two = written(folder / "two", ranks, names)
    assert layouts_differ(find_run(one), find_run(two))
    return compared(f"{one}/rank_0_activations.log", two)


@pytest.mark.parametrize("renumbered", [False, True], ids=["names of all", "counted anew"])
@pytest.mark.parametrize("factor", [1.0, 1.001])
def test_experts_are_compared_on_the_rank_that_has_them(tmp_path: Path, renumbered: bool, factor: float) -> None:
    c = one_and_two(tmp_path, renumbered=renumbered, factor=factor)
    paired = {c.a.keys[int(i)] for i in c.row_a[c.pair >= 0]}
    assert paired >= {"shared/op_0_mm", "experts.0/op_0_mm", "experts.1/op_0_mm"}
    assert [c.a.keys[int(c.row_a[row])] for row in np.flatnonzero(c.cause)] == ["experts.1/op_0_mm"] * (factor > 1)
    assert c.coverage.understood
