"""Run info against run info: what two runs were given, and what it means for a comparison where that differs.

Run info is what our own capture writes above a log (docs/log-format.md). It is text from a file: any entry may be
missing or of another form, and then says nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from matchers.ops.module_path import canonical

__all__ = ["DividedBatch", "Note", "Severity", "compare_run_info", "cut_gradients", "divided_batch", "tells_start"]


class Severity(IntEnum):
    """What a difference of two runs means for their comparison.

    HARMLESS: at most the order of a sum, or what was written down. SUSPICIOUS: may by itself explain differences.
    FATAL: the numbers cannot agree, whatever the code does.
    """

    HARMLESS = 0
    SUSPICIOUS = 1
    FATAL = 2

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Note:
    """One difference of the two runs.

    Attributes:
        kind: what it is about, one word that stays the same from version to version (`seed`, `batch`, `incomplete`).
        text: a sentence without its capital and its stop. May quote the logs: whoever prints it makes it safe.
    """

    severity: Severity
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class DividedBatch:
    """Each rank of one run reads a part of the batch that each rank of the other reads.

    Attributes:
        side: `a` or `b`, the one that divides it.
        parts: into how many.
        by_all: all ranks that it has more than the other run divide the batch, and nothing else.
        sizes: how many samples a and b read at once.
    """

    side: str
    parts: int
    by_all: bool
    sizes: tuple[int, int]


_ABSENT_MEANS_NONE = ("mesh", "autocast", "mixed_precision", "activation_checkpointing")
"""Entries that the capture leaves out where there is nothing to say."""

_ENTRIES: tuple[tuple[str, str, str, Severity], ...] = (
    # entry, kind, what it is, severity; where the entry is a table each line of it counts by itself
    ("step", "step", "the captured step", Severity.FATAL),
    ("rank", "rank", "the rank", Severity.SUSPICIOUS),
    ("seed", "seed", "the seed", Severity.SUSPICIOUS),
    ("cuda_seed", "seed", "the seed of the GPU", Severity.SUSPICIOUS),
    ("world_size", "layout", "the number of ranks", Severity.SUSPICIOUS),
    ("mesh", "layout", "the device mesh", Severity.SUSPICIOUS),
    ("launcher", "layout", "the launcher", Severity.HARMLESS),
    ("backend", "layout", "the communication backend", Severity.HARMLESS),
    ("autocast", "dtype", "autocast", Severity.SUSPICIOUS),
    ("mixed_precision", "dtype", "the mixed precision policy", Severity.SUSPICIOUS),
    ("deterministic", "determinism", "deterministic", Severity.SUSPICIOUS),
    ("precision", "precision", "precision", Severity.SUSPICIOUS),
    ("attention", "kernels", "the choice of attention kernels", Severity.SUSPICIOUS),
    ("device", "device", "the device", Severity.SUSPICIOUS),
    ("versions", "versions", "version of", Severity.SUSPICIOUS),
    ("activation_checkpointing", "checkpointing", "activation checkpointing", Severity.HARMLESS),
    ("threads", "threads", "threads", Severity.HARMLESS),
    ("environment", "environment", "environment variable", Severity.HARMLESS),
    ("git", "code", "git", Severity.HARMLESS),
    ("settings", "capture", "the capture's setting", Severity.HARMLESS),
    ("host", "host", "the host", Severity.HARMLESS),
)
_TABLES = ("deterministic", "precision", "versions", "threads", "environment", "git", "settings")
_HARMLESS_VERSIONS = ("python", "numpy")
_MAX_VALUE_LENGTH = 80
_MOST_CUTS = 3


def compare_run_info(a: Mapping[str, Any], b: Mapping[str, Any], *, draws: bool) -> tuple[Note, ...]:
    """Every difference of two runs' info, the gravest first; nothing where one of them is empty.

    Args:
        draws: a run draws random numbers within the step.
    """
    if not a or not b:
        return ()
    notes = [
        *_starts(a, b),
        *_models(a, b),
        *(note for entry in _ENTRIES for note in _entry(a, b, *entry)),
        *_generators(a, b, draws),
        *_commands(a, b),
        *_simulations(a, b),
        *(Note(Severity.HARMLESS, "detach", text) for text in cut_gradients(a, b)),
    ]
    return tuple(sorted(notes, key=lambda note: -note.severity))


def tells_start(run: Mapping[str, Any]) -> bool:
    """Whether a run's info says what its step started from: parameters and batch."""
    return bool(_table(run, "parameter_digests")) and bool(_list(run, "batch"))


