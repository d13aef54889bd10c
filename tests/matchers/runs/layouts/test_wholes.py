"""Shapes of whole tensors where both runs hold parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from matchers.comparison import Comparison
from matchers.runs.layouts.wholes import Wholes, whole_of
from matchers.status import Status
from tests.captured import Step, captured_log, summary
from tests.matchers.runs.layouts.ranks import compared, write_ranks

Array = NDArray[np.float32]
RNG = np.random.default_rng(3)
HEADS, BIAS, GATHERED = (RNG.normal(size=size).astype(np.float32) for size in ((2, 4, 8, 6), 6, (8, 6)))


def rank(number: int, size: int, factor: float, gathered: bool = False) -> list[Step]:
    """Its heads, and its share of a bias that is added to a partial sum; both runs gather the whole in pieces.

    `gathered`: so is the bias.
    """
    each = 4 // size
    heads = np.ascontiguousarray(HEADS[:, each * number : each * (number + 1)]) * np.float32(factor)
    share = BIAS / np.float32(size)
    sums: dict[str, Any] = {"mesh": {"tp": size}, "placements": ["Partial(sum)"], "shape": [6], "offsets": [0]}
    pieces = GATHERED.reshape(size, -1, 6)
    bias = "block/op_0_split_with_sizes_copy"
    return [
        Step(key="attn/op_0_softmax", gives=[heads]),
        *[Step(key=bias, gives=[BIAS])][: int(gathered)],
        Step(key="out/op_0_div", gives=[share], reads=[BIAS], made=[bias if gathered else ""]),
        Step(key="out/op_1_add", gives=[summary(share, placement=sums)], reads=[share], made=["out/op_0_div"]),
        Step(key="out/op_2_cat", gives=[pieces]),
    ]


def two_and_four(folder: Path, factor: float = 1.0, gathered: bool = False) -> Comparison:
    """Two ranks against four, in one of which the heads are wrong."""
    placed = {"out.bias": [{"placements": ["Replicate"], "shape": [6], "offsets": [0]}] * 4}
    two = [rank(number, 2, 1.0) for number in range(2)]
    four = [rank(number, 4, factor if number == 1 else 1.0, gathered) for number in range(4)]
    return compared(write_ranks(folder / "2", two, placed), write_ranks(folder / "4", four, placed))


def test_the_whole_is_what_the_parts_of_both_can_make() -> None:
    log = captured_log(rank(0, 4, 1.0))
    assert Wholes(log).of("softmax") == {(2, 1, 8, 6)}
    assert (2, 4, 8, 6) in Wholes(log, parts=4).of("softmax")
    assert whole_of([(2, 2, 8, 6)] * 2, Wholes(log, parts=4).of("softmax")) == (2, 4, 8, 6)
    of_half = Wholes(log).over(2)
    assert of_half.of("softmax") == {(2, 1, 8, 6), (1, 1, 8, 6), (2, 1, 4, 6), (2, 1, 8, 3)}
    assert of_half.of_all.of("softmax") == {(2, 1, 8, 6)}
    assert whole_of([(3, 2), (2, 2)], {(5, 2)}) == (5, 2)
    assert whole_of([(3, 2), (6,)], {(5, 2)}) is None
    assert whole_of([(1, 2), (0, 2)], {(1, 2)}) == (1, 2), "one rank has all"


@pytest.mark.parametrize("gathered", [False, True])
def test_two_and_four_ranks_agree(tmp_path: Path, gathered: bool) -> None:
    c = two_and_four(tmp_path, gathered=gathered)
    assert not c.red.any()
    pairs = np.flatnonzero(c.row_a >= 0).tolist()
    status = {c.a.op_name(int(c.row_a[row])): Status(int(c.status[row])) for row in pairs}
    assert status["softmax"] in (Status.SAME_PRINT, Status.CLOSE)
    assert status["div"] == Status.CLOSE, "a term of a sum: the bias, whatever the number of ranks"


def test_a_wrong_part_is_red(tmp_path: Path) -> None:
    c = two_and_four(tmp_path, 1.01)
    assert [c.a.op_name(int(c.row_a[row])) for row in np.flatnonzero(c.red)] == ["softmax"]
