"""Elements of kept tensors on the screen: how many differ and by what, a histogram, a heat map with a cursor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from matchers.elements.picture import NOT_FINITE, Grid, Picture
from numtui.report.kept_tensors import LEVELS, Elements
from numtui.text.counts import plural
from numtui.text.lines import Line, fit, fit_line, wrap
from numtui.text.safe import safe_text

__all__ = ["HEAT", "Shown"]

HEAT: Final = ("heat1", "heat2", "heat3", "heat4", "heat5")
"""Roles of cells, from a few steps to what is not finite."""
_DIGITS: Final = "·123456789!"
_ASCII: Final = ".123456789!"
_MOST_LINES: Final = 2
_BESIDE: Final = 30
"""Cells of the histogram beside the map."""
_NARROW: Final = 72


class Shown:
    """The elements of a row on a screen: the map, the cursor in it, the dimensions that it shows.

    Args:
        colour: half blocks in colours; digits without.
        unicode: the terminal can show blocks.
    """

    def __init__(self, elements: Elements, *, colour: bool, unicode: bool) -> None:
        self.elements = elements
        self._blocks, self._signs = colour and unicode, _DIGITS if unicode else _ASCII
        self._plane, self._at, self._room = 0, (0, 0), (0, 0)
        self._grid: Grid | None = None
        if elements.picture is not None and elements.picture.steps.size:
            self._element: tuple[int, ...] | None = elements.picture.largest
        else:
            self._element = None

    def lines(self, width: int, height: int, verdict: Sequence[str]) -> list[Line]:
        """Draw: what differs, what a replay has shown, the map with the histogram, the element under the cursor."""
        e = self.elements
        out: list[Line] = [[(f" {text}", "title")] for text in wrap(e.told, width - 2)[:_MOST_LINES]]
        for told in verdict[:1]:
            out += [[(f" {text}", "")] for text in wrap(f"→ {told}", width - 2, "  ")[:_MOST_LINES]]
        if e.picture is None or self._element is None:
            return out
        room = height - len(out) - 3
        beside = _BESIDE if width >= _NARROW else 0
        map_lines = self._map(e.picture, width - beside - 2, max(room, 1))
        side = self._histogram(e.picture) if beside else []
        out.append([(f" {self._dimensions(e.picture)}", "dim")])
        for k in range(max(len(map_lines), min(len(side), room))):
            left: Line = [(" ", ""), *(map_lines[k] if k < len(map_lines) else [])]
            out.append([*fit_line(left, width - beside), *(side[k] if k < len(side) else [])])
        return [*out, *self._cursor(e.picture, self._element, width)]

    def move(self, rows: int, columns: int) -> None:
        """Move the cursor by cells of the map."""
        picture, grid = self.elements.picture, self._grid
        if picture is None or grid is None or not grid.digits.size:
            return
        last = tuple(size - 1 for size in grid.digits.shape)
        self._at = min(max(self._at[0] + rows, 0), last[0]), min(max(self._at[1] + columns, 0), last[1])
        self._element = picture.within(picture.planes[self._plane], grid, self._at)

    def to_largest(self) -> None:
        """Put the cursor on the largest difference."""
        if self.elements.picture is not None and self._element is not None:
            self._element = self.elements.picture.largest
            self._room = 0, 0

    def turn(self) -> None:
        """Show two other dimensions."""
        if self.elements.picture is not None:
            self._plane, self._room = (self._plane + 1) % len(self.elements.picture.planes), (0, 0)

    def _map(self, picture: Picture, columns: int, lines: int) -> list[Line]:
        plane = picture.planes[self._plane]
        if self._grid is None or self._room != (columns, lines):
            self._room = columns, lines
            self._grid = picture.grid(plane, lines * (2 if self._blocks else 1), columns)
            assert self._element is not None
            self._at = picture.cell_of(plane, self._grid, self._element)
        digits = self._grid.digits.tolist()
        if not self._blocks:
            return [self._of_digits(y, row) for y, row in enumerate(digits)]
        pairs = zip(digits[::2], [*digits[1::2], [0] * len(digits[0])], strict=False)
        return [self._of_blocks(2 * y, top, bottom) for y, (top, bottom) in enumerate(pairs)]

    def _of_digits(self, y: int, row: list[int]) -> Line:
        roles = ["chosen" if (y, x) == self._at else "dim" if not digit else "" for x, digit in enumerate(row)]
        return _joined([(self._signs[digit], role) for digit, role in zip(row, roles, strict=True)])

    def _of_blocks(self, y: int, top: list[int], bottom: list[int]) -> Line:
        line: Line = []
        for x, (upper, lower) in enumerate(zip(top, bottom, strict=True)):
            one, other = LEVELS[upper], LEVELS[lower]
            if self._at in ((y, x), (y + 1, x)):
                line.append(("▄" if self._at == (y, x) else "▀", "chosen"))
            elif one and other:
                line.append(("▀", f"heat{one}/heat{other}"))
            elif one or other:
                line.append(("▀" if one else "▄", f"heat{one or other}"))
            else:
                line.append(("·", "dim"))
        return _joined(line)

    def _dimensions(self, picture: Picture) -> str:
        rows, columns = picture.planes[self._plane]
        told = [f"{name} dimension {dim} ({picture.shape[dim]:,})"
            for name, dim in (("down:", rows), ("across:", columns)) if dim >= 0]  # fmt: skip
        more = len(picture.shape) - sum(dim >= 0 for dim in (rows, columns))
        unit = "ulp" if picture.a.is_float else "steps"
        scale = f"digits of {unit}" if picture.b is not None else "not finite"
        return " · ".join([*told, *([f"the largest of {plural(more, 'other dimension')}"] if more > 0 else []), scale])

    def _histogram(self, picture: Picture) -> list[Line]:
        found = picture.histogram
        unit = "" if picture.b is None else " ulp" if picture.a.is_float else " steps"
        most = max((many for _, many in found), default=1)
        lines: list[Line] = [[(f" elements{f', apart by{unit}' if unit else ''}", "dim")]]
        for name, many in found:
            bar = "█" * max(round(6 * many / most), 1) if self._blocks else "#" * max(round(6 * many / most), 1)
            lines.append([(f" {fit(name, 11)}{many:>10,} {bar}", "dim" if name == "equal" else "")])
        return lines

    def _cursor(self, picture: Picture, index: tuple[int, ...], width: int) -> list[Line]:
        steps = int(picture.steps[index])
        unit = "ulp" if picture.a.is_float else "steps"
        far = "not finite" if steps == NOT_FINITE else f"{steps:,} {unit} apart" if steps else "equal"
        if picture.b is None:
            far = "not finite" if steps else "finite"
        sides = [f"{value} = {bits}" for value, bits in picture.element(index)]
        named = zip("ab", sides, strict=False) if picture.b is not None else [("", sides[0])]
        told = "   ".join(f"{side} {text}".strip() for side, text in named)
        return [[(fit(f" {list(index)}  {far}", width), "")], [(fit(f" {safe_text(told, 300)}", width), "")]]


def _joined(pieces: Line) -> Line:
    """Join neighbouring pieces of one role."""
    out: Line = []
    for text, role in pieces:
        if out and out[-1][1] == role:
            out[-1] = (out[-1][0] + text, role)
        else:
            out.append((text, role))
    return out
