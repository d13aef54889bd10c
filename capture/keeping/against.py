"""Comparison of a run with another one while it runs, by the digests that `numtui plan --digests` wrote of that one.

An operation differs first if its inputs are the other run's and its results are not; if it was given other ones of
that run's tensors; or if that run has no such operation on these inputs. Standard library alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .form import DIGESTS_VERSION, split_key

__all__ = ["LACKING", "Digests", "Operation", "Table", "read_table"]

LACKING = "no such operation there"
Digests = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """The digests of an operation; None where there is none.

    Attributes:
        inputs: before it ran.
        results: of what it returned, then of each input that it has changed and does not return.
    """

    inputs: Digests
    results: Digests

    @classmethod
    def of(cls, inputs: Sequence[int | None], results: Sequence[int | None]) -> Operation:
        """Return an operation; where all inputs are fresh memory, a log does not say that there are any."""
        given = tuple(inputs)
        return cls(given if any(each is not None for each in given) else (), tuple(results))


@dataclass(slots=True)
class Table:
    """The operations of one rank and step of the other run."""

    by_key: dict[str, Operation] = field(default_factory=dict)
    _results: dict[tuple[str, Digests], set[Digests]] = field(default_factory=dict)
    _known: set[int | None] = field(default_factory=lambda: {None})

    def add(self, key: str, operation: Operation) -> None:
        """Add an operation."""
        self.by_key[key] = operation
        self._results.setdefault((split_key(key)[1], operation.inputs), set()).add(operation.results)
        self._known.update(operation.inputs, operation.results)

    def may_differ(self, name: str, run: Operation) -> bool:
        """Return True for an operation that may be the first to differ, while its key is not known yet.

        Args:
            name: without namespace and overload.
        """
        expected = self._results.get((name, run.inputs))
        if expected is not None:
            return run.results not in expected
        return self._known.issuperset(run.inputs)

    def reads_other(self, key: str, run: Operation) -> bool:
        """Return True for an operation that reads what the other run does not have."""
        return key in self.by_key and not self._known.issuperset(run.inputs)

    def difference(self, key: str, run: Operation) -> str:
        """Say how an operation of this key differs from the other run's; empty where it is not the first to."""
        other = self.by_key.get(key)
        if other is not None and other.inputs == run.inputs:
            return "" if other.results == run.results else "same inputs, other results"
        if not self._known.issuperset(run.inputs):
            return ""
        return LACKING if other is None else "given other tensors"


def read_table(path: str) -> dict[tuple[int, int], Table]:
    """Read the tables of a file by rank and step.

    Raises:
        ValueError: it is none that `numtui plan --digests` wrote.
    """
    try:
        told = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise ValueError(f"--against {path}: {error.strerror or error}; numtui plan --digests RUN writes it") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"--against {path}: is no table of digests: {error}") from None
    if not isinstance(told, dict) or told.get("digests") != DIGESTS_VERSION:
        raise ValueError(f"--against {path}: is no table of digests of this version of numtui ({DIGESTS_VERSION})")
    try:
        return {(int(log["rank"]), int(log["step"])): _table(log["records"]) for log in told["logs"]}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"--against {path}: is no table of digests: {error!r}") from None


def _table(records: Iterable[Sequence[Any]]) -> Table:
    table = Table()
    for key, inputs, outputs, changed in records:
        table.add(str(key), Operation.of(_numbers(inputs), _numbers(outputs) + _numbers(_in_order(changed))))
    return table


def _in_order(changed: Mapping[str, str]) -> list[str]:
    return [changed[slot] for slot in sorted(changed, key=int)]


def _numbers(digests: Iterable[str]) -> Digests:
    return tuple([None if text == "-" else int(text, 16) for text in digests])
