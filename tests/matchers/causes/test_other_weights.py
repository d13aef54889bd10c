"""Runs that begin with other weights, in logs that have norms alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.explain.sentences import headline
from matchers.logs.parser import read_log
from matchers.ops.run_info import HELD_BY_RANKS, MERGED_RANKS
from tests.builders import op, write_log


def step(folder: Path, *, weights: float = 0.0, bug: float = 0.0, run: Mapping[str, object] | None = None) -> Path:
    """An embedding and six products, of weights that are off by a little, and of results that are more and more."""
    ops = [op("emb/op_0_embedding", 3.0, inputs=(418946.3, 25267.0), producers=("", ""))]
    for k in range(6):
        made = ops[-1]
        weight = (100.0 + k) * (1 + weights)
        result = (7.0 + k) * (1 + 1e3 * k * weights) * (1 + bug * (k >= 1))
        inputs, producers = (made.outputs[0], weight), (made.key, "")
        ops.append(op(f"layers.{k}/op_0_mm", result, inputs=inputs, producers=producers))
    return write_log(folder / f"{weights}-{bug}.log", ops, run=run)


def told(a: Path, b: Path) -> tuple[Comparison, list[str]]:
    c = compare(read_log(a), read_log(b))
    return c, [headline(c, row) for row in np.flatnonzero(c.cause).tolist()]


def test_where_an_error_jumps_says_nothing(tmp_path: Path) -> None:
    c, causes = told(step(tmp_path), step(tmp_path, weights=2e-6))
    assert c.red.any()
    read = "6 of 6 matrix products read other weights, layers.0/op_0_mm first"
    assert causes == [f"FIRST CAUSE: the runs differ before this step: capture step 1; {read}"]
    assert not any("jumps" in headline(c, row) for row in range(len(c)))


def test_of_equal_weights_the_operation_is_to_blame(tmp_path: Path) -> None:
    c, causes = told(step(tmp_path), step(tmp_path, bug=0.01))
    assert [c.a.keys[int(c.row_a[row])] for row in np.flatnonzero(c.cause)] == ["layers.1/op_0_mm"]
    assert "before" not in causes[0]


@pytest.mark.parametrize("held", [6, 1])
def test_weights_that_some_rank_begins_with_are_no_others(held: int, tmp_path: Path) -> None:
    """Ranks with experts of their own, under other names, are merged as parts of one."""
    digests = [f"{k:02x}" for k in range(6)]
    named = {f"layers.{k}.weight": digest for k, digest in enumerate(digests)}
    of_ranks = {"step": 1, MERGED_RANKS: 2, HELD_BY_RANKS: digests[:held]}
    whole, merged = (
        step(tmp_path, run={"step": 1, "parameter_digests": named}),
        step(tmp_path, weights=2e-6, run=of_ranks),
    )
    c, _ = told(whole, merged)
    assert ("read other weights" in c.comparability.sentence) == (held == 1)
