"""Resolve the arguments A and B to two logs: run folders, ranks, steps, names, rule file."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from matchers.errors import InputError, LogError
from matchers.logs.devices import refuse_device
from matchers.runs.run import (
    LOG_NAME,
    FoundLog,
    Run,
    common_step,
    find_logs,
    find_runs,
    has_steps,
    is_run,
    of_step,
    rank_in,
)
from matchers.weights.recognised import WEIGHTS_NAME
from numtui.paths import status_of

if TYPE_CHECKING:
    from matchers.files.cache_folder import CacheFolder

__all__ = [
    "DEFAULT_RULES",
    "DEMOS",
    "PRESETS",
    "STDIN",
    "OpenRequest",
    "default_names",
    "demo_logs",
    "joined",
    "look",
    "other_layouts",
    "resolve_logs",
    "run_names",
]

PRESETS = ("bitwise", "reduction-order", "low-precision")
"""Names of the presets of `matchers.verdict.expectation.Expect`."""

STDIN = "-"
DEFAULT_RULES = Path("overrides.yaml")

_GENERIC_NAME = re.compile(r"step_\d+|numerics|rank_\d+_(activations|weights)|activations|\.|/")
"""Components of a path that name a place within a run, not the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    """Logs, rules and settings with which the explorer opens.

    Attributes:
        path_a, path_b: readable logs, found and checked; `path_b` is empty to open a single log. A log from
            standard input is in a file already. The folder of a run stands for all its ranks.
        name_a, name_b: names of the sides on the screen.
        step: the one that is read, of files that have several (Megatron-LM's traces); None for all.
        row: record of side a on which the explorer puts the cursor; None for the place of the last session.
        line_b: 1-based line of a record in the log of side b, which the cursor is put on instead; None for none.
        rules_path: the rule file; the explorer reads it if it exists, and saves to it.
        rules_given: the user named that path (else it is the default).
        auto_rules: reports apply the rule file of the default path if it exists (else only one that the user named).
        expect: the name of a preset, rtol: a tolerance, noise_path: a third log; see docs/matching.md.
        floor: `required`: the noise floor beside a log is applied (`--floor`), `found`: if there is one and nothing
            else is expected; empty: it is not.
        color: False to do without colours (`--no-color`; `NO_COLOR` is Textual's own).
        theme: the name of a Textual theme, None for the default.
        keys: keys by the id of an action, in place of its own.
        mouse: take the mouse; otherwise the terminal's own selection works.
        editor: command that opens a line of a file, with `{file}` and `{line}`; None for `$VISUAL` or `$EDITOR`.
        sources: folders of source files that may be opened, besides the current one.
        replay_python: a Python with torch, for replays; None for this one.
        cache: where logs that were read, and reports on them, are found again; None to read and compare anew.
        resume: continue the last session on these logs, and keep this one for the next.
    """

    path_a: str
    path_b: str
    name_a: str
    name_b: str
    rules_path: Path
    step: int | None = None
    row: int | None = None
    line_b: int | None = None
    rules_given: bool = False
    auto_rules: bool = False
    expect: str | None = None
    rtol: float | None = None
    noise_path: str | None = None
    floor: str = ""
    color: bool = True
    theme: str | None = None
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    mouse: bool = False
    editor: str | None = None
    sources: tuple[Path, ...] = ()
    replay_python: str | None = None
    resume: bool = True
    cache: CacheFolder | None = field(default=None, compare=False, repr=False)

    @property
    def merges_ranks(self) -> bool:
        """True when a side is the folder of a run, all ranks of which are one log: the two have other layouts."""
        return any(path and path != STDIN and is_run(path) for path in (self.path_a, self.path_b))

    @property
    def single(self) -> bool:
        """True when a single log is open."""
        return not self.path_b


