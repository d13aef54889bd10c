"""Kept operations on the HTML page: what a replay has shown, and of each tensor that differs where it does."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import groupby, islice
from typing import Final

import numpy as np

from matchers.elements.picture import Picture
from numtui.report.elements import tensors_by_name
from numtui.report.html.summary import button, text
from numtui.report.kept import KeptOperations
from numtui.report.kept_tensors import LEVELS, Elements, read_elements
from numtui.report.model import Report

__all__ = ["kept_operations"]

_MOST_ROWS: Final = 12
_MOST_TENSORS: Final = 4
_ROWS, _COLUMNS = 32, 64
"""Cells of a picture, at most."""


def kept_operations(r: Report) -> str:
    """Return a section about the rows that kept operations are beside; empty without any."""
    found = KeptOperations(r.comparison)
    return "\n".join(_section(r, found)) if found.any else ""


def _section(r: Report, found: KeptOperations) -> Iterator[str]:
    c = r.comparison
    first = {cause.rows[0] for cause in c.consequences.causes}
    rows = [row for row in sorted(first.union(np.flatnonzero(c.red).tolist())) if found.sides(c, row)]
    if not rows:
        return
    yield "<h2>Kept operations</h2>"
    for row in rows[:_MOST_ROWS]:
        told = "<br>".join(map(text, found.shown(c, row)[:1]))
        yield f"<p>{button(r.row(row, explained=False))}{f'<br>{told}' if told else ''}</p>"
        tensors = tensors_by_name(found.sides(c, row))
        yield from islice(filter(None, (_tensor(read_elements(*each)) for each in tensors.items())), _MOST_TENSORS)
    if len(rows) > _MOST_ROWS:
        yield f"<p>… and {len(rows) - _MOST_ROWS:,} more rows</p>"


def _tensor(elements: Elements) -> str:
    """Return what is said of a tensor, its histogram and picture; empty where nothing differs."""
    picture = elements.picture
    if picture is not None and not picture.many:
        return ""
    told = f"{text(elements.name)}, {text(elements.form)}: {text(elements.told)}"
    if picture is None:
        return f"<p>{told}</p>"
    steps = ", ".join(f"{name}: {many:,}" for name, many in picture.histogram)
    caption = f"{told}<br><small>steps apart: {escape(steps)}</small>"
    return f"<figure>{_svg(picture)}<figcaption>{caption}</figcaption></figure>"


def _svg(picture: Picture) -> str:
    """Draw the grid over the last two dimensions: a rectangle for cells of one level that lie side by side."""
    levels = np.take(LEVELS, picture.grid(picture.planes[0], _ROWS, _COLUMNS).digits)
    shapes = []
    for y, line in enumerate(levels.tolist()):
        x = 0
        for level, cells in groupby(line):
            wide = len(list(cells))
            if level:
                shapes.append(f'<rect class="heat{level}" x="{x}" y="{y}" width="{wide}" height="1"/>')
            x += wide
    rows, columns = levels.shape
    shown = f'class="elements" viewBox="0 0 {columns} {rows}" shape-rendering="crispEdges"'
    return f'<svg {shown} role="img" aria-label="where elements differ">{"".join(shapes)}</svg>'
