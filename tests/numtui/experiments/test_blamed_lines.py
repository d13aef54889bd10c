"""Changes of a commit near the source lines of a cause, in a repository that git made."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from numtui.experiments.blamed_lines import changes_of
from numtui.experiments.worktree import Worktree

FIRST = {
    "model.py": "FACTOR = 1.0\n\n\n\n\ndef forward(x):\n    y = x + 1\n    return y * FACTOR\n",
    "train.py": "forward(2)\n",
}
SECOND = {
    "model.py": FIRST["model.py"].replace("= 1.0", "= 1.02"),
    "train.py": FIRST["train.py"],
}


@pytest.fixture
def worktree(tmp_path: Path) -> Worktree:
    """Two commits, of which the second changes line 1 of one file alone."""
    folder = tmp_path / "repository"
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    for files in (FIRST, SECOND):
        commit(folder, files)
    return Worktree(folder, tmp_path / "worktree")


def commit(folder: Path, files: Mapping[str, str]) -> str:
    """Commit files; return the hash."""
    who = ("-c", "user.name=A U Thor", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    for name, text in files.items():
        (folder / name).write_text(text)
    subprocess.run(["git", "-C", str(folder), "add", "-A"], check=True)
    subprocess.run(["git", "-C", str(folder), *who, "commit", "-q", "-m", "a commit"], check=True)
    return Worktree(folder, folder).commit_of("HEAD")


@pytest.mark.parametrize(
    ("places", "found"),
    [
        (["model.py:1"], [("model.py", "its line")]),
        (["model.py:8", "train.py:1", "model.py:1"], [("model.py", "a line on its data path")]),
        (["model.py:8", "train.py:1"], [("model.py", "elsewhere in its file")]),
        (["train.py:1", "model.py:8"], []),
        (["gone.py:1"], []),
    ],
)
def test_what_a_commit_changed_near_a_cause(
    worktree: Worktree, places: list[str], found: list[tuple[str, str]]
) -> None:
    changes = changes_of(worktree, worktree.commit_of("HEAD"), places)
    assert [(each.path, each.what) for each in changes] == found
    assert all("+FACTOR = 1.02" in each.diff for each in changes)


def test_commits_that_changed_these_lines_again_are_named_without_running_them(worktree: Worktree) -> None:
    """The factor goes back to the first one, and comes again; the last commit changes another line."""
    folder, bad, good = worktree.repository, worktree.commit_of("HEAD"), worktree.commit_of("HEAD~1")
    other = {**SECOND, "model.py": SECOND["model.py"].replace("x + 1", "x + 2")}
    hashes = [commit(folder, files) for files in (FIRST, SECOND, other)]
    between = f"{good}..{hashes[-1]}"
    (change,) = changes_of(worktree, hashes[1], ["model.py:1"], between)
    assert change.again == (bad, hashes[0])
    (change,) = changes_of(worktree, hashes[2], ["model.py:7"], between)
    assert (change.what, change.again) == ("its line", ())