def resolve_logs(
    a: str,
    b: str,
    *,
    rank: int | None = None,
    step: int | None = None,
    stage: str | None = None,
    merged: bool = False,
) -> tuple[str, str]:
    """Find the two logs that A and B name; files are taken as they are, folders are searched.

    Args:
        step: the captured step; None for the one that both have.
        stage: the stage whose logs are meant; None for the only one.
        merged: all ranks of a folder are to be one log, whatever their layout.

    Raises:
        InputError: a missing or unreadable file, a folder without a log, or a choice that only the user can make.
    """
    if a == STDIN and b == STDIN:
        raise InputError("only one of the two logs can be '-' (standard input)")
    if merged:
        if rank is not None:
            raise InputError("--merged and --rank exclude each other: give one of them")
        if not (os.path.isdir(a) and os.path.isdir(b)):
            raise InputError("--merged is about the folders of two runs, and a file was given")
        return _of_all_ranks(find_runs(a, b, step=step, stage=stage), (a, b))
    if rank is None and (layouts := other_layouts(a, b, step, stage)):
        return layouts
    found = [look(side, stage=stage) for side in (a, b)]
    if stage is not None and found == [None, None]:
        raise InputError("--stage chooses logs of a folder, but A and B are both files")
    if step is not None:
        if found == [None, None] and not (has_steps(a) and has_steps(b)):
            raise InputError("--step chooses a log of a folder, but A and B are both files")
        found = [of_step(logs, step, side) if logs else logs for logs, side in zip(found, (a, b), strict=True)]
    logs_a, logs_b = found
    if logs_a is None and logs_b is None:
        if rank is not None:
            raise InputError("--rank chooses a log of a folder, but A and B are both files")
        return a, b
    if logs_a is not None and logs_b is not None:
        rank = _choose_rank({f.rank for f in logs_a}, {f.rank for f in logs_b}, a, b, rank)
        one, other = (_of_rank(logs, rank, side) for logs, side in ((logs_a, a), (logs_b, b)))
        step = _choose_step(one, other, a, b)
        return _with_step(one, step), _with_step(other, step)
    # A file and a folder: compare with the rank in the file's name, if it has one.
    folder, file, logs = (a, b, logs_a) if logs_a is not None else (b, a, logs_b)
    assert logs is not None
    if rank is None:
        rank = _rank_in_name(file)
    ranks = {f.rank for f in logs}
    rank = _choose_rank(ranks, ranks if rank is None else {rank}, folder, file, rank)
    candidates = _of_rank(logs, rank, folder)
    if len(candidates) > 1:
        raise InputError(f"{folder} has several captured steps; name one: {joined(_places(candidates))}")
    chosen = str(candidates[0].path)
    return (chosen, b) if logs_a is not None else (a, chosen)


def other_layouts(a: str, b: str, step: int | None = None, stage: str | None = None) -> tuple[str, str] | None:
    """Return what to read of two runs with other numbers of ranks: the log of one rank, or the folder of several.

    The log of one process is all of its run, also where it is named as a file.
    """
    folders = [os.path.isdir(path) for path in (a, b)]
    if not any(folders) or not all(of or _is_whole_run(path) for of, path in zip(folders, (a, b), strict=True)):
        return None
    from matchers.runs.layouts.read import layouts_differ

    try:
        runs = find_runs(a, b, step=step, stage=stage)
    except InputError:
        return None  # said below, or a rank is chosen there
    return _of_all_ranks(runs, (a, b)) if layouts_differ(*runs) else None


def _is_whole_run(path: str) -> bool:
    """True for a log that says that it is not of one of several ranks."""
    from matchers.logs.head import read_head

    try:
        run = read_head(path).run if os.path.isfile(path) else {}
    except (OSError, LogError):
        return False
    return bool(run) and run.get("world_size", 1) == 1


def _of_all_ranks(runs: tuple[Run, Run], folders: tuple[str, str]) -> tuple[str, str]:
    """Return the folder of each run, or of its step and stage; or the log of rank 0 if that is the only one."""
    one, other = (_one_path(run, folder) for run, folder in zip(runs, folders, strict=True))
    return one, other


def _one_path(run: Run, folder: str) -> str:
    paths = list(run.paths.values())
    if list(run.paths) == [0]:
        return paths[0]
    return folder if run.step is None and not run.stage else os.path.commonpath([os.path.dirname(p) for p in paths])


