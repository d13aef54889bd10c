"""Elements of kept tensors on the screen: how many differ and by what, a histogram, a heat map with a cursor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from matchers.elements.differences import differences
from matchers.elements.picture import LARGEST, NOT_FINITE, Grid, Picture
from matchers.tensor import Tensor
from numtui.report.elements import Parts, read_whole
from numtui.text.counts import plural
from numtui.text.lines import Line, fit, fit_line, wrap
from numtui.text.safe import safe_text

__all__ = ["HEAT", "Elements", "Shown", "read_elements"]

HEAT: Final = ("heat1", "heat2", "heat3", "heat4", "heat5")
"""Roles of cells, from a few steps to what is not finite."""
_LEVELS: Final = (0, 1, 2, 2, 3, 3, 4, 4, 4, 4, 5)
"""The level of a cell by its digit."""
_DIGITS: Final = "·123456789!"
_ASCII: Final = ".123456789!"
_MOST_LINES: Final = 2
_BESIDE: Final = 30
"""Cells of the histogram beside the map."""
_NARROW: Final = 72


@dataclass(frozen=True, eq=False)
class Elements:
    """A tensor of a row: its name, what is said of it, and its picture.

    Attributes:
        told: how many elements differ, where, by which pattern; of one side, how many are not finite.
        picture: None where the sides have other dtypes or shapes, or are too large.
    """

    name: str
    form: str
    told: str
    picture: Picture | None


def read_elements(name: str, sides: Mapping[str, Parts]) -> Elements:
    """Read a tensor of kept calls, on each side that has it. Takes a while for a large one.

    Raises:
        OSError: a content cannot be read.
    """
    tensors = {side: read_whole(parts) for side, parts in sides.items()}
    forms = [_form(parts, tensors[side]) for side, parts in sides.items()]
    form = " ⇄ ".join(dict.fromkeys(forms))
    whole = [(side, tensor) for side, tensor in tensors.items() if tensor is not None]
    if len(whole) < len(sides):
        lacking = next(side for side, tensor in tensors.items() if tensor is None)
        return Elements(name, form, f"{lacking}: the parts of the ranks make no whole tensor", None)
    (side, a), b = whole[0], whole[1][1] if len(whole) > 1 else None
    if b is None:
        return _of_one(name, form, side, a)
    found = differences(a, b)
    pictured = a.dtype == b.dtype and a.bits.shape == b.bits.shape and a.bits.size <= LARGEST
    return Elements(name, form, found.text, Picture(a, b) if pictured else None)


def _form(parts: Parts, whole: Tensor | None) -> str:
    told = parts[0][1]
    if len(parts) == 1 or whole is None:
        return f"{list(told['shape'])} {told['dtype']}"
    return f"{list(whole.bits.shape[: len(told['shape'])])} {told['dtype']} of {len(parts)} ranks"


def _of_one(name: str, form: str, side: str, tensor: Tensor) -> Elements:
    picture = Picture(tensor) if tensor.bits.size <= LARGEST else None
    if picture is None:
        return Elements(name, form, f"{side} alone; too large for a picture", None)
    odd = f"{picture.many:,} of {plural(tensor.bits.size, 'element')} NaN or infinite" if picture.many else "all finite"
    return Elements(name, form, f"in {side} alone: {odd}", picture)


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
            one, other = _LEVELS[upper], _LEVELS[lower]
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
