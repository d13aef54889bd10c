"""Report on the curves of runs as text and JSON: the first step that differs, by how much, and how they run."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TextIO

from matchers.curves.compare import CurveComparison, Difference, relative
from matchers.curves.curves import Curves
from numtui import __version__
from numtui.text.counts import plural
from numtui.text.safe import safe_text, write_lines

__all__ = ["VERSION", "LossReport", "write_json", "write_text"]

VERSION: Final = 1
_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_ROWS: Final = 9
_NAME: Final = 100


@dataclass(frozen=True, slots=True)
class LossReport:
    """The curves of several runs, compared with those of one.

    Attributes:
        names: of the runs, all different.
        reference: index of the one that the others are compared with, as `a`.
        comparisons: by run, of the curves that both have; empty for the reference.
        rtol: relative differences up to it are none.
        width: columns of a plot; 0 for none.
    """

    names: tuple[str, ...]
    runs: tuple[Curves, ...]
    reference: int
    comparisons: tuple[tuple[CurveComparison, ...], ...]
    rtol: float
    width: int = 0

    @property
    def others(self) -> list[int]:
        """Indices of all runs but the reference."""
        return [run for run in range(len(self.runs)) if run != self.reference]

    @property
    def differs(self) -> bool:
        """True if a curve of any run differs, or none could be compared."""
        return any(c.differing for of in self.comparisons for c in of) or not all(
            any(c.steps for c in self.comparisons[run]) for run in self.others
        )


def write_text(report: LossReport, out: TextIO) -> None:
    """Write what people read."""
    write_lines(_text(report), out)


def _text(report: LossReport) -> Iterator[str]:
    width = max(len(safe_text(name, 40)) for name in report.names)
    for name, curves in zip(report.names, report.runs, strict=True):
        steps = sorted({step for of in curves.of.values() for step in of})
        has = ", ".join(safe_text(of, _NAME) for of in list(curves.of)[:4]) + ("…" if len(curves.of) > 4 else "")
        extent = f"{plural(len(steps), 'step')} ({steps[0]:,} to {steps[-1]:,})"
        yield f"{safe_text(name, 40):{width}}  {safe_text(curves.path, _NAME)}  {curves.form}, {extent}: {has}"
    for run in report.others:
        yield ""
        title = f"{safe_text(report.names[run], 40)}: " if len(report.runs) > 2 else ""
        if not report.comparisons[run]:
            yield f"{title}no curve is in both: name them alike, or give the files of one kind."
        for c in report.comparisons[run]:
            yield f"{title}{verdict(c, report.rtol)}"
            yield from _extent(c)
    if report.width:
        yield from _plots(report, width)
    for run in report.others:
        yield from _table(report, run)


def verdict(c: CurveComparison, rtol: float) -> str:
    """Return what was found of a curve: `loss: step 3 differs first, 5.366 ⇄ 5.539 (0.031)`."""
    name = safe_text(c.name, _NAME)
    if not c.steps:
        return f"{name}: no step is in both."
    if c.first is None:
        within = f" within {rtol:g}" if rtol and c.largest is not None else ""
        return f"{name}: equal{within} in {plural(len(c.steps), 'step')}."
    values = f"{_number(c.first.a)} ⇄ {_number(c.first.b)}"
    many = f"{c.differing:,} of {len(c.steps):,} differ"
    return f"{name}: step {c.first.step:,} differs first, {values} ({_error(c.first)}); {many}."


def _extent(c: CurveComparison) -> Iterator[str]:
    if c.largest is None:
        return
    if math.isfinite(c.largest.error):
        within = f"equal within --rtol {_above(c.largest.error)}"
        yield f"  largest {_error(c.largest)}, at step {c.largest.step:,}: {within}"
    elif c.first is not c.largest:
        yield f"  step {c.largest.step:,}: {_number(c.largest.a)} ⇄ {_number(c.largest.b)}"


def _above(error: float) -> str:
    """The error in two digits, rounded up."""
    digits = 1 - math.floor(math.log10(error))
    scaled = math.ceil(error * 10.0**digits)
    return f"{scaled / 10.0**digits:.2g}"


def _error(found: Difference) -> str:
    return f"relative {found.error:.2g}" if math.isfinite(found.error) else "NaN, Inf or 0 in one"


def _number(value: float) -> str:
    return f"{value:.9g}"


def _plots(report: LossReport, width: int) -> Iterator[str]:
    """Yield each curve as blocks, all runs on one scale, and the differences from the reference."""
    a = report.runs[report.reference]
    for name in [name for name in ("loss", "grad_norm") if name in a.of] or list(a.of)[:2]:
        curves = {run: of.of[name] for run, of in enumerate(report.runs) if name in of.of}
        if len(curves) < 2:
            continue
        yield ""
        yield safe_text(name, _NAME)
        values = [value for of in curves.values() for value in of.values() if math.isfinite(value)]
        scale = (min(values, default=0.0), max(values, default=0.0))
        steps = sorted({step for of in curves.values() for step in of})
        for run, of in curves.items():
            yield f"  {safe_text(report.names[run], 40):{width}}  {_blocks(of, steps, report.width, scale)}"
        for run, of in curves.items():
            if run == report.reference:
                continue
            errors = {step: relative(curves[report.reference].get(step, math.nan), value) for step, value in of.items()}
            logs = {step: math.log10(error) for step, error in errors.items() if error > 0 and math.isfinite(error)}
            if logs:
                drawn = _blocks(logs, steps, report.width, (-9.0, max(0.0, *logs.values())))
                yield f"  {'Δ ' + safe_text(report.names[run], 38):{width}}  {drawn}"
        extent = f"step {steps[0]:,} to {steps[-1]:,}; {_number(scale[0])} to {_number(scale[1])}"
        yield f"  {'':{width}}  {extent}; Δ from 1e-9, logarithmic"


def _blocks(of: Mapping[int, float], steps: Sequence[int], width: int, scale: tuple[float, float]) -> str:
    """A line of blocks, each the mean of its steps; a space where there is none, `!` for NaN and Inf."""
    low, high = scale
    bins: list[list[float]] = [[] for _ in range(min(width, len(steps)))]
    for k, step in enumerate(steps):
        if step in of:
            bins[k * len(bins) // len(steps)].append(of[step])
    return "".join(_block(each, low, high) for each in bins)


def _block(values: Sequence[float], low: float, high: float) -> str:
    if not values:
        return " "
    mean = math.fsum(values) / len(values) if all(map(math.isfinite, values)) else math.nan
    if not math.isfinite(mean):
        return "!"
    share = (mean - low) / (high - low) if high > low else 0.0
    return _BLOCKS[min(max(int(share * len(_BLOCKS)), 0), len(_BLOCKS) - 1)]


def _table(report: LossReport, run: int) -> Iterator[str]:
    """Yield the values around the first difference of the first curve that differs."""
    found = next((c for c in report.comparisons[run] if c.first is not None), None)
    if found is None or found.first is None:
        return
    at = found.steps.index(found.first.step)
    names = [safe_text(report.names[of], 20) for of in (report.reference, run)]
    yield ""
    yield f"  step  {safe_text(found.name, 40)}: {names[0]:>14}  {names[1]:>20}  relative"
    for step in found.steps[max(at - 2, 0) : at + _ROWS - 2]:
        x, y = found.a[step], found.b[step]
        error = relative(x, y)
        shown = "=" if error == 0 else f"{error:.2g}" if math.isfinite(error) else "!"
        indent = len(safe_text(found.name, 40)) + 2
        yield f"{step:6,}  {'':{indent}}{_number(x):>14}  {_number(y):>20}  {shown}"


def write_json(report: LossReport, out: TextIO) -> None:
    """Write one object with everything, in ASCII (docs/weights.md)."""
    found = {
        "version": VERSION,
        "numtui": __version__,
        "reference": report.names[report.reference],
        "rtol": report.rtol,
        "differs": report.differs,
        "runs": [
            {
                "name": name,
                "path": run.path,
                "form": run.form,
                "curves": {of: len(steps) for of, steps in run.of.items()},
            }
            for name, run in zip(report.names, report.runs, strict=True)
        ],
        "curves": [
            {
                "run": report.names[run],
                "name": c.name,
                "steps": len(c.steps),
                "differing": c.differing,
                "first": _difference(c.first),
                "largest": _difference(c.largest),
                "only_in_reference": len(c.a.keys() - c.b.keys()),
                "only_here": len(c.b.keys() - c.a.keys()),
            }
            for run in report.others
            for c in report.comparisons[run]
        ],
    }
    out.write(json.dumps(found, indent=1, allow_nan=False) + "\n")


def _difference(found: Difference | None) -> dict[str, Any] | None:
    if found is None:
        return None
    # JSON has neither NaN nor infinity: they are texts
    a, b = (value if math.isfinite(value) else str(value) for value in (found.a, found.b))
    return {"step": found.step, "a": a, "b": b, "error": found.error if math.isfinite(found.error) else None}
