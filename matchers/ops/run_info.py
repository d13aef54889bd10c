"""Differences between the run infos of two runs, and their severity for a comparison.

Our own capture writes run info above a log (docs/log-format.md). It is untrusted text: an entry that is missing or of
another form is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from capture.log_format import coverage_sentence
from matchers.logs.op_log import OpLog
from matchers.logs.tells import IMPORTED
from matchers.ops.commands import command_differences
from matchers.ops.fused import fused, fused_by_norms, fused_otherwise, renamed, sizes
from matchers.ops.shown_value import is_private, same_value, shown
from matchers.ops.start import (
    Start,
    computed,
    differing_start,
    known_digests,
    other_batch,
    read_tensors,
    table,
)
from matchers.status import LabelledEnum

__all__ = [
    "HELD_BY_RANKS",
    "MERGED_FINDINGS",
    "MERGED_RANKS",
    "DividedBatch",
    "Note",
    "Severity",
    "call_extent",
    "captured",
    "changed_by",
    "compare_run_info",
    "contradictions",
    "cut_gradients",
    "detaches",
    "divided_batch",
    "of_call",
    "same_files",
    "same_kernels",
    "start_of",
    "tells_start",
]

MERGED_FINDINGS = "merged_findings"
"""Entry of the run info of a virtual log (`matchers.runs.layouts`): what its ranks contradict each other in."""
MERGED_RANKS = "merged_ranks"
"""Entry of the run info of a virtual log: the number of its ranks."""
HELD_BY_RANKS = "held_by_ranks"
"""Entry of the run info of a virtual log: digests of all parameters with which any of its ranks begins."""
_MAX_FINDINGS = 3


class Severity(LabelledEnum):
    """Effect of a difference between two runs on their comparison.

    HARMLESS: at most the order of a sum, or the recording itself. SUSPICIOUS: may alone explain differences. FATAL: the
    numbers cannot agree, whatever the code does.
    """

    HARMLESS = 0
    SUSPICIOUS = 1
    FATAL = 2


@dataclass(frozen=True, slots=True)
class Note:
    """One difference between the two runs.

    Attributes:
        kind: the subject, one word that is stable across versions (`seed`, `batch`, `incomplete`).
        text: a sentence without capital and full stop. May quote the logs, so sanitise it for display.
    """

    severity: Severity
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class DividedBatch:
    """Each rank of one run reads a fraction of the batch that each rank of the other reads.

    Attributes:
        side: `a` or `b`, the one with the smaller batches.
        parts: number of parts of one batch.
        by_all: the extra ranks all divide the batch, and nothing else.
        sizes: samples that a and b read at once.
    """

    side: str
    parts: int
    by_all: bool
    sizes: tuple[int, int]


_ABSENT_MEANS_NONE = ("mesh", "autocast", "mixed_precision", "activation_checkpointing")
"""Entries that the capture leaves out if empty."""

_ENTRIES: tuple[tuple[str, str, str, Severity], ...] = (
    # entry, kind, description, severity; each line of a table counts by itself
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
    ("backends", "kernels", "the backend setting", Severity.SUSPICIOUS),
    ("device", "device", "the device", Severity.SUSPICIOUS),
    ("versions", "versions", "version of", Severity.SUSPICIOUS),
    ("libraries", "libraries", "version of", Severity.HARMLESS),
    ("activation_checkpointing", "checkpointing", "activation checkpointing", Severity.HARMLESS),
    ("threads", "threads", "threads", Severity.HARMLESS),
    ("environment", "environment", "environment variable", Severity.HARMLESS),
    ("git", "code", "git", Severity.HARMLESS),
    ("settings", "capture", "the capture's setting", Severity.HARMLESS),
    ("host", "host", "the host", Severity.HARMLESS),
)
_TABLES = (
    *("deterministic", "precision", "backends", "versions", "libraries", "threads", "environment", "git", "settings"),
)
_OF_KERNELS = ("device", "threads", "deterministic", "precision", "attention", "backends", "environment", "world_size")
"""Entries that decide which kernel an operation runs."""
_TOLD_APART = ("forward", "changes_run", "perturb", "synthetic")
"""Settings of which `_units` and `_changed` tell."""
_HARMLESS_VERSIONS = ("python", "numpy")
_MAX_CUTS = 3


def compare_run_info(a: Mapping[str, Any], b: Mapping[str, Any], *, draws: bool) -> tuple[Note, ...]:
    """Every difference between two runs' infos, the most severe first; of an empty one, only how ranks were merged.

    Args:
        draws: a run draws random numbers within the step.
    """
    merged = [*_merged(a, b)]
    if not a or not b:
        return tuple(merged)
    notes = [
        *_starts(a, b),
        *_models(a, b),
        *(note for entry in _ENTRIES for note in _entry(a, b, *entry)),
        *_units(a, b),
        *_changed(a, b),
        *_generators(a, b, draws),
        *(
            Note(Severity.HARMLESS, "command", text)
            for text in command_differences(_list(a, "command"), _list(b, "command"))
        ),
        *_simulations(a, b),
        *merged,
        *(Note(Severity.HARMLESS, "detach", text) for text in cut_gradients(a, b)),
    ]
    return tuple(sorted(notes, key=lambda note: -note.severity))


def same_kernels(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool | None:
    """True if both runs say that they compute with one build of torch, device, number of threads and set of flags.

    None if one does not say it, or all of its ranks together.
    """
    if any(MERGED_RANKS in run or not (table(run, "versions").get("torch") and run.get("device")) for run in (a, b)):
        return None
    libraries = [{k: v for k, v in table(run, "versions").items() if k not in _HARMLESS_VERSIONS} for run in (a, b)]
    return libraries[0] == libraries[1] and all(a.get(name) == b.get(name) for name in _OF_KERNELS)


def tells_start(run: Mapping[str, Any]) -> bool:
    """True if the run info identifies the step's start: parameters and batch."""
    return bool(known_digests(run, "parameter_digests")) and bool(read_tensors(run))


