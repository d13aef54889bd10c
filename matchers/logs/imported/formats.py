"""The formats of other tools' logs, and the reading of them."""

from __future__ import annotations

import os
from collections.abc import Callable

from matchers.errors import LogError, UserError
from matchers.logs.imported import (
    debug_mode_hashes,
    debug_mode_json,
    debug_mode_text,
    megatron_determinism,
    megatron_routing,
    msprobe,
    safetensors,
    torch_save,
    transformers_tree,
)
from matchers.logs.imported.columns import Columns
from matchers.logs.imported.folders import Source
from matchers.logs.imported.format import Format
from matchers.logs.op_log import OpLog
from matchers.logs.source import LogSource

__all__ = ["has_steps", "named", "read_imported", "recognised"]

_FORMATS = (
    debug_mode_json.FORMAT,
    debug_mode_hashes.FORMAT,
    debug_mode_text.FORMAT,
    megatron_determinism.FORMAT,
    megatron_routing.FORMAT,
    msprobe.FORMAT,
    safetensors.FORMAT,
    torch_save.FORMAT,
    transformers_tree.FORMAT,
)
_HEAD = 256
"""Operations of a head, more than any terminal has lines."""
_NAMED_STEPS = 12
"""Steps of a file that a message names."""


def has_steps(path: str) -> bool:
    """Return True for a file that may have several steps within it; False for one that cannot be read, or only once."""
    if path == "-" or not os.path.isfile(path):
        return False
    try:
        with LogSource(path) as source:
            form = recognised(source.start())
    except (OSError, UserError):
        return False
    return form is not None and form.steps


def recognised(start: bytes) -> Format | None:
    """Return the format of a file that begins so; None for our own logs, torchtitan's, and what is no log."""
    return next((form for form in _FORMATS if form.pattern.search(start)), None)


def named(name: str | None) -> Format | None:
    """Return the format of this name, as a header has it; None: it is none of another tool."""
    return next((form for form in _FORMATS if name and (name == form.name or name.startswith(f"{form.name} ("))), None)


def read_imported(
    form: Format,
    source: Source,
    path: str,
    head: int | None,
    progress: Callable[[str, float], None] | None,
    step: int | None = None,
) -> OpLog:
    """Read a log of another tool; of a head about so many bytes; of a file of several steps one, or all.

    Raises:
        LogError: it has another version, does not have the step, or would fill the memory.
    """
    columns = Columns(path, head=head is not None, step=step if form.steps else None)
    for _ in form.read(source, columns):
        columns.refuse_excess(source.taken + columns.beside)
        if progress is not None:
            progress("reading", source.fraction())
        if head is not None and source.taken >= head and len(columns) >= _HEAD:
            columns.partial = True
            break
    columns.refuse_excess(source.taken + columns.beside)
    if columns.step is not None and columns.step not in columns.steps and not columns.partial:
        there = ", ".join(map(str, sorted(columns.steps)[:_NAMED_STEPS])) or "none"
        more = f" and {many:,} more" if (many := len(columns.steps) - _NAMED_STEPS) > 0 else ""
        raise LogError(f"{path}: no operations of step {columns.step}; its steps are {there}{more}")
    if source.cut_off is not None:
        columns.cut_off = True
        columns.problem(1, source.cut_off)
    return columns.log(columns.form or form.name)
