"""A sample of the wide suite, and the suite itself; `python -m benchmarks.truth --wide` runs all of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.forks import Forks
from tests.truth.wide.captures import capture_all
from tests.truth.wide.judge import answers, needed
from tests.truth.wide.oracle import differing
from tests.truth.wide.subject import cases, load, subjects


@pytest.mark.torch
def test_a_subject_is_judged_as_it_is(tmp_path: Path) -> None:
    """Healthy pairs are healthy and bugs are bugs by the oracle; bugs are found, healthy forms quiet."""
    pairs = [case for case in cases("linear", 1) if case.a.dtype == "float32"]
    sample = [*[case for case in pairs if not case.bug][:3], *[case for case in pairs if case.bug][:6]]
    capture_all(needed(sample), tmp_path, processes=1)
    for answer in answers(sample, tmp_path, processes=1):
        assert answer.sound, answer.case.name
        assert answer.outcome in ("right", "quiet"), answer.found.said
        assert not answer.findings


@pytest.mark.parametrize(
    ("seed", "name"),
    [
        # an optimizer that was set otherwise, where one run adds gradients up by itself
        (5, "scaling plain-accumulated float32 half-decay 0.5"),
        # a matrix written part by part, where the other form is a loop
        (2, "policy triangle-by-where float32"),
        # the same, and a gradient through it that one run alone has
        (2, "policy loop-triangle float32 not-detached"),
        # the gradient of a factor, a single number, goes to the optimizer over a product with another
        (2, "towers plain-convolved float32"),
        # a mean and a sum: nothing reads the loss
        (2, "ranking one-table-one-table float32 by-sum"),
        # queries and keys are scaled apart, and a mask is missing in a later block
        (11, "windows rolled-fused float32 no-mask"),
        # the logarithm of a sigmoid, and softplus of the other sign
        (11, "preference apart-by-hand float32"),
        # the same numbers at other places of a sparse matrix
        (2, "messages sparse-sparse float32 reversed"),
    ],
)
@pytest.mark.torch
def test_a_pair_that_was_judged_wrong(seed: int, name: str, tmp_path: Path) -> None:
    pairs = [case for case in cases(name.partition(" ")[0], seed) if case.name == name]
    capture_all(needed(pairs), tmp_path, processes=1)
    (answer,) = answers(pairs, tmp_path, processes=1)
    assert answer.outcome in ("right", "quiet"), answer.found.said
    assert not answer.findings


_DIVIDED = {
    **dict.fromkeys(
        (f"pyramid micro2-{name} float32" for name in ("1f1b4", "gpipe2-inferred", "zero-broadcast")), "quiet"
    ),
    **dict.fromkeys((f"pyramid micro2-{name} float32" for name in ("fsdp-flat", "fsdp-named")), "quiet"),
    "pyramid micro2-gpipe2 float32 late 0.001": "right",
    "pyramid micro2-gpipe4 float32 rate rank 1": "right",
    "pyramid micro2-zero-broadcast float32 early": "right",
    "alibi whole-ring2 float32": "quiet",
    "alibi whole-ring2 float32 mask": "right",
    "gated whole-ep2 float32": "quiet",
    "gated whole-ep2-renumbered float32 expert 0.001": "right",
    "switch whole-stacked float32": "quiet",
    "rotary whole-ring2 float32": "quiet",
    "rotary gather2-ring2 float32": "quiet",
    "megatron whole-cp2 float32": "quiet",
    "mixtures whole-tp2-sp float32 norms": "right",
}
"""Stages, shares of the update, of matrices and of parameters, parts of sequences, experts."""


@pytest.mark.parametrize("subject", dict.fromkeys(name.partition(" ")[0] for name in _DIVIDED))
@pytest.mark.torch
def test_what_ranks_divide_is_compared_with_one_process(subject: str, tmp_path: Path, forked: Forks) -> None:
    pairs = [case for case in cases(subject, 1) if case.name in _DIVIDED]
    assert len(pairs) == sum(name.startswith(f"{subject} ") for name in _DIVIDED)
    capture_all(needed(pairs), tmp_path, processes=1, forked=forked)
    for answer in answers(pairs, tmp_path, processes=1):
        assert answer.sound, answer.case.name
        assert answer.outcome == _DIVIDED[answer.case.name], (answer.case.name, answer.found.said)
        assert not answer.findings


@pytest.mark.torch
def test_subjects_are_whole() -> None:
    """Each bug has marked lines or names parameters, each marker a bug, and about half of the pairs are healthy."""
    pairs = [case for name in subjects() for case in cases(name, 1)]
    for name in subjects():
        bugs = {bug.name for bug in load(name).BUGS}
        planted = [case.bug for case in cases(name, 1) if case.bug]
        assert {bug.name for bug in planted} == bugs
        for bug in planted:
            assert bug.lines or bug.parameters, (name, bug.name)
    assert 0.35 < sum(not case.bug for case in pairs) / len(pairs) < 0.65


def test_a_value_that_cancels_is_judged_by_the_others() -> None:
    reference = {"gradient of a": np.ones(4), "gradient of b": np.zeros(4)}
    rounded = {"gradient of a": np.ones(4), "gradient of b": np.full(4, 5e-8)}
    assert not differing(rounded, reference, "float32")
    assert differing({**rounded, "gradient of a": np.full(4, 1.0001)}, reference, "float32")
