"""Calls of git that run nothing of the repository: no pager, no hook, no external program."""

from __future__ import annotations

import os
import subprocess

__all__ = ["GitError", "git", "git_or_none"]

_GIT = (
    *("git", "--no-pager", "--no-optional-locks", "--no-replace-objects", "-c", "core.fsmonitor=false"),
    *("-c", "core.hooksPath=/dev/null", "-c", "log.showSignature=false"),
)
_PATIENCE = 20.0
"""Seconds for one call that only reads, in a thread."""


class GitError(Exception):
    """A call that failed, with what git said."""


def git(folder: str, *arguments: str, patience: float | None = None, network: bool = True) -> str:
    """Return what git prints in a folder, with standard error behind it if it fails.

    Args:
        patience: seconds after which it is ended, None for none.
        network: it may fetch what a partial clone lacks.

    Raises:
        GitError: it fails, is not there, or takes longer.
    """
    quiet = {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"} | ({} if network else {"GIT_NO_LAZY_FETCH": "1"})
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name == "GIT_CEILING_DIRECTORIES"
    }
    try:
        done = subprocess.run(  # noqa: S603 - fixed arguments, hashes and paths that the caller has checked
            [*_GIT, "-C", folder, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=patience,
            check=False,
            close_fds=False,  # it holds the lock of an experiment, if that is killed
            env=kept | quiet,
        )
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise GitError(f"git {arguments[0]}: {error}") from None
    if done.returncode:
        raise GitError("\n".join(text.strip() for text in (done.stdout, done.stderr) if text.strip()))
    return done.stdout


def git_or_none(folder: str, *arguments: str) -> str | None:
    """Return what git prints, without the network; None where it fails."""
    try:
        return git(folder, *arguments, patience=_PATIENCE, network=False)
    except GitError:
        return None