def divided_batch(a: Mapping[str, Any], b: Mapping[str, Any]) -> DividedBatch | None:
    """How one run divides the batch of the other over the ranks it has more; None where none does."""
    shapes = [_first_shape(_list(run, "batch")) for run in (a, b)]
    ranks = [run.get("world_size", 1) for run in (a, b)]
    if not all(shapes) or shapes[0][1:] != shapes[1][1:] or not all(type(n) is int and n > 0 for n in ranks):
        return None
    sizes = shapes[0][0], shapes[1][0]
    side = "a" if sizes[0] < sizes[1] else "b"
    small, large = sorted(sizes)
    more, fewer = ranks if side == "a" else ranks[::-1]
    if small == large or large % small or more % fewer or (more // fewer) % (large // small):
        return None
    return DividedBatch(side, large // small, more // fewer == large // small, sizes)


def _first_shape(batch: list[Any]) -> list[int]:
    """Of the first tensor, [] where it is not known or has no samples."""
    shape = batch[0].get("shape") if batch and isinstance(batch[0], Mapping) else None
    known = isinstance(shape, list) and bool(shape) and all(type(n) is int and n > 0 for n in shape)
    return list(shape) if known and shape else []


def cut_gradients(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[str]:
    """Source lines where the forward pass of one run cuts more tensors off from their gradient (`detach`).

    A detach is no operation that is captured, and what it does shows in the backward pass, elsewhere. Nothing is said
    of files in which both runs cut as many: their lines have moved.
    """
    if not a or not b:
        return
    of_a, of_b = ({line: n for line, n in _table(run, "detached").items() if isinstance(n, int)} for run in (a, b))
    many: dict[str, int] = {}
    for sign, of in ((1, of_a), (-1, of_b)):
        for line, n in of.items():
            many[_file(line)] = many.get(_file(line), 0) + sign * n
    lines = [x for x in sorted({*of_a, *of_b}) if many[_file(x)] and of_a.get(x, 0) != of_b.get(x, 0)]
    for line in lines[:_MOST_CUTS]:
        x, y = of_a.get(line, 0), of_b.get(line, 0)
        where = f"only in {'a' if x else 'b'}" if not x or not y else f"{x} times in a and {y} in b"
        yield f"a tensor is cut off from its gradient (detach) at {line} {where}"
    if (more := len(lines) - _MOST_CUTS) > 0:
        yield f"and at {more} more source line{'s' * (more > 1)} one run detaches more tensors than the other"


def _file(location: str) -> str:
    return location.rpartition(":")[0]


def _entry(
    a: Mapping[str, Any], b: Mapping[str, Any], name: str, kind: str, what: str, severity: Severity
) -> Iterator[Note]:
    if name in _TABLES:
        of_a, of_b = _table(a, name), _table(b, name)
        for line in dict.fromkeys([*of_a, *of_b]):
            # a library that only one run has started, a variable that only one has set
            x, y = of_a.get(line), of_b.get(line)
            if x != y and (of_a and of_b) and (name in ("environment", "settings") or None not in (x, y)):
                light = name == "versions" and line in _HARMLESS_VERSIONS
                yield Note(Severity.HARMLESS if light else severity, kind, _against(f"{what} {line}", x, y))
        return
    x, y = a.get(name), b.get(name)
    if x != y and (name in _ABSENT_MEANS_NONE or None not in (x, y)):
        yield Note(severity, kind, _against(what, x, y))


def _against(what: str, x: object, y: object) -> str:
    return f"{what} is {_shown(x)} in a and {_shown(y)} in b"


def _shown(value: object) -> str:
    if value is None or value == {} or value == []:
        return "not set"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _MAX_VALUE_LENGTH else text[: _MAX_VALUE_LENGTH - 1] + "…"


# What the step started from


def _starts(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Note]:
    together = _same_layout(a, b)
    of_a, of_b = _named_digests(a), _named_digests(b)
    differ = [name for name, digest in of_a.items() if of_b.get(name, digest) != digest]
    known = sum(name in of_b for name in of_a)
    # digests are those of bytes: another dtype or another shard has others, whatever the values are
    if differ and together and _dtypes(a) == _dtypes(b):
        many = "the parameter" if known == 1 else f"all {known} parameters" if len(differ) == known else ""
        many = many or f"{len(differ)} of {known} parameters"
        verb = "differs" if len(differ) == known == 1 else "differ"
        yield Note(Severity.FATAL, "parameters", f"{many} {verb} before the step, {differ[0]} first")
    if of_a and of_b and known < max(len(of_a), len(of_b)):
        sides = [
            f"{len(only)} only {side} has ({only[0]})"
            for side, one, other in (("a", of_a, of_b), ("b", of_b, of_a))
            if (only := [name for name in one if name not in other])
        ]
        yield Note(Severity.SUSPICIOUS, "parameters", f"the parameters have other names: {', '.join(sides)}")
    divided = divided_batch(a, b)
    if divided is None:
        yield from _batches(_list(a, "batch"), _list(b, "batch"), together)
    else:
        yield Note(Severity.SUSPICIOUS, "batch", _said_of(divided))


def _said_of(divided: DividedBatch) -> str:
    part, whole = sorted(divided.sizes)
    side, other = divided.side, "b" if divided.side == "a" else "a"
    return (
        f"each rank of {side} reads {part} sample{'s' * (part > 1)} where {other} reads {whole}: what it computes of "
        "them by itself is not judged, only weights that it gathers, gradients once they are reduced, and what "
        f"follows from these (against a run of {other} with {divided.parts} micro-batches of {part} every operation "
        "can be compared)"
    )


def _batches(a: list[Any], b: list[Any], together: bool) -> Iterator[Note]:
    """The batches; what only one of two calls was given (labels, a mask) does not count."""
    one, other = ([tensor for tensor in batch if isinstance(tensor, Mapping)] for batch in (a, b))
    fewer, more = sorted(([str(tensor.get("digest")) for tensor in batch] for batch in (one, other)), key=len)
    if not fewer or set(fewer) <= set(more):
        return
    for what in ("shape", "dtype"):
        x, y = one[0].get(what), other[0].get(what)
        if x != y:
            yield Note(Severity.SUSPICIOUS, "batch", _against(f"the {what} of the first batch", x, y))
            return
    if together:
        yield Note(Severity.FATAL, "batch", "the batches differ")
    else:
        yield Note(Severity.SUSPICIOUS, "batch", "the batches of these ranks differ")


def _models(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Note]:
    of_a, of_b = _table(a, "parameters"), _table(b, "parameters")
    if not of_a or not of_b:
        return
    sizes = of_a.get("elements"), of_b.get("elements")
    if sizes[0] != sizes[1]:
        severity = Severity.FATAL if _same_layout(a, b) else Severity.SUSPICIOUS
        yield Note(severity, "model", _against("the model's number of weights", *sizes))
    if _dtypes(a) != _dtypes(b):
        x, y = (", ".join(map(_shown, _dtypes(run))) for run in (a, b))
        told = _against("the parameters' dtype", x, y) if x != y else "other parameters have another dtype"
        yield Note(Severity.SUSPICIOUS, "dtype", told)
    if of_a.get("frozen") != of_b.get("frozen"):
        told = _against("the number of frozen parameters", of_a.get("frozen"), of_b.get("frozen"))
        yield Note(Severity.SUSPICIOUS, "model", told)
    x, y = (", ".join(map(_shown, sorted(_table(table, "devices")))) for table in (of_a, of_b))
    if x != y:
        yield Note(Severity.SUSPICIOUS, "device", _against("the parameters' device", x, y))


def _generators(a: Mapping[str, Any], b: Mapping[str, Any], draws: bool) -> Iterator[Note]:
    of_a, of_b = _table(a, "rng_digests"), _table(b, "rng_digests")
    differ = [name for name in of_a if name in of_b and of_a[name] != of_b[name]]
    if not differ or a.get("seed") != b.get("seed"):  # the seed is said already
        return
    drawn = draws and any(name in ("torch", "cuda") for name in differ)
    means = "and the step draws random numbers" if drawn else "but the step draws no numbers of torch's"
    names = ", ".join(map(str, differ))
    severity = Severity.SUSPICIOUS if drawn else Severity.HARMLESS
    yield Note(severity, "generators", f"random generators are in another state ({names}), {means}")


def _commands(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Note]:
    """What was run; where the capture itself was told to write does not matter."""
    x, y = (_after_capture(_list(run, "command")) for run in (a, b))
    if x and y and x != y:
        sides = [
            f"{' '.join(only)} only in {side}"
            for side, one, other in (("a", x, y), ("b", y, x))
            if (only := [_shown(word) for word in one if word not in other])
        ]
        told = ", ".join(sides) or "in the order of words"
        yield Note(Severity.HARMLESS, "command", f"the command lines differ: {told}")


def _after_capture(command: list[Any]) -> list[Any]:
    return command[command.index("--") + 1 :] if "--" in command else command[1:]


def _simulations(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Note]:
    fake = [side for side, run in (("a", a), ("b", b)) if run.get("launcher") == "fake backend"]
    if len(fake) == 1:
        text = f"{fake[0]} ran on the fake backend, where nothing is communicated: its numbers mean nothing"
        yield Note(Severity.FATAL, "layout", text)


# What entries hold


def _same_layout(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return all(a.get(name) == b.get(name) for name in ("world_size", "mesh", "rank"))


def _named_digests(run: Mapping[str, Any]) -> dict[str, Any]:
    return {canonical(str(name)): digest for name, digest in _table(run, "parameter_digests").items()}


def _dtypes(run: Mapping[str, Any]) -> list[Any]:
    return sorted(_table(_table(run, "parameters"), "dtypes"))


def _table(run: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = run.get(name)
    return value if isinstance(value, Mapping) else {}


def _list(run: Mapping[str, Any], name: str) -> list[Any]:
    value = run.get(name)
    return value if isinstance(value, list) else []
