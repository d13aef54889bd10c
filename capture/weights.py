"""Weights over steps: what every parameter, its gradient and its optimizer state are after each chosen step.

Two such logs answer at which step, and in which parameter first, two runs part (docs/weights.md).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from capture.local_parts import LocalParts
from capture.log_format import json_line, render_weights_footer, render_weights_header
from capture.log_writer import summary_fields
from capture.modules import ModuleNames
from capture.statistics import Statistics

__all__ = ["WeightsLog", "weight_parts"]


def weight_parts(names: ModuleNames, optimizers: Collection[Any]) -> Iterator[tuple[str, str, torch.Tensor]]:
    """(parameter, part, tensor) of what some optimizers work on, in the order of the models; without an optimizer, of
    all parameters.

    The part is `grad`, `weight`, or the name that the optimizer's state has for it (`exp_avg`), in the order in which
    a step makes them.
    """
    owned = {id(parameter) for _, parameter in _of_optimizers(optimizers)}
    seen: set[int] = set()
    # what no known model has comes last, by its place in the optimizer
    for name, parameter in [*names.parameters(), *_of_optimizers(optimizers)]:
        if id(parameter) in seen or (owned and id(parameter) not in owned):
            continue
        seen.add(id(parameter))
        if parameter.grad is not None:
            yield name, "grad", parameter.grad
        yield name, "weight", parameter
        for optimizer in optimizers:
            # `get`: the state is a defaultdict, and asking it for what it has not makes it have it
            for part, value in (optimizer.state.get(parameter) or {}).items():
                if isinstance(value, torch.Tensor):
                    yield name, str(part), value


def _of_optimizers(optimizers: Collection[Any]) -> Iterator[tuple[str, torch.Tensor]]:
    for optimizer in optimizers:
        for g, group in enumerate(optimizer.param_groups):
            for p, parameter in enumerate(group["params"]):
                yield f"group{g}.{p}", parameter


class WeightsLog:
    """A file that grows by the lines of one step at a time, whole steps only, so that a killed run leaves a good log.

    Args:
        path: path of the file by rank. An old one is replaced when the first step is recorded.
        rank: of this process; where several ranks are simulated in it, each gets its own file.
        names: what parameters are called.
        steps: the steps to record, None for every one.
        sketch: whether to record sketches (docs/sketch.md), which give the size of a difference and not only that
            there is one.
        run: the run info of the header.
    """

    def __init__(
        self,
        path: Callable[[int], Path],
        names: ModuleNames,
        *,
        rank: int = 0,
        steps: Collection[int] | None = None,
        sketch: bool = True,
        run: Mapping[str, Any] | None = None,
    ) -> None:
        self._path = path
        self._names = names
        self._rank = rank
        self._steps = None if steps is None else frozenset(steps)
        self._sketch = sketch
        self._run = dict(run or {})
        self._files: dict[int, _StepFile] = {}

    @property
    def paths(self) -> list[Path]:
        """The files written so far."""
        return [file.path for file in self._files.values()]

    def wants(self, step: int) -> bool:
        """Whether a step is one of those to record."""
        return self._steps is None or step in self._steps

    def record(self, step: int, optimizers: Collection[Any] = ()) -> None:
        """Write what the parameters of some optimizers are now, if the step is one of those to record.

        Several optimizers are recorded together, or each when it has stepped. Parameters that no optimizer works on do
        not change, and are recorded only when no optimizer is given.

        To be called when the optimizers have stepped and gradients are still there (from a post-step hook). Changes
        no tensor and draws no random number; waits for the devices.

        Raises:
            OSError: the file cannot be written. It then ends with what was recorded before.
        """
        if not self.wants(step):
            return
        statistics = Statistics(sketch=self._sketch)
        measured = [
            (name, part, LocalParts(tensor, statistics, sketch=self._sketch))
            for name, part, tensor in weight_parts(self._names, optimizers)
        ]
        results = statistics.results()
        for rank in self._ranks(parts for _, _, parts in measured):
            lines = [
                json_line(
                    {"step": step, "parameter": name, "part": part} | summary_fields(parts.summary(rank, results))
                )
                for name, part, parts in measured
            ]
            self._file(rank).append(step, "\n".join([*lines, ""]))

    def _ranks(self, measured: Iterable[LocalParts]) -> tuple[int, ...]:
        """The ranks whose parts are in this process."""
        simulated = {rank for parts in measured for rank in parts.ranks or ()}
        return tuple(sorted(simulated)) or (self._rank,)

    def _file(self, rank: int) -> _StepFile:
        file = self._files.get(rank)
        if file is None:
            file = self._files[rank] = _StepFile(self._path(rank), {**self._run, "rank": rank})
        return file

    def close(self) -> None:
        """Write the footers; to be called at the end of the run.

        Raises:
            OSError: a file cannot be written.
        """
        for file in self._files.values():
            file.close()
        self._files = {}


class _StepFile:
    """The file of one rank. Each step is one write; what a failing one left of it is taken back."""

    def __init__(self, path: Path, run: Mapping[str, Any]) -> None:
        self.path = path
        self._steps: set[int] = set()
        self._header = render_weights_header(run)

    def append(self, step: int, text: str) -> None:
        self._write(text if self._steps else self._header + text)
        self._steps.add(step)

    def close(self) -> None:
        if self._steps:
            self._write(render_weights_footer(len(self._steps)))

    def _write(self, text: str) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # unbuffered, and open only while it is written to: nothing is lost, or written twice, when the process
            # forks or dies
            with self.path.open("ab" if self._steps else "wb", buffering=0) as file:
                size = file.seek(0, os.SEEK_END)
                try:
                    _write_all(file, text.encode())
                except BaseException:
                    file.truncate(size)
                    raise
        except OSError as error:
            reason = f"{error.strerror or error}; the log of weights ends before this step"
            raise OSError(error.errno, reason, os.fspath(self.path)) from error


def _write_all(file: Any, data: bytes) -> None:
    """An unbuffered write may take a part only."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]
