"""Short report of one log: recompute mismatches, origins of NaN and Inf, largest values, dtype boundaries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

import numpy as np

from matchers.logs.cache import read_cached
from matchers.ops.run_info import changed_by
from matchers.single_run import SingleRun, dtype_changes, explain_single, single_run
from matchers.status import Status
from numtui.cli.output import ExitCode, complain_briefly, deliver
from numtui.cli.user_cache import keep_for_later
from numtui.inputs import OpenRequest
from numtui.report.evidence_basis import log_trouble
from numtui.report.gate import Allowed, failures_of
from numtui.report.recomputation import mismatch_groups
from numtui.report.text import recompute_lines
from numtui.terminal.progress import ProgressLine
from numtui.text.counts import plural
from numtui.text.safe import safe_text, write_lines

__all__ = ["report_single"]

_MAX_ROWS = 10
"""Maximum lines of each list."""


def report_single(request: OpenRequest, *, fail_on: Sequence[str] = ("diverged",), path: Path | None = None) -> int:
    """Print the report of one log; return the exit code.

    Args:
        fail_on: conditions for the exit code `RED`, of `numtui.report.options.OF_ONE_LOG`; `diverged` holds for NaN,
            Inf and recompute mismatches.
        path: the file of the report, None for standard output.

    Raises:
        UserError: the log cannot be read, or the report cannot be written.
    """
    with ProgressLine() as progress:
        c = single_run(read_cached(request.path_a, request.cache, step=request.step, progress=progress))

    def write(out: TextIO) -> None:
        write_lines(_lines(c, request.name_a), out)

    deliver(write, path)
    found = failures_of(c, fail_on, Allowed(np.zeros(len(c), bool)))
    failures = [failure for failure in found if failure.condition in fail_on]  # one log compares nothing
    if tuple(fail_on) != ("diverged",):
        complain_briefly([f"fails on {f.condition}: {f.text}" for f in failures], "{} more reasons".format)
    keep_for_later(request)
    return ExitCode.RED if failures else ExitCode.SAME


def _lines(c: SingleRun, name: str) -> Iterator[str]:
    odd = c.status == Status.NAN
    broken, groups = int(np.count_nonzero(odd)), tuple(mismatch_groups(c))
    copies = sum(found.stays for found in c.recompute_mismatches)
    told = f"; {plural(copies, 'recomputed copy differs', 'recomputed copies differ')}" if copies else ""
    told += "".join(f"; {text}" for text in log_trouble(c.a))
    told += f"; {plural(c.a.problem_count, 'unreadable spot')}" if c.a.problem_count else ""
    first = f"{safe_text(name, 200)}: {plural(len(c), 'operation')}, {broken:,} of them with NaN or Inf"
    yield first + safe_text(told, 1_000)
    if options := changed_by(c.a.header.run):
        yield f"  changed by {safe_text(options, 300)}"
    if groups:
        yield ""
        yield "Recompute mismatches:"
        yield from recompute_lines(groups, sides=False)
    if broken:
        causes = np.flatnonzero(c.cause & odd)
        yield ""
        yield f"NaN and Inf begin at ({len(causes)}):"
        for row in causes[:_MAX_ROWS].tolist():
            yield _row(c, row)
            yield f"        {safe_text(explain_single(c, row).headline, 400)}"
    finite = np.flatnonzero(np.isfinite(c.error))
    largest = finite[np.argsort(-c.error[finite], kind="stable")][:_MAX_ROWS]
    if len(largest):
        yield ""
        yield "largest values:"
        for row in largest.tolist():
            yield f"{_row(c, row)}   {c.error[row]:.3g} {c.a.dtype_text(row)}"
    changes = np.flatnonzero(dtype_changes(c.a, c.flow.a)) if c.flow is not None else np.zeros(0, int)
    if len(changes):
        yield ""
        yield f"dtype boundaries: {plural(len(changes), 'operation changes', 'operations change')} the dtype, first:"
        for row in changes[:_MAX_ROWS].tolist():
            notes = [note for note in explain_single(c, row).notes if note.startswith("dtype")]
            yield f"{_row(c, row)}   {safe_text(notes[0].removeprefix('dtype boundary: '), 200)}"


def _row(c: SingleRun, row: int) -> str:
    key, location = safe_text(c.a.keys[row], 200), safe_text(c.a.location_text(row), 200)
    return f"{row + 1:>7} {key}" + (f"   {location}" if location else "")