def resolve_log(path: str, *, rank: int | None = None, step: int | None = None, stage: str | None = None) -> str:
    """Find the one log that a path names, a file or the folder of a run.

    Raises:
        InputError: as `resolve_logs`.
    """
    return path if path == STDIN else resolve_logs(path, path, rank=rank, step=step, stage=stage)[0]


def run_names(paths: Sequence[str]) -> list[str]:
    """Return short names for runs, all different: the distinguishing components of the paths."""
    split = [_name_parts(path) for path in paths]
    if all(parts == split[0] for parts in split):
        split = [parts[-1:] for parts in split]
    while all(len(parts) > 1 for parts in split) and len({parts[-1] for parts in split}) == 1:
        split = [parts[:-1] for parts in split]
    while all(len(parts) > 1 for parts in split) and len({parts[0] for parts in split}) == 1:
        split = [parts[1:] for parts in split]
    if len({len(parts) for parts in split}) == 1:
        columns = [column for column in zip(*split, strict=True) if len(set(column)) > 1]
        columns = columns or list(zip(*split, strict=True))
        alone = [column for column in columns if len(set(column)) == len(paths)]
        names = ["/".join(parts) for parts in zip(*(alone[-1:] or columns), strict=True)]
    else:
        short = [[part for part in parts if not _GENERIC_NAME.fullmatch(part)] or parts for parts in split]
        names = ["/".join(parts) for parts in short]
    counted: dict[str, int] = {}
    for i, name in enumerate(names):
        counted[name] = counted.get(name, 0) + 1
        if counted[name] > 1:
            names[i] = f"{name} ({counted[name]})"
    return names


def only_name(path: str) -> str:
    """Return a short name for the run of a log."""
    return _run_name(_name_parts(path)) or path


def default_names(path_a: str, path_b: str) -> tuple[str, str]:
    """Return short names for the sides: the distinguishing component of the paths, else `a` and `b`."""
    parts_a, parts_b = _name_parts(path_a), _name_parts(path_b)
    while parts_a and parts_b and parts_a[-1] == parts_b[-1]:
        parts_a.pop()
        parts_b.pop()
    while len(parts_a) > 1 and len(parts_b) > 1 and parts_a[0] == parts_b[0]:
        parts_a.pop(0)
        parts_b.pop(0)
    name_a, name_b = _run_name(parts_a), _run_name(parts_b)
    return (name_a, name_b) if name_a and name_b and name_a != name_b else ("a", "b")


DEMOS = MappingProxyType({"bug": ("base", "neg_attn"), "agree": ("eager", "traced")})
"""The pairs of runs that are shipped: one with a planted bug, which opens by default, and one that agrees."""


def demo_logs(pair: str) -> tuple[str, str]:
    """Return the logs of a shipped pair of runs, one of `DEMOS`.

    Raises:
        InputError: the installation is incomplete.
    """
    package = Path(__file__).parent
    # An installed wheel has them inside the package, a checkout at its top.
    for folder in (package / "_examples", package.parent / "examples"):
        a, b = (folder / run for run in DEMOS[pair])
        if a.exists() and b.exists():
            return str(a), str(b)
    raise InputError(f"the example logs are missing from this installation ({package / '_examples'})")


def look(path: str, name: re.Pattern[str] = LOG_NAME, *, stage: str | None = None) -> list[FoundLog] | None:
    """Return the logs of this name in a folder, of a stage if one is chosen; None for a readable file or stdin."""
    if path == STDIN:
        with suppress(OSError):  # closed: the reader says so
            if not os.isatty(0):
                refuse_device("standard input", os.fstat(0))
        return None
    if (status := status_of(path)) is None:
        raise InputError(f"{path}: no such file or folder")
    refuse_device(path, status)
    if not stat.S_ISDIR(status.st_mode):
        if not os.access(path, os.R_OK):
            raise InputError(f"{path}: cannot be read (permission denied)")
        return None
    try:
        logs = find_logs(Path(path), name, stage=stage)
    except OSError as error:
        raise InputError(f"{error.filename or path}: {error.strerror or error}") from None
    if not logs and name is WEIGHTS_NAME:
        raise InputError(
            f"{path}: no rank_N_weights.log here, nor in numerics/; numtui capture --weights every writes it"
        )
    if not logs:
        raise InputError(
            f"{path}: no rank_N_activations.log here, nor in numerics/ or step_S/; "
            + (f"runs in it: {runs}" if (runs := _runs_in(path)) else "name the dump folder of a run, or a log itself")
        )
    return logs


