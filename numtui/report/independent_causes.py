"""Independent causes of a comparison with grafts, and where each is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from matchers.causes.unpaired_branches import Branches
from matchers.comparison import Comparison
from matchers.logs.op_log import OpLog, Phase
from matchers.ops.dataflow import downstream
from matchers.ops.laws import rows_where
from matchers.ops.optimizer_settings import optimizer_differences
from matchers.ops.run_info import same_files
from matchers.ops.start import table
from matchers.status import Status
from matchers.verdict.reason import Reason
from numtui.report.called_modules import Called, key_of, module_of
from numtui.report.cut_gradients import BEHIND_BACKWARD, behind_cuts, cut_jointly, cut_off, cuts_in, of_lost
from numtui.report.explained import explained, read_instead
from numtui.report.hidden_causes import beginning, behind_grafts
from numtui.report.isolation import LEAST, Found, Place, limit_of
from numtui.report.lost_gradients import LostGradients
from numtui.report.own_errors import BEFORE_OPTIMIZER, OUTSIDE, OwnError
from numtui.report.whereabouts import explains, of_module

__all__ = ["found_causes", "of_one_line", "places"]

_NOTHING_LOST: Final = LostGradients()


def found_causes(
    c: Comparison,
    called: Called,
    errors: Sequence[OwnError],
    lost: LostGradients = _NOTHING_LOST,
    former: Sequence[Found] = (),
) -> list[Found]:
    """Return the causes of a comparison, in the order of the step.

    Those that the comparison knows, and of each module with an error of its own that none of these explains the first
    operation with equal inputs that differs, or that one run alone has: behind it all may have been grafted, so that
    nothing red reads it.

    Args:
        errors: of the modules, each by itself.
        lost: gradients that b lacks.
        former: causes of the comparison before this one, with fewer grafts. One behind which not all could be grafted
            stays, and what differs there in inputs, too, is no other.
    """
    limit, unexplained = limit_of(errors), []
    found = [replace(_found(c, called, _from_beginning(c, rows)), first=True) for rows in c.starts]
    further = (_found(c, called, rows) for rows in c.further_causes)
    found += [cause for cause in further if not _acquitted(cause, errors, limit)]
    found += _set_otherwise(c, called, [cause for cause in found if not of_lost(c, cause, lost)])
    joint = [error.module for error in errors if error.joint is not None]
    other_layout = _other_layout(c)
    plain = next((log for log in (c.a, c.b) if log.header.run.get("world_size") in (None, 1)), None)
    open_ = _not_grafted(c, called)
    if other_layout and table(c.b.header.run, "grafts"):
        known = [row for cause in found for row in cause.rows]
        within = _rows_within(c, called, open_ | {cause.module for cause in found})
        for rows in behind_grafts(c, known, within, behind_cuts(c, lost)):
            begun = _from_beginning(c, rows)
            found.append(replace(_found(c, called, begun), first=begun != rows))
    if kept := [
        again for cause in former if cause.first and cause.module in open_ and (again := _again(c, cause, found))
    ]:
        found = [cause for cause in found if not _behind(c, cause, open_, former)] + kept
    found += cut_off(c, found, lost)
    errors = [_with_inner(error, called, found, errors, limit) for error in errors]
    for error in errors:
        for phases, size in _phases(error, limit) if error.module not in open_ else ():
            if size is None or size <= limit or explains(found, [error.module], phases):
                continue
            # other modules add to a joint error, too: what another layout alone does here does not tell
            tells = [plain] if other_layout and error.joint == size else [c.a, c.b]
            if rows := _first_rows(c, called, error.module, phases, alone=tells):
                found.append(_found(c, called, rows))
            elif error.joint != size:
                unexplained.append((error.module, phases))
    for module, phases in unexplained:
        inner = [name for name in called.within(module) if name in joint]  # their gradients are terms of its own
        if explains(found, [module, *inner], phases) or _follows(c, called, found, module):
            continue
        rows = _first_rows(c, called, module, phases, red=True)
        rows = rows or _first_of(c, called, _reads_instead(c), module, phases)
        if not rows and phases == (Phase.FORWARD,):  # a view: what only one run does backward tells its line
            rows = _first_rows(c, called, module, (Phase.BACKWARD,))
        found.append(_found(c, called, rows) if rows else of_module(module, phases[0]))
    found += cut_jointly(c, called, found, [error.module for error in errors if (error.joint or 0.0) > limit])
    for error in errors if not other_layout else ():
        if any(size is not None and size > limit for _, size in _phases(error, limit)) and error.module not in open_:
            found += _beside(c, called, found, error.module)
    merged: dict[tuple[object, ...], Found] = {}
    if any(cause.phase not in BEHIND_BACKWARD for cause in found):  # it is not given these gradients: no fault of its
        found = [cause for cause in found if not of_lost(c, cause, lost)]
    for cause in sorted(found, key=lambda cause: cause.rows[:1] or (len(c),)):
        # what one run alone does in a line goes with what else differs there
        key = (cause.line,) if cause.cut else (cause.module, cause.line) if cause.line else (cause.rows,)
        known_here = merged.get(key)
        if known_here is None:
            merged[key] = cause
        elif (one := _asked(c, cause)) and (other := _asked(c, known_here)) and one != other:
            apart = (*key, one)
            merged[apart] = cause
        else:
            merged[key] = replace(known_here, rows=(*known_here.rows, *cause.rows))
    return [*merged.values()]


def of_one_line(c: Comparison, called: Called, causes: Iterable[Found]) -> list[Found]:
    """Return the causes, as one those that differ in their modules alone: each runs the line that is wrong."""
    merged: dict[object, Found] = {}
    for cause in causes:
        alike: object = cause
        if cause.line and cause.rows:
            log, record = c.shown(cause.rows[0])
            alike = cause.line, cause.phase, cause.alone, log.op_name(record), _asked(c, cause)
        one = merged.setdefault(alike, cause)
        if one is not cause:
            merged[alike] = replace(one, rows=(*one.rows, *cause.rows))
    return [replace(cause, also=_further_modules(c, called, cause)) for cause in merged.values()]


def _further_modules(c: Comparison, called: Called, cause: Found) -> tuple[str, ...]:
    # beside what both runs do in a line, what one alone does may follow from another cause
    rows = [row for row in cause.rows if bool(c.pair[row] < 0) == cause.alone]
    names = (called.nearest(module_of(key_of(c.a, c.row_a[row]) or key_of(c.b, c.row_b[row]))) for row in rows)
    return tuple(name for name in dict.fromkeys(names) if cause.module and name not in ("", cause.module))


def _beside(c: Comparison, called: Called, found: Sequence[Found], module: str) -> Iterator[Found]:
    """Yield what else begins a difference in a module with a known cause, which does not explain it."""
    here = [cause for cause in found if cause.module == module]
    if not here or not all(cause.rows for cause in here):
        return  # what it leads to is not known
    known = explained(c, [row for cause in here for row in cause.rows], c.status != Status.EQUAL)
    branches = Branches(c, c.edges)
    odd = c.red & (c.pair >= 0) & c.inputs_equal
    odd[[row for row in np.flatnonzero((c.pair < 0) & ~known).tolist() if branches.is_odd(row)]] = True
    if rows := _first_of(c, called, odd & ~known, module, (Phase.FORWARD, Phase.BACKWARD)):
        yield _found(c, called, rows)


def _with_inner(
    error: OwnError, called: Called, found: Iterable[Found], errors: Iterable[OwnError], limit: float
) -> OwnError:
    """Return the error of a module, of inner weights, too, if none of the modules in it tells why they differ."""
    within = {*called.within(error.module)} if error.inner is not None else ()
    told = any(each.module in within and (each.largest > limit or (each.joint or 0.0) > limit) for each in errors)
    if not within or told or any(cause.module in within for cause in found):
        return error
    return replace(error, weights=max(error.weights or 0.0, error.inner or 0.0))


def _follows(c: Comparison, called: Called, found: Iterable[Found], module: str) -> bool:
    """Return True if known causes lead to all that differs in a module: to its weights, say, that others read, too."""
    differs = (c.pair < 0) | ((c.status != Status.EQUAL) & (c.status != Status.CLOSE))
    here = _rows_within(c, called, [module]) & differs
    known = explained(c, [row for cause in found for row in cause.rows], differs)
    return bool(here.any()) and not (here & ~known).any()


def _again(c: Comparison, cause: Found, found: Iterable[Found]) -> Found | None:
    """Return a cause of an earlier comparison in this one, if it is there and none of those that were found."""
    if any((each.key_a, each.key_b) == (cause.key_a, cause.key_b) for each in found):
        return None
    for log, at, key in ((c.b, c.at_b, cause.key_b), (c.a, c.at_a, cause.key_a)):
        if key in log.keys:
            row = int(at[log.keys.index(key)])
            return replace(cause, rows=(row,), place=_place_of(c, row))
    return None


def _behind(c: Comparison, cause: Found, open_: Collection[str], former: Iterable[Found]) -> bool:
    """Return True for a new cause in a module that could not be grafted, if what it reads differs already."""
    row = next(iter(cause.rows), -1)
    new = row >= 0 and not any((each.key_a, each.key_b) == (cause.key_a, cause.key_b) for each in former)
    return new and cause.module in open_ and bool(c.pair[row] >= 0 and not c.inputs_equal[row])


def _other_layout(c: Comparison) -> bool:
    return any(c.a.header.run.get(name) != c.b.header.run.get(name) for name in ("world_size", "mesh"))


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
    instead = _instead(c, row)
    key_a, key_b = key_of(c.a, c.row_a[row]), key_of(c.b, instead if instead >= 0 else c.row_b[row])
    log, record = (c.b, int(c.row_b[row])) if c.row_b[row] >= 0 else (c.a, int(c.row_a[row]))
    phase, line, cut = Phase(log.phase[record]), _line(c, log, record), False
    sentence = headline(c, row)
    for told in ("FIRST CAUSE: ", "FIRST DIFFERENCE: ", "CONSEQUENCE: ", "; downstream of an earlier divergence"):
        sentence = sentence.replace(told, "", 1)  # of the comparison alone, which knows no grafts
    if instead >= 0:
        ops = log.op_name(record), c.b.op_name(instead)
        line, sentence = c.b.location_text(instead), f"{ops[0]} in a, {ops[1]} in b; {sentence}"
    elif phase == Phase.BACKWARD and c.pair[row] < 0 and _has_partner_before(c, log, record):
        side = int(not key_a)  # the other run, which lacks it, has cut it off
        cuts = cuts_in(c, side)
        if cut := len(cuts) == 1:
            line, sentence = cuts[0], f"detach() cuts a gradient here in {'ba'[side]}; {sentence}"
    module = called.nearest(module_of(key_a or key_b)) if phase != Phase.OPTIMIZER else ""
    return Found(key_a, key_b, rows, module, phase.label, line, sentence, bool(c.pair[row] < 0), _place_of(c, row), cut)


def _line(c: Comparison, log: OpLog, record: int) -> str:
    """Return the source line of a record, with its file as b calls it."""
    line = log.location_text(record)
    if not line or log is not c.a:
        return line
    of_a, of_b = ({one.rpartition(":")[0] for one in each.locations} for each in (c.a, c.b))
    file, _, number = line.rpartition(":")
    return f"{same_files(of_a, of_b).get(file, file)}:{number}"


def _instead(c: Comparison, row: int) -> int:
    """Return the record of b whose result is read in place of that of an operation that a alone has; -1 for none."""
    if c.row_b[row] >= 0:
        return -1
    module, sent = module_of(c.a.keys[int(c.row_a[row])]), _sent(c.b)  # of another layout
    for reader in c.edges.row[c.edges.value == row].tolist():
        for one, other in read_instead(c, reader):
            record = int(c.row_b[other])
            if one != row or c.pair[other] >= 0 or sent[record] or c.phase[one] != c.phase[other]:
                continue
            if module_of(c.b.keys[record]) == module:
                return record
    return -1


def _from_beginning(c: Comparison, rows: tuple[int, ...]) -> tuple[int, ...]:
    begins = beginning(c, rows[0])
    return rows if begins == rows[0] else (begins, *rows)


def _asked(c: Comparison, cause: Found) -> str:
    """Return what the runs ask of the operation of a cause, if that differs; else nothing."""
    return cause.sentence.partition("; ")[0] if any(c.reason[row] == Reason.ARGUMENTS for row in cause.rows) else ""


def _place_of(c: Comparison, row: int) -> Place:
    record = int(c.row_a[row])
    return (record, None) if record >= 0 else (None, int(c.b.line[c.row_b[row]]))


def places(c: Comparison, called: Called, errors: Iterable[OwnError]) -> dict[str, Place]:
    """Return the first red row of each module with an error of its own, or the first one that differs by itself."""
    found: dict[str, Place] = {}
    for error in errors:
        phases = [phase for of_phases, _ in _phases(error, LEAST) for phase in of_phases]
        for red in (True, False) if error.differs else ():
            if rows := _first_rows(c, called, error.module, phases, red=red):
                found.setdefault(error.module, _place_of(c, rows[0]))
    return found


def _has_partner_before(c: Comparison, log: OpLog, record: int) -> bool:
    """Return True if both runs have what a module does forward in the line of an operation of its backward pass."""
    alike = (log.module == log.module[record]) & (log.location == log.location[record]) & (log.phase == Phase.FORWARD)
    rows = (c.at_a if log is c.a else c.at_b)[alike]
    return bool(len(rows)) and bool((c.pair[rows] >= 0).all())


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


def _acquitted(cause: Found, errors: Sequence[OwnError], limit: float) -> bool:
    """Return True if the module of a supposed cause is known to add nothing by itself in that phase but rounding."""
    by_phase = {Phase.FORWARD.label: ("forward",), Phase.BACKWARD.label: ("backward", "weights", "joint")}
    names = by_phase.get(cause.phase, ())
    own = [getattr(each, name) for each in errors if each.module == cause.module for name in names]
    known = [size for size in own if size is not None]
    return bool(known) and max(known) <= limit


def _sent(log: OpLog) -> NDArray[np.bool_]:
    """bool[n]: the row is of a collective, or copies to or from the buffer of one."""
    return rows_where(log, lambda law: law.communicates or law.bucket is not None)


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
    sent = c.by_row(_sent)  # of another layout
    told = c.by_row(lambda log: np.full(len(log), alone is None or any(log is one for one in alone)))
    single = (c.pair < 0) & (c.status != Status.RECOMPUTE) & ~sent & told
    differs = c.red if _other_layout(c) else c.status != Status.EQUAL  # there nearly all differs by rounding
    odd = c.red if red else single | ((c.pair >= 0) & c.inputs_equal & differs)
    arranges = (c.pair < 0) & c.by_row(lambda log: rows_where(log, lambda law: law.moves))
    received = downstream(c.edges, sent, arranges)  # another layout does this, too, unless nothing else is left
    return _first_of(c, called, odd & ~received, module, phases) or _first_of(c, called, odd, module, phases)


def _reads_instead(c: Comparison) -> NDArray[np.bool_]:
    """bool[r]: pairs that do not agree, and read in one run another of two results that both runs have."""
    found = np.zeros(len(c), bool)
    for row in np.flatnonzero((c.pair >= 0) & (c.status != Status.EQUAL) & (c.status != Status.CLOSE)).tolist():
        found[row] = any(c.pair[one] >= 0 and c.pair[other] >= 0 for one, other in read_instead(c, row))
    return found


def _first_of(
    c: Comparison, called: Called, among: NDArray[np.bool_], module: str, phases: Sequence[Phase]
) -> tuple[int, ...]:
    """Return the first of some rows (bool[r]) that is of a module, in the first phase that has one."""
    for phase in phases:
        for row in np.flatnonzero(among & (c.phase == phase)).tolist():
            within = called.nearest(module_of(key_of(c.a, c.row_a[row]) or key_of(c.b, c.row_b[row])))
            if within == (module if module not in (OUTSIDE, BEFORE_OPTIMIZER) else ""):
                return (row,)
    return ()
