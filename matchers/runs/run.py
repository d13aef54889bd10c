"""A run as found on disk: a log per rank, of one captured step."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from matchers.errors import InputError, LogError
from matchers.logs.devices import refuse_device
from matchers.logs.head import captured_step
from matchers.logs.imported.files import FoundLog, imported_logs

__all__ = ["LOG_NAME", "MAX_WORLD", "FoundLog", "Run", "common_step", "find_logs", "find_run", "find_runs", "has_steps",
    "is_run", "of_step", "rank_in"]  # fmt: skip

MAX_WORLD = 1 << 16
"""Ranks of which those without a log are named."""
LOG_NAME = re.compile(r"rank_(\d+)_activations\.log(\.gz)?")
_STEP_NAME = re.compile(r"step_(\d+)")
_NO_STEP = "it has no folders step_S, and its logs do not say their step"


@dataclass(frozen=True, slots=True)
class Run:
    """The logs of one step of a run.

    Attributes:
        name: of the run, for display.
        paths: rank → path of its log, ascending; a single log has one.
        step: the captured step; None if the logs do not say.
        stage: whose logs these are; empty for those of a run without stages.
        world_size: number of ranks that the logs name; None if they do not say.
        mesh: sizes of the dimensions of the device mesh by name; empty if unknown.
        coordinates: rank → index along each dimension of the mesh; empty if unknown.
        missing: ranks of the world without a log.
        cut: rank → why its log is not whole.
        folder: where the logs lie, or dumps of torch's flight recorder alone; empty for a single log.
        dumps: rank → path of its dump of the flight recorder.
    """

    name: str
    paths: Mapping[int, str]
    step: int | None = None
    stage: str = ""
    world_size: int | None = None
    mesh: Mapping[str, int] | None = None
    coordinates: Mapping[int, Mapping[str, int]] | None = None
    missing: tuple[int, ...] = ()
    cut: Mapping[int, str] | None = None
    folder: str = ""
    dumps: Mapping[int, str] | None = None


def find_logs(folder: Path, name: re.Pattern[str] = LOG_NAME, *, stage: str | None = None) -> list[FoundLog]:
    """Find the logs of a run by step and rank: in the folder, in `numerics/`, and in `step_S/` of either.

    Where there are none, those of another tool.

    Args:
        name: of a log, with the rank as its first group.
        stage: of several, each of which has logs of its own.

    Raises:
        OSError: the folder cannot be read.
        InputError: two logs are of one rank and step, a name does not tell its rank, or `stage` has to choose one of
            several, or is none of them.
    """
    found: dict[tuple[int, int], FoundLog] = {}
    for base in (folder, folder / "numerics"):
        if not base.is_dir():
            continue
        before = len(found)
        for place, step in _places(base):
            for path in sorted(place.iterdir()):
                rank = rank_in(path, name)
                if rank is None or not path.is_file():
                    continue
                other = found.setdefault((-1 if step is None else step, rank), FoundLog(path, rank, step))
                if other.path != path:
                    raise InputError(
                        f"{other.path} and {path} are both of rank {rank}: remove or rename one, or name the log itself"
                    )
        if 0 < before < len(found):
            raise InputError(f"{folder} and {base} both have logs: name the one that is meant, or a log itself")
    if not found and name is LOG_NAME:
        return _of_stage(imported_logs(folder), stage, folder)
    return _of_stage([found[at] for at in sorted(found)], stage, folder)


def _of_stage(found: Sequence[FoundLog], stage: str | None, folder: Path) -> list[FoundLog]:
    stages = sorted({log.stage for log in found})
    if stage is None and len(stages) > 1:
        raise InputError(f"{folder}: has logs of several stages ({', '.join(stages)}); choose one with --stage NAME")
    if found and stage not in (None, *filter(None, stages)):
        there = f"its stages are {', '.join(stages)}" if any(stages) else "its logs are not in folders of stages"
        raise InputError(f"{folder}: no logs of stage {stage}; {there}")
    return [log for log in found if stage in (None, log.stage)]


def is_run(path: str) -> bool:
    """True for a folder of logs; False for a log, which of some tools is a folder."""
    with suppress(OSError, InputError):
        return os.path.isdir(path) and [log.path for log in find_logs(Path(path))] != [Path(path)]
    return True


def rank_in(path: Path, name: re.Pattern[str] = LOG_NAME) -> int | None:
    """Return the rank in the name of a log; None for any other file.

    Raises:
        InputError: the digits are of another script.
    """
    return None if (match := name.fullmatch(path.name)) is None else _number(match[1], path)


def _number(digits: str, path: Path) -> int:
    if not digits.isascii():
        raise InputError(f"{path}: the number in this name is not written with the digits 0 to 9; rename it")
    return int(digits)


def _places(base: Path) -> Iterator[tuple[Path, int | None]]:
    yield base, None
    found: dict[int, Path] = {}
    for folder in sorted(base.iterdir()):
        if (m := _STEP_NAME.fullmatch(folder.name)) and folder.is_dir():
            step = _number(m[1], folder)
            if (other := found.setdefault(step, folder)) != folder:
                raise InputError(f"{other} and {folder} are both of step {step}: remove or rename one")
            yield folder, step


def find_run(path: str, *, step: int | None = None, stage: str | None = None, dumps: bool = False) -> Run:
    """Find the logs of a run: those of a folder, or a log by itself.

    Args:
        step: of several captured steps.
        stage: of several stages.
        dumps: a folder without logs is a run, too, if dumps of torch's flight recorder lie there.

    Raises:
        InputError: no log is there, or `step` or `stage` has to choose one of several.
    """
    try:
        status = os.stat(path)
        refuse_device(path, status)
        if not stat.S_ISDIR(status.st_mode):
            if stage is not None:
                raise InputError(f"{path}: is a file: --stage chooses logs of a folder")
            log = FoundLog(Path(path), rank_in(Path(path)) or 0, None)
            if step is not None and stat.S_ISREG(status.st_mode):  # a pipe can be read once
                of_step([log], step, path)
            return Run(log.path.name, {log.rank: path}, step=step)
        found = find_logs(Path(path), stage=stage)
    except OSError as error:
        raise InputError(f"{error.filename or path}: {error.strerror or error}") from None
    except ValueError as error:  # a zero byte in the name
        raise InputError(f"{path!r}: {error}") from None
    if not found:
        from matchers.runs.flight_recorder.dumps import dump_files  # what reads them, only here

        if dumps and dump_files(Path(path)):
            return Run(Path(os.path.abspath(path)).name, {}, folder=path)
        raise InputError(f"{path}: no rank_N_activations.log here, nor in numerics/ or step_S/")
    found = found if step is None else of_step(found, step, path)
    if len({log.step for log in found}) > 1:
        raise InputError(f"{path} has several captured steps ({_listed(_steps(found))}); choose one with --step S")
    paths = {log.rank: str(log.path) for log in found}
    return Run(
        Path(os.path.abspath(path)).name,
        paths,
        step=step if step is not None else found[0].step,
        stage=found[0].stage,
        folder=path,
    )


def find_runs(a: str, b: str, *, step: int | None = None, stage: str | None = None) -> tuple[Run, Run]:
    """Find the logs of two runs, of the captured step that both have.

    Raises:
        InputError: as `find_run`, or `step` has to choose one of several.
    """
    if step is not None:
        return find_run(a, step=step, stage=stage), find_run(b, step=step, stage=stage)
    steps = [_steps_of(path, stage) for path in (a, b)]
    if all(steps) or any(len(of_run) > 1 for of_run in steps):
        step = common_step(steps, (a, b))
    one, other = (
        find_run(path, step=step if of_run else None, stage=stage) for path, of_run in zip((a, b), steps, strict=True)
    )
    return one, other


def common_step(steps: Sequence[Collection[int]], paths: tuple[str, str]) -> int:
    """Return the one captured step that both runs have; of a run without folders of steps, any is taken.

    Raises:
        InputError: there is none, or several.
    """
    common = set.intersection(*(set(of_run) for of_run in steps if of_run))
    if len(common) == 1:
        return common.pop()
    told = "; ".join(f"{path}: {_listed(of_run) or 'no step_S'}" for path, of_run in zip(paths, steps, strict=True))
    if not common:
        raise InputError(f"no captured step in common ({told}); to compare two steps, name the folder step_S of each")
    raise InputError(f"several captured steps ({told}); choose one with --step S")


def has_steps(path: str) -> bool:
    """Return True for a log that may have several steps within it, of which its reader takes one."""
    from matchers.logs.imported.formats import has_steps as told  # numpy, which most choices need not

    return told(path)


def of_step(found: Sequence[FoundLog], step: int, folder: str) -> list[FoundLog]:
    """Return the logs of a step: those in its folder; of a run without such folders, all if they are of that step.

    Raises:
        InputError: there are none, or the logs do not say their step.
    """
    if steps := _steps(found):
        if step not in steps:
            there = "is step" if len(steps) == 1 else "are steps"
            raise InputError(f"{folder}: no log of step {step}; there {there} {_listed(steps)}")
        return [log for log in found if log.step == step]
    if all(has_steps(str(log.path)) for log in found):
        return list(found)  # whoever reads them takes the step
    try:
        said = {captured_step(str(log.path)) for log in found}
    except (OSError, LogError):
        said = {None}  # whoever reads the logs says why
    if said != {step}:
        told = _listed(one for one in said if one is not None)
        raise InputError(f"{folder}: no log of step {step}; {f'its logs say step {told}' if told else _NO_STEP}")
    return list(found)


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


def _steps(found: Iterable[FoundLog]) -> set[int]:
    """The captured steps in folders of their own."""
    return {log.step for log in found if log.step is not None}


def _steps_of(path: str, stage: str | None) -> set[int]:
    try:
        return _steps(find_logs(Path(path), stage=stage))
    except (OSError, ValueError):
        return set()  # `find_run` says why