_MAX_RUNS = 12
"""Runs in a folder that are named."""

_MAX_FOLDERS = 2_000
"""Folders that are looked into for them."""


def _runs_in(path: str) -> str:
    """Name the runs in a folder of folders, or of folders of these; empty without any."""
    runs = []
    with suppress(OSError):
        for folder in sorted(islice(chain(Path(path).glob("*/"), Path(path).glob("*/*/")), _MAX_FOLDERS)):
            with suppress(OSError):
                if folder.name != "numerics" and _has_logs(folder) and not _has_logs(folder.parent):
                    runs.append(str(folder.relative_to(path)))
    more = f" and {len(runs) - _MAX_RUNS:,} more" if len(runs) > _MAX_RUNS else ""
    return ", ".join(runs[:_MAX_RUNS]) + more


def _has_logs(folder: Path) -> bool:
    try:
        return bool(find_logs(folder))
    except InputError:  # too many to choose from
        return True


def _rank_in_name(path: str) -> int | None:
    return None if path == STDIN else rank_in(Path(path))


def _choose_rank(ranks_a: set[int], ranks_b: set[int], a: str, b: str, wanted: int | None) -> int:
    if wanted is not None:
        return wanted
    common = sorted(ranks_a & ranks_b)
    if len(common) == 1:
        return common[0]
    have = f"{a} has rank {joined(sorted(ranks_a))}, {b} has rank {joined(sorted(ranks_b))}"
    if ranks_a == ranks_b:
        have = f"there are logs of ranks {joined(common)}"
    if common:
        raise InputError(f"{have}; choose one with --rank N")
    raise InputError(f"no rank in common: {have}; name the two logs themselves")


def _of_rank(logs: list[FoundLog], rank: int, folder: str) -> list[FoundLog]:
    chosen = [f for f in logs if f.rank == rank]
    if not chosen:
        raise InputError(f"{folder} has no log of rank {rank}, only of rank {joined(sorted({f.rank for f in logs}))}")
    return chosen


def _choose_step(one: list[FoundLog], other: list[FoundLog], a: str, b: str) -> int | None:
    """Return the step to compare; None when each side has exactly one log, whatever its step."""
    if len(one) == len(other) == 1:
        steps = [{f.step for f in logs if f.step is not None} for logs in (one, other)]
        return common_step(steps, (a, b)) if all(steps) else None
    common = {f.step for f in one if f.step is not None} & {f.step for f in other}
    if len(common) == 1:
        return common.pop()
    told = "; ".join(f"{side}: {joined(_places(logs))}" for side, logs in ((a, one), (b, other)))
    raise InputError(f"several captured steps; name one of each side ({told})")


def _with_step(logs: list[FoundLog], step: int | None) -> str:
    return str(next(f.path for f in logs if step is None or f.step == step))


def _places(logs: list[FoundLog]) -> list[str]:
    return [str(f.path.parent) for f in logs]


def joined(items: Sequence[object]) -> str:
    """Join as `1`, `1 and 2`, `1, 2, 3 and 4`; shorten a long list to its ends."""
    texts = [str(i) for i in items]
    if len(texts) > 8:
        texts = [*texts[:4], "…", texts[-1]]
        return f"{', '.join(texts)} ({len(items)} in all)"
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def _name_parts(path: str) -> list[str]:
    if path == STDIN:
        return ["stdin"]
    parts = list(Path(os.path.abspath(path)).parts)
    parts[-1] = re.sub(r"(\.log)?(\.gz)?$", "", parts[-1])
    return parts


def _run_name(parts: list[str]) -> str | None:
    """Return the last component that identifies the run, else the last one."""
    return next((p for p in reversed(parts) if not _GENERIC_NAME.fullmatch(p)), parts[-1] if parts else None)
