"""Runs of revisions: each is checked out, installed and captured once, and compared with the good one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from matchers.comparison import Comparison
from matchers.errors import InputError, LogError
from numtui.experiments.capturing import CaptureCommand, last_words, logged_run
from numtui.experiments.journal import Journal
from numtui.experiments.signature import Findings, findings_of
from numtui.experiments.worktree import Worktree
from numtui.query.commits import committed

__all__ = ["Revisions", "other_start"]

_SHORT = 12
_INSTALLED = "install.txt"

Compare = Callable[[Path, Path], Sequence[Comparison]]


class Revisions:
    """Findings of commits against a good one, by their hashes; a run that was made before is not made again.

    Args:
        folder: of the runs.
        worktree: where commits are checked out.
        capture: what is captured.
        compare: compares two folders of logs, the reference first: rank by rank, or all ranks together.
        journal: what was run before.
        cwd: where the command runs, in the worktree.
        install: a command of the shell that makes a checked out commit ready.
        repeat: runs of a commit that shows no cause.
        tell: called before each run, with a line about it.

    Attributes:
        tested: what is known so far, in the order of the runs.
        made: number of runs in all, of this time and before.
    """

    def __init__(
        self,
        folder: Path,
        worktree: Worktree,
        capture: CaptureCommand,
        compare: Compare,
        journal: Journal,
        *,
        cwd: str = "",
        install: str | None = None,
        repeat: int = 1,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.tested: dict[str, Findings] = {}
        self.made = 0
        self._folder, self._worktree, self._capture, self._compare = folder, worktree, capture, compare
        self._journal, self._cwd, self._install, self._repeat, self._tell = journal, cwd, install, repeat, tell
        self._good: Path | None = None

    def begin(self, good: str) -> None:
        """Run the good commit, which the others are compared with: twice, if commits are to be repeated.

        Raises:
            InputError: it cannot be run, or differs from itself.
        """
        self._good, trouble = self._run(good, 1)
        if trouble:
            raise InputError(f"the good revision {good[:_SHORT]} does not run: {trouble}")
        if self._repeat > 1:
            again, trouble = self._run(good, 2)
            found = Findings(trouble) if trouble else self._compared(good, again)
            if found.trouble or found.red:
                why = found.trouble or "; ".join(each.sentence for each in found.causes[:1])
                raise InputError(f"the good revision {good[:_SHORT]} differs from itself when it is run again: {why}")

    def __call__(self, commit: str) -> Findings:
        """Return what a commit shows; run it if that is not known."""
        if commit not in self.tested:
            found = self.tested[commit] = self._findings(commit)
            keys = ", ".join(each.key for each in found.causes[:3])
            shown = (
                f"{len(found.causes):,} cause{'s' * (len(found.causes) != 1)}: {keys}" if keys else "nothing differs"
            )
            self._tell(f"  {f'skipped: {found.trouble}' if found.trouble else shown}")
        return self.tested[commit]

    def _findings(self, commit: str) -> Findings:
        found = Findings("never run")
        for number in range(1, self._repeat + 1):
            folder, trouble = self._run(commit, number)
            found = Findings(trouble) if trouble else self._compared(commit, folder)
            if found.trouble or found.causes:
                break
        return found

    def _compared(self, commit: str, folder: Path) -> Findings:
        assert self._good is not None
        try:
            comparisons = self._compare(self._good, folder)
        except (InputError, LogError) as error:
            return Findings(str(error))
        for c in comparisons:
            of = committed(c.b)
            if of and of != commit and self._worktree.has(of):
                return Findings(f"its code is that of {of[:_SHORT]}: name the script by its path in the repository")
            if told := other_start(c):
                return Findings(told, start=True)
            if not c.red.any() and not c.coverage.enough:
                return Findings(f"too little was compared: {c.coverage.missing}")
            if c.red.any() and not c.cause.any():
                return Findings("not understood: red rows without a cause")
        return findings_of(comparisons)

    def _run(self, commit: str, number: int) -> tuple[Path, str]:
        """Return the folder of a run, and why it has no whole log."""
        name = commit[:_SHORT] if number == 1 else f"{commit[:_SHORT]}-{number}"
        folder = self._folder / name
        self.made += 1

        def make() -> str:
            self._tell(f"run {self.made}: {name} {self._worktree.commits([commit])[commit].subject}")
            return self._made_ready(commit) or self._capture.run(folder, self._worktree.folder / self._cwd)

        return folder, self._journal.once(name, folder, make, commit=commit)

    def _made_ready(self, commit: str) -> str:
        """Check a commit out and install it; return why that failed."""
        try:
            self._worktree.check_out(commit)
        except InputError as error:
            return str(error)
        cwd = self._worktree.folder / self._cwd
        if not cwd.is_dir():
            return f"it has no folder {self._cwd}"
        if self._install is not None:
            self._folder.mkdir(exist_ok=True)
            output = self._folder / _INSTALLED
            environment = self._capture.environment()
            if ended := logged_run(["/bin/sh", "-c", self._install], output, cwd, environment, self._capture.patience):
                return f"--install {ended}: {last_words(output)}"
        return ""


def other_start(c: Comparison) -> str:
    """Say in what two runs differ before the step: weights, buffers or batch; empty if in nothing that is known."""
    start = c.start
    told = [each.text for each in (start.parameters, start.buffers, start.tokens) if each is not None]
    if start.batch and start.tokens is None:
        told.append("the batch differs")
    return "; ".join(told)
