"""Find the commit of each cause of a bad revision, with as few runs as git needs; runs serve all causes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from numtui.experiments.signature import Findings, Signature, Verdict, judge
from numtui.experiments.worktree import Bisected

__all__ = ["Blamed", "Separate", "bisect_causes", "separate_changes"]


class History(Protocol):
    """Questions to a repository."""

    def bisect(self, good: str, bad: str, judge: Callable[[str], Verdict]) -> Bisected:
        """Return the first commit that `judge` says has it."""

    def descends(self, commit: str, from_: str) -> bool:
        """Return True if a commit comes after another one."""


@dataclass(frozen=True, slots=True)
class Blamed:
    """A cause of the bad revision, and where it began.

    Attributes:
        cause: as the bad revision shows it.
        commits: hashes: the first commit that has it; several where what lies between them tells nothing.
        trouble: why there is none; empty if there is.
        seen: as that commit shows it; None where there are several.
        gone: hashes of a commit that has it, and of a later one that does not; empty if none was seen.
    """

    cause: Signature
    commits: tuple[str, ...] = ()
    trouble: str = ""
    seen: Signature | None = None
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Separate:
    """A cause that the bad revision does not have, and a commit that shows it."""

    commit: str
    cause: Signature


def bisect_causes(good: str, bad: str, findings: Callable[[str], Findings], history: History) -> list[Blamed]:
    """Return each cause of the bad revision with its commit.

    Args:
        findings: runs a commit, the first time that it is asked for.
    """
    tested: dict[str, Findings] = {bad: findings(bad)}
    causes = tested[bad].causes

    def verdict(commit: str, cause: Signature) -> Verdict:
        found = tested[commit] = findings(commit)
        return Verdict.HIDDEN if found.trouble else judge(cause, found, causes)

    ends = [history.bisect(good, bad, partial(verdict, cause=cause)) for cause in causes]
    blamed = []
    for cause, end in zip(causes, ends, strict=True):
        seen = None
        if len(end.commits) == 1:
            seen = next((each for each in findings(end.commits[0]).causes if cause.same(each)), None)
        verdicts = {commit: verdict(commit, cause) for commit in tested}
        blamed.append(Blamed(cause, end.commits, end.trouble, seen, _gone(verdicts, history)))
    return blamed


def _gone(verdicts: Mapping[str, Verdict], history: History) -> tuple[str, ...]:
    """Return a commit that has it, and a later one that does not; empty if none was seen."""
    having = [commit for commit, verdict in verdicts.items() if verdict == Verdict.WITH]
    without = [commit for commit, verdict in verdicts.items() if verdict == Verdict.WITHOUT]
    return next(((one, other) for one in having for other in without if history.descends(other, one)), ())


def separate_changes(tested: Mapping[str, Findings], causes: Sequence[Signature]) -> list[Separate]:
    """Return the causes that tested commits show and the bad one does not, each once."""
    found: list[Separate] = []
    for commit, findings in tested.items():
        for other in findings.others(causes):
            if not any(other.same(each.cause) for each in found):
                found.append(Separate(commit, other))
    return found
