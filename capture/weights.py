"""Log of weights: every parameter, its gradient and its optimizer state after each chosen step.

Two such logs show at which step, and in which parameter first, two runs diverge (docs/weights.md).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from .local_parts import LocalParts
from .log_format import json_line, render_weights_footer, render_weights_header
from .log_writer import summary_fields
from .modules import ModuleNames
from .places import open_own
from .statistics import Statistics

__all__ = ["WeightsLog", "rest_parts", "weight_parts"]


def weight_parts(names: ModuleNames, optimizers: Collection[Any]) -> Iterator[tuple[str, str, torch.Tensor]]:
    """Yield (parameter, part, tensor) of the optimizers' parameters, or of all without one, in the models' order.

    The part is `grad`, `weight`, or the key in the optimizer's state (`exp_avg`), in the order in which a step makes
    them.
    """
    owned = {id(parameter) for _, parameter in _of_optimizers(optimizers)}
    seen: set[int] = set()
    # parameters of no known model come last, by their place in the optimizer
    for name, parameter in [*names.parameters(), *_of_optimizers(optimizers)]:
        if id(parameter) in seen or (owned and id(parameter) not in owned):
            continue
        seen.add(id(parameter))
        if parameter.grad is not None:
            yield name, "grad", parameter.grad
        yield name, "weight", parameter
        for optimizer in optimizers:
            # `get`: the state is a defaultdict, in which indexing would create an entry
            for part, value in (optimizer.state.get(parameter) or {}).items():
                if isinstance(value, torch.Tensor):
                    yield name, str(part), value


def rest_parts(names: ModuleNames, trained: Collection[int]) -> Iterator[tuple[str, str, torch.Tensor]]:
    """Yield (name, part, tensor) of what no optimizer owns: buffers, averaged copies, target networks."""
    for name, parameter in names.parameters():
        if id(parameter) not in trained:
            yield name, "weight", parameter
    for name, buffer in names.buffers():
        yield name, "buffer", buffer


def _of_optimizers(optimizers: Collection[Any]) -> Iterator[tuple[str, torch.Tensor]]:
    for optimizer in optimizers:
        for g, group in enumerate(optimizer.param_groups):
            for p, parameter in enumerate(group["params"]):
                yield f"group{g}.{p}", parameter


class WeightsLog:
    """A log of weights, appended one whole step at a time, so that a killed run leaves a valid log.

    Args:
        path: path of the file by rank. An old one is replaced when the first step is recorded.
        names: names of the parameters.
        rank: of this process; where it simulates several ranks, each gets its own file.
        steps: the steps to record, None for every one.
        sketch: record sketches (docs/sketch.md), which show the size of a difference.
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
        """Files written so far."""
        return [file.path for file in self._files.values()]

    def wants(self, step: int) -> bool:
        """Return True for a step to record."""
        return self._steps is None or step in self._steps

    def record(self, step: int, optimizers: Collection[Any] = ()) -> None:
        """Append the current parameters of some optimizers, if the step is one to record.

        Several optimizers are recorded together, or each after it has stepped. Parameters without an optimizer do not
        change, and are recorded only when no optimizer is given.

        Call it after the optimizers have stepped, while gradients still exist (from a post-step hook). Changes no
        tensor and draws no random number; waits for the devices.

        Raises:
            OSError: the file cannot be written. It then ends before this step.
        """
        if self.wants(step):
            self._append(step, weight_parts(self._names, optimizers))

    def record_rest(self, step: int, trained: Collection[int]) -> None:
        """Append what no optimizer owns, when the step is over.

        Args:
            step: its number.
            trained: ids of the parameters that optimizers own.

        Raises:
            OSError: as `record`.
        """
        if self.wants(step):
            self._append(step, rest_parts(self._names, trained))

    def record_losses(self, step: int, losses: Sequence[float]) -> None:
        """Append what the backward passes of a step began with, when the step is over.

        Raises:
            OSError: as `record`.
        """
        if losses and self.wants(step):
            # JSON has no NaN
            numbers = [loss if math.isfinite(loss) else str(loss) for loss in losses]
            for file in self._files.values():
                file.append(step, json_line({"step": step, "losses": numbers}) + "\n")

    def _append(self, step: int, tensors: Iterable[tuple[str, str, torch.Tensor]]) -> None:
        statistics = Statistics(sketch=self._sketch)
        measured = [(name, part, LocalParts(tensor, statistics, sketch=self._sketch)) for name, part, tensor in tensors]
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
        """Return the ranks whose local tensors are in this process."""
        simulated = {rank for parts in measured for rank in parts.ranks or ()}
        return tuple(sorted(simulated)) or (self._rank,)

    def _file(self, rank: int) -> _StepFile:
        file = self._files.get(rank)
        if file is None:
            file = self._files[rank] = _StepFile(self._path(rank), {**self._run, "rank": rank})
        return file

    def close(self) -> None:
        """Write the footers; call it at the end of the run.

        Raises:
            OSError: a file cannot be written.
        """
        for file in self._files.values():
            file.close()
        self._files = {}


class _StepFile:
    """The file of one rank. Each step is one write; a failed write is truncated away."""

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
            if not self._steps:
                # not emptied: it may be a link, or have another name in a copy of the folder
                self.path.unlink(missing_ok=True)
            # unbuffered and open only for the write: nothing is lost or written twice if the process forks or dies
            with open(self.path, "ab" if self._steps else "xb", buffering=0, opener=open_own) as file:
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
    """Write all bytes: an unbuffered write may be partial."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]