def captured(log: OpLog) -> str:
    """The part of the step that a log covers, by its header; "" if it does not say. Untrusted text."""
    if log.header.tool in IMPORTED:
        without = "" if len(log.dtypes) else " without shapes and dtypes, judged as float32,"
        return f"by {log.header.tool},{without} completeness unknown"
    run = log.header.run
    covered = coverage_sentence(run.get("step"), told) if (told := table(run, "coverage")) else ""
    changed = f"changed by {changes}" if (changes := changed_by(run)) else ""
    return ", ".join(filter(None, (covered, changed)))


def changed_by(run: Mapping[str, Any]) -> str:
    """The options of the capture that changed the run, as `--perturb 1`; empty for none. Untrusted text."""
    return ", ".join(map(str, _list(table(run, "settings"), "changes_run")))


def of_call(run: Mapping[str, Any]) -> bool:
    """True of a call of a model (`numtui capture --forward`), which need not be one of a training."""
    return "forward" in table(run, "coverage")


def call_extent(run: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the first record of the call itself, and the one after its last; None if the log does not say."""
    told = table(run, "coverage").get("forward")
    known = isinstance(told, list) and len(told) == 2 and all(type(n) is int for n in told)
    return (told[0], told[1]) if known and isinstance(told, list) and MERGED_RANKS not in run else None


def start_of(a: Mapping[str, Any], b: Mapping[str, Any]) -> Start:
    """Compare what two runs begin the step with, as far as their logs say it."""
    return differing_start(a, b, together=_same_layout(a, b) and _dtypes(a) == _dtypes(b))


def divided_batch(a: Mapping[str, Any], b: Mapping[str, Any]) -> DividedBatch | None:
    """The division of one run's batch over the extra ranks of the other; None if there is none."""
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
    """Shape of the first tensor, [] if unknown or without samples."""
    shape = batch[0].get("shape") if batch and isinstance(batch[0], Mapping) else None
    known = isinstance(shape, list) and bool(shape) and all(type(n) is int and n > 0 for n in shape)
    return list(shape) if known and shape else []


def cut_gradients(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[str]:
    """Say where the forward pass of one run detaches more tensors than that of the other.

    A detach is not captured as an operation, and its effect shows in the backward pass, elsewhere.
    """
    lines = detaches(a, b)
    for line, x, y in lines[:_MAX_CUTS]:
        where = f"only in {'a' if x else 'b'}" if not x or not y else f"{x:,} times in a and {y:,} in b"
        yield f"detach() cuts a gradient at {line} {where}"
    if (more := len(lines) - _MAX_CUTS) > 0:
        yield f"detach() counts differ at {more:,} more source line{'s' * (more > 1)}"


def detaches(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    """Return the source lines that detach another number of tensors in each run, with both.

    Files with equal totals are skipped: their lines have moved. One that a run was started with by a longer path, as
    `proj/train.py` and `train.py`, has the name that it has in b.
    """
    if not a or not b:
        return []
    of_a, of_b = ({line: n for line, n in table(run, "detached").items() if isinstance(n, int)} for run in (a, b))
    in_b = same_files({*map(_file, of_a)}, {*map(_file, of_b)})
    of_a = {f"{in_b.get(_file(line), _file(line))}:{line.rpartition(':')[2]}": n for line, n in of_a.items()}
    many: dict[str, int] = {}
    for sign, of in ((1, of_a), (-1, of_b)):
        for line, n in of.items():
            many[_file(line)] = many.get(_file(line), 0) + sign * n
    lines = [x for x in sorted({*of_a, *of_b}) if many[_file(x)] and of_a.get(x, 0) != of_b.get(x, 0)]
    return [(line, of_a.get(line, 0), of_b.get(line, 0)) for line in lines]


def same_files(a: set[str], b: set[str]) -> dict[str, str]:
    """Return what files of a are called in b, if the one path ends with the other and no other one does."""
    alike = [(x, y) for x in a - b for y in b - a if f"/{x}".endswith(f"/{y}") or f"/{y}".endswith(f"/{x}")]
    return {x: y for x, y in alike if sum(x in pair or y in pair for pair in alike) == 1}


def _file(location: str) -> str:
    return location.rpartition(":")[0]


def _entry(
    a: Mapping[str, Any], b: Mapping[str, Any], name: str, kind: str, what: str, severity: Severity
) -> Iterator[Note]:
    if name in _TABLES:
        of_a, of_b = table(a, name), table(b, name)
        for line in dict.fromkeys([*of_a, *of_b]):
            # a library that only one run loaded, a variable that only one set
            x, y = of_a.get(line), of_b.get(line)
            told = (of_a and of_b) and (name in ("environment", "settings") or None not in (x, y))
            if told and line not in _TOLD_APART and x != y and not same_value(x, y):
                light = name == "versions" and line in _HARMLESS_VERSIONS
                yield Note(Severity.HARMLESS if light else severity, kind, _against(f"{what} {line}", x, y))
        return
    x, y = a.get(name), b.get(name)
    # a seed may be a number in one and text in the other
    if x != y and shown(x) != shown(y) and (name in _ABSENT_MEANS_NONE or None not in (x, y)):
        yield Note(severity, kind, _against(what, x, y))


def _against(what: str, x: object, y: object) -> str:
    if is_private(x) and is_private(y):
        return f"{what} differs (kept private)"
    return f"{what} is {shown(x)} in a and {shown(y)} in b"


def _changed(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Note]:
    one, other = changed_by(a), changed_by(b)
    if one != other:
        told = [f"{side} was changed by {options}" for side, options in (("a", one), ("b", other)) if options]
        yield Note(Severity.SUSPICIOUS, "capture", ", ".join(told))


# The start of the step


def _starts(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Note]:
    start = start_of(a, b)
    if (differ := start.parameters) is not None:
        yield Note(Severity.SUSPICIOUS if differ.rounding else Severity.FATAL, "parameters", differ.text)
    if start.buffers is not None:
        yield Note(Severity.SUSPICIOUS, "buffers", start.buffers.text)
    of_a, of_b = (known_digests(run, "parameter_digests") for run in (a, b))
    known = sum(name in of_b for name in of_a)
    if of_a and of_b and known < max(len(of_a), len(of_b)):
        yield from _other_names(a, b, of_a, of_b)
    divided = divided_batch(a, b)
    if divided is None:
        extent = "" if start.tokens is None else start.tokens.extent
        yield from _batches(read_tensors(a), read_tensors(b), _same_layout(a, b), extent)
    else:
        yield Note(Severity.SUSPICIOUS, "batch", _said_of(divided))


def _said_of(divided: DividedBatch) -> str:
    small, large = sorted(divided.sizes)
    side, other = divided.side, "b" if divided.side == "a" else "a"
    return (
        f"each rank of {side} reads {small} sample{'s' * (small > 1)} where {other} reads {large}: only gathered "
        "weights, reduced gradients and their consumers are judged (to compare every operation, run "
        f"{other} with {divided.parts} micro-batches of {small})"
    )


def _batches(a: list[Mapping[str, Any]], b: list[Mapping[str, Any]], together: bool, extent: str) -> Iterator[Note]:
    """Differences between the batches; a tensor that only one run received (labels, a mask) does not count.

    The batch is another one if its first tensor (tokens, images) is; a further argument of the model may differ alone.
    """
    fewer, more = sorted(([str(tensor.get("digest")) for tensor in batch] for batch in (a, b)), key=len)
    if not fewer or set(fewer) <= set(more):
        return
    if not other_batch(a, b):
        differing = [k for k, digest in enumerate(fewer) if digest not in more]
        which = ", ".join(f"{k + 1} ({a[k].get('dtype')} {shown(a[k].get('shape'))})" for k in differing)
        verb = "differs" if len(differing) == 1 else "differ"
        yield Note(Severity.SUSPICIOUS, "batch", f"the first tensor given to the model agrees, tensor {which} {verb}")
        return
    if computed(a, b):
        return
    for what in ("shape", "dtype"):
        x, y = a[0].get(what), b[0].get(what)
        if x != y:
            yield Note(Severity.SUSPICIOUS, "batch", _against(f"the {what} of the first batch", x, y))
            return
    if together:
        yield Note(Severity.FATAL, "batch", f"the batches differ{extent}")
    else:
        yield Note(Severity.SUSPICIOUS, "batch", "the batches of these ranks differ")


def _other_names(
    a: Mapping[str, Any], b: Mapping[str, Any], of_a: Mapping[str, str], of_b: Mapping[str, str]
) -> Iterator[Note]:
    """Weights that one run alone names: what they are in the other, and those that are nothing there."""
    whole, alone = fused(a, b), renamed(a, b)
    alike = fused_by_norms(a, b) if not whole else []
    for found, what in ((whole, "the rows"), (alike, "the sizes and nearly the norms")):
        if found:
            parts = sum(len(of.parts) for of in found)
            text = f"{len(found):,} fused weights have {what} of {parts:,} single ones ({found[0].whole})"
            yield Note(Severity.HARMLESS, "parameters", text)
    if alone:
        one = f"{alone[0].whole} in {alone[0].side}, {alone[0].parts[0]} in {'b' if alone[0].side == 'a' else 'a'}"
        have = "weights have other names" if alone[1:] else "weight has another name"
        yield Note(Severity.HARMLESS, "parameters", f"{len(alone):,} {have} and the same bits ({one})")
    proven = [*whole, *alone]
    if odd := fused_otherwise(a, b, proven):
        has = "have" if odd[1:] else "has"
        text = f"{len(odd):,} of {len(proven) + len(odd):,} fused or renamed weights {has} other rows: {odd[0].whole}"
        early = all(of_call(run) or run.get("step") == 1 for run in (a, b))
        yield Note(Severity.FATAL if early else Severity.SUSPICIOUS, "parameters", text + ", the first" * bool(odd[1:]))
    known = {name for of in (*proven, *alike, *odd) for name in (of.whole, *of.parts)}
    sides = [
        f"{len(only):,} only in {side} ({only[0]})"
        for side, one, other in (("a", of_a, of_b), ("b", of_b, of_a))
        if (only := [name for name in one if name not in other and name not in known])
    ]
    if sides:
        yield Note(Severity.SUSPICIOUS, "parameters", f"parameter names differ: {', '.join(sides)}")


def _copied(a: Mapping[str, Any], b: Mapping[str, Any], x: Any, y: Any) -> bool:
    """True if copies of weights that both runs name make up for the difference of two numbers of weights."""
    if not (type(x) is int and type(y) is int):
        return False
    names = known_digests(a, "parameter_digests").keys() & known_digests(b, "parameter_digests").keys()
    copies = [of for of in renamed(a, b) if of.parts[0] in names]
    many = [sum(sizes(run).get(of.whole, 0) for of in copies if of.side == side) for side, run in (("a", a), ("b", b))]
    return x - many[0] == y - many[1]


def _models(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Note]:
    of_a, of_b = table(a, "parameters"), table(b, "parameters")
    if not of_a or not of_b:
        return
    many = of_a.get("elements"), of_b.get("elements")
    if many[0] != many[1] and not _copied(a, b, *many):
        severity = Severity.FATAL if _same_layout(a, b) else Severity.SUSPICIOUS
        yield Note(severity, "model", _against("the model's number of weights", *many))
    if _dtypes(a) != _dtypes(b):
        x, y = (", ".join(map(shown, _dtypes(run))) for run in (a, b))
        text = _against("the parameters' dtype", x, y) if x != y else "the parameters' dtypes differ"
        yield Note(Severity.SUSPICIOUS, "dtype", text)
    if of_a.get("frozen") != of_b.get("frozen"):
        text = _against("the number of frozen parameters", of_a.get("frozen"), of_b.get("frozen"))
        yield Note(Severity.SUSPICIOUS, "model", text)
    x, y = (", ".join(map(shown, sorted(table(one, "devices")))) for one in (of_a, of_b))
    if x != y:
        yield Note(Severity.SUSPICIOUS, "device", _against("the parameters' device", x, y))


def _units(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Note]:
    if of_call(a) == of_call(b):
        what, severity = ("call", Severity.HARMLESS) if of_call(a) else ("step", Severity.FATAL)
        yield from _entry(a, b, "step", "step", f"the captured {what}", severity)
    else:
        call, step = ("a", "b") if of_call(a) else ("b", "a")
        what = f"what {step} does around its forward pass and makes of its result needs no partner"
        yield Note(Severity.HARMLESS, "capture", f"{call} is a call of a model: {what}")


def _generators(a: Mapping[str, Any], b: Mapping[str, Any], draws: bool) -> Iterator[Note]:
    of_a, of_b = table(a, "rng_digests"), table(b, "rng_digests")
    differ = [name for name in of_a if name in of_b and of_a[name] != of_b[name]]
    # the seed has its own note, and what Python's generator or NumPy's draws, the digests of the batch tell
    if a.get("seed") == b.get("seed") and draws and any(name in ("torch", "cuda") for name in differ):
        text = f"random generator states differ ({', '.join(map(str, differ))}), and the step draws random numbers"
        yield Note(Severity.SUSPICIOUS, "generators", text)


def _simulations(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Note]:
    fake = [side for side, run in (("a", a), ("b", b)) if run.get("launcher") == "fake backend"]
    if len(fake) == 1:
        text = f"{fake[0]} ran on the fake backend, which communicates nothing: its numbers mean nothing"
        yield Note(Severity.FATAL, "layout", text)


def _merged(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Note]:
    for side, run in (("a", a), ("b", b)):
        if type(ranks := run.get(MERGED_RANKS)) is int:
            yield Note(Severity.HARMLESS, "merged", f"{side} is the log of {ranks:,} ranks, merged by their placements")
        found = contradictions(run)
        for text in found[:_MAX_FINDINGS]:
            yield Note(Severity.SUSPICIOUS, "ranks", f"the ranks of {side} contradict each other: {text}")
        if len(found) > _MAX_FINDINGS:
            more = f"{len(found) - _MAX_FINDINGS:,} more contradictions of the ranks of {side}: numtui check lists them"
            yield Note(Severity.SUSPICIOUS, "ranks", more)


def contradictions(run: Mapping[str, Any]) -> list[str]:
    """Contradictions between the merged ranks of a run, which must agree; empty for the log of one."""
    return [str(text) for text in _list(run, MERGED_FINDINGS)]


# Entries


def _same_layout(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return all(a.get(name) == b.get(name) for name in ("world_size", "mesh", "rank"))


def _dtypes(run: Mapping[str, Any]) -> list[Any]:
    return sorted(table(table(run, "parameters"), "dtypes"))


def _list(run: Mapping[str, Any], name: str) -> list[Any]:
    value = run.get(name)
    return value if isinstance(value, list) else []
