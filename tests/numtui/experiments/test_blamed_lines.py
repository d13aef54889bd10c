"""Changes of a commit near the source lines of a cause, in a repository that git made."""

from __future__ import annotations

import subprocess
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
    who = ("-c", "user.name=A U Thor", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    for files in (FIRST, SECOND):
        for name, text in files.items():
            (folder / name).write_text(text)
        subprocess.run(["git", "-C", str(folder), "add", "-A"], check=True)
        subprocess.run(["git", "-C", str(folder), *who, "commit", "-q", "-m", "a commit"], check=True)
    return Worktree(folder, tmp_path / "worktree")


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
