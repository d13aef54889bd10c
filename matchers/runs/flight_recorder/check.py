"""Ranks that are missing in a collective, or call it otherwise, by the dumps of torch's flight recorder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from matchers.errors import LogError
from matchers.laws.law import Kind
from matchers.runs.finding import Check, Finding, Made, Place, Unmade, listed
from matchers.runs.flight_recorder.dumps import Dump, Recorded, dump_files, read_dump

__all__ = ["check_dumps", "read_dumps"]

_CHECK: Final = Check.FLIGHT_RECORDER
_WORLD: Final = "default_pg"
"""Torch's name of the group of all ranks."""
_UNEVEN: Final = (Kind.ALL_TO_ALL.value, "coalesced", "_v")
"""Parts of the names of collectives whose members may have tensors of other sizes."""
_ONE_SIDED: Final = (Kind.GATHER.value, Kind.SCATTER.value)
"""Collectives in which one member has tensors that the others have not."""
_SEND, _RECEIVE = Kind.SEND.value, "recv"
_OTHER_END: Final = {_SEND: _RECEIVE, _RECEIVE: _SEND}


def read_dumps(folder: Path) -> tuple[dict[int, Dump], list[Unmade]]:
    """Read the dumps in the folder of a run, by rank, and say what could not be read."""
    dumps: dict[int, Dump] = {}
    unmade: list[Unmade] = []
    for rank, paths in dump_files(folder).items():
        try:
            dumps[rank] = read_dump(paths[0], rank)
        except LogError as error:
            unmade.append(Unmade(_CHECK, str(error)))
            continue
        if damaged := dumps[rank].damaged:
            unmade.append(Unmade(_CHECK, f"{paths[0]}: {damaged:,} entries cannot be read"))
        if len(paths) > 1:
            unmade.append(Unmade(_CHECK, f"{paths[1]} is of rank {rank}, too, and was not read beside {paths[0]}"))
    return dumps, unmade


def check_dumps(dumps: Mapping[int, Dump]) -> Iterator[Finding | Made | Unmade]:
    """Yield for each group the first collective that a member does not call, or calls otherwise."""
    groups = _groups(dumps)
    if compared := sum(group.compared for group in groups):
        yield Made(_CHECK, compared, "recorded collectives")
    if missing := sorted({rank for group in groups for rank in group.ranks} - set(dumps)):
        yield Unmade(_CHECK, f"{_ranks(missing)} left no dump of the flight recorder")
    absences: list[_Absence] = []
    for group in groups:
        if (found := _other_form(group)) is not None:
            yield found
        elif (absence := _absence(group)) is not None:
            absences.append(absence)
    # who waits in another group, for a rank that is missing there, is missing here for that reason
    stuck = {rank for absence in absences for rank in absence.waiting}
    first = [absence for absence in absences if not set(absence.missing) <= stuck]
    for absence in first or absences:
        yield _missing(absence, dumps)
    yield from _unanswered(dumps)


@dataclass(frozen=True)
class _Group:
    """A group of ranks.

    Attributes:
        name: two groups of other ranks may have the same.
        described: what its maker calls it.
        ranks: its members; where the dumps do not tell them, those that have called something.
        calls: by rank its collectives, by their number; several under one number run together.
        dumps: of its ranks.
    """

    name: str
    described: str
    ranks: tuple[int, ...]
    calls: Mapping[int, Mapping[int, Sequence[Recorded]]]
    dumps: Mapping[int, Dump]

    @cached_property
    def numbers(self) -> Sequence[int]:
        """Numbers of the collectives that any rank has called, ascending."""
        return sorted({seq for of_rank in self.calls.values() for seq in of_rank})

    def at(self, seq: int) -> dict[int, Sequence[Recorded]]:
        """By rank what was called as this collective."""
        return {rank: of_rank[seq] for rank, of_rank in self.calls.items() if seq in of_rank}

    @property
    def compared(self) -> int:
        """Collectives that two ranks or more have called."""
        return sum(len(self.at(seq)) > 1 for seq in self.numbers)

    def lacks(self, rank: int, seq: int) -> bool:
        """True for a rank that has not called a collective, which is known of its dump."""
        dump, own = self.dumps[rank], self.calls.get(rank, {})
        return seq > max(max(own, default=0), dump.called.get(self.name, 0)) and (bool(own) or dump.whole)

    def words(self, call: Recorded) -> str:
        """Return a call in words."""
        return f"{call.does}, collective {call.seq:,} of {self.described}"


