"""Isolation of causes: those of a comparison with grafts, what to graft behind them, and the outcome."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from capture.keeping.form import OF_OPTIMIZER
from matchers.comparison import Comparison
from matchers.logs.op_log import OpLog, Phase
from matchers.ops.dataflow import sources
from matchers.ops.laws import rows_where
from matchers.ops.optimizer_settings import optimizer_differences
from matchers.ops.run_info import detaches
from matchers.ops.start import table
from matchers.status import Status
from numtui.report.called_modules import Called
from numtui.report.hidden_causes import beginning, behind_grafts
from numtui.report.lost_gradients import LostGradients
from numtui.report.own_errors import BEFORE_OPTIMIZER, OUTSIDE, OwnError
from numtui.text.counts import plural

__all__ = ["Found", "Isolation", "Place", "found_causes", "grafts_behind", "limit_of", "places", "sharing"]

Place = tuple[int | None, int | None]
"""A row in the explorer: by its record in a, or else by its line in the log of b."""


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
        place: of the first row; None where no operation tells.
        cut: its line cuts a gradient; what lacks that may begin in several modules.
    """

    key_a: str
    key_b: str
    rows: tuple[int, ...]
    module: str
    phase: str
    line: str
    sentence: str
    alone: bool = False
    place: Place | None = None
    cut: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return it ready for JSON, without what only this comparison knows."""
        names = ("key_a", "key_b", "module", "phase", "line", "sentence")
        return {name: getattr(self, name) for name in names} | {"operations": len(self.rows)}


_NOTHING_LOST: Final = LostGradients()
_LEAST: Final = 16.0
"""ε that a module may always add by itself: a thousand roundings one after the other, each of half an ε, in random
directions.
"""
_PEERS: Final = 8.0
"""Times the median of all modules that one may add, where both runs have other kernels or another precision."""


def limit_of(errors: Iterable[OwnError]) -> float:
    """Return the ε above which an error of a module is none of rounding."""
    sizes = [size for each in errors for size in (each.forward, each.backward, each.weights, each.joint)]
    return max(_LEAST, _PEERS * median([size for size in sizes if size is not None] or [0.0]))


def found_causes(
    c: Comparison, called: Called, errors: Sequence[OwnError], lost: LostGradients = _NOTHING_LOST
) -> list[Found]:
    """Return the causes of a comparison, in the order of the step.

    Those that the comparison knows, and of each module with an error of its own that none of these explains the first
    operation with equal inputs that differs, or that one run alone has: behind it all may have been grafted, so that
    nothing red reads it.
    """
    limit, unexplained = limit_of(errors), []
    found = [_found(c, called, _from_beginning(c, rows)) for rows in c.starts]
    further = (_found(c, called, rows) for rows in c.further_causes)
    found += [cause for cause in further if not _acquitted(cause, errors, limit)]
    found += _set_otherwise(c, called, found)
    sharing = [error.module for error in errors if error.joint is not None]
    other_layout = any(c.a.header.run.get(name) != c.b.header.run.get(name) for name in ("world_size", "mesh"))
    plain = next((log for log in (c.a, c.b) if log.header.run.get("world_size") in (None, 1)), None)
    open_ = _not_grafted(c, called)
    if other_layout and table(c.b.header.run, "grafts"):
        known = [row for cause in found for row in cause.rows]
        within = _rows_within(c, called, open_ | {cause.module for cause in found})
        found += [_found(c, called, rows) for rows in behind_grafts(c, known, within)]
    found += _cut_off(c, found, lost)
    for error in errors:
        for phases, size in _phases(error, limit) if error.module not in open_ else ():
            if size is None or size <= limit or _explained(found, [error.module], phases):
                continue
            # other modules add to a joint error, too: what another layout alone does here does not tell
            tells = [plain] if other_layout and error.joint == size else [c.a, c.b]
            if rows := _first_rows(c, called, error.module, phases, alone=tells):
                found.append(_found(c, called, rows))
            elif error.joint != size:
                unexplained.append((error.module, phases))
    for module, phases in unexplained:
        inner = [name for name in called.within(module) if name in sharing]  # their gradients are terms of its own
        if _explained(found, [module, *inner], phases):
            continue
        rows = _first_rows(c, called, module, phases, red=True)
        if not rows and phases == (Phase.FORWARD,):  # a view: what only one run does backward tells its line
            rows = _first_rows(c, called, module, (Phase.BACKWARD,))
        found.append(_found(c, called, rows) if rows else _of_module(module, phases[0]))
    merged: dict[tuple[object, ...], Found] = {}
    if any(cause.phase != Phase.OPTIMIZER.label for cause in found):  # it is not given these gradients: no fault of its
        found = [cause for cause in found if not (cause.alone and _of_weights(cause, lost))]
    for cause in sorted(found, key=lambda cause: cause.rows[:1] or (len(c),)):
        # what one run alone does in a line goes with what else differs there
        key = (cause.line,) if cause.cut else (cause.module, cause.line) if cause.line else (cause.rows,)
        known_here = merged.get(key)
        if known_here is None:
            merged[key] = cause
        elif cause.alone or known_here.alone or cause.phase != known_here.phase:
            merged[key] = replace(known_here, rows=(*known_here.rows, *cause.rows))
        else:
            merged[cause.module, cause.line, cause.sentence] = cause
    return [*merged.values()]


def _not_grafted(c: Comparison, called: Called) -> set[str]:
    """Return the modules of whose error nothing is known, because in them something could not be grafted."""
    missed = {what.partition(":")[0] for what in table(table(c.b.header.run, "grafts"), "missed")}
    return {name for name in called.inner if name in missed or not missed.isdisjoint(called.within(name))}


def _rows_within(c: Comparison, called: Called, modules: Collection[str]) -> NDArray[np.bool_]:
    """Return the rows of some modules, without those that they call: bool[r]."""

    def within(log: OpLog) -> NDArray[np.bool_]:
        return np.array([called.nearest(name) in modules for name in log.modules] + [False])[log.module]

    return c.by_row(within)


def _set_otherwise(c: Comparison, called: Called, found: Iterable[Found]) -> Iterator[Found]:
    """Yield the settings of optimizers that differ, if no cause of theirs is known: others lead to all that they do."""
    told = [note.text for note in c.comparability.notes if note.kind == "optimizer"]
    if not optimizer_differences(c.a.header.run, c.b.header.run) or any(
        cause.phase == Phase.OPTIMIZER.label for cause in found
    ):
        return
    for row in np.flatnonzero(c.red & c.by_row(lambda log: log.phase == Phase.OPTIMIZER))[:1].tolist():
        yield replace(_found(c, called, (row,)), sentence="; ".join(told))


def _found(c: Comparison, called: Called, rows: tuple[int, ...]) -> Found:
    from matchers.explain.sentences import headline

    row = rows[0]
    key_a, key_b = _key(c.a, c.row_a[row]), _key(c.b, c.row_b[row])
    log, record = (c.b, int(c.row_b[row])) if c.row_b[row] >= 0 else (c.a, int(c.row_a[row]))
    phase, line, cut = Phase(log.phase[record]), log.location_text(record), False
    sentence = headline(c, row)
    for told in ("FIRST CAUSE: ", "FIRST DIFFERENCE: ", "CONSEQUENCE: ", "; downstream of an earlier divergence"):
        sentence = sentence.replace(told, "", 1)  # of the comparison alone, which knows no grafts
    if phase == Phase.BACKWARD and c.pair[row] < 0 and _has_partner_before(c, log, record):
        side = int(not key_a)  # the other run, which lacks it, has cut it off
        cuts = _cuts(c, side)
        if cut := len(cuts) == 1:
            line, sentence = cuts[0], f"detach() cuts a gradient here in {'ba'[side]}; {sentence}"
    module = called.nearest(_module(key_a or key_b)) if phase != Phase.OPTIMIZER else ""
    return Found(key_a, key_b, rows, module, phase.label, line, sentence, bool(c.pair[row] < 0), _place_of(c, row), cut)


def _from_beginning(c: Comparison, rows: tuple[int, ...]) -> tuple[int, ...]:
    begins = beginning(c, rows[0])
    return rows if begins == rows[0] else (begins, *rows)


def _cuts(c: Comparison, side: int) -> list[str]:
    """Return the lines that detach more tensors in one run; `side`: 0 if it is b, 1 if it is a."""
    return [at for at, *many in detaches(c.a.header.run, c.b.header.run) if many[1 - side] > many[side]]


def _cut_off(c: Comparison, found: Sequence[Found], lost: LostGradients) -> Iterator[Found]:
    """Yield what cuts a gradient off inside of modules; without a line only if no other cause there is known."""
    known = {cause.line for cause in found}
    cuts = _cuts(c, 0)
    if len(cuts) > 1:
        cuts = [line for line in cuts if line not in known]
    for module in lost.cut_in:
        if len(cuts) == 1:
            yield _of_module(module, Phase.BACKWARD, cuts[0], "detach() cuts a gradient here in b", cut=True)
        elif not _explained(found, [module], [Phase.FORWARD, Phase.BACKWARD]):
            yield _of_module(module, Phase.BACKWARD, what="a gradient ends here in b, and not in a")


def _of_weights(cause: Found, lost: LostGradients) -> bool:
    """Return True for what an optimizer does to weights of which one run alone has a gradient."""
    return cause.phase == Phase.OPTIMIZER.label and _module(cause.key_a or cause.key_b) in lost.weights


def _place_of(c: Comparison, row: int) -> Place:
    record = int(c.row_a[row])
    return (record, None) if record >= 0 else (None, int(c.b.line[c.row_b[row]]))


def places(c: Comparison, called: Called, errors: Iterable[OwnError]) -> dict[str, Place]:
    """Return the first red row of each module with an error of its own, or the first one that differs by itself."""
    found: dict[str, Place] = {}
    for error in errors:
        phases = [phase for of_phases, _ in _phases(error, _LEAST) for phase in of_phases]
        for red in (True, False) if error.differs else ():
            if rows := _first_rows(c, called, error.module, phases, red=red):
                found.setdefault(error.module, _place_of(c, rows[0]))
    return found


def _has_partner_before(c: Comparison, log: OpLog, record: int) -> bool:
    """Return True if both runs have what a module does forward in the line of an operation of its backward pass."""
    alike = (log.module == log.module[record]) & (log.location == log.location[record]) & (log.phase == Phase.FORWARD)
    rows = (c.at_a if log is c.a else c.at_b)[alike]
    return bool(len(rows)) and bool((c.pair[rows] >= 0).all())


def _of_module(
    module: str,
    phase: Phase,
    line: str = "",
    what: str = "given the same, it gives something else: no operation tells why",
    *,
    cut: bool = False,
) -> Found:
    return Found("", "", (), module, phase.label, line, what, cut=cut)


def _phases(error: OwnError, limit: float) -> Iterator[tuple[tuple[Phase, ...], float | None]]:
    """Yield what an error of its own may come from: phases of the step, the earliest first, and its size."""
    if error.module == BEFORE_OPTIMIZER:
        yield (Phase.GRADIENTS,), error.weights
    elif error.module == OUTSIDE:
        yield (Phase.FORWARD, Phase.BACKWARD), error.backward
    else:
        yield (Phase.FORWARD,), error.forward
        behind = [size for size in (error.backward, error.weights, error.joint) if size is not None]
        if not error.forward or error.forward <= limit:
            yield (Phase.FORWARD, Phase.BACKWARD), max(behind, default=None)


def _explained(found: Iterable[Found], modules: Collection[str], phases: Sequence[Phase]) -> bool:
    return any(_explains(cause, modules, phases) for cause in found)


def _explains(cause: Found, modules: Collection[str], phases: Sequence[Phase]) -> bool:
    return _whereabouts(cause) in modules and cause.phase in [phase.label for phase in phases]


def _whereabouts(cause: Found) -> str:
    """Return the module of a cause, or what stands for it in a table of errors."""
    if cause.module:
        return cause.module
    return BEFORE_OPTIMIZER if cause.phase == Phase.GRADIENTS.label else OUTSIDE


def _acquitted(cause: Found, errors: Sequence[OwnError], limit: float) -> bool:
    """Return True if the module of a supposed cause is known to add nothing by itself in that phase but rounding."""
    by_phase = {Phase.FORWARD.label: ("forward",), Phase.BACKWARD.label: ("backward", "weights", "joint")}
    names = by_phase.get(cause.phase, ())
    own = [getattr(each, name) for each in errors if each.module == cause.module for name in names]
    known = [size for size in own if size is not None]
    return bool(known) and max(known) <= limit


def _first_rows(
    c: Comparison,
    called: Called,
    module: str,
    phases: Sequence[Phase],
    *,
    red: bool = False,
    alone: Sequence[OpLog | None] | None = None,
) -> tuple[int, ...]:
    """Return the first row of a module in some phases that differs by itself, if there is one.

    Args:
        red: instead, the first red one: what it reads may be another tensor.
        alone: the logs of which an operation may be meant that the other one lacks; None: both.
    """
    sent = c.by_row(lambda log: rows_where(log, lambda law: law.communicates))  # of another layout
    told = c.by_row(lambda log: np.full(len(log), alone is None or any(log is one for one in alone)))
    single = (c.pair < 0) & (c.status != Status.RECOMPUTE) & ~sent & told
    odd = c.red if red else single | ((c.pair >= 0) & c.inputs_equal & (c.status != Status.EQUAL))
    for phase in phases:
        for row in np.flatnonzero(odd & c.by_row(lambda log, phase=phase: log.phase == phase)).tolist():  # type: ignore[misc]
            within = called.nearest(_module(_key(c.a, c.row_a[row]) or _key(c.b, c.row_b[row])))
            if within == (module if module not in (OUTSIDE, BEFORE_OPTIMIZER) else ""):
                return (row,)
    return ()


def sharing(log: OpLog, called: Called) -> set[str]:
    """Return the modules that read in their forward pass what operations outside of them read, too."""
    around: dict[str, set[str]] = {}
    for name in called.inner:
        for inner in (name, *called.within(name)):
            around.setdefault(inner, set()).add(name)
    of = [around.get(called.nearest(name), set()) for name in log.modules]
    flow, forward = sources(log), (log.phase == Phase.FORWARD) & ~log.recompute
    reads = np.flatnonzero((flow.value >= 0) & forward[flow.row])
    readers: dict[int, set[int]] = {}
    for maker, module in zip(flow.value[reads].tolist(), log.module[flow.row[reads]].tolist(), strict=True):
        readers.setdefault(maker, set()).add(module)
    found: set[str] = set()
    for maker, modules in readers.items():
        if len(modules) > 1:
            inside: list[set[str]] = [of[module] for module in modules]
            found |= inside[0].union(*inside) - inside[0].intersection(*inside) - of[log.module[maker]]
    return found


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
        grafted: what was grafted in the last capture.
        missed: why some of it was not.
        open: why there may be more causes; empty if there are none.
        places: rows of modules with errors of their own.
        limit: ε that rounding may add; modules with less are only counted. Zero: each module is shown.
    """

    names: tuple[str, str]
    runs: int
    causes: Sequence[Found]
    red: int
    errors: Sequence[OwnError]
    grafted: Sequence[str]
    missed: Mapping[str, str]
    open: str = ""
    places: Mapping[str, Place] = field(default_factory=dict)
    limit: float = 0.0

    @property
    def shown(self) -> list[OwnError]:
        """The errors that are no rounding, or all where no limit is set, in the order of the modules."""
        return [error for error in self.errors if not self._rounding(error)]

    @property
    def only_counted(self) -> list[OwnError]:
        """The other errors."""
        return [error for error in self.errors if self._rounding(error)]

    def _rounding(self, error: OwnError) -> bool:
        return self.limit > 0 and error.largest <= self.limit

    @property
    def result(self) -> str:
        """The outcome in a sentence."""
        runs = plural(self.runs, "capture")
        if not self.causes:
            return f"No cause in {runs}: nothing is red" if not self.red else f"No cause in {runs}"
        noun = "independent causes" if len(self.causes) > 1 else "cause"
        return f"{len(self.causes):,} {noun} in {runs}"
