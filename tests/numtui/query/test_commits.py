"""The commits between two runs that touch the code of a row."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.errors import InputError
from numtui.query.commits import Touched, commits
from numtui.views.commits import commit_lines
from tests.captured import Step, captured_log

MODEL = """\
import torch


def attend(q, k):
    scores = q @ k
    scores = scores * 0.5
    return scores.softmax(-1)


def norm(x):
    return x / x.norm()
"""
CHANGES = (
    ("scale", "* 0.5", "* 0.25"),
    ("softmax", "softmax(-1)", "softmax(-2)"),
    ("norm", "x / x.norm()", "x / (x.norm() + 1e-6)"),
    ("imports", "import torch\n", "import torch\nimport math\n"),
)
X = np.ones(4, np.float32)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A repository whose commits change the model one after the other, and their hashes, the first one first."""
    folder = tmp_path_factory.mktemp("repository")

    def git(*arguments: str) -> str:
        who = ("-c", "user.name=N", "-c", "user.email=e", "-c", "commit.gpgsign=false")
        command = ["git", *who, "-C", str(folder), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    # nothing of this runs
    git("config", "core.fsmonitor", "touch RAN; false")
    git("config", "diff.external", "touch RAN; false")
    git("config", "diff.py.textconv", "touch RAN; false")
    (folder / ".gitattributes").write_text("*.py diff=py\n")
    text, hashes = MODEL, []
    for subject, old, new in (("first", "", ""), *CHANGES):
        text = text.replace(old, new) if old else text
        (folder / "model.py").write_text(text)
        git("-c", "core.fsmonitor=false", "add", "-A")
        git("-c", "core.fsmonitor=false", "commit", "-q", "-m", subject)
        hashes.append(git("rev-parse", "HEAD"))
    return folder, hashes


def compared(a: Any, b: Any, *, moved: int = 1) -> Comparison:
    """A norm, and the scaling of scores that reads it; in b the lines of the model are `moved`."""

    def log(commit: Any, by: int, factor: float) -> Any:
        scaled = X * np.float32(factor)
        steps = [
            Step(key="norm/op_0_div", reads=[X], gives=[X / 2], fields={"location": f"model.py:{11 + by}"}),
            Step(key="attend/op_0_mul", reads=[X / 2], gives=[scaled], made=["norm/op_0_div"],
                 fields={"location": f"model.py:{6 + by}"}),
        ]  # fmt: skip
        return captured_log(steps, git={"commit": commit, "dirty": False})

    return compare(log(a, 0, 0.5), log(b, moved, 0.25))


def subjects(found: list[Touched]) -> dict[str, list[str]]:
    return {touched.what: [each.subject for each in touched.commits] for touched in found}


def test_the_line_its_function_and_its_data_path(repository: tuple[Path, list[str]]) -> None:
    folder, hashes = repository
    c = compared(hashes[0], hashes[-1])
    assert c.cause[1]
    told = {"its line": ["scale"], "its function": ["softmax"], "a line on its data path": ["norm"]}
    assert subjects(commits(c, 1, [folder])) == told
    backwards = compared(hashes[-1], hashes[0], moved=-1)
    assert {word for of in subjects(commits(backwards, 1, [folder])).values() for word in of} <= {
        "scale",
        "softmax",
        "norm",
    }
    assert not list(folder.glob("RAN*"))
    text = ["".join(part for part, _ in line) for line in commit_lines(commits(c, 1, [folder]))]
    assert text[0] == " 1 commit touches its line"
    assert text[1].startswith(f"   {hashes[1][:12]}  ")
    assert text[1].endswith("  N  scale")


def test_a_commit_in_between_is_not_told(repository: tuple[Path, list[str]]) -> None:
    folder, hashes = repository
    c = compared(hashes[1], hashes[2], moved=0)
    told = {"its line": [], "its function": ["softmax"], "a line on its data path": []}
    assert subjects(commits(c, 1, [folder])) == told


@pytest.mark.parametrize(
    ("a", "b", "why"),
    [
        (None, 0, "the logs do not say which commits ran"),
        ("--output=RAN", 0, "the logs do not say which commits ran"),
        ("HEAD", 0, "the logs do not say which commits ran"),
        (0, 0, "both runs are of commit "),
        ("f" * 40, 0, "no repository here has the row's source lines and the commits of both runs"),
    ],
)
def test_what_a_log_says_is_no_command(repository: tuple[Path, list[str]], a: Any, b: int, why: str) -> None:
    folder, hashes = repository
    one = hashes[a] if isinstance(a, int) else a
    with pytest.raises(InputError, match=why):
        commits(compared(one, hashes[b]), 1, [folder])
    assert not list(folder.glob("RAN*"))


def test_changes_that_are_not_committed_are_named(repository: tuple[Path, list[str]]) -> None:
    folder, hashes = repository
    changed = {"commit": hashes[0], "dirty": True, "changes": "00", "files": ["model.py", "data.py"]}
    plain = compared(hashes[0], hashes[0])
    c = compare(plain.a, captured_log([Step(key="norm/op_0_div", reads=[X], gives=[X])], git=changed))
    with pytest.raises(
        InputError, match=rf"both runs are of commit {hashes[0][:12]}; uncommitted changes of b: model.py, data.py"
    ):
        commits(c, 0, [folder])


def test_outside_of_a_repository_nothing_is_looked_up(repository: tuple[Path, list[str]], tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    with pytest.raises(InputError, match="no repository here"):
        commits(compared(*repository[1][:2]), 1, [tmp_path])
