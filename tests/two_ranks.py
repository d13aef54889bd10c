"""Two gloo ranks that are started once for all tests: what they print, captured and not, and what they log."""

from __future__ import annotations

import fcntl
import gc
import json
import multiprocessing
import os
import socket
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.capture.logs import Log, read_logs
from tests.conftest import REPOSITORY

if TYPE_CHECKING:
    from torch.distributed import TCPStore

    from tests.forks import Forks

__all__ = [
    "CAPTURED",
    "MEETING",
    "PLAIN",
    "TwoRanks",
    "fork_two_ranks",
    "free_port",
    "made_once",
    "meetings_of",
    "prepare_to_fork",
    "run_two_ranks",
    "start_two_ranks",
]

CAPTURED = (
    "--parallel fsdp2",
    "--parallel fsdp2 --ac selective",
    "--parallel fsdp2 --experts 4",
    "--parallel fsdp2 --bug stale-gather",
    "--parallel fsdp2+tp",
    "--parallel tp",
    "--parallel ddp --micro-batches 2",
)
"""Arguments that the training example runs with twice, without a capture and with one."""
PLAIN = ("--parallel ddp",)
"""Without one only."""


class TwoRanks:
    """What `tests/capture/ranks.py` found on each of two ranks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: list[dict[str, Any]] = [
            json.loads((folder / f"rank_{rank}.json").read_text(encoding="utf-8")) for rank in range(2)
        ]

    def printed(self, variant: str) -> list[list[str]]:
        """Per rank, what a run of the example printed without a capture and, where it was, with one."""
        return [found[variant] for found in self._found]

    def stock(self, kind: str) -> list[dict[str, list[float]]]:
        """Per rank, the hashes of DebugMode by operation."""
        return [dict(found[f"stock {kind}"]) for found in self._found]

    def path(self, variant: str, rank: int) -> Path:
        """The log of one rank."""
        return self._folder / variant / "numerics" / f"rank_{rank}_activations.log"

    def logs(self, variant: str) -> list[Log]:
        """Per rank, the log."""
        return list(read_logs(self._folder / variant).values())


def start_two_ranks(tmp_path_factory: pytest.TempPathFactory, forked: Forks) -> TwoRanks:
    """The two ranks, started by the first test worker that asks for them."""
    run = partial(run_two_ranks, forked, "tests.capture.ranks")
    return TwoRanks(made_once(tmp_path_factory, "two_ranks", "rank_1.json", run))


def made_once(tmp_path_factory: pytest.TempPathFactory, name: str, last: str, make: Callable[[Path], None]) -> Path:
    """A folder that all test workers share, made by the first that asks for it.

    Args:
        name: of the folder.
        last: the file that `make` writes last.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / last).exists():
            make(folder)
    return folder


def run_two_ranks(forked: Forks, module: str, folder: Path) -> None:
    """Run `python -m MODULE FOLDER`, which forks the two ranks."""
    done = forked(["-m", module, str(folder)], REPOSITORY, {**MEETING, "WORLD_SIZE": "2"})
    assert done.returncode == 0, done.stderr[-4000:]


MEETING = {"MASTER_ADDR": "localhost", "TORCHELASTIC_USE_AGENT_STORE": "True"}
"""Variables of ranks that meet at one of `meetings_of`."""


def meetings_of(many: int) -> list[TCPStore]:
    """Places where ranks of so many runs meet, each with a port of its own.

    They are open before any rank comes: one that comes before rank 0 has opened a place of its own waits half a second.
    """
    from torch import distributed

    return [distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False) for _ in range(many)]


def prepare_to_fork() -> None:
    """Import what is slow to import once, not in each rank, and let the collection of garbage pass it over."""
    for name in ("torch._inductor", "torch.distributed.fsdp", "torch.distributed.tensor.parallel"):
        import_module(name)
    gc.freeze()


def fork_two_ranks(run: Callable[[Sequence[int]], None], times: int) -> None:
    """Call a function as each of two ranks, with the ports where they meet so many times."""

    def as_rank(rank: int) -> None:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        run([meeting.port for meeting in meetings])

    prepare_to_fork()
    meetings = meetings_of(times)
    ranks = [multiprocessing.get_context("fork").Process(target=as_rank, args=(rank,)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    codes = [rank.exitcode for rank in ranks]
    assert codes == [0, 0], codes


def free_port() -> int:
    """A port of this machine that is likely to be free."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        # below the range that the system gives away
        return 10_000 + int(probe.getsockname()[1]) % 20_000
