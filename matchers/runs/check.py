"""Check one run against itself: read the logs of all ranks, make the checks, put the first cause first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from matchers.errors import LogError
from matchers.files.cache_folder import CacheFolder
from matchers.logs.cache import read_cached
from matchers.logs.op_log import OpLog
from matchers.logs.parser import Progress
from matchers.ops.json_values import named_integers
from matchers.runs.collective_results import check_collective_results
from matchers.runs.data import check_data
from matchers.runs.finding import Check, CheckedRun, Finding, Made, Unmade
from matchers.runs.finite import check_finite, check_recompute
from matchers.runs.flight_recorder.check import check_dumps, read_dumps
from matchers.runs.gradients import Gradients, check_odd_one_out
from matchers.runs.order import in_order
from matchers.runs.other_files import other_files
from matchers.runs.placed import check_placed
from matchers.runs.rank_logs import RankLogs
from matchers.runs.replicas import Replication, check_replicas
from matchers.runs.replicated import check_replicated_stays
from matchers.runs.run import MAX_WORLD, Run
from matchers.runs.same_collectives import check_same_collectives
from matchers.runs.same_program import check_same_program
from matchers.runs.trained import check_after_step, check_trained, without_gradient

__all__ = ["check_logs", "check_run"]


def check_run(run: Run, *, cache: CacheFolder | None = None, progress: Progress | None = None) -> CheckedRun:
    """Read the logs of a run and check it.

    A log that cannot be read is a rank that is missing. Dumps of the flight recorder beside the logs are checked, too.

    Raises:
        LogError: none can be read.
    """
    if run.folder and not run.paths:
        return _with_dumps(CheckedRun(run, (), (), ()))
    logs: dict[int, OpLog] = {}
    unreadable: dict[int, str] = {}
    for done, (rank, path) in enumerate(run.paths.items()):
        if progress is not None:
            progress(f"reading rank {rank}", done / (len(run.paths) + 1))
        try:
            logs[rank] = read_cached(path, cache, step=run.step)
        except LogError as error:
            unreadable[rank] = str(error)
    if not logs:
        raise LogError(next(iter(unreadable.values())))
    if progress is not None:
        progress("checking", len(run.paths) / (len(run.paths) + 1))
    return _with_dumps(check_logs(run, logs, unreadable))


def _with_dumps(checked: CheckedRun) -> CheckedRun:
    """What the dumps in the folder of a run show comes first: it is what has ended it."""
    if not checked.run.folder:
        return checked
    folder = Path(checked.run.folder)
    dumps, unmade = read_dumps(folder)
    said = [*check_dumps(dumps), *unmade]
    return replace(
        checked,
        run=replace(checked.run, dumps={rank: dump.path for rank, dump in dumps.items()}),
        findings=(*(one for one in said if isinstance(one, Finding)), *checked.findings),
        made=(*checked.made, *(one for one in said if isinstance(one, Made))),
        unmade=(*checked.unmade, *(one for one in said if isinstance(one, Unmade))),
        notes=(*checked.notes, *other_files(folder)),
    )


def check_logs(run: Run, logs: Mapping[int, OpLog], unreadable: Mapping[int, str] | None = None) -> CheckedRun:
    """Check a run whose logs were read; `unreadable`: why others could not be."""
    run = _described(run, logs, unreadable or {})
    ranks = RankLogs(run, logs)
    said = list(_checks(ranks))
    made = Counter[tuple[Check, str]]()
    for one in said:
        if isinstance(one, Made):
            made[one.check, one.what] += one.many
    return CheckedRun(
        run=run,
        findings=in_order([one for one in said if isinstance(one, Finding)]),
        made=tuple(Made(check, many, what) for (check, what), many in sorted(made.items())),
        unmade=tuple(dict.fromkeys(one for one in said if isinstance(one, Unmade))),
        notes=tuple(without_gradient(ranks)),
    )


def _checks(ranks: RankLogs) -> Iterator[Finding | Made | Unmade]:
    gradients = Gradients(ranks)
    yield from check_data(ranks, gradients)
    replication = Replication(ranks, gradients)
    yield from check_replicas(ranks, replication)
    yield from check_placed(ranks)
    yield from check_same_collectives(ranks)
    yield from check_same_program(ranks)
    yield from check_finite(ranks)
    yield from check_collective_results(ranks)
    yield from check_recompute(ranks)
    yield from check_replicated_stays(ranks)
    yield from check_trained(ranks, gradients)
    yield from check_odd_one_out(gradients)
    yield from check_after_step(ranks, replication, gradients)


def _described(run: Run, logs: Mapping[int, OpLog], unreadable: Mapping[int, str]) -> Run:
    """The run with what its logs say of it."""
    infos = {rank: log.header.run for rank, log in logs.items()}
    sizes = [size for info in infos.values() if type(size := info.get("world_size")) is int]
    world = max(sizes, default=None)
    cut = {rank: log.header.incomplete or "it is cut off" for rank, log in logs.items() if log.complete is False}
    mesh = next((mesh for info in infos.values() if isinstance(mesh := info.get("mesh"), dict)), {})
    coordinates = {rank: named_integers(info.get("mesh_coordinates")) for rank, info in infos.items()}
    missing = tuple(rank for rank in range(min(world or 0, MAX_WORLD)) if rank not in run.paths)
    steps = {step for info in infos.values() if type(step := info.get("step")) is int}
    return replace(
        run,
        step=steps.pop() if len(steps) == 1 else run.step,
        world_size=world,
        mesh=named_integers(mesh),
        coordinates=coordinates if all(coordinates.values()) else {},
        missing=missing if len(run.paths) > 1 else (),
        cut={**cut, **unreadable},
    )
