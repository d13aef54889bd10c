"""Isolation of causes: what to graft behind those of a comparison, and the report of a whole isolation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, TextIO

from matchers.comparison import Comparison
from matchers.logs.op_log import OpLog, Phase
from numtui import __version__
from numtui.report.own_errors import OwnError
from numtui.report.text_lines import BOLD, Paint, wrapped
from numtui.text.counts import plural
from numtui.text.safe import safe_text, write_lines

__all__ = ["VERSION", "Called", "Found", "Isolation", "found_causes", "grafts_behind", "write_json", "write_text"]

VERSION: Final = 1
"""Version of the JSON. New fields keep it; a renamed or removed one changes it."""
GRADIENTS, OPTIMIZER = "gradients", "optimizer"
"""Boundaries of the gradients of weights, which no module has."""


@dataclass(frozen=True)
class Called:
    """The modules that a run called in its step.

    Attributes:
        inner: the modules that each calls itself, by its name.
        outermost: those that no other calls.
    """

    inner: Mapping[str, Sequence[str]]
    outermost: Sequence[str]

    @classmethod
    def of(cls, boundaries: Iterable[Mapping[str, Any]]) -> Called:
        """Read the calls of a bundle."""
        inner: dict[str, dict[str, None]] = {}
        outermost: dict[str, None] = {}
        for call in boundaries:
            name, within = call["module"], call["within"]
            if name in (GRADIENTS, OPTIMIZER):
                continue
            inner.setdefault(name, {})
            if within is None:
                outermost[name] = None
            elif within != name:
                inner.setdefault(within, {})[name] = None
        return cls({name: [*of] for name, of in inner.items()}, [*outermost])

    def nearest(self, module: str) -> str:
        """Return a module, or the innermost called one that contains it; empty for none."""
        while module and module not in self.inner:
            module = module.rpartition(".")[0]
        return module

    def blocks(self) -> list[str]:
        """Return the outermost modules that are layers of a stack, as `layers.3`, and those beside their stack."""
        return [block for name in self.outermost for block in self._blocks(name)]

    def _blocks(self, name: str) -> list[str]:
        found = []
        for inner in self.inner[name]:
            numbered = inner.rpartition(".")[2].isdigit()
            expand = not numbered and any(map(_is_layer, self._within(inner)))
            found += self._blocks(inner) if expand else [inner]
        return found or [name]

    def _within(self, name: str) -> Iterator[str]:
        for inner in self.inner[name]:
            yield inner
            yield from self._within(inner)


def _is_layer(name: str) -> bool:
    return name.rpartition(".")[2].isdigit()


@dataclass(frozen=True)
class Found:
    """A cause that was isolated.

    Attributes:
        key_a, key_b: of its first operation, empty in a run that lacks it.
        places: number of operations of this place in the program that are causes.
        module: the called module that it lies in; empty outside of all.
        phase: of the step.
        line: source line, of b where it has one.
        sentence: what differs.
        run: the number of the capture that first showed it, from 0.
    """

    key_a: str
    key_b: str
    places: int
    module: str
    phase: str
    line: str
    sentence: str
    run: int


def found_causes(c: Comparison, called: Called, run: int) -> list[Found]:
    """Return the causes of a comparison, in the order of the step."""
    from matchers.explain.sentences import headline

    found = []
    for rows in (*c.starts, *c.further_causes):
        row = rows[0]
        keys = {side: _key(log, of[row]) for side, log, of in (("a", c.a, c.row_a), ("b", c.b, c.row_b))}
        log, record = (c.b, int(c.row_b[row])) if c.row_b[row] >= 0 else (c.a, int(c.row_a[row]))
        module = called.nearest(_module(keys["a"] or keys["b"]))
        phase = Phase(log.phase[record]).label
        line = log.location_text(record)
        found.append(Found(keys["a"], keys["b"], len(rows), module, phase, line, headline(c, row), run))
    return found


def _key(log: OpLog, record: Any) -> str:
    return log.keys[int(record)] if record >= 0 else ""


def _module(key: str) -> str:
    return key.rpartition("/")[0]


def grafts_behind(c: Comparison, called: Called) -> tuple[list[str], list[str]]:
    """Return what to graft so that nothing differs behind the causes of a comparison.

    Returns:
        (in front of which modules, behind which), as `--graft` and `--graft-after` name them, without the run.
    """
    before: dict[str, None] = {}
    after: dict[str, None] = {}
    for row in sorted({row for rows in (*c.starts, *c.further_causes) for row in rows}):
        key_a, key_b = _key(c.a, c.row_a[row]), _key(c.b, c.row_b[row])
        log, record = (c.a, c.row_a[row]) if key_a else (c.b, c.row_b[row])
        phase = Phase(log.phase[record])
        there = called.nearest(_module(key_a or key_b))
        here = _renamed(there, _module(key_a), _module(key_b)) if key_a and key_b else there
        if phase in (Phase.OPTIMIZER, Phase.AFTER, Phase.PREPARE):
            continue  # nothing of the step reads what these make, or all of it does
        if phase == Phase.GRADIENTS:
            before[OPTIMIZER] = None
        elif there:
            after[_spec(here, there)] = None
            inner = called.inner[there]
            before |= dict.fromkeys(_spec(here + name.removeprefix(there), name) for name in inner)
        else:  # a loss, say: what it hands back enters the models
            before |= dict.fromkeys(called.outermost)
    return [*before], [*after]


def _renamed(module: str, key_a: str, key_b: str) -> str:
    """Return the name in b of a module that contains that of a pair: what follows it there has as many parts."""
    if key_a == key_b:
        return module
    inner = key_a.count(".") - module.count(".")
    return key_b.rsplit(".", inner)[0] if inner else key_b


def _spec(here: str, there: str) -> str:
    return here if here == there else f"{here}:{there}"


@dataclass(frozen=True)
class Isolation:
    """The outcome of an isolation.

    Attributes:
        names: of both runs.
        runs: number of captures.
        causes: that are independent of each other.
        red: number of red rows of the last comparison.
        errors: own errors of modules.
        checked: number of modules whose own errors are known.
        grafted: what was grafted in the last capture.
        missed: why some of it was not.
        open: why there may be more causes; empty if there are none.
    """

    names: tuple[str, str]
    runs: int
    causes: Sequence[Found]
    red: int
    errors: Sequence[OwnError]
    grafted: Sequence[str]
    missed: Mapping[str, str]
    open: str = ""

    @property
    def result(self) -> str:
        """The outcome in a sentence."""
        runs = plural(self.runs, "capture")
        if not self.causes:
            return f"No cause in {runs}: nothing is red" if not self.red else f"No cause in {runs}"
        noun = "independent causes" if len(self.causes) > 1 else "cause"
        return f"{len(self.causes):,} {noun} in {runs}"


def write_json(found: Isolation, out: TextIO) -> None:
    """Write all of it, in ASCII."""
    told = {"version": VERSION, "numtui": __version__, "a": found.names[0], "b": found.names[1]}
    told |= {"result": found.result, "open": found.open, "runs": found.runs, "red": found.red}
    told |= {"causes": [asdict(cause) for cause in found.causes]}
    told |= {"own_errors": [error.as_json() for error in found.errors]}
    told |= {"grafted": list(found.grafted), "not_grafted": dict(found.missed)}
    out.write(json.dumps(told, indent=1, allow_nan=False) + "\n")


def write_text(found: Isolation, out: TextIO, *, every: bool = False, color: bool = False) -> None:
    """Write it for people; `every`: modules without an error of their own, too."""
    write_lines(_lines(found, Paint(color), every=every), out)


def _lines(found: Isolation, paint: Paint, *, every: bool) -> Iterator[str]:
    yield paint(BOLD, found.result)
    if found.open:
        yield from wrapped(found.open, "  ", "  ")
    for number, cause in enumerate(found.causes, 1):
        keys = dict.fromkeys(safe_text(key, 200) for key in (cause.key_a, cause.key_b) if key)
        yield ""
        many = f" and {cause.places - 1:,} more of this line" if cause.places > 1 else ""
        yield paint(BOLD, f"{number}. {' ⇄ '.join(keys)}{many}")
        yield f"   {cause.phase}, {safe_text(cause.line, 300) or 'no source line'}"
        yield from wrapped(cause.sentence, "   ", "   ")
    if found.errors:
        yield from _table(found.errors, paint, every=every)
    if found.missed:
        yield ""
        what, why = next(iter(found.missed.items()))
        yield from wrapped(f"Not grafted: {len(found.missed):,}; the first: {what}: {why}", "", "  ")


def _table(errors: Sequence[OwnError], paint: Paint, *, every: bool) -> Iterator[str]:
    shown = [error for error in errors if every or error.differs]
    alike = len(errors) - len(shown)
    yield ""
    if not shown:
        yield f"Own errors: none in {plural(alike, 'module')} with equal inputs"
        return
    rows = [("module", "forward", "backward", "weights", "ε of")]
    rows += [(safe_text(each.module, 80), *each.shown, each.dtype) for each in shown]
    widths = [max(len(row[k]) for row in rows) for k in range(5)]
    yield paint(BOLD, "Own errors, ‖b − a‖ / ‖a‖ in ε, with the inputs of a")
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(row[k].rjust(widths[k]) for k in (1, 2, 3)), row[4]]
        yield "  " + "  ".join(cells).rstrip()
    if alike:
        yield f"  and {plural(alike, 'module')} without any"
