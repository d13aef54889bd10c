"""Steps that the two runs take differently to the same result, paired by name and order only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from matchers.comparison import Comparison, compare
from matchers.logs.op_log import OpLog
from tests.captured import Step, captured_log

RNG = np.random.default_rng(11)
X, G, H, W, OTHER = (RNG.normal(size=(8, 16)) for _ in range(5))


class Run:
    """Steps that read each other by the last part of their keys."""

    def __init__(self) -> None:
        self._steps: dict[str, Step] = {}

    def add(self, key: str, gives: NDArray[Any], *reads: str) -> None:
        inputs = [self._steps[name].gives[0] for name in reads] or [gives * 7]
        made = [self._steps[name].key for name in reads] or [""]
        self._steps[key.rpartition("/")[2]] = Step(key=key, gives=[gives], reads=inputs, made=made)

    @property
    def log(self) -> OpLog:
        return captured_log(list(self._steps.values()))


def pairs(c: Comparison) -> dict[str, str]:
    """The key of the partner in b by key in a, without modules; empty for none."""
    out = {}
    for i, pair in enumerate(c.pairing.of_a.tolist()):
        j = int(c.pairing.lead_b[pair]) if pair >= 0 else -1
        out[c.a.keys[i].rpartition("/")[2]] = c.b.keys[j].rpartition("/")[2] if j >= 0 else ""
    return out


def summed(order: str, total: NDArray[Any]) -> OpLog:
    """A gradient of three terms; by names and order the sum of all in one run is a partner of a part in the other."""
    run = Run()
    for name, value in (("op_0_mm", X), ("op_1_mm", G), ("op_2_mm", H)):
        run.add(f"layers.1.mlp/{name}", value)
    if order == "left":
        run.add("layers.1.value/op_3_add", X + G, "op_0_mm", "op_1_mm")
        run.add("layers.1.key/op_4_add", total, "op_3_add", "op_2_mm")
    else:
        run.add("layers.1.key/op_4_add", G + H, "op_1_mm", "op_2_mm")
    for k in range(10, 50):
        run.add(f"layers.1.norm/op_{k}_exp", W * k, "op_1_mm")
    if order == "right":
        run.add("layers.1.norm/op_9_add", total, "op_0_mm", "op_4_add")
    run.add("layers.0.mlp/op_50_tanh", np.tanh(total), "op_4_add" if order == "left" else "op_9_add")
    return run.log


def test_a_sum_of_three_terms_is_the_partner_of_the_sum_of_all() -> None:
    c = compare(summed("left", X + G + H), summed("right", X + (G + H + 1e-9)))
    assert pairs(c)["op_4_add"] == "op_9_add"
    assert not c.red.any()
    assert not c.cause.any()


def test_a_wrong_sum_is_red_whatever_its_partner() -> None:
    c = compare(summed("left", X + G + H), summed("right", X + (G + H) * 1.5))
    assert c.red.any()
    assert c.cause.any()


def detoured(op: str, on_the_way: NDArray[Any], result: NDArray[Any], *, diverged: float) -> OpLog:
    """A product by way of `op`, near something that diverges by itself."""
    run = Run()
    run.add("m/op_0_exp", X)
    run.add(f"m/op_1_{op}", on_the_way * 2, "op_0_exp")
    run.add("m/op_2_div", on_the_way, f"op_1_{op}")
    run.add("m/op_3_mm", result, "op_2_div")
    run.add("m/op_4_sin", H * diverged, "op_0_exp")
    run.add("m/op_5_cos", W * diverged, "op_4_sin")
    return run.log


@pytest.mark.parametrize("diverged", [1.0, 1.5])
def test_a_detour_is_no_pair_though_something_diverges_nearby(diverged: float) -> None:
    c = compare(detoured("tan", G, W, diverged=1.0), detoured("atan", OTHER * 3, W, diverged=diverged))
    found = pairs(c)
    assert (found["op_2_div"], found["op_3_mm"]) == ("", "op_3_mm")
    red = {c.a.op_name(int(c.row_a[row])) for row in np.flatnonzero(c.red).tolist()}
    assert red == (set() if diverged == 1 else {"sin", "cos"})


def test_it_is_a_pair_where_what_reads_it_differs() -> None:
    c = compare(detoured("tan", G, W, diverged=1.0), detoured("atan", OTHER * 3, W * 2, diverged=1.0))
    assert pairs(c)["op_2_div"] == "op_2_div"


def test_nor_is_a_small_difference_a_detour() -> None:
    """It may vanish in what reads it."""
    c = compare(detoured("tan", G, W, diverged=1.0), detoured("atan", G * 1.001, W, diverged=1.0))
    assert pairs(c)["op_2_div"] == "op_2_div"


def averaged(scale: float, result: NDArray[Any]) -> OpLog:
    """A weighted mean added to another number, divided at the end where `scale` is not 1."""
    mean, more = np.array(0.3), np.array(0.7)
    run = Run()
    run.add("m/op_0_exp", X)
    first, second = ("op_1_max", "op_2_mean") if scale == 1 else ("op_1_amax", "op_2_sum")
    run.add(f"m/{first}", more * scale, "op_0_exp")
    run.add(f"m/{second}", mean * scale, "op_0_exp")
    run.add("m/op_3_mul", mean * scale / 8, second)
    run.add("m/op_4_add", (mean / 8 + more) * scale, first, "op_3_mul")
    if scale != 1:
        run.add("m/op_5_div", mean / 8 + more, "op_4_add")
    run.add("m/op_6_mm", result, "op_4_add" if scale == 1 else "op_5_div")
    return run.log


@pytest.fixture
def uncertain(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pair is certain: in so short a log all names and places are the same."""
    monkeypatch.setattr("matchers.pairing.detours._FORKED", 1.0)


