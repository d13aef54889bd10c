"""Run tasks over an executor: the results as they come, whatever happens to a process."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, as_completed, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

__all__ = ["in_executor", "in_processes"]

T = TypeVar("T")
R = TypeVar("R")


def in_executor(
    work: Callable[[T], R], tasks: Sequence[T], executor: Executor
) -> Generator[tuple[T, R | Exception], None, None]:
    """Run all tasks in an executor that survives its workers, as Dask's; yield each with its result or its error."""
    waiting: dict[Future[R], T] = {executor.submit(work, task): task for task in tasks}
    try:
        for future in as_completed(waiting):
            result = _outcome(future)
            yield waiting[future], result
    finally:
        for future in waiting:
            future.cancel()


def in_processes(
    work: Callable[[T], R], tasks: Sequence[T], workers: int, start: Callable[[], None] | None = None
) -> Generator[tuple[T, R | Exception], None, None]:
    """Run tasks in processes of this machine; yield each with its result, or what it raised.

    A process that is killed breaks its pool. The tasks that were under way run again, one by one, and the one that
    breaks a pool of its own has a `BrokenProcessPool` as its result. With one worker they run in this process.

    Args:
        start: called in each process before anything else is imported.
    """
    if min(workers, len(tasks)) <= 1:
        yield from ((task, _called(work, task)) for task in tasks)
        return
    waiting = deque(tasks)
    while waiting:
        suspects: list[T] = []
        for task, result in _in_pool(work, waiting, workers, start):
            if isinstance(result, BrokenProcessPool):
                suspects.append(task)
            else:
                yield task, result
        for task in suspects:
            yield from _in_pool(work, deque([task]), 1, start)


def _in_pool(
    work: Callable[[T], R], waiting: deque[T], workers: int, start: Callable[[], None] | None
) -> Generator[tuple[T, R | Exception], None, None]:
    """Run tasks in one pool, as many at a time as it has workers; once it breaks, the others stay in `waiting`."""
    # a fresh interpreter: what a fork would copy may hold locks
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), start)
    running: dict[Future[R], T] = {}
    broken = False
    try:
        while running or (waiting and not broken):
            while waiting and not broken and len(running) < workers:
                task = waiting.popleft()
                try:
                    running[pool.submit(work, task)] = task
                except BrokenProcessPool:
                    waiting.appendleft(task)
                    broken = True
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                result = _outcome(future)
                broken |= isinstance(result, BrokenProcessPool)
                yield running.pop(future), result
        pool.shutdown()
    except BaseException:
        # the user gave up: nothing is left behind, nor the pool's thread, which races the end of the interpreter
        for process in multiprocessing.active_children():
            process.kill()
        pool.shutdown(cancel_futures=True)
        raise


def _outcome(future: Future[R]) -> R | Exception:
    error = future.exception()
    if isinstance(error, Exception):
        return error
    return future.result()


def _called(work: Callable[[T], R], task: T) -> R | Exception:
    try:
        return work(task)
    except Exception as error:  # noqa: BLE001 - as in a process: one task that fails is not the end of the others
        return error
