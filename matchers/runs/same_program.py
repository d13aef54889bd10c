"""Ranks with one role run the same operations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from matchers.arrays import Bool
from matchers.logs.op_log import OpLog, Phase
from matchers.ops.laws import communicating, in_place, rows_where
from matchers.ops.module_path import is_within
from matchers.runs.finding import Check, Finding, Made, Unmade, listed
from matchers.runs.rank_logs import RankLogs, Role

__all__ = ["check_same_program"]


def check_same_program(ranks: RankLogs) -> Iterator[Finding | Made | Unmade]:
    """Yield operations that a minority of the ranks of one role runs or leaves out, and results that it does not use.

    What takes norms of gradients is left out: one of the ranks that hold a parameter counts its norm. Where many ranks
    differ, or a rank has a batch of another size, the data decides what is run (experts, lengths), and there is nothing
    to say: nor of gradients that are filled with zeros, and of counts that are not looked at, where a rank runs other
    experts. Where half of them have an operation that the others lack, as one of two, neither half is right by itself.
    """
    compared, undecided = 0, 0
    for role in ranks.roles:
        if len(role.ranks) < 2:
            continue
        # no two are alike, as where each skips what a mask hides of others
        if 2 < len(role.ranks) == len(role.odd) + 1:
            undecided += 1
            yield Unmade(Check.SAME_PROGRAM, f"no two of ranks {listed(role.ranks)} run the same operations")
            continue
        size = _batch_sizes(ranks, role.reference)
        led = _led_by_data(ranks, role)
        odd = {rank: of for rank, of in _deviations(ranks, role, led).items() if _batch_sizes(ranks, rank) == size}
        if 2 * len(odd) < len(role.ranks):
            yield from (_odd_program(ranks, role, rank, *of) for rank, of in odd.items())
        yield from _unused_results(ranks, role, led)
        if halves := {rank for rank in _deviations(ranks, role, led, halves=True) if _batch_sizes(ranks, rank) == size}:
            undecided += 1
            yield Unmade(Check.SAME_PROGRAM, _undecided(role, halves))
        else:
            compared += len(ranks.logs[role.reference])
    if compared:
        yield Made(Check.SAME_PROGRAM, compared, "operations")
    elif not undecided:
        yield Unmade(Check.SAME_PROGRAM, "no two ranks have one role")


def _undecided(role: Role, odd: set[int]) -> str:
    if len(role.ranks) == 2:
        return f"ranks {role.ranks[0]} and {role.ranks[1]} differ; two cannot say which is right"
    return f"ranks {listed(sorted(odd))} differ from the other half; neither is a majority"


def _deviations(
    ranks: RankLogs, role: Role, led: set[int], *, halves: bool = False
) -> dict[int, tuple[list[int], list[int]]]:
    """Rank → (its rows that few ranks have, rows of the reference that few ranks lack), where there are any.

    With `halves`, the rows that half of the ranks have.

    Args:
        led: as of `_led_by_data`.
    """

    def few(on: Collection[int]) -> bool:
        return 2 * len(on) == len(role.ranks) if halves else 2 * len(on) < len(role.ranks)

    counted = {rank: _counted(ranks.logs[rank]) for rank in (role.reference, *role.odd)}
    filled = {rank: _filling_gradients(ranks.logs[rank]) for rank in counted}

    prepared = {rank: _prepared(ranks.logs[rank]) for rank in counted}

    def decided(rank: int, row: int, on: Collection[int]) -> bool:
        """True if the data decides whether these ranks have a row of one of them."""
        log = ranks.logs[rank]
        if log.phase[row] == Phase.PREPARE:
            lines = [prepared[each].get(log.op_name(row)) for each in (role.reference, rank, *on)]
            return lines[0] is not None and all(of == lines[0] for of in lines)
        return _data_decides(ranks.logs[rank], row) or (bool(filled[rank][row]) and bool(led.intersection(on)))

    added: dict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
    left_out: dict[int, list[int]] = defaultdict(list)
    for rank in role.odd:
        log, partner = ranks.logs[rank], role.partner[rank]
        if rank in ranks.cut:
            continue
        for row in np.flatnonzero((partner < 0) & counted[role.reference]).tolist():
            left_out[row].append(rank)
        theirs = partner[partner >= 0]
        for row in np.setdiff1d(np.flatnonzero(counted[rank]), theirs).tolist():
            added[int(np.searchsorted(theirs, row)), log.op_name(row)].append((rank, row))
    found: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for places in added.values():
        if few({rank for rank, _ in places}):
            for rank, row in places:
                if not decided(rank, row, [rank]):
                    found[rank][0].append(row)
    for row, on in left_out.items():
        if few(on) and not decided(role.reference, row, on):
            for rank in on:
                found[rank][1].append(row)
    return dict(found)


def _counted(log: OpLog) -> Bool:
    """bool[n]: records that all ranks of a role have: of those on gradients, the ones that write to them."""
    return np.asarray((log.phase != Phase.GRADIENTS) | in_place(log))


def _prepared(log: OpLog) -> dict[str, set[str]]:
    """By operation, the lines at which it prepares the batch."""
    found = defaultdict[str, set[str]](set)
    for row in np.flatnonzero((log.phase == Phase.PREPARE) & (log.location >= 0)).tolist():
        found[log.op_name(row)].add(log.location_text(row))
    return found


def _led_by_data(ranks: RankLogs, role: Role) -> set[int]:
    """The ranks that run other operations than the reference below a module that chooses by the data."""
    found, log = set[int](), ranks.logs[role.reference]
    for rank in role.odd:
        partner = role.partner[rank]
        more = np.setdiff1d(np.arange(len(ranks.logs[rank])), partner).tolist()
        fewer = np.flatnonzero(partner < 0).tolist()
        if any(_data_decides(of, row) for of, rows in ((ranks.logs[rank], more), (log, fewer)) for row in rows):
            found.add(rank)
    return found


def _filling_gradients(log: OpLog) -> Bool:
    """bool[n]: records of the backward pass that write zeros, or a copy, into a tensor."""
    fills = rows_where(log, lambda law: bool(law.writes) and (law.determined or law.passes_on is not None))
    return np.asarray(fills & (log.phase == Phase.BACKWARD))


def _data_decides(log: OpLog, row: int) -> bool:
    """True for an operation below a module that chooses by the data what to do."""
    choosing = set(log.module[rows_where(log, lambda law: law.data_decides)].tolist())
    return any(is_within(log.module_name(row), log.modules[k]) for k in choosing)


def _batch_sizes(ranks: RankLogs, rank: int) -> str:
    return str([tensor.get("shape") for tensor in ranks.batch_tensors(rank)])


def _unused_results(ranks: RankLogs, role: Role, led: set[int]) -> Iterator[Finding]:
    """Yield results of collectives that no operation reads on a minority of the ranks; `led` as of `_led_by_data`."""
    role_log = ranks.logs[role.reference]
    rows = np.flatnonzero(communicating(role_log))
    read = dict[int, Bool]()
    for rank in role.ranks:
        makers = ranks.flows[rank].value
        readers = np.append(np.bincount(makers[makers >= 0], minlength=len(ranks.logs[rank])), 1)
        read[rank] = readers[role.partner[rank][rows]] > 0
    for at, row in enumerate(rows.tolist()):
        unread = tuple(rank for rank in role.ranks if not read[rank][at])
        if led and "int" in role_log.dtype_text(row):
            continue
        if unread and 2 * len(unread) < len(role.ranks) and not set(unread) & set(ranks.cut):
            other = next(rank for rank in role.ranks if rank not in unread)
            places = ((rank, int(role.partner[rank][row])) for rank in (unread[0], other))
            text, subject = "result of a collective not used here, used on other ranks", role_log.keys[row]
            yield ranks.finding(Check.SAME_PROGRAM, text, unread, role.ranks, *places, subject=subject)
            return


def _odd_program(ranks: RankLogs, role: Role, rank: int, added: Sequence[int], left_out: Sequence[int]) -> Finding:
    places = [(rank, row) for row in added[:1]] + [(role.reference, row) for row in left_out[:1]]
    told = [f"{len(added):,} more operations" if added else "", f"{len(left_out):,} fewer" if left_out else ""]
    text = f"{' and '.join(filter(None, told))} than on ranks of one role"
    return ranks.finding(Check.SAME_PROGRAM, text, (rank,), role.ranks, *places)