@pytest.mark.usefixtures("uncertain")
def test_several_steps_in_a_row_are_a_detour() -> None:
    c = compare(averaged(1, W), averaged(1.5, W))
    found = pairs(c)
    assert (found["op_3_mul"], found["op_4_add"], found["op_6_mm"]) == ("", "", "op_6_mm")
    assert not c.red.any()


@pytest.mark.usefixtures("uncertain")
def test_they_are_pairs_where_what_reads_them_differs() -> None:
    c = compare(averaged(1, W), averaged(1.5, W * 2))
    assert pairs(c)["op_3_mul"] == "op_3_mul"
    assert c.red.any()
    assert c.cause.any()


def of_ranks(many: int) -> OpLog:
    """A matrix whose rows ranks have: each divides the bias, and adds its term to the others'."""
    run = Run()
    run.add("m/op_0_exp", X)
    run.add("m/op_1_cos", G)
    if many == 1:
        run.add("m.out/op_2_addmm", X + G, "op_1_cos", "op_0_exp")
    else:
        run.add("m.out/op_1_div", G / many, "op_1_cos")
        run.add("m.out/op_3_addmm", X / many + H, "op_1_div", "op_0_exp")
        run.add("m/op_4_all_reduce", X + G, "op_3_addmm")
        run.add("m/op_5_wait_tensor", X + G, "op_4_all_reduce")
    run.add("m/op_9_tanh", np.tanh(X + G), "op_2_addmm" if many == 1 else "op_5_wait_tensor")
    return run.log


def test_a_term_that_ranks_add_up_is_no_detour() -> None:
    assert pairs(compare(of_ranks(1), of_ranks(2)))["op_2_addmm"] == "op_3_addmm"


def transposed(before: bool) -> OpLog:
    """A copy of what is read, or of what comes out."""
    run = Run()
    run.add("m/op_0_exp", X)
    if before:
        run.add("m/op_1_clone", X, "op_0_exp")
    run.add("m/op_2_cos", 1.05 * X, "op_1_clone" if before else "op_0_exp")
    if not before:
        run.add("m/op_3_clone", 1.05 * X, "op_2_cos")
    run.add("m/op_4_tanh", np.tanh(1.05 * X), "op_2_cos" if before else "op_3_clone")
    return run.log


def test_copies_of_what_has_other_partners_are_no_partners() -> None:
    c = compare(transposed(True), transposed(False))
    assert pairs(c) == {"op_0_exp": "op_0_exp", "op_1_clone": "", "op_2_cos": "op_2_cos", "op_4_tanh": "op_4_tanh"}
    assert not c.red.any()
