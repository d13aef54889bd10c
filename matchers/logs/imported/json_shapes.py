"""JSON records split into shape and content, so that what is the same in thousands of them is understood once.

A log has a few dozen shapes of records: the same keys and words, with other numbers and names. A format says once for
each shape where what it wants stands (`Plan`), and then takes it, column by column, from the contents of many records:
lists of numbers and texts in the order of the file. `json_shapes.c` splits in less than half the time in which `json`
decodes. Without it, and for what it leaves (numbers of thousands of digits, what is nested deep), `json` decodes and
`shape_and_content` splits, which is the specification; tests hold the two together.
"""

from __future__ import annotations

import ctypes
import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain, groupby, islice, repeat
from json.encoder import encode_basestring
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from capture import native_library
from matchers.arrays import Float64

__all__ = [
    "CLOSED",
    "HOLE",
    "INSTALLED",
    "NOT_AS_EXPECTED",
    "NUMBERS",
    "OPEN",
    "SOURCE",
    "SPAN",
    "TEXTS",
    "Content",
    "Contents",
    "Entry",
    "Parts",
    "Place",
    "Plan",
    "Record",
    "Shapes",
    "Split",
    "Told",
    "apart_of",
    "as_text",
    "is_double",
    "is_number",
    "is_text",
    "is_whole",
    "picker",
    "raw",
    "rows_of",
    "shape_of",
    "shape_and_content",
    "unescaped",
    "whole",
]

SOURCE: Final = Path(__file__).with_suffix(".c")
INSTALLED: Final = native_library.installed(SOURCE)
"""The library in an installed wheel; None in a checkout."""
SPAN: Final = 256 << 10
"""Bytes that are split at once."""
_MOST: Final = 1024
"""Records that are split, and told, at once."""
_FIRST: Final = 256
"""Records that are told together at first: a head has no more."""
_MOST_SHAPES: Final = 4096
_WHOLE, _REAL, _TEXT, _ESCAPED, _LARGE = "\1\2\3\4\5"
NUMBERS: Final = _WHOLE + _REAL + _LARGE
"""Kinds of places that have a number: a whole one, any other, or a whole one that a double does not have exactly."""
TEXTS: Final = _TEXT + _ESCAPED
HOLE: Final = "\0"
OPEN: Final = [0]
CLOSED: Final = b"]"
_LONGEST_PLAIN: Final = 64
_EXACT: Final = 1 << 53
_NUMBER = re.compile(r"(?<![\w.])((?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w.])", re.ASCII)
"""A number within a text, without a sign."""
_APART = re.compile(r'[\d\\"]|[^ -\x7f]')
_MARK = re.compile("[\1-\5]")
_MARKED = re.compile(r'"(?:[^"\\]|\\.)*"|[\1-\5]', re.DOTALL)

NOT_AS_EXPECTED: Final = (TypeError, KeyError, IndexError, AttributeError, ValueError, OverflowError, RecursionError)
"""Exceptions of a reader for a value that is not of its format."""


class Place(NamedTuple):
    """The place of a value in the content of each record of a shape.

    Attributes:
        at: its number in the content.
        kind: one of `NUMBERS` or `TEXTS`.
    """

    at: int
    kind: str


class Parts(NamedTuple):
    """A text that was taken apart.

    Attributes:
        pattern: what is the same in each record of a shape, with a `HOLE` for each number.
        places: of the numbers.
    """

    pattern: str
    places: tuple[Place, ...]


class Split:
    """Contents of records as they were split.

    Args:
        numbers: of all records, one after the other.
        texts: of all records, as the file has them.
        ends, text_ends: the number of numbers, and of texts, up to the end of each record.
    """

    def __init__(self, numbers: Float64, texts: Sequence[str], ends: Sequence[int], text_ends: Sequence[int]) -> None:
        self._numbers, self._texts = numbers, texts
        self._ends, self._text_ends = [0, *ends], [0, *text_ends]

    def taken(self, places: list[int]) -> tuple[Float64, Sequence[str]]:
        """Return numbers, a row for each, and texts, one after the other, of records of one shape."""
        (size, texts), many = (self._ends, self._text_ends), len(places)
        first, last = places[0], places[-1] + 1
        each, text_each = size[first + 1] - size[first], texts[first + 1] - texts[first]
        if places == [*range(first, last)]:
            numbers = self._numbers[size[first] : size[last]].reshape(many, each)
            return numbers, self._texts[texts[first] : texts[last]]
        starts = np.fromiter(map(size.__getitem__, places), np.int64, many)
        numbers = self._numbers[starts[:, None] + np.arange(each)]
        if not text_each:
            return numbers, []
        return numbers, [*chain.from_iterable([self._texts[texts[k] : texts[k + 1]] for k in places])]


