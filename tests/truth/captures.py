"""Logs of runs, captured side by side in processes of their own and kept in a folder.

`python -m tests.truth.captures` is the ranks of runs over several (`launch`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from tests.forks import Forks
from tests.truth.run import Run

__all__ = ["as_ranks", "capture_all", "launch", "log_of", "settled", "side_by_side"]

_REPOSITORY = Path(__file__).parents[2]
_PROCESSES = 2

Item = TypeVar("Item")
Result = TypeVar("Result")


def log_of(run: Run, folder: Path, rank: int = 0) -> Path:
    """The log of a run. Its name holds a digest of the model's code: a log of other code is no log of this run."""
    suffix = f".rank{rank}" if rank else ""
    return folder / f"{run.name}.{_code(run.model)}{suffix}.log"


@cache
def _code(model: str) -> str:
    """Digest of the model and the loop."""
    here = Path(__file__).parent
    files = [here / "models" / f"{model}.py", here / "loop.py"]
    if model == "llama":
        files += sorted((_REPOSITORY / "examples").glob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:8]


def capture_all(runs: Iterable[Run], folder: Path, *, processes: int = _PROCESSES) -> None:
    """Capture the runs that have no log in the folder yet.

    Raises:
        RuntimeError: a run failed; its name and the reason.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = [run for run in dict.fromkeys(runs) if not log_of(run, folder).exists()]
    # runs of one form next to each other: what torch.compile imports is imported once
    side_by_side(_record, [run for run in missing if run.ranks == 1], folder, processes)
    if together := [run for run in missing if run.ranks > 1]:
        lines = "".join(json.dumps(dataclasses.asdict(run)) + "\n" for run in together)
        launch("tests.truth.captures", folder, lines, ranks=2)


def side_by_side(
    work: Callable[[Item, Path], Result], items: Sequence[Item], folder: Path, processes: int
) -> list[Result]:
    """What `work` makes of each item and the folder, in processes of their own unless there are few."""
    if processes < 2 or len(items) < 8:
        return [work(item, folder) for item in items]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, initializer=_quiet) as pool:
        return list(pool.map(work, items, [folder] * len(items), chunksize=4))


def _quiet() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def _record(run: Run, folder: Path, rank: int = 0) -> None:
    """Capture one run; the log has its name only when it is whole."""
    from tests.truth.loop import record

    path = log_of(run, folder, rank)
    part = path.with_suffix(".part")
    with settled(run.name):
        record(run, part)
    part.rename(path)


@contextlib.contextmanager
def settled(name: str) -> Iterator[None]:
    """One thread and deterministic algorithms, without what the capture tells.

    Raises:
        RuntimeError: something failed inside; `name` and the reason.
    """
    import torch

    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            yield
    except Exception as error:
        raise RuntimeError(f"{name}: {type(error).__name__}: {error}\n{told.getvalue()}") from error
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)


def launch(module: str, folder: Path, lines: str, ranks: int, forked: Forks | None = None) -> None:
    """Start a module whose main program is `as_ranks`: ranks that go through the lines, a run each.

    Args:
        forked: starts it in a process that has imported torch.

    Raises:
        RuntimeError: a rank failed; what the ranks said.
    """
    with tempfile.TemporaryDirectory() as meeting, contextlib.ExitStack() as stack:
        Path(meeting, "runs").write_text(lines)
        start = forked or stack.enter_context(Forks())
        done = start(["-m", module, str(folder), meeting, str(ranks)], _REPOSITORY)
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])


def as_ranks(made: Callable[[dict[str, Any], Path, int], None]) -> None:
    """Fork the ranks that `launch` asks for; each joins the process group and makes the runs, one after the other."""
    folder, meeting, ranks = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    fork = multiprocessing.get_context("fork")
    started = [fork.Process(target=_as_rank, args=(made, folder, meeting, rank, ranks)) for rank in range(ranks)]
    for process in started:
        process.start()
    for process in started:
        process.join()
    sys.exit(any(process.exitcode for process in started))


def _as_rank(
    made: Callable[[dict[str, Any], Path, int], None], folder: Path, meeting: Path, rank: int, ranks: int
) -> None:
    from datetime import timedelta

    import torch.distributed as dist

    dist.init_process_group(
        "gloo",
        init_method=f"file://{meeting}/store",
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=60),
    )
    for line in (meeting / "runs").read_text().splitlines():
        made(json.loads(line), folder, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    as_ranks(lambda run, folder, rank: _record(Run(**run), folder, rank))
