"""The search for the commit of each cause: git bisects a repository of thirty commits, made-up logs are compared."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from matchers.comparison import compare
from numtui.experiments.bisection import Blamed, Separate, bisect_causes, separate_changes
from numtui.experiments.signature import Findings, findings_of
from numtui.experiments.worktree import Worktree
from tests.numtui.experiments.made_up import Model, log_of, make_repository, model

MANY = 30
MOST_RUNS = math.ceil(math.log2(MANY)) + 2
"""For each cause, the good and the bad revision included."""


@dataclass
class Bed:
    """A worktree of thirty commits, by their hashes; which model each has is said later."""

    worktree: Worktree
    hashes: Sequence[str]
    tested: dict[str, Findings] = field(default_factory=dict)

    def bisect(self, models: Sequence[Model]) -> list[Blamed]:
        good = log_of(models[0])
        self.tested = {}

        def findings(commit: str) -> Findings:
            told = models[self.hashes.index(commit)]
            if commit not in self.tested:
                found = findings_of([compare(good, log_of(told))]) if told["starts"] else Findings("ended with 1")
                self.tested[commit] = found
            return self.tested[commit]

        return bisect_causes(self.hashes[0], self.hashes[-1], findings, self.worktree)

    def found(self, models: Sequence[Model]) -> dict[str, list[int]]:
        """By key of a cause, the numbers of its commits."""
        return {each.cause.key: [self.hashes.index(commit) for commit in each.commits] for each in self.bisect(models)}

    @property
    def runs(self) -> int:
        """Number of runs that start, that of the good revision included."""
        return 1 + sum(not found.trouble for found in self.tested.values())

    def separate(self, blamed: Sequence[Blamed]) -> list[Separate]:
        return separate_changes(self.tested, [each.cause for each in blamed])


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    folder: Path = tmp_path_factory.mktemp("bisection")
    hashes = make_repository(folder / "repository", [model()] * MANY)
    with Worktree(folder / "repository", folder / "worktree") as worktree:
        yield Bed(worktree, hashes)


def since(commit: int, **bug: Any) -> list[Model]:
    """Thirty models, with a bug from a commit on."""
    return [model(**(bug if number >= commit else {})) for number in range(MANY)]


@pytest.mark.parametrize("commit", [1, 2, 17, 29])
def test_one_bug(bed: Bed, commit: int) -> None:
    (blamed,) = bed.bisect(since(commit, top=1.01))
    assert (blamed.cause.key, blamed.commits) == ("layers.top/op_0_mul", (bed.hashes[commit],))
    assert blamed.seen is not None
    assert blamed.seen.sentence == blamed.cause.sentence != ""
    assert (round(blamed.cause.magnitude), blamed.gone) == (-2, ())
    assert bed.runs <= MOST_RUNS


def test_two_bugs_share_their_runs(bed: Bed) -> None:
    models = since(9, left=1.01)
    for number in range(21, MANY):
        models[number]["right"] = 1.5
    assert bed.found(models) == {"layers.left/op_0_mul": [9], "layers.right/op_0_mul": [21]}
    assert bed.runs <= 2 * MOST_RUNS - 3


def test_a_bug_that_comes_and_goes_has_a_true_transition(bed: Bed) -> None:
    models = [model(right=1.01 if 4 <= n < 11 or n >= 20 else 1) for n in range(MANY)]
    assert bed.found(models)["layers.right/op_0_mul"] in ([4], [20])
    assert bed.runs <= MOST_RUNS


def test_that_a_bug_comes_and_goes_is_said_where_it_is_seen(bed: Bed) -> None:
    """One cause is looked for in commits that the search for another one has run."""
    models = [model(right=1.01 if n == 14 or n >= 25 else 1, left=1.5 if n >= 16 else 1) for n in range(MANY)]
    left, right = sorted(bed.bisect(models), key=lambda each: each.cause.key)
    assert left.commits == (bed.hashes[16],)
    assert right.commits in ((bed.hashes[14],), (bed.hashes[25],))
    assert left.gone == ()
    with_it, without = map(bed.hashes.index, right.gone)
    assert with_it == 14 < without < 25


def test_commits_that_do_not_start_are_skipped(bed: Bed) -> None:
    models = since(17, top=1.01)
    models[14]["starts"] = models[15]["starts"] = False
    assert bed.found(models) == {"layers.top/op_0_mul": [17]}
    assert bed.runs <= MOST_RUNS
    assert any(found.trouble for found in bed.tested.values())


def test_commits_that_cannot_be_told_apart_are_all_named(bed: Bed) -> None:
    models = since(17, top=1.01)
    models[16]["starts"] = models[17]["starts"] = False
    assert bed.found(models) == {"layers.top/op_0_mul": [16, 17, 18]}


@pytest.mark.parametrize("renamed", [5, 22])
def test_a_commit_that_renames_modules_is_none(bed: Bed, renamed: int) -> None:
    models = since(13, top=1.01)
    for each in models[renamed:]:
        each["names"] = "blocks"
    assert bed.found(models) == {"layers.top/op_0_mul": [13]}
    assert bed.runs <= MOST_RUNS


def test_another_bug_beside_it_is_a_separate_change(bed: Bed) -> None:
    """It does not lead to the operation, which agrees: the commit is without the cause for certain."""
    models = since(20, top=1.01)
    for each in models[10:16]:
        each["right"] = 1.5
    blamed = bed.bisect(models)
    assert [each.commits for each in blamed] == [(bed.hashes[20],)]
    assert bed.runs <= MOST_RUNS
    assert [each.cause.key for each in bed.separate(blamed)] == ["layers.right/op_0_mul"]


@pytest.mark.parametrize("begins", [19, 20, 21])
def test_a_commit_in_which_another_bug_may_hide_it_is_skipped(bed: Bed, begins: int) -> None:
    models = since(begins, top=1.5)
    for each in models[12:18]:
        each["left"] = 1.01
    blamed = bed.bisect(models)
    assert [each.commits for each in blamed] == [(bed.hashes[begins],)]
    assert [each.cause.key for each in bed.separate(blamed)] == ["layers.left/op_0_mul"]


def test_a_bug_of_another_magnitude_is_another_one(bed: Bed) -> None:
    models = since(20, top=1.5)
    for each in models[8:14]:
        each["top"] = 1.001
    assert bed.found(models) == {"layers.top/op_0_mul": [20]}