@dataclass(frozen=True)
class _Absence:
    """A collective in which ranks wait for others, which have not called it."""

    group: _Group
    call: Recorded
    waiting: tuple[int, ...]
    missing: tuple[int, ...]


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {listed(ranks)}"


def _groups(dumps: Mapping[int, Dump]) -> list[_Group]:
    """Return the groups in which anything was called, the one of all ranks first."""
    found: dict[tuple[str, tuple[int, ...]], dict[int, dict[int, list[Recorded]]]] = {}
    described: dict[tuple[str, tuple[int, ...]], str] = {}
    for rank, dump in dumps.items():
        for call in dump.calls:
            if call.peer < 0:
                key = call.group, dump.members.get(call.group, ())
                described.setdefault(key, call.described)
                found.setdefault(key, {}).setdefault(rank, {}).setdefault(call.seq, []).append(call)
    groups = []
    for (name, members), calls in found.items():
        every = tuple(sorted(dumps)) if described[name, members] == _WORLD else tuple(sorted(calls))
        ranks = members or every
        of_group = {rank: dumps[rank] for rank in ranks if rank in dumps}
        groups.append(_Group(name, described[name, members], ranks, calls, of_group))
    return sorted(groups, key=lambda group: (group.described != _WORLD, group.name, group.ranks))


def _absence(group: _Group) -> _Absence | None:
    """Find the first collective that members have not called, while others wait in it."""
    for seq in group.numbers:
        there = group.at(seq)
        if any(call.done for calls in there.values() for call in calls):
            continue  # a dump that was taken before
        if missing := tuple(rank for rank in group.dumps if rank not in there and group.lacks(rank, seq)):
            return _Absence(group, next(iter(there.values()))[0], tuple(sorted(there)), missing)
    return None


def _missing(absence: _Absence, dumps: Mapping[int, Dump]) -> Finding:
    group, call, waiting = absence.group, absence.call, absence.waiting
    verb = "has" if len(absence.missing) == 1 else "have"
    notes, places = [], []
    for rank in absence.missing:
        if not dumps[rank].calls:
            notes.append(f"rank {rank} has called no collective at all")
            continue
        last = next((one for one in dumps[rank].calls if not one.done), dumps[rank].calls[-1])
        does = f"last called {_called(last)}, which has ended" if last.done else f"waits in {_called(last)}"
        notes.append(f"rank {rank} {does}{_at(last)}")
        places.append(_place(dumps[rank], last))
    own = group.calls[waiting[0]][call.seq][0]
    notes.append(f"{_ranks(waiting)} {'waits' if len(waiting) == 1 else 'wait'} in it{_at(own)}")
    notes += _waited(absence, dumps)
    return Finding(
        check=_CHECK,
        text=f"{_ranks(absence.missing)} {verb} not called {group.words(call)}, that others wait in",
        subject=group.words(call),
        ranks=absence.missing,
        group=group.ranks,
        dimension=group.described,
        places=(*places[:1], _place(dumps[waiting[0]], own)),
        notes=tuple(notes),
    )


def _waited(absence: _Absence, dumps: Mapping[int, Dump]) -> Iterator[str]:
    """Say how long ranks have waited, as the dumps show it: one taken early cannot tell late from missing."""
    calls = [absence.group.calls[rank][absence.call.seq][0] for rank in absence.waiting]
    if all(call.created for call in calls):
        last = max(call.seen for dump in dumps.values() for call in dump.calls)
        seconds = (last - min(call.created for call in calls)) / 1e9
        timeout = min(call.timeout for call in calls)
        if 0 < timeout <= seconds:
            yield f"the dumps show {seconds:,.3g} s of waiting, past its timeout of {timeout:,.6g} s"
        else:
            most = f", its timeout is {timeout:,.6g} s" if timeout else ""
            yield f"the dumps show {max(seconds, 0.0):,.3g} s of waiting{most}: perhaps it is only late"


def _called(call: Recorded) -> str:
    what = "message" if call.peer >= 0 else "collective"
    return f"{call.does}, {what} {call.seq:,} of {call.described}"


def _at(call: Recorded) -> str:
    return f", {call.location}" if call.location else ""


