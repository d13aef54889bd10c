"""Logs of runs, captured side by side in processes of their own and kept in a folder.

`python -m tests.truth.captures FOLDER < RUNS` is one rank of runs over several: a line per run, its settings as JSON.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path

from tests.truth.run import Run

__all__ = ["capture_all", "log_of"]

_REPOSITORY = Path(__file__).parents[2]
_PROCESSES = 2


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
    alone = [run for run in missing if run.ranks == 1]
    together = [run for run in missing if run.ranks > 1]
    if alone and processes > 1:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(processes, context, initializer=_quiet) as pool:
            # runs of one form next to each other: what torch.compile imports is imported once
            list(pool.map(_record, alone, [folder] * len(alone), chunksize=4))
    else:
        for run in alone:
            _record(run, folder)
    if together:
        _launch(together, folder)


def _quiet() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def _record(run: Run, folder: Path, rank: int = 0) -> None:
    """Capture one run; the log has its name only when it is whole."""
    import torch

    from tests.truth.loop import record

    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    path = log_of(run, folder, rank)
    part = path.with_suffix(".part")
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            record(run, part)
    except Exception as error:
        raise RuntimeError(f"{run.name}: {type(error).__name__}: {error}\n{told.getvalue()}") from error
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)
    part.rename(path)


def _launch(runs: Sequence[Run], folder: Path) -> None:
    """Start two ranks that go through the runs one after the other."""
    lines = "".join(json.dumps(dataclasses.asdict(run)) + "\n" for run in runs)
    with tempfile.TemporaryDirectory() as meeting:
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(_REPOSITORY),
            "TRUTH_MEETING": f"file://{meeting}/store",
        }
        command = [sys.executable, "-m", "tests.truth.captures", str(folder)]
        ranks = [
            subprocess.Popen(
                command,
                cwd=_REPOSITORY,
                env={**environment, "RANK": str(rank), "WORLD_SIZE": "2"},
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        for rank in ranks:
            assert rank.stdin is not None
            rank.stdin.write(lines)
            rank.stdin.close()
            rank.stdin = None
        errors = [rank.communicate()[1] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise RuntimeError("\n".join(text[-3000:] for text in errors))


def _rank(folder: Path) -> None:
    from datetime import timedelta

    import torch.distributed as dist

    rank = int(os.environ["RANK"])
    dist.init_process_group(
        "gloo",
        init_method=os.environ["TRUTH_MEETING"],
        rank=rank,
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=timedelta(seconds=60),
    )
    for line in sys.stdin:
        _record(Run(**json.loads(line)), folder, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    _rank(Path(sys.argv[1]))
