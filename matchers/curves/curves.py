"""Curves of one run, read from a log of weights, event files of TensorBoard, or lines that a trainer prints."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from matchers.curves.tensorboard import events, is_events
from matchers.errors import LogError
from matchers.logs.source import LogSource
from matchers.weights.log import read_weights
from matchers.weights.recognised import WEIGHTS

__all__ = ["Curves", "find_curves", "read_curves"]

_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_STEP: Final = re.compile(
    r"(?:^|[\s,{\[(|])[\"']?(?:global_)?(?:step|iteration|iter)[\"']?\s*[:=]?\s*(\d{1,15})\b", re.IGNORECASE
)
_NUMBER: Final = re.compile(
    r"[\"']?([A-Za-z][\w/.-]*(?:loss|norm)[\w/.-]*|loss)[\"']?\s*[:=]\s*"
    r"([-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|inf(?:inity)?))(?![\w.])",
    re.IGNORECASE,
)
_WANTED: Final = re.compile("loss|norm", re.IGNORECASE)
_KINDS: Final = {
    "loss": re.compile("loss", re.IGNORECASE),
    "grad_norm": re.compile("grad.*norm|norm.*grad", re.IGNORECASE),
}
_LONGEST: Final = 1 << 16
"""Bytes of a line that may be one of numbers."""
_EVENTS: Final = "events.out.tfevents.*"


@dataclass(slots=True)
class Curves:
    """Numbers that a run gives for its steps.

    Attributes:
        path: for messages.
        form: what was read.
        of: by name, by step: a number; `loss` and `grad_norm` where a name can only be these.
        problems: lines that could not be read, each with its place.
    """

    path: str
    form: str
    of: dict[str, dict[int, float]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, name: str, step: int, value: float) -> None:
        """Enter a number; of a step that is told twice, as after a restart, the last one counts."""
        self.of.setdefault(name, {})[step] = value


def find_curves(path: str) -> list[str]:
    """Return the files of a run that have its curves: a log of weights, or event files; a file is taken as it is.

    Raises:
        LogError: a folder has none.
    """
    if not os.path.isdir(path):
        return [path]
    folder = Path(path)
    for place in (folder, folder / "numerics"):
        for name in ("rank_0_weights.log", "rank_0_weights.log.gz"):
            if (place / name).is_file():
                return [str(place / name)]
    if found := sorted(folder.rglob(_EVENTS)):
        return list(map(str, found))
    raise LogError(f"{path}: neither a log of weights (numtui capture --weights every) nor event files of TensorBoard")


def read_curves(path: str) -> Curves:
    """Read the curves of a run.

    Raises:
        LogError: it cannot be read, or has none.
    """
    curves = Curves(path, "")
    for file in find_curves(path):
        try:
            _read(file, curves)
        except OSError as error:
            raise LogError(f"{file}: cannot be read: {error.strerror or error}") from None
    if not curves.of:
        raise LogError(
            f"{path}:1: no curve is in it: expected a log of weights, an event file of TensorBoard, "
            "or lines such as 'step: 1  loss: 8.13'"
        )
    _named(curves)
    return curves


def _read(file: str, curves: Curves) -> None:
    if is_events(file):
        curves.form = "TensorBoard"
        for tag, step, value in events(file, curves.problems):
            if _WANTED.search(tag):
                curves.add(tag, step, value)
        return
    with LogSource(file) as source:
        if source.start().startswith(WEIGHTS):
            curves.form = "log of weights"
            _of_weights(file, curves)
            return
        curves.form = "printed lines"
        _printed(source.lines(), curves)


def _of_weights(file: str, curves: Curves) -> None:
    """The losses that a step's backward passes began with, added up, and the norm of all gradients after clipping."""
    log = read_weights(file)
    curves.problems += [f"{file}:{problem.line}: {problem.message}" for problem in log.problems]
    for step, losses in log.losses.items():
        curves.add("loss", step, math.fsum(losses) if all(map(math.isfinite, losses)) else sum(losses))
    squares: dict[int, float] = {}
    for (step, _, part), state in log.states.items():
        if part == "grad":
            finite = state.counts is None or not any(state.counts[1:3])
            square = (state.l2 or 0.0) ** 2 if finite else math.nan
            squares[step] = squares.get(step, 0.0) + square
    for step, square in squares.items():
        curves.add("grad_norm", step, math.sqrt(square) if square >= 0 else math.nan)


def _printed(lines: Iterator[bytes], curves: Curves) -> None:
    for raw in lines:
        if len(raw) > _LONGEST:
            continue
        text = _COLOUR.sub("", raw.decode("utf-8", "replace"))
        told = _STEP.search(text)
        if told is not None:
            for name, value in _NUMBER.findall(text):
                curves.add(name, int(told[1]), float(value))
        elif text.lstrip().startswith('"log_history"'):
            # the state of Hugging Face's Trainer: its history follows, one object on several lines
            _history(lines, curves)


def _history(lines: Iterator[bytes], curves: Curves) -> None:
    text = "[" + b"".join(lines).decode("utf-8", "replace")
    try:
        history, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return
    for entry in history:
        if isinstance(entry, dict) and type(entry.get("step")) is int:
            for name, value in entry.items():
                if _WANTED.search(str(name)) and isinstance(value, int | float):
                    curves.add(str(name), entry["step"], float(value))


def _named(curves: Curves) -> None:
    """Give the only curve that can be the loss, or the norm of the gradients, that name."""
    for name, kind in _KINDS.items():
        found = [of for of in curves.of if kind.search(of.split("/")[-1])]
        if name not in curves.of and len(found) == 1:
            curves.of[name] = curves.of.pop(found[0])