def _place(dump: Dump, call: Recorded) -> Place:
    return Place(dump.rank, -1, _called(call), call.number, call.location, dump.path)


def _other_form(group: _Group) -> Finding | None:
    """Find the first collective that a minority of the members calls otherwise: another one, size or dtype."""
    for seq in group.numbers:
        there = group.at(seq)
        for form in (_does, _sizes, _dtypes):
            forms = {rank: form(calls) for rank, calls in there.items()}
            if len(set(forms.values())) > 1:
                return _parted(group, there, forms)
    return None


Form = tuple[object, ...]


def _does(calls: Sequence[Recorded]) -> Form:
    return tuple(call.does for call in calls)


def _sizes(calls: Sequence[Recorded]) -> Form:
    even = not any(part in call.does for call in calls for part in _UNEVEN) and not _one_sided(calls[0])
    return tuple(call.numel for call in calls) if even else ()


def _dtypes(calls: Sequence[Recorded]) -> Form:
    return () if _one_sided(calls[0]) else tuple(call.dtypes[1] for call in calls)


def _one_sided(call: Recorded) -> bool:
    return call.does.removeprefix("_").removesuffix("_oop") in _ONE_SIDED


def _parted(group: _Group, there: Mapping[int, Sequence[Recorded]], forms: Mapping[int, Form]) -> Finding:
    (usual, many), *_ = Counter(forms.values()).most_common()
    odd = tuple(sorted(rank for rank, form in forms.items() if form != usual))
    other = next(rank for rank, form in forms.items() if form == usual)
    one, two = _first_other(there[odd[0]], there[other])
    if one.does != two.does:
        text = f"{_ranks(odd)}: {group.words(one)}, is {two.does} on other ranks"
    else:
        text = f"{group.words(one)}, of {_form(one)}, on other ranks of {_form(two)}"
    places = [(odd[0], one), (other, two)]
    notes = [f"rank {rank} calls it in {call.location}" for rank, call in places if call.location]
    return Finding(
        check=_CHECK,
        text=text,
        subject=group.words(one),
        ranks=odd if many > len(odd) else group.ranks,
        group=group.ranks,
        dimension=group.described,
        places=tuple(_place(group.dumps[rank], call) for rank, call in places),
        notes=tuple(notes),
    )


def _first_other(own: Sequence[Recorded], other: Sequence[Recorded]) -> tuple[Recorded, Recorded]:
    """The first calls of two ranks that differ, of those that run together."""
    pairs = zip(own, other, strict=False)
    differ = ((a, b) for a, b in pairs if (a.does, a.numel, a.dtypes) != (b.does, b.numel, b.dtypes))
    return next(differ, (own[-1], other[-1]))


def _form(call: Recorded) -> str:
    inputs, outputs = call.numel
    size = f"{inputs:,} to {outputs:,}" if inputs != outputs else f"{inputs:,}"
    return f"{size} {'/'.join(dict.fromkeys((*call.dtypes[0], *call.dtypes[1])))}".rstrip()


def _unanswered(dumps: Mapping[int, Dump]) -> Iterator[Finding]:
    """Yield the messages whose other end was not called, where both dumps go back to the beginning."""
    for rank, dump in dumps.items():
        counted = Counter[tuple[str, str, int]]()
        for call in dump.calls:
            members = dump.members.get(call.group, ())
            if not 0 <= call.peer < len(members):
                continue
            counted[call.group, call.does, call.peer] += 1
            peer = dumps.get(members[call.peer])
            if call.done or peer is None or not (dump.whole and peer.whole) or rank not in members:
                continue
            own, does = members.index(rank), _OTHER_END[call.does]
            answers = sum((one.group, one.does, one.peer) == (call.group, does, own) for one in peer.calls)
            if answers < counted[call.group, call.does, call.peer]:
                verb = Kind.RECEIVE if call.does == _SEND else Kind.SEND
                nth = counted[call.group, call.does, call.peer]
                yield Finding(
                    check=_CHECK,
                    text=f"rank {peer.rank} does not {verb} message {nth:,}, that rank {rank} waits for",
                    subject=_called(call),
                    ranks=(peer.rank,),
                    group=tuple(sorted((rank, peer.rank))),
                    dimension=call.described,
                    places=(*(_place(peer, one) for one in peer.calls[-1:]), _place(dump, call)),
                    notes=(f"rank {rank} waits in it{_at(call)}",),
                )
                break
