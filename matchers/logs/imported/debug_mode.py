"""Operations of torch's DebugMode, whichever of its three logs has them (docs/importers.md)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import Any, Final, NamedTuple

from matchers.laws.law import Kind
from matchers.laws.register import law
from matchers.logs.imported.columns import Columns
from matchers.logs.imported.json_shapes import HOLE, apart_of, as_text, rows_of
from matchers.logs.imported.makers import Makers
from matchers.logs.op_log import Phase

__all__ = ["Call", "Calls", "Form", "Nesting", "Op"]

_TENSOR = re.compile(rf"t(?:\$({HOLE}|\d+))?: (\w+)\[([^\]]*)\]")
"""A tensor among results: its number, dtype and sizes."""
_NUMBER = re.compile(rf"t(?:\$({HOLE}|\d+))?: \w+\[")
"""A tensor among arguments."""
_DTENSOR = re.compile(rf"dt(?:\$(?:{HOLE}|\d+))?: \w+\[")
_UNKNOWN: Final = -2
_NONE: Final[list[int]] = []
_EMPTY: Final[Mapping[str, Any]] = {}
_FIRST_LIST = re.compile(r"\[(?:'[^']*'(?:, )?)+\]")
"""A list of tensors as the first argument."""
_DTYPES: Final[Mapping[str, str]] = {
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"c{bits}": f"complex{bits}" for bits in (32, 64, 128)},
    **{f"f8{kind}": f"float8_{kind}" for kind in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu")},
    "bf16": "bfloat16",
    "b8": "bool",
    "f4e2m1fnx2": "float4_e2m1fn_x2",
}


class Form(NamedTuple):
    """The common part of calls with the same texts, but for the numbers in these.

    Attributes:
        name: of the operation without namespace and overload, or of a kernel.
        follows: the input that its results are views of; -1: it is no view.
        writes: it writes to an input.
        unfinished: what it returns may not be there yet.
        dtensor: it is of DTensor, whose local calls follow.
        encloses: others follow at a greater depth: it is a call of a function, without a namespace, or of DTensor.
        unhashed: it is an operation of which DebugMode has no hash because it returns nothing.
        wanted: the numbers that it asks for, by their places among those of arguments and result, or as they are:
            first those of tensors that are read, then those of tensors that are made, empty where there is none, then
            the sizes of the first result.
        read, made, written: how many tensors are read, made, and are in a list that is the first argument.
        returns: the log tells a result.
        dtype: of the first result.
        sizes: the first result's, with holes; None without one.
    """

    name: str
    follows: int
    writes: bool
    unfinished: bool
    dtensor: bool
    encloses: bool
    unhashed: bool
    wanted: tuple[int | str, ...]
    read: int
    made: int
    written: int
    returns: bool
    dtype: str
    sizes: str | None

    @classmethod
    @lru_cache(maxsize=4096)
    def of(cls, called: str, arguments: str, result: str) -> Form:
        """Return the form of calls, from the name with namespace and overload, and from texts with holes."""
        qualified = "::" in called
        name = called.rpartition("::")[2].partition(".")[0] if qualified else called
        dtensor = _DTENSOR.search(arguments) is not None
        texts = arguments + result

        def number(of: re.Match[str], before: int) -> int | str:
            return texts.count(HOLE, 0, before + of.start(1)) if of[1] == HOLE else of[1] or ""

        read, made = [*_NUMBER.finditer(arguments)], [*_TENSOR.finditer(result)]
        wanted = [number(one, 0) for one in read] + [number(one, len(arguments)) for one in made]
        sizes = made[0][3] if made else None
        if made and sizes is not None:
            first = texts.count(HOLE, 0, len(arguments) + made[0].start(3))
            wanted += range(first, first + sizes.count(HOLE))
        written = _FIRST_LIST.match(arguments)
        of = law(name)
        return cls(
            name,
            (of.passes_on or 0) if of.aliases and not of.writes else -1,
            bool(of.writes),
            of.collective is not None and of.collective.kind is not Kind.WAIT,
            dtensor,
            not qualified or dtensor,
            qualified and not result and not dtensor,
            tuple(wanted),
            len(read),
            len(made),
            len(_NUMBER.findall(written[0])) if written else 0,
            bool(result),
            _DTYPES.get(made[0][2], made[0][2]) if made else "",
            sizes,
        )

    def told(self, numbers: Sequence[Sequence[Any]], many: int) -> list[Iterable[Any]]:
        """Return shape, read and made of some calls, as an `Op` has them, from columns of the numbers it asks for."""
        read, made = numbers[: self.read], numbers[self.read : self.read + self.made]
        sizes = rows_of(numbers[self.read + self.made :], many)
        shapes = ("",) * many if self.sizes is None else map(_shape, repeat(self.sizes), sizes)
        return [shapes, rows_of(read, many), rows_of(made, many)]


class Op(NamedTuple):
    """An operation or a kernel.

    Attributes:
        shape: of the first result.
        read, made: the numbers of tensors; empty where there is none.
        norms: each tensor has one hash, a norm.
        inputs, outputs: hashes of each tensor.
        tensors: number of tensors among inputs and among outputs, where the texts do not tell.
    """

    form: Form
    shape: str
    read: Sequence[Any]
    made: Sequence[Any]
    norms: bool = False
    inputs: Sequence[Any] = ()
    outputs: Sequence[Any] = ()
    tensors: tuple[int, int] | None = None

    @classmethod
    def of(cls, name: str, arguments: str, result: str, inputs: Sequence[Any] = (), outputs: Sequence[Any] = ()) -> Op:
        """Return an operation from its texts, as DebugMode writes them, and its hashes."""
        (before, numbers), (after, more) = apart_of(arguments), apart_of(result)
        numbers += more
        form = Form.of(name, before, after)
        wanted = [[numbers[one] if isinstance(one, int) else one] for one in form.wanted]
        ((shape, read, made),) = zip(*form.told(wanted, 1), strict=True)
        return cls(form, shape, read, made, inputs=inputs, outputs=outputs)


Call = tuple[int, str, str, str, Phase, Op]
"""A call: its line in the file, from 1; the number that it has in DebugMode's list of calls, as text, empty if the log
does not say; its module, with the class of the root, empty outside of all; its source line, phase and operation."""


class Nesting:
    """The modules and ranges that are open, by the depths that DebugMode counts.

    Attributes:
        module: the innermost module, with the class of the root; empty outside of all.
        phase: as far as modules and ranges tell it: what calls a module by itself is recomputation, perhaps.
        depth: of what is open innermost; -1: nothing is.
    """

    def __init__(self) -> None:
        self._open: list[tuple[int, bool, str]] = []
        self._root = ""
        self.module = ""
        self.phase = Phase.OTHER
        self.depth = -1

    def enter(self, depth: int, header: str, tag: str) -> None:
        """Open what an annotation opens: a module, or a range of a profiler."""
        module = header.startswith("nn.Mod")
        if module or header == "record function":
            depth += not module  # a range stands where what it encloses begins
            self.leave(depth)
            self._open.append((depth, module, tag))
            self._root = self._root or (tag if module else "")
            self._tell()

    def leave(self, depth: float) -> None:
        """Close what a call at this depth lies outside of."""
        if self.depth >= depth:
            while self._open and self._open[-1][0] >= depth:
                self._open.pop()
            self._tell()

    def _tell(self) -> None:
        self.depth = self._open[-1][0] if self._open else -1
        modules = [tag for _, module, tag in self._open if module]
        self.module = modules[-1] if modules else ""
        self.phase = Phase.FORWARD if modules and modules[0] == self._root else Phase.OTHER
        if any(not module and tag.startswith("Optimizer.step#") for _, module, tag in self._open):
            self.phase = Phase.OPTIMIZER


class Calls:
    """Rows of calls: views are followed, numbers told apart, and the operations that made inputs found.

    A tensor is known by its number, or by its norm: no two results of a step have one by chance, unless it is a whole
    number. What two operations made has no known maker.
    """

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._hashed = False
        self._waiting: list[Call] = []
        """Calls before the first one that was hashed."""
        self._root = ""
        self._paths: dict[str, str] = {}
        self._each = 1
        """Numbers of each tensor."""
        self._maker: dict[Any, int] = {}
        self._maker_of_norm = Makers()

    def add(self, calls: Sequence[Call]) -> None:
        """Add calls; what encloses others, and memory that is not filled yet, has no hash and is left out."""
        if not self._hashed:
            self._waiting += calls
            self._hashed = any(op.outputs or op.inputs for *_, op in calls)
            calls, self._waiting = (self._waiting, []) if self._hashed else ([], self._waiting)
            self._columns.waiting = len(self._waiting)
        self._enter(calls)

    def others(self, line: int, many: int) -> None:
        """Note lines of something else, with the first one."""
        told = f"{many:,} line{'s are' if many > 1 else ' is'} not of DebugMode, from here on"
        self._columns.problem(line, told)

    def finish(self) -> None:
        """Add the calls of a log without any hash."""
        self._enter([call for call in self._waiting if not call[-1].form.dtensor])

    def _enter(self, calls: Iterable[Call]) -> None:
        made_by, of_norm, paths = self._maker, self._maker_of_norm, self._paths
        maker_of, first, hashed = made_by.get, of_norm.first, self._hashed
        rows: list[tuple[Any, ...]] = []
        here = len(self._columns)
        for line, number, module, location, phase, op in calls:
            form, shape, known, results, norms, before, after, tensors = op
            if hashed and not (after or before or form.unhashed):
                continue
            inputs, outputs, whole = before, after, _NONE
            if not norms:
                many = (form.read, form.made) if tensors is None else tensors
                outputs, whole = self._norms(after, many[1])
                inputs, _ = self._norms(before, many[0])
            elif before or after:
                self._each = 1
            if not inputs:
                producers = [*map(maker_of, known, repeat(-1))]
            elif len(known) == len(inputs):
                producers = [*map(maker_of, known, repeat(_UNKNOWN))]
                if _UNKNOWN in producers:
                    either = zip(producers, inputs, strict=True)
                    producers = [of_norm.of(norm) if maker == _UNKNOWN else maker for maker, norm in either]
            else:
                producers = [*map(of_norm.of, inputs)]
            row = here
            if form.follows >= 0 and producers:
                row = producers[form.follows if form.follows < len(producers) else 0]
            else:
                told = form.returns or tensors is not None
                if (before or after) and told and not (results or outputs or whole or form.writes):
                    continue  # gives Python a number
                if not results and form.writes:
                    results = known[: form.written]
                texts = {"User hash": ", ".join(map(str, whole))} if whole else _EMPTY
                path = paths.get(module)
                if path is None:
                    path = self._path(module)
                rows.append((line, path, form.name, shape, form.dtype, outputs, inputs, producers, location, phase,
                    _EMPTY, (), (), (), False, -1, texts, number, b""))  # fmt: skip
                here += 1
                if form.unfinished:
                    outputs = ()
            for tensor in results:
                if tensor != "":
                    made_by[tensor] = row
            for norm in outputs:
                if norm % 1 > 0 and first(norm, row) != row:  # neither NaN nor infinite
                    of_norm.keep(norm, row)
        self._columns.extend(rows)

    def _norms(self, values: Sequence[Any], tensors: int) -> tuple[Sequence[float], list[int]]:
        """The norms and the whole numbers of tensors: a hash of several functions has some of each."""
        if tensors and values and len(values) % tensors == 0:
            self._each = len(values) // tensors
        groups = [values[k : k + self._each] for k in range(0, len(values), self._each)]
        norms = [next((value for value in group if isinstance(value, float)), math.nan) for group in groups]
        whole = [next((value for value in group if isinstance(value, int)), None) for group in groups]
        told = any(isinstance(value, float) for value in values)
        return norms if told else (), [] if None in whole else [n for n in whole if n is not None]

    def _path(self, module: str) -> str:
        """The path of a module, without the class of the root."""
        self._root = self._root or module.partition(".")[0]
        path = "" if module == self._root else module.removeprefix(f"{self._root}.")
        if self._root:
            self._paths[module] = path
        return path


@lru_cache(maxsize=4096)
def _shape(sizes: str, numbers: tuple[Any, ...]) -> str:
    """The shape of a row, from sizes with holes."""
    filled = zip(sizes.split(HOLE), [*map(as_text, numbers), ""], strict=True)
    return f"[{''.join(chain.from_iterable(filled))}]"
