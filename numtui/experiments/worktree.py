"""A worktree of its own, in which revisions are checked out and bisected; the user's checkout stays as it is.

What git keeps of a bisection (`refs/bisect`, its log) belongs to the worktree, and goes with it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from matchers.errors import InputError
from numtui.experiments.signature import Verdict
from numtui.query.commits import Commit
from numtui.query.git import GitError, git

__all__ = ["Bisected", "Worktree", "repository_of"]

_FIRST = re.compile(r"^([0-9a-f]{40,64}) is the first bad commit$", re.MULTILINE)
_ONE_OF = re.compile(r"^([0-9a-f]{40,64})$", re.MULTILINE)
_WORDS = {Verdict.WITH: "bad", Verdict.WITHOUT: "good", Verdict.HIDDEN: "skip"}


@dataclass(frozen=True, slots=True)
class Bisected:
    """The end of a bisection.

    Attributes:
        commits: the first one with the cause; several where those that cannot be tested lie between.
        trouble: why there is none, in git's words.
    """

    commits: tuple[str, ...] = ()
    trouble: str = ""


def repository_of(folder: Path) -> Path:
    """Return the top folder of a repository.

    Raises:
        InputError: it is in none.
    """
    try:
        return Path(git(str(folder), "rev-parse", "--show-toplevel").removesuffix("\n"))
    except GitError as error:
        raise InputError(f"{folder}: no git repository here to bisect: {error}") from None


class Worktree:
    """A worktree of a repository.

    Args:
        repository: its top folder.
        folder: where the worktree is; it is made anew.
        links: paths in the checkout that git does not track, and that every revision gets a link to.
    """

    def __init__(self, repository: Path, folder: Path, links: Sequence[str] = ()) -> None:
        self.repository, self.folder, self._links = repository, folder, links

    def __enter__(self) -> Worktree:
        self._remove()
        self._git("worktree", "add", "--detach", "--force", "--no-checkout", str(self.folder), "HEAD", there=False)
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def _remove(self) -> None:
        with suppress(GitError):
            git(str(self.repository), "worktree", "remove", "--force", "--force", str(self.folder))
        shutil.rmtree(self.folder, ignore_errors=True)  # one that git no longer knows, or what a run still writes
        if not self.folder.exists():
            with suppress(GitError):  # the entry of a folder that is gone: this one's alone
                git(str(self.repository), "worktree", "remove", "--force", "--force", str(self.folder))

    def _git(self, *arguments: str, there: bool = True) -> str:
        try:
            return git(str(self.folder if there else self.repository), *arguments)
        except GitError as error:
            raise InputError(f"git {' '.join(arguments[:2])}: {error}") from None

    def commit_of(self, revision: str) -> str:
        """Return the hash of a revision's commit.

        Raises:
            InputError: there is none.
        """
        try:
            return git(
                str(self.repository), "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}"
            ).strip()
        except GitError:
            raise InputError(f"{revision}: no such revision in {self.repository}") from None

    def has(self, commit: str) -> bool:
        """True if the repository has a commit of this hash."""
        with suppress(GitError):
            git(str(self.repository), "cat-file", "-e", f"{commit}^{{commit}}")
            return True
        return False

    def commits(self, hashes: Iterable[str]) -> dict[str, Commit]:
        """Return author, date and subject of commits, by their hashes."""
        form = "--format=%H%x00%ct%x00%as%x00%an%x00%s"
        told = self._git("log", "--no-walk", "--no-patch", "--no-color", form, *hashes, there=False)
        fields = (line.split("\0") for line in told.splitlines() if line.count("\0") == 4)
        return {each[0]: Commit(each[0], int(each[1]), *each[2:]) for each in fields}

    def check_out(self, commit: str) -> None:
        """Make the folder what a commit has, and nothing else but the links.

        Raises:
            InputError: git cannot.
        """
        self._git("checkout", "--force", "--detach", "--quiet", commit)
        self._git("clean", "-ffdxq")
        if (self.folder / ".gitmodules").exists():  # those that the user has initialised
            self._git("submodule", "update", "--recursive", "--force")
        for link in self._links:
            place = self.folder / link
            if os.path.lexists(place):
                continue  # this revision tracks it
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(self.repository / link)

    def bisect(self, good: str, bad: str, judge: Callable[[str], Verdict]) -> Bisected:
        """Let git bisect between two commits; `judge` says what one of them tells.

        Raises:
            InputError: git refuses.
        """
        told = self._git("bisect", "start", "--no-checkout", bad, good)
        while not (found := _FIRST.search(told)):
            verdict = judge(self._git("rev-parse", "BISECT_HEAD").strip())
            try:
                told = git(str(self.folder), "bisect", _WORDS[verdict])
            except GitError as error:
                told = str(error)
                if "only 'skip'ped commits left" in told:
                    likely = set(_ONE_OF.findall(told))
                    return Bisected(commits=tuple(self.in_order(likely, f"{good}..{bad}")))
                return Bisected(trouble=" ".join(told.split()))
        return Bisected(commits=(found[1],))

    def descends(self, commit: str, from_: str) -> bool:
        """True if a commit comes after another one."""
        with suppress(GitError):
            git(str(self.repository), "merge-base", "--is-ancestor", from_, commit)
            return commit != from_
        return False

    def count(self, good: str, bad: str) -> int:
        """Return the number of commits that the bad revision has and the good one has not."""
        return int(self._git("rev-list", "--count", f"{good}..{bad}", there=False))

    def in_order(self, commits: Collection[str], between: str) -> Iterator[str]:
        """Yield those commits that a range has, the oldest first."""
        listed = self._git("rev-list", "--reverse", "--topo-order", between, there=False).split()
        yield from (commit for commit in listed if commit in commits)

    def altering(self, line: str, path: str, between: str) -> list[str]:
        """Return the commits of a range that changed how often a file has a text."""
        asked = ("--format=%H", "--no-patch", "--no-ext-diff", "--no-textconv", "--no-color", f"-S{line}", between)
        return self._git("log", *asked, "--", path, there=False).split()

    def files(self, commit: str) -> Iterator[str]:
        """Yield the paths of a commit's files."""
        yield from filter(None, self._git("ls-tree", "-r", "-z", "--name-only", commit, there=False).split("\0"))

    def changes(self, commit: str, path: str) -> str:
        """Return what a commit changed in a file, as `git diff` writes it; of a merge, against its first parent."""
        return self._git(
            *("diff-tree", "--root", "-m", "--first-parent", "--no-commit-id", "-p", "-U3", "--no-ext-diff"),
            *("--no-textconv", "--no-color", "--find-renames", commit, "--", path),
            there=False,
        )
