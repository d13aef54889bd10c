"""Members of a group call the same collectives in the same order, and each message has its other end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rapidfuzz.distance import Indel, Opcode

from matchers.laws.law import Kind
from matchers.runs.calls import Call, Group
from matchers.runs.finding import Check, Finding, Made, Unmade, listed
from matchers.runs.rank_logs import RankLogs

__all__ = ["check_same_collectives"]

_CHECK = Check.SAME_COLLECTIVES
_ALIKE = 0.5
"""Minimum similarity of the calls of groups that do the same."""
_EVEN = (
    Kind.ALL_REDUCE,
    Kind.BROADCAST,
    Kind.ALL_GATHER,
    Kind.REDUCE_SCATTER,
    Kind.BARRIER,
)
"""Collectives whose members all have results of one size."""


def check_same_collectives(ranks: RankLogs) -> Iterator[Finding | Made | Unmade]:
    """Yield what a member leaves out, adds, or calls in another form; of each group the first only."""
    collectives, messages = ranks.groups, ranks.messages
    made = 0
    for group in collectives:
        if not group.whole:
            continue
        made += min(map(len, group.calls.values()))
        yield from _odd_member(ranks, group, collectives)
    for pair in messages:
        if pair.whole:
            made += min(map(len, pair.calls.values()))
            yield from _unanswered(ranks, pair)
    if made:
        yield Made(_CHECK, made, "collectives")
    missing = sorted({r for group in (*collectives, *messages) for r in group.ranks} - set(ranks.logs))
    if missing:
        yield Unmade(_CHECK, f"groups with rank {listed(missing)}, whose log is missing")
    if not collectives and len(ranks.logs) > 1:
        yield Unmade(_CHECK, "the logs do not name the groups of collectives")


def _sized(calls: Sequence[Call], like: Sequence[Call] = ()) -> tuple[tuple[object, ...], ...]:
    """Return what each call does, and the size of its result; if unknown, that of the call `like` it at this place."""
    others = (*(call.numel for call in like), *[-1] * len(calls))
    sizes = [call.numel if call.numel >= 0 else other for call, other in zip(calls, others, strict=False)]
    return tuple((call.does, size if call.kind in _EVEN else 0) for call, size in zip(calls, sizes, strict=True))


def _odd_member(ranks: RankLogs, group: Group, groups: Sequence[Group]) -> Iterator[Finding]:
    """The first collective at which members part: what one of them leaves out, adds or calls otherwise."""
    usual = _usual(ranks, group, groups)
    for rank in group.ranks:
        own = group.calls[rank]
        if [call.does for call in own] == [call.does for call in usual]:
            continue  # if they part, then in the size
        steps = [step for step in Indel.opcodes(_sized(usual), _sized(own, usual)) if step.tag != "equal"]
        if steps and not _merely_cut(ranks, rank, steps[0].src_start, len(own)):
            yield _parted(ranks, group, rank, usual, steps[0])
            return
    for calls in group.joined():
        forms = {call.rank: _form(call) for call in calls if call.complete or call.numel >= 0}
        if len(set(forms.values())) > 1:
            yield _other_form(ranks, group, calls, forms)
            return


def _usual(ranks: RankLogs, group: Group, groups: Sequence[Group]) -> Sequence[Call]:
    """The calls that most members make; logs that were cut off agree with others as far as they go.

    Where members disagree, groups that do the same elsewhere count as well.
    """
    found = list(group.calls.values())
    if len({_sized(calls) for calls in found}) > 1:
        found += _of_siblings(group, groups)
    sized = [_sized(calls) for calls in found]
    cut = [bool(calls) and calls[0].rank in ranks.cut for calls in found]
    whole, ended = (Counter(of for of, was_cut in zip(sized, cut, strict=True) if was_cut == part) for part in (0, 1))

    def agreeing(at: int) -> tuple[int, int]:
        one = sized[at]
        return whole[one] + sum(many for other, many in ended.items() if one[: len(other)] == other), len(one)

    return found[max(range(len(found)), key=agreeing)]


def _of_siblings(group: Group, groups: Sequence[Group]) -> Iterator[Sequence[Call]]:
    """Yield the calls of groups that do the same elsewhere: other ranks of the same number, much the same calls."""
    own = _sized(max(group.calls.values(), key=len))
    for other in groups:
        if len(other.ranks) == len(group.ranks) and not set(other.ranks) & set(group.ranks):
            for calls in other.calls.values():
                if Indel.normalized_similarity(own, _sized(calls)[: len(own)]) > _ALIKE:
                    yield calls


def _merely_cut(ranks: RankLogs, rank: int, at: int, many: int) -> bool:
    """True where a log has ended: what comes after is missing from it, whatever its rank did."""
    return rank in ranks.cut and at == many


def _parted(ranks: RankLogs, group: Group, rank: int, usual: Sequence[Call], step: Opcode) -> Finding:
    """A finding about what a member leaves out of the usual calls, or adds to them."""
    own = group.calls[rank][step.dest_start : step.dest_start + 1]
    other = usual[step.src_start : step.src_start + 1]
    added = step.tag == "insert"
    call = (own if added else other)[0]
    dimension = ranks.dimension(group.ranks)
    did, told = ("calls", "that other ranks do not call") if added else ("skips", "that other ranks call")
    nth = f"{call.nth + 1}. " if call.nth >= 0 else ""
    return ranks.finding(
        _CHECK,
        f"rank {rank} {did} the {nth}collective{' of ' + dimension if dimension else ''}, {call.does}, {told}",
        (rank,),
        group.ranks,
        *((one.rank, one.row) for one in (*own, *other)),
        subject=ranks.logs[call.rank].keys[call.row],
        notes=_ends(ranks, group),
    )


def _form(call: Call) -> tuple[int, str]:
    return (call.numel if call.kind in _EVEN else 0, call.dtype)


def _other_form(ranks: RankLogs, group: Group, calls: Sequence[Call], forms: Mapping[int, tuple[int, str]]) -> Finding:
    """A finding about members whose tensors have another size or dtype than those of most."""
    usual = Counter(forms.values()).most_common(1)[0][0]
    odd = [call for call in calls if forms.get(call.rank, usual) != usual]
    other = next(call for call in calls if forms.get(call.rank) == usual)
    form, usual_form = (
        f"{call.numel:,} {call.dtype}" if odd[0].numel != other.numel else call.dtype for call in (odd[0], other)
    )
    text = f"{odd[0].kind} of {form}, of {usual_form} on other ranks"
    places = ((call.rank, call.row) for call in (odd[0], other))
    wrong = (call.rank for call in odd)
    return ranks.finding(_CHECK, text, wrong, group.ranks, *places, notes=_ends(ranks, group))


def _ends(ranks: RankLogs, group: Group) -> Iterator[str]:
    for rank in group.ranks:
        if rank in ranks.cut and (why := ranks.logs[rank].header.incomplete):
            yield f"the log of rank {rank} is cut off: {why}"
            return


def _unanswered(ranks: RankLogs, pair: Group) -> Iterator[Finding]:
    """The first message that has no other end, or another size there."""
    one, other = pair.ranks
    for sender, receiver in ((one, other), (other, one)):
        sent, received = pair.messages(sender, receiver)
        if len(sent) != len(received) and not {sender, receiver} & set(ranks.cut):
            longer = sent if len(sent) > len(received) else received
            call = longer[min(len(sent), len(received))]
            missing = receiver if longer is sent else sender
            verb = "receives" if longer is sent else "sends"
            text = f"rank {missing} {verb} {min(len(sent), len(received)):,} of {len(longer):,} messages"
            yield ranks.finding(_CHECK, text, (missing,), pair.ranks, (call.rank, call.row))
