"""Isolation of causes: what to graft behind those of a comparison, and the report of a whole isolation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, TextIO

import numpy as np

from capture.keeping.form import OF_NO_MODULE, OF_OPTIMIZER
from matchers.comparison import Comparison
from matchers.logs.op_log import OpLog, Phase
from matchers.status import Status
from numtui import __version__
from numtui.report.own_errors import BEFORE_OPTIMIZER, OUTSIDE, OwnError
from numtui.report.text_lines import BOLD, Paint, wrapped
from numtui.text.counts import plural
from numtui.text.safe import safe_text, write_lines

__all__ = ["VERSION", "Called", "Found", "Isolation", "found_causes", "grafts_behind", "write_json", "write_text"]

VERSION: Final = 1
"""Version of the JSON. New fields keep it; a renamed or removed one changes it."""


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
            if name in OF_NO_MODULE:
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
        key_a, key_b: of its first operation, empty in a run that lacks it; both are where no operation tells.
        rows: of the comparison that start it.
        module: the called module that it lies in; empty outside of all.
        phase: of the step.
        line: source line, of b where it has one.
        sentence: what differs.
        alone: one run alone has this operation.
    """

    key_a: str
    key_b: str
    rows: tuple[int, ...]
    module: str
    phase: str
    line: str
    sentence: str
    alone: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return it ready for JSON, without what only this comparison knows."""
        told = asdict(self) | {"operations": len(self.rows)}
        del told["rows"], told["alone"]
        return told


_ROUNDING: Final = 64.0
"""ε that a module may add by itself where other kernels compute it."""


def found_causes(c: Comparison, called: Called, errors: Iterable[OwnError]) -> list[Found]:
    """Return the causes of a comparison, in the order of the step.

    Those that the comparison knows, and of each module with an error of its own that none of these explains the first
    operation with equal inputs that differs, or that one run alone has: behind it all may have been grafted, so that
    nothing red reads it.
    """
    found = [_found(c, called, rows) for rows in (*c.starts, *c.further_causes)]
    for error in errors:
        for phases, size in _phases(error):
            known = any(_explains(cause, error.module, phases) for cause in found)
            if size is None or size <= _ROUNDING or known:
                continue
            rows = _first_rows(c, called, error.module, phases)
            found.append(_found(c, called, rows) if rows else _of_module(error.module, phases[0]))
    merged: dict[tuple[object, ...], Found] = {}
    for cause in sorted(found, key=lambda cause: cause.rows[:1] or (len(c),)):
        # what one run alone does in a line goes with what else differs there
        key = (cause.module, cause.line) if cause.line else (cause.rows,)
        known_here = merged.get(key)
        if known_here is None:
            merged[key] = cause
        elif cause.alone or known_here.alone or cause.phase != known_here.phase:
            merged[key] = replace(known_here, rows=(*known_here.rows, *cause.rows))
        else:
            merged[cause.module, cause.line, cause.sentence] = cause
    return [*merged.values()]


def _found(c: Comparison, called: Called, rows: tuple[int, ...]) -> Found:
    from matchers.explain.sentences import headline

    row = rows[0]
    key_a, key_b = _key(c.a, c.row_a[row]), _key(c.b, c.row_b[row])
    log, record = (c.b, int(c.row_b[row])) if c.row_b[row] >= 0 else (c.a, int(c.row_a[row]))
    phase = Phase(log.phase[record]).label
    sentence = headline(c, row).removeprefix("FIRST CAUSE: ")
    module = called.nearest(_module(key_a or key_b)) if phase != Phase.OPTIMIZER.label else ""
    return Found(key_a, key_b, rows, module, phase, log.location_text(record), sentence, bool(c.pair[row] < 0))


def _of_module(module: str, phase: Phase) -> Found:
    return Found("", "", (), module, phase.label, "", "given the same, it gives something else: no operation tells why")


def _phases(error: OwnError) -> Iterator[tuple[tuple[Phase, ...], float | None]]:
    """Yield what an error of its own may come from: phases of the step, the earliest first, and its size."""
    if error.module == BEFORE_OPTIMIZER:
        yield (Phase.GRADIENTS,), error.weights
    elif error.module == OUTSIDE:
        yield (Phase.FORWARD, Phase.BACKWARD), error.backward
    else:
        yield (Phase.FORWARD,), error.forward
        behind = [size for size in (error.backward, error.weights) if size is not None]
        if not error.forward or error.forward <= _ROUNDING:
            yield (Phase.FORWARD, Phase.BACKWARD), max(behind, default=None)


def _explains(cause: Found, module: str, phases: Sequence[Phase]) -> bool:
    return _place(cause) == module and cause.phase in [phase.label for phase in phases]


def _place(cause: Found) -> str:
    """Return the module of a cause, or what stands for it in a table of errors."""
    if cause.module:
        return cause.module
    return BEFORE_OPTIMIZER if cause.phase == Phase.GRADIENTS.label else OUTSIDE


def _first_rows(c: Comparison, called: Called, module: str, phases: Sequence[Phase]) -> tuple[int, ...]:
    """Return the first row of a module in some phases that differs by itself, if there is one."""
    alone = (c.pair < 0) & (c.status != Status.RECOMPUTE)
    odd = alone | ((c.pair >= 0) & c.inputs_equal & (c.status != Status.EQUAL))
    for phase in phases:
        for row in np.flatnonzero(odd & c.by_row(lambda log, phase=phase: log.phase == phase)).tolist():  # type: ignore[misc]
            within = called.nearest(_module(_key(c.a, c.row_a[row]) or _key(c.b, c.row_b[row])))
            if within == (module if module not in (OUTSIDE, BEFORE_OPTIMIZER) else ""):
                return (row,)
    return ()


def _key(log: OpLog, record: Any) -> str:
    return log.keys[int(record)] if record >= 0 else ""


def _module(key: str) -> str:
    return key.rpartition("/")[0]


def grafts_behind(c: Comparison, called: Called, causes: Iterable[Found]) -> tuple[list[str], list[str]]:
    """Return what to graft so that nothing differs behind some causes.

    Returns:
        (in front of which modules, behind which), as `--graft` and `--graft-after` name them, without the run.
    """
    before: dict[str, None] = {}
    after: dict[str, None] = {}

    def behind(here: str, there: str) -> None:
        after[_spec(here, there)] = None
        for name in called.inner[there]:  # those of a whole model have names without its own
            before[_spec(here + name.removeprefix(there) if name.startswith(f"{there}.") else name, name)] = None

    for cause in causes:
        if not cause.rows and cause.module in called.inner:
            behind(cause.module, cause.module)
        for row in cause.rows:
            key_a, key_b = _key(c.a, c.row_a[row]), _key(c.b, c.row_b[row])
            log, record = (c.a, c.row_a[row]) if key_a else (c.b, c.row_b[row])
            phase = Phase(log.phase[record])
            there = called.nearest(_module(key_a or key_b))
            if phase in (Phase.OPTIMIZER, Phase.AFTER, Phase.PREPARE):
                continue  # nothing of the step reads what these make, or all of it does
            if phase == Phase.GRADIENTS:
                before[OF_OPTIMIZER] = None
            elif there:
                behind(_renamed(there, _module(key_a), _module(key_b)) if key_a and key_b else there, there)
            else:  # a loss, say: what it hands back enters the models
                before.update(dict.fromkeys(called.outermost))
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
    told |= {"causes": [cause.as_json() for cause in found.causes]}
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
        many = f" and {len(cause.rows) - 1:,} more of this line" if len(cause.rows) > 1 else ""
        yield paint(BOLD, f"{number}. {' ⇄ '.join(keys) or safe_text(cause.module, 200)}{many}")
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
