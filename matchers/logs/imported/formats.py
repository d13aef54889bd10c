"""The formats of other tools' logs, and the reading of them."""

from __future__ import annotations

from collections.abc import Callable

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
from matchers.logs.imported.format import Format, Source
from matchers.logs.op_log import OpLog

__all__ = ["named", "read_imported", "recognised"]

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


def recognised(start: bytes) -> Format | None:
    """Return the format of a file that begins so; None for our own logs, torchtitan's, and what is no log."""
    return next((form for form in _FORMATS if form.pattern.search(start)), None)


def named(name: str | None) -> Format | None:
    """Return the format of this name, as a header has it; None: it is none of another tool."""
    return next((form for form in _FORMATS if name and (name == form.name or name.startswith(f"{form.name} ("))), None)


def read_imported(
    form: Format, source: Source, path: str, head: int | None, progress: Callable[[str, float], None] | None
) -> OpLog:
    """Read a log of another tool; of a head about so many bytes.

    Raises:
        LogError: it has another version, or would fill the memory.
    """
    columns = Columns(path, head=head is not None)
    for _ in form.read(source, columns):
        columns.refuse_excess(source.taken + columns.beside)
        if progress is not None:
            progress("reading", source.fraction())
        if head is not None and source.taken >= head and len(columns) >= _HEAD:
            columns.partial = True
            break
    columns.refuse_excess(source.taken + columns.beside)
    if source.cut_off is not None:
        columns.cut_off = True
        columns.problem(1, source.cut_off)
    return columns.log(columns.form or form.name)