Content = tuple[Split, int]
"""The content of a record, by its place."""


class Contents:
    """Contents of records of one shape.

    Attributes:
        numbers: float64[records, numbers].
    """

    def __init__(self, contents: Sequence[Content]) -> None:
        self._contents = contents
        groups = groupby(contents, itemgetter(0))
        parts = [split.taken([place for _, place in some]) for split, some in groups]
        self.numbers = parts[0][0] if len(parts) == 1 else np.concatenate([numbers for numbers, _ in parts])
        self._texts = parts[0][1] if len(parts) == 1 else [*chain.from_iterable([texts for _, texts in parts])]

    def __len__(self) -> int:
        return len(self.numbers)

    def only(self, records: list[int]) -> Contents:
        """Return the contents of some of the records."""
        return Contents([self._contents[k] for k in records])

    def column(self, place: Place) -> list[Any]:
        """Return what stands at a place in each."""
        many = self.numbers.shape[1]
        if place.at < many:
            return self.numbers[:, place.at].tolist()
        column = [*self._texts[place.at - many :: len(self._texts) // len(self)]]
        return [*map(_READ[place.kind], column)] if place.kind in _READ else column


Record = tuple[int, int, bytes, Content, Any]
"""The line of a record, the place after it in the text that was split, its shape and content, and its name, or what its
reader knows besides."""
Entry = Record | tuple[int, int, None, Any, Any]
"""A record; without a shape, the content is the error of one that is damaged."""
Told = tuple[Sequence[int], Sequence[Any], Sequence[Any], list[Any]]
"""Of many entries the lines, contents, names, and what the plans of their shapes tell, or the errors."""
Plan = Callable[[Sequence[int], Contents], Iterable[Any]]
"""Tells what a format wants of records of one shape, from their lines and contents; changes nothing."""


class Shapes:
    """The shapes of one file so far, with the plan of each.

    Attributes:
        quick: `many` yields something: there is the compiled splitter.

    Args:
        plan: makes the plan of a shape from a record with places for what changes.
        apart: keys of texts of which the numbers alone change: they are `Parts` in a plan, if they have no escapes.
        nest: the key of the list of records that is the last in a record; empty: none. `many` yields such a record with
            the list `OPEN`, then those in it, then one of the shape `CLOSED`.
    """

    def __init__(self, plan: Callable[[Any], Plan], apart: Collection[str] = (), nest: str = "") -> None:
        self._apart = apart
        self._keys = tuple(
            b"".join(b"%b\0" % key.encode() for key in keys) + b"\0" for keys in (apart, [nest] if nest else [])
        )
        self._plans = _Plans(plan)
        self._compiled = _compiled()
        self.quick = self._compiled is not None

    def many(
        self, text: bytes, line: int = 1, *, by_line: bool = False, last: bool = False, named: bool = False
    ) -> Iterator[Record]:
        """Yield the records with which a text begins, as many as are quickly split, at most `_MOST`.

        Args:
            line: that of the text.
            by_line: a record is what fills a line.
            last: no text follows.
            named: each has a name before it.
        """
        flags = by_line, last, named
        return iter(()) if self._compiled is None else _records(self._compiled, text, line, self._keys, *flags)

    def one(self, line: int, value: Any, name: Any = "") -> Record:
        """Return the entry of a record that `json` has decoded."""
        return line, 0, *shape_and_content(value, self._apart), name

    def told(self, entries: Iterator[Entry]) -> Iterator[Told]:
        """Yield what the plans of their shapes tell of entries, many at once, in their order."""
        some = [*islice(entries, _FIRST)]
        while some:
            lines, _, shapes, contents, names = zip(*some, strict=True)
            told = [*contents]
            places = defaultdict[bytes, list[int]](list)
            for k, shape in enumerate(shapes):
                if shape is not None:
                    places[shape].append(k)
            for shape, own in places.items():
                take = itemgetter(*own, own[0])  # a tuple also of one
                for k, one in zip(own, self._of_shape(shape, take(lines)[:-1], take(contents)[:-1]), strict=True):
                    told[k] = one
            yield lines, contents, names, told
            some = [*islice(entries, _MOST)]

    def _of_shape(self, shape: bytes, lines: Sequence[int], contents: Sequence[Content]) -> list[Any]:
        """Return what the plan of a shape tells of each record; of one that it fails at alone, the error."""
        try:
            return [*self._plans[shape](lines, Contents(contents))]
        except NOT_AS_EXPECTED as error:
            if len(lines) == 1:
                return [error]
        each = zip(lines, contents, strict=True)
        return [*chain.from_iterable(self._of_shape(shape, [line], [content]) for line, content in each)]


class _Plans(dict[bytes, Plan]):
    """Plans by shape, made when they are asked for first."""

    def __init__(self, plan: Callable[[Any], Plan]) -> None:
        super().__init__()
        self._plan = plan

    def __missing__(self, shape: bytes) -> Plan:
        if len(self) == _MOST_SHAPES:
            self.clear()
        found = self[shape] = self._plan(_placed(shape.decode("utf-8", "surrogatepass")))
        return found


def _records(
    c: Any, text: bytes, line: int, keys: tuple[bytes, ...], by_line: bool, last: bool, named: bool
) -> Iterator[Record]:
    """As `Shapes.many`; lists are made of all records at once, which is twice as fast as one record after the other."""
    size = len(text) + 16
    record, used = np.empty((_MOST, 5), np.int64), np.empty(4, np.int64)
    shapes, strings, hard, names = (np.empty(size + 4 * _MOST, np.uint8) for _ in range(4))
    numbers, hards = np.empty(size // 2, np.float64), np.empty(size // 2, np.int64)
    out = (record, shapes, numbers, strings, hards, hard, names if named else None, used)
    pointers = (None if array is None else array.ctypes.data for array in out)
    many = c.json_split(text, len(text), *keys, by_line, last, _MOST, *pointers)
    if not many:
        return iter(())
    told = [bytes(array[:end]) for array, end in zip((shapes, strings, hard, names), used.tolist(), strict=True)]
    unread = int(record[many - 1, 4])
    numbers[hards[:unread]] = [*map(float, told[2].split())]
    record[:many, 0] += line
    lines, after, ends, text_ends, _ = record[:many].T.tolist()
    texts = told[1].decode().split("\n")
    split = Split(numbers, texts, ends, text_ends)
    own = told[3].decode().split("\n") if named else repeat("")
    return zip(lines, after, told[0].split(b"\n"), zip(repeat(split), range(many)), own, strict=False)


@cache
def _compiled() -> ctypes.CDLL | None:
    number, text, flag = ctypes.c_int64, ctypes.c_char_p, ctypes.c_int
    arguments = text, number, text, text, flag, flag, number, *[ctypes.c_void_p] * 8
    return native_library.typed(SOURCE, INSTALLED, {"json_split": (number, arguments)})


def shape_and_content(value: Any, apart: Collection[str] = ()) -> tuple[bytes, Content]:
    """Return shape and content of what `json` has decoded; `apart` as in `Shapes`. Recursive, as `json` is."""
    shape: list[str] = []
    numbers: list[float] = []
    strings: list[str] = []

    def enter_number(number: float) -> str:
        whole = isinstance(number, int)
        if whole and abs(number) >= _EXACT:
            strings.append(str(number))
            return _LARGE
        numbers.append(float(number))
        return _WHOLE if whole else _REAL

    def enter(value: Any, key: str = "") -> None:
        kind = type(value)
        if kind is float:
            numbers.append(value)
            shape.append(_REAL)
        elif kind is str:
            if key in apart and "\\" not in (text := encode_basestring(value)):
                pattern, found = apart_of(text)
                parts = zip(pattern.split(HOLE), [*map(enter_number, found), ""], strict=True)
                shape.extend(chain.from_iterable(parts))
            elif len(value) <= _LONGEST_PLAIN and (plain := _plain(value)):
                shape.append(plain)
            else:
                text = encode_basestring(value)[1:-1]
                shape.append(_ESCAPED if "\\" in text else _TEXT)
                strings.append(text)
        elif kind is dict:
            before = "{"
            for name, one in value.items():
                shape.append(before + _quoted(name))
                enter(one, name)
                before = ","
            shape.append("}" if value else "{}")
        elif kind is list:
            flat = [*chain.from_iterable(value)] if {*map(type, value)} == {list} else value
            if mark := _mark_of(flat):  # many at once
                numbers.extend(map(float, flat))
                rows = [value] if flat is value else value
                text = ",".join([_marks(mark, len(row)) for row in rows])
                shape.append(text if flat is value else f"[{text}]")
                return
            before = "["
            for one in value:
                shape.append(before)
                enter(one)
                before = ","
            shape.append("]" if value else "[]")
        elif kind is int:
            shape.append(enter_number(value))
        else:
            shape.append("null" if value is None else "true" if value else "false")

    enter(value)
    content = Split(np.array(numbers), strings, [len(numbers)], [len(strings)]), 0
    return "".join(shape).encode("utf-8", "surrogatepass"), content


def _mark_of(values: list[Any]) -> str:
    """The mark of all values, if they are numbers of one kind that doubles have; else empty."""
    kinds = {*map(type, values)}
    if kinds == {float}:
        return _REAL
    return _WHOLE if kinds == {int} and max(map(abs, values)) < _EXACT else ""


@lru_cache(maxsize=16)
def _marks(mark: str, many: int) -> str:
    return f"[{','.join(mark * many)}]"


@lru_cache(maxsize=4096)
def _plain(text: str) -> str:
    """A short text as it stands in a shape; empty: in a content."""
    return "" if _APART.search(text) else f'"{text}"'


@lru_cache(maxsize=4096)
def _quoted(key: str) -> str:
    return f"{encode_basestring(key)}:"


_MOST_DIGITS: Final = 4300
"""Python makes no whole number of more."""


def apart_of(text: str) -> tuple[str, list[float]]:
    """Return a text with holes, and the numbers in them."""
    words = _NUMBER.split(text.replace(HOLE, "\N{REPLACEMENT CHARACTER}"))
    numbers = [int(one) if one.isdigit() and len(one) < _MOST_DIGITS else float(one) for one in words[1::2]]
    return HOLE.join(words[::2]), numbers


def _placed(shape: str) -> Any:
    """The record of a shape, with places."""
    numbers = sum(map(shape.count, (_WHOLE, _REAL)))
    at = {True: iter(range(numbers)), False: iter(range(numbers, len(shape)))}

    def place(mark: re.Match[str]) -> str:
        return f"\\u0000{ord(mark[0])} {next(at[mark[0] in (_WHOLE, _REAL)])}"

    def placed(found: re.Match[str]) -> str:
        text = found[0]
        return f'"{place(found)}"' if len(text) == 1 else _MARK.sub(lambda mark: f"{place(mark)}\\u0000", text)

    return _with_places(json.loads(_MARKED.sub(placed, shape)))


def _with_places(value: Any) -> Any:
    if isinstance(value, str) and "\0" in value:
        words = value.split("\0")
        places = tuple(Place(int(at), chr(int(kind))) for kind, at in map(str.split, words[1::2]))
        return places[0] if len(words) == 2 else Parts(HOLE.join(words[::2]), places)
    if isinstance(value, dict):
        return {key: _with_places(one) for key, one in value.items()}
    return [*map(_with_places, value)] if isinstance(value, list) else value


def picker(*wanted: Any) -> Callable[[Contents], list[Sequence[Any]]]:
    """Return what takes a column for each wanted value from contents; what is no place is the same in each record."""

    def pick(contents: Contents) -> list[Sequence[Any]]:
        many = len(contents)
        return [contents.column(one) if isinstance(one, Place) else (one,) * many for one in wanted]

    return pick


def raw(wanted: Any) -> Any:
    """Return the place of a text as JSON has it (`unescaped`); empty for what is no text."""
    if isinstance(wanted, Place):
        return wanted._replace(kind=_TEXT) if wanted.kind in TEXTS else ""
    return wanted if isinstance(wanted, str) else ""


def whole(wanted: Any) -> Callable[[Contents], list[str]]:
    """Return what takes a column of texts, also of one that was taken apart; empty for null."""
    words, wanted = (wanted.pattern.split(HOLE), wanted.places) if isinstance(wanted, Parts) else (["", ""], [wanted])
    pick = picker(*("" if one is None else one for one in wanted))

    def texts(contents: Contents) -> list[str]:
        each = zip(*pick(contents), strict=True)
        return ["".join(chain(*zip(words, [*map(as_text, own), ""], strict=True))) for own in each]

    return texts


def rows_of(columns: Sequence[Sequence[Any]], many: int) -> Iterable[tuple[Any, ...]]:
    """Return the values of each record, from columns of so many records."""
    return zip(*columns, strict=True) if columns else ((),) * many


def is_number(value: Any) -> bool:
    """True for the place of a number in the record of a plan."""
    return isinstance(value, Place) and value.kind in NUMBERS


def is_double(value: Any) -> bool:
    """True for the place of a number that is a float in each content."""
    return isinstance(value, Place) and value.kind in (_WHOLE, _REAL)


def is_text(value: Any) -> bool:
    """True for a text, and for the place of one that was not taken apart."""
    return isinstance(value, str) or (isinstance(value, Place) and value.kind in TEXTS)


def is_whole(value: Any) -> bool:
    """True for the place of a whole number."""
    return isinstance(value, Place) and value.kind in (_WHOLE, _LARGE)


@lru_cache(maxsize=4096)
def shape_of(sizes: tuple[float, ...]) -> str:
    """The shape of a row, from the numbers of a record."""
    return str([*map(int, sizes)])


def as_text(value: Any) -> str:
    """A value of a content as text: a whole number without a point."""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


@lru_cache(maxsize=1024)
def unescaped(text: str) -> str:
    """A text as JSON has it between quotes, read."""
    return str(json.loads(f'"{text}"'))


_READ: Final[Mapping[str, Callable[[str], Any]]] = {_ESCAPED: unescaped, _LARGE: int}
