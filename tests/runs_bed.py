"""Runs of several ranks with planted faults, and what a check of one run against itself has to name in each.

`python -m tests.runs_bed FOLDER` writes the logs of all cases to FOLDER/NAME/numerics, and the table to
FOLDER/cases.json.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.conftest import EXAMPLES, REPOSITORY
from tests.two_ranks import free_port

if TYPE_CHECKING:
    import pytest

__all__ = ["CASES", "RANKS", "Case", "start_runs_bed"]

RANKS = 4
TRAIN = "--layers 2 --dim 32 --seq-len 16 --vocab 64 --steps 1 --print-state"
MEGATRON = "--steps 1 --print-state --dropout 0.1"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One run, and what is wrong with it.

    Attributes:
        name: Of the folder of its logs.
        script: In examples/.
        arguments: Without the bug.
        ranks: Number of processes.
        bug: The argument of --bug; empty in a healthy run.
        culprits: The ranks to name; empty where none is to blame more than the others.
        module: Pattern of the module, or of the parameter, to name; empty where any will do.
        op: Pattern of the operation to name.
        group: Ranks of the process group to name; empty where the fault is in none.
        source: File of examples/ whose line made the fault.
        ends_early: The run dies, so that its logs are cut off.
    """

    name: str
    script: str
    arguments: str
    ranks: int = RANKS
    bug: str = ""
    culprits: tuple[int, ...] = ()
    module: str = ""
    op: str = ""
    group: tuple[int, ...] = ()
    source: str = ""
    ends_early: bool = False

    @property
    def command(self) -> str:
        """Arguments of the script."""
        return f"{self.arguments} --bug {self.bug}" if self.bug else self.arguments


def _megatron() -> Iterator[Case]:
    grid = "--tp 2 --dp 2"
    sequence = f"{grid} --sequence-parallel"
    for name, arguments in (
        ("megatron", grid),
        ("megatron-sequence", sequence),
        ("megatron-bucket", f"{sequence} --bucket 4000"),
    ):
        yield Case(name=name, script="megatron.py", arguments=f"{MEGATRON} {arguments}")

    def case(bug: str, arguments: str = sequence, **found: object) -> Case:
        return Case(
            name=f"megatron-{bug}",
            script="megatron.py",
            arguments=f"{MEGATRON} {arguments}",
            bug=bug,
            **found,  # type: ignore[arg-type]
        )

    proj = "layers.1.attention.proj.weight"
    yield case("flipped-bit", culprits=(2,), module=proj, group=(0, 2))
    yield case("not-broadcast", module="*", source="megatron.py")
    yield case("not-reduced", module="layers.1.attention_norm.weight", group=(0, 1), source="megatron.py")
    yield case("wrong-group", module=proj, group=(0, 1), source="megatron.py")
    yield case("sum-not-mean", module=proj, group=(0, 2), source="megatron.py")
    yield case("same-batch", culprits=(2, 3), source="megatron.py")
    yield case("other-batch", culprits=(2,), source="megatron.py")
    yield case("tp-dropout", culprits=(2,), module="dropout", op="*dropout*", group=(2, 3), source="megatron.py")
    yield case("left-out", culprits=(2,), module=proj, source="megatron.py")
    yield case("corrupt-reduce-scatter", culprits=(2,), module="layers.1.attention.proj", op="*reduce_scatter*",
               group=(2, 3), source="groups.py")
    yield case("stale-gather", culprits=(2,), module="layers.1.attention.qkv", op="*all*gather*", group=(2, 3), source="groups.py")
    yield case("nan", culprits=(2,), module="layers.1", op="div", source="faults.py")


CASES: tuple[Case, ...] = (*_megatron(),)


def start_runs_bed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all cases, whose runs are made by the first test worker that asks for them."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "runs_bed"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "cases.json").exists():
            write_runs(folder)
    return folder


def write_runs(folder: Path) -> None:
    """Write the logs of all cases, and after them the table."""
    variables = {"MASTER_ADDR": "localhost", "WORLD_SIZE": str(RANKS), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "tests.examples.four_ranks", str(folder), str(free_port())]
    ranks = [
        subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
            env={**os.environ, **variables, "RANK": str(rank)},
        )
        for rank in range(RANKS)
    ]
    for rank in ranks:
        _, errors = rank.communicate(timeout=300)
        assert rank.returncode == 0, errors[-4000:]
    table = [{**asdict(case), "command": case.command} for case in CASES]
    (folder / "cases.json").write_text(json.dumps(table, indent=1), encoding="utf-8")


def main(arguments: Sequence[str]) -> None:
    """See the module."""
    folder = Path(arguments[0]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    write_runs(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
