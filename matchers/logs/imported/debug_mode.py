"""Operations of torch's DebugMode, whichever of its three logs has them (docs/importers.md)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final, NamedTuple

from matchers.laws.law import Kind
from matchers.laws.register import law
from matchers.logs.imported.columns import Columns, Row, new_row
from matchers.logs.imported.format import NATIVE_KEY
from matchers.logs.imported.json_shapes import HOLE, apart_of, as_text
from matchers.logs.imported.makers import Makers
from matchers.logs.op_log import Phase

__all__ = ["Call", "Calls", "Form", "Nesting"]

_TENSOR = re.compile(rf"t(?:\$({HOLE}|\d+))?: (\w+)\[([^\]]*)\]")
"""A tensor among results: its number, dtype and sizes."""
_NUMBER = re.compile(rf"t(?:\$({HOLE}|\d+))?: \w+\[")
"""A tensor among arguments."""
_DTENSOR = re.compile(rf"dt(?:\$(?:{HOLE}|\d+))?: \w+\[")
_NORMS: Final = {float}
_NO_STATISTICS: Final[Mapping[str, float]] = {}
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
        wanted: what its `Call.numbers` are, by their places among the numbers of arguments and result, or as they are:
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

    @classmethod
    def with_numbers(cls, called: str, arguments: str, result: str) -> tuple[Form, tuple[Any, ...]]:
        """Return the form of a call and its `Call.numbers`, from its texts as DebugMode writes them."""
        (before, numbers), (after, more) = apart_of(arguments), apart_of(result)
        numbers += more
        form = cls.of(called, before, after)
        return form, tuple([numbers[one] if isinstance(one, int) else one for one in form.wanted])


class Call(NamedTuple):
    """A call of an operation or a kernel.

    Attributes:
        line: in the file, from 1.
        number: the one it has in DebugMode's list of calls, as text; empty if the log does not say.
        module: with the class of the root; empty outside of all.
        numbers: those in its texts that its form asks for.
        inputs, outputs: hashes of each tensor.
        tensors: number of tensors among inputs and among outputs, where the texts do not tell.
    """

    line: int
    number: str
    module: str
    form: Form
    numbers: tuple[Any, ...]
    inputs: Sequence[Any]
    outputs: Sequence[Any]
    location: str = ""
    phase: Phase = Phase.OTHER
    tensors: tuple[int, int] | None = None


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

    def leave(self, depth: int) -> None:
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

    def add(self, call: Call) -> None:
        """Add a call; what encloses others, and memory that is not filled yet, has no hash and is left out."""
        hashed = bool(call.outputs or call.inputs)
        if not self._hashed:
            if not hashed:
                self._waiting.append(call)
                self._columns.waiting += 1
                return
            self._hashed = True
            waiting, self._waiting = self._waiting, []
            self._columns.waiting = 0
            for before in waiting:
                self.add(before)
        if hashed or call.form.unhashed:
            self._enter(call, hashed=hashed)

    def finish(self) -> None:
        """Add the calls of a log without any hash."""
        for call in self._waiting:
            if not call.form.dtensor:
                self._enter(call, hashed=False)

    def _enter(self, call: Call, *, hashed: bool) -> None:
        line, number, module, form, numbers, before, after, location, phase, tensors = call
        read, made = form.read, form.made
        many = (read, made) if tensors is None else tensors
        outputs, whole = self._norms(after, many[1]) if after else ((), ())
        inputs, _ = self._norms(before, many[0]) if before else ((), ())
        made_by, of_norm = self._maker, self._maker_of_norm
        known = numbers[:read]
        if not inputs:
            producers = [made_by.get(tensor, -1) for tensor in known]
        elif read == len(inputs):
            producers = [
                made_by[tensor] if tensor in made_by else of_norm.of(norm)
                for tensor, norm in zip(known, inputs, strict=True)
            ]
        else:
            producers = [*map(of_norm.of, inputs)]
        results = numbers[read : read + made]
        row = len(self._columns)
        if form.follows >= 0 and producers:
            row = producers[form.follows if form.follows < len(producers) else 0]
        else:
            told = form.returns or tensors is not None
            if hashed and told and not (made or outputs or whole or form.writes):  # gives Python a number
                return
            if not made and form.writes:
                results = known[: form.written]
            texts = {NATIVE_KEY: number} if number else {}
            if whole:
                texts["User hash"] = ", ".join(map(str, whole))
            shape = "" if form.sizes is None else _shape(form.sizes, numbers[read + made :])
            path = self._paths.get(module)
            if path is None:
                path = self._path(module)
            told_of = line, path, form.name, shape, form.dtype, outputs, inputs, producers, location, phase
            self._columns.add(new_row(Row, (*told_of, _NO_STATISTICS, (), (), (), False, -1, texts)))
            if form.unfinished:
                outputs = ()
        for tensor in results:
            if tensor != "":
                made_by[tensor] = row
        for norm in outputs:
            if norm % 1 > 0:  # neither NaN nor infinite
                of_norm.keep(norm, row)

    def _norms(self, values: Sequence[Any], tensors: int) -> tuple[Sequence[float], Sequence[int]]:
        """The norms and the whole numbers of tensors: a hash of several functions has some of each."""
        if tensors and len(values) % tensors == 0:
            self._each = len(values) // tensors
        if self._each == 1 and _NORMS.issuperset(map(type, values)):
            return values, ()
        groups = [values[k : k + self._each] for k in range(0, len(values), self._each)]
        norms = [next((value for value in group if isinstance(value, float)), math.nan) for group in groups]
        whole = [next((value for value in group if isinstance(value, int)), None) for group in groups]
        told = any(isinstance(value, float) for value in values)
        return norms if told else (), () if None in whole else [n for n in whole if n is not None]

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
