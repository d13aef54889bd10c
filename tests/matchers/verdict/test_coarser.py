"""Casts that one run alone has, to a dtype coarser than all of the other run."""

from __future__ import annotations

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.explain.sentences import explain
from matchers.logs.op_log import OpLog
from matchers.rules.file import parse_rules
from matchers.verdict.expectation import Expect, Expectation
from matchers.verdict.reason import Reason
from tests.captured import Step, captured_log, summary
from tests.matchers.verdict.test_error_propagation import off, values, without_values

X = values()
ORDER = Expectation(preset=Expect.REDUCTION_ORDER)
CAST = "a/op_0__to_copy"


def log(casts: int, result: np.ndarray, *, dtype: str = "bfloat16", hidden: int = 0, coarse: bool = False) -> OpLog:
    """A product, casts to a dtype and back, and products of which the first `hidden` have no numbers."""
    steps = [Step(key="a/op_0_mm", gives=[summary(X, dtype="bfloat16") if coarse else X])]
    for k in range(casts):
        low = summary(X, dtype=dtype)
        steps.append(Step(key=f"a/op_{2 * k}__to_copy", gives=[low], reads=[X], made=[steps[-1].key]))
        steps.append(Step(key=f"a/op_{2 * k + 1}__to_copy", gives=[X], reads=[low], made=[steps[-1].key]))
    for k in range(hidden + 1):
        gives = result if k == hidden else X
        steps.append(Step(key=f"b/op_{k}_mm", gives=[gives], reads=[X], made=[steps[-1].key]))
    made = captured_log(steps)
    for k in range(hidden):
        made = without_values(made, len(steps) - 1 - hidden + k)
    return made


def found(c: Comparison) -> list[str]:
    return [c.b.keys[c.row_b[row]] for row in np.flatnonzero(c.reason == Reason.COARSER_DTYPE)]


@pytest.mark.parametrize("casts", [1, 3])
def test_the_first_cast_is_the_cause_where_what_follows_shows_little(casts: int) -> None:
    """An error that rounding of what no log shows would explain, too."""
    c = compare(log(0, X, hidden=30), log(casts, off(X, 3e-4, 1), hidden=30), expectation=ORDER)
    assert found(c) == [CAST]
    assert [c.b.keys[c.row_b[row]] for row in np.flatnonzero(c.cause)] == [CAST]
    told = explain(c, int(c.cause.argmax())).headline
    assert told == "FIRST CAUSE: only b rounds to bfloat16 here; a has nothing so coarse"
    other = compare(log(casts, off(X, 3e-4, 1), hidden=30), log(0, X, hidden=30), expectation=ORDER)
    assert explain(other, int(other.cause.argmax())).headline.startswith("FIRST CAUSE: only a rounds to bfloat16 here")


@pytest.mark.parametrize("preset", [Expect.LOW_PRECISION, Expect.BITWISE])
def test_other_expectations_say_what_they_say(preset: Expect) -> None:
    assert not found(compare(log(0, X), log(1, off(X, 3e-4, 1)), expectation=Expectation(preset=preset)))


@pytest.mark.parametrize("error", [0, 1e-7])
def test_a_cast_that_loses_nothing_that_shows_is_none(error: float) -> None:
    c = compare(log(0, X), log(1, off(X, error, 1) if error else X))
    assert not found(c)
    assert not c.red.any()


def test_a_dtype_that_is_finer_or_in_both_runs_is_none() -> None:
    assert not found(compare(log(0, X), log(1, off(X, 3e-4, 1), dtype="float64")))
    assert not found(compare(log(0, X, coarse=True), log(1, off(X, 3e-4, 1), coarse=True)))


def test_a_rule_that_ignores_it_is_heard() -> None:
    rules = parse_rules("version: 1\nignore:\n  - match: 'a/op_*__to_copy'\n")
    one, other = log(0, X, hidden=30), log(1, off(X, 4e-4, 1), hidden=30)
    assert compare(one, other, expectation=ORDER).red.any()
    assert not compare(one, other, rules, expectation=ORDER).red.any()


@pytest.mark.parametrize(("given", "back"), [(True, True), (False, True), (True, False)])
def test_what_a_run_was_given_is_not_coarse_where_it_is_read_as_finer(given: bool, back: bool) -> None:
    """A table kept in bfloat16, in a run that has bfloat16 everywhere; not what it computes, or reads as that."""
    table = values(seed=5)
    coarse = off(table, 2e-3, 1)

    def of(casts: bool) -> OpLog:
        steps = [Step(key="a/op_0_mm", gives=[summary(X if given else table, dtype="bfloat16")])]
        made = "" if given else steps[-1].key
        read = table
        if casts:
            low = summary(coarse, dtype="bfloat16")
            steps.append(Step(key=CAST, gives=[low], reads=[table], made=[made]))
            made, read = CAST, coarse
            if back:
                made = "a/op_1__to_copy"
                steps.append(Step(key=made, gives=[coarse], reads=[low], made=[CAST]))
        return captured_log([*steps, Step(key="b/op_0_mul", gives=[2 * read], reads=[read], made=[made])])

    c = compare(of(False), of(True), expectation=ORDER)
    assert found(c) == ([CAST] if given and back else [])
    if given and back:
        told = explain(c, int(c.cause.argmax())).headline
        assert told == "FIRST CAUSE: only b rounds to bfloat16 here; a reads it as it is"
