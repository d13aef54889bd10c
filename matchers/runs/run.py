"""A run as found on disk: a log per rank, of one captured step."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from matchers.errors import InputError
from matchers.logs.devices import refuse_device

__all__ = ["LOG_NAME", "FoundLog", "Run", "find_logs", "find_run", "find_runs"]

LOG_NAME = re.compile(r"rank_(\d+)_activations\.log(\.gz)?")
_STEP_NAME = re.compile(r"step_(\d+)")


@dataclass(frozen=True, slots=True)
class FoundLog:
    """A log in the folder of a run; `step` is None where the folder has one captured step only."""

    path: Path
    rank: int
    step: int | None


@dataclass(frozen=True, slots=True)
class Run:
    """The logs of one step of a run.

    Attributes:
        name: of the run, for display.
        paths: rank → path of its log, ascending; a single log has one.
        step: the captured step; None if the logs do not say.
        world_size: number of ranks that the logs name; None if they do not say.
        mesh: sizes of the dimensions of the device mesh by name; empty if unknown.
        coordinates: rank → index along each dimension of the mesh; empty if unknown.
        missing: ranks of the world without a log.
        cut: rank → why its log is not whole.
    """

    name: str
    paths: Mapping[int, str]
    step: int | None = None
    world_size: int | None = None
    mesh: Mapping[str, int] | None = None
    coordinates: Mapping[int, Mapping[str, int]] | None = None
    missing: tuple[int, ...] = ()
    cut: Mapping[int, str] | None = None


def find_logs(folder: Path, name: re.Pattern[str] = LOG_NAME) -> list[FoundLog]:
    """Find the logs of a run by step and rank: in the folder, in `numerics/`, and in `step_S/` of either.

    Args:
        name: of a log, with the rank as its first group.

    Raises:
        OSError: the folder cannot be read.
    """
    found: dict[tuple[int, int], FoundLog] = {}
    for base in (folder, folder / "numerics"):
        if not base.is_dir():
            continue
        for place, step in _places(base):
            # sorted: the plain file comes before its own .gz, and wins
            for path in sorted(place.iterdir()):
                if (m := name.fullmatch(path.name)) and path.is_file():
                    at = (-1 if step is None else step, int(m[1]))
                    found.setdefault(at, FoundLog(path, int(m[1]), step))
        if found:
            break
    return [found[at] for at in sorted(found)]


def _places(base: Path) -> Iterator[tuple[Path, int | None]]:
    yield base, None
    for folder in sorted(base.iterdir()):
        if (m := _STEP_NAME.fullmatch(folder.name)) and folder.is_dir():
            yield folder, int(m[1])


def find_run(path: str, *, step: int | None = None) -> Run:
    """Find the logs of a run: those of a folder, or a log by itself.

    Args:
        step: of several captured steps.

    Raises:
        InputError: no log is there, or `step` has to choose one of several.
    """
    try:
        status = os.stat(path)
        refuse_device(path, status)
        if not stat.S_ISDIR(status.st_mode):
            named = LOG_NAME.fullmatch(Path(path).name)
            return Run(Path(path).name, {int(named[1]) if named else 0: path})
        found = find_logs(Path(path))
    except OSError as error:
        raise InputError(f"{error.filename or path}: {error.strerror or error}") from None
    except ValueError as error:  # a zero byte in the name
        raise InputError(f"{path!r}: {error}") from None
    steps = sorted({log.step for log in found if log.step is not None})
    if step is not None:
        found = [log for log in found if log.step == step]
    if not found:
        told = f" of step {step}; there are steps {', '.join(map(str, steps))}" if step is not None and steps else ""
        raise InputError(f"{path}: no rank_N_activations.log here, nor in numerics/ or step_S/{told}")
    if len({log.step for log in found}) > 1:
        raise InputError(f"{path} has several captured steps ({', '.join(map(str, steps))}); choose one with --step S")
    return Run(Path(os.path.abspath(path)).name, {log.rank: str(log.path) for log in found})


def find_runs(a: str, b: str, *, step: int | None = None) -> tuple[Run, Run]:
    """Find the logs of two runs, of the captured step that both have.

    Raises:
        InputError: as `find_run`, or `step` has to choose one of several.
    """
    steps = [_steps(path) for path in (a, b)]
    if step is None and any(len(of_run) > 1 for of_run in steps):
        common = set.intersection(*(of_run for of_run in steps if of_run))
        if len(common) != 1:
            told = "; ".join(
                f"{path}: {', '.join(map(str, sorted(of_run)))}" for path, of_run in zip((a, b), steps, strict=True)
            )
            raise InputError(f"several captured steps ({told}); choose one with --step S")
        step = common.pop()
    one, other = (find_run(path, step=step if of_run else None) for path, of_run in zip((a, b), steps, strict=True))
    return one, other


def _steps(path: str) -> set[int]:
    """The captured steps in folders of their own."""
    try:
        return {log.step for log in find_logs(Path(path)) if log.step is not None}
    except (OSError, ValueError):
        return set()  # `find_run` says why
