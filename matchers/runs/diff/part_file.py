"""Files of summaries: what one of several machines compared, for `numtui merge`."""

from __future__ import annotations

import json
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from matchers.errors import InputError
from matchers.runs.diff.summary import Outcome, RankSummary

__all__ = ["Part", "Shard", "joined", "parse_summary", "read_part", "render_part", "render_summary"]

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Shard:
    """The ranks of a part: every `number`-th of all, from the one with index `index` - 1 on."""

    index: int
    number: int

    def ranks(self, ranks: Sequence[int]) -> Sequence[int]:
        """Return its ranks of all."""
        return ranks[self.index - 1 :: self.number]


@dataclass(frozen=True, slots=True)
class Part:
    """The comparisons of one process.

    Attributes:
        runs: the two runs as they were named.
        names: for display.
        shard: which part of all.
        ranks: all ranks of the two runs, not only those of this part.
        criteria: options that the verdicts depend on, the same in all parts.
        summaries: of the ranks of this part.
        broken_rules: as of `RunComparison`.
    """

    runs: tuple[str, str]
    names: tuple[str, str]
    shard: Shard
    ranks: tuple[int, ...]
    criteria: tuple[str, ...]
    summaries: tuple[RankSummary, ...]
    broken_rules: tuple[str, ...] = ()


def render_part(part: Part) -> str:
    """Return a part as JSON."""
    return json.dumps({"numtui part": _VERSION, **asdict(part)}) + "\n"


def render_summary(summary: RankSummary) -> str:
    """Return a summary as JSON."""
    return json.dumps(asdict(summary))


def parse_summary(text: str) -> RankSummary | None:
    """Return the summary of a JSON text; None if it is none."""
    try:
        return _decoded(RankSummary, json.loads(text))
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
        return None


def read_part(path: Path) -> Part:
    """Read the file of a part.

    Raises:
        InputError: it cannot be read, or is none.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("numtui part") != _VERSION:
        raise InputError(f"{path}: is no part of a comparison; numtui diff RUN_A RUN_B --shard 1/4 -o FILE writes one")
    try:
        return _decoded(Part, found)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise InputError(f"{path}: is damaged; write it again") from None


def joined(parts: Mapping[str, Part]) -> dict[int, RankSummary]:
    """Return the summaries of all ranks; those of a part that is not there have failed.

    Args:
        parts: by the names of their files.

    Raises:
        InputError: they belong to different comparisons.
    """
    first, one = next(iter(parts.items()))
    for name, part in parts.items():
        if (part.runs, part.shard.number, part.ranks, part.criteria) != (
            one.runs,
            one.shard.number,
            one.ranks,
            one.criteria,
        ):
            raise InputError(f"{name} and {first} are parts of different comparisons, or of other logs than before")
    found = {summary.rank: summary for part in parts.values() for summary in part.summaries}
    for index in range(1, one.shard.number + 1):
        for rank in Shard(index, one.shard.number).ranks(one.ranks):
            why = f"part {index} of {one.shard.number} is missing"
            found.setdefault(rank, RankSummary(rank=rank, outcome=Outcome.FAILED, why=why))
    return dict(sorted(found.items()))


def _decoded(kind: Any, value: Any) -> Any:
    """A value of a type, from JSON.

    Raises:
        TypeError, ValueError, KeyError: it is of another form.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return None if value is None else _decoded(arguments[0], value)
    if origin is tuple:
        return _tuple(arguments, value)
    if origin is not None:  # a mapping of texts
        if not isinstance(value, dict):
            raise TypeError(value)
        return {str(key): _decoded(arguments[1], each) for key, each in value.items()}
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(  # type: ignore[operator]  # a class, whatever `is_dataclass` also takes
            **{field.name: _decoded(hints[field.name], value[field.name]) for field in fields(kind)}
        )
    if issubclass(kind, IntEnum):
        return kind(value)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise TypeError(value)
    return value


def _tuple(arguments: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise TypeError(value)
    kinds: Iterable[Any] = [arguments[0]] * len(value) if arguments[1:] == (Ellipsis,) else arguments
    return tuple(_decoded(kind, each) for kind, each in zip(kinds, value, strict=True))
