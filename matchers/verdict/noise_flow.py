"""Follow what is nothing but rounding through one log, and judge as if both runs had the same."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from matchers.arrays import Bool, Float64, Hash, Int64, distinct, numbered
from matchers.joins import first_equal
from matchers.laws.law import Form, Law
from matchers.logs.columns import Ragged
from matchers.logs.hashing import float_bits
from matchers.logs.op_log import NO_DIGEST, OpLog, is_mark, once_per_log
from matchers.ops.laws import in_place, on_lists, rows_where
from matchers.ops.module_path import canonical
from matchers.ops.values import further, parameter_name

__all__ = ["Noise", "noise_of", "patched"]

_MIXES = (Form.ADD, Form.SUBTRACT, Form.JOIN)
"""Forms of operations whose result holds all their inputs, each by its size."""
_DOMINATES = 0.1
"""Share of a mixed result from which on it is noise."""


class Noise:
    """The noise in one log, followed by equal bits from the sums that cancel, and through views of other bits.

    Attributes:
        begins: there is any.
        reads: bool[n], an input of the record is noise.
        share: float64[n], the share of noise in a mixed result that is none itself, as far as norms tell; else 0.
        inputs, outputs: bool, the entries of `log.inputs` and of `log.outputs` that are noise.
        written: bool[v], the rows of `further`, of inputs changed in place, that are noise.
    """

    def __init__(
        self,
        log: OpLog,
        flow: Ragged,
        sums: Bool,
        updates: Sequence[tuple[int, int]],
        further_sums: Sequence[tuple[int, int]],
        beside: Sequence[tuple[int, int]],
    ) -> None:
        """Follow the noise.

        Args:
            sums: bool[n], the first outputs of these records are sums that cancel.
            updates: records and their slots that are noise beside what follows from the sums.
            further_sums: records and the numbers of further outputs that are such sums.
            beside: records and their slots of which nothing is followed.
        """
        self._log, self._flow, self._values = log, flow, further(log)
        self.inputs, self.outputs = np.zeros(len(log.inputs.value), bool), np.zeros(len(log.outputs.value), bool)
        self.written = np.zeros(len(self._values), bool)
        self.reads, self.share = np.zeros(len(log), bool), np.zeros(len(log))
        self.begins = bool(sums.any())
        changed = ((row, -1 - place) for row, place in updates)
        rows = self._add((*updates, *changed, *further_sums))
        if self.begins:
            self._follow(np.flatnonzero(sums), int(min(rows.min(initial=len(log)), np.argmax(np.append(sums, True)))))
        self._add(beside)

    def _add(self, which: Iterable[tuple[int, int]]) -> Int64:
        """Add some results, of records and their slots (see `Values`); return the records."""
        rows, slots = np.array([*which], np.int64).reshape(-1, 2).T
        there = (slots >= 0) & (slots < self._log.outputs.count[rows])
        self.outputs[self._log.outputs.start[rows[there]] + slots[there]] = True
        for row, slot in zip(rows[slots < 0].tolist(), slots[slots < 0].tolist(), strict=True):
            self.written[[v for v in self._values.of(row) if self._values.slot[v] == slot]] = True
        self.reads[rows] = True
        self.begins |= len(rows) > 0
        return rows

    def _follow(self, sums: Int64, first: int) -> None:
        """Follow the noise from its first record on; in lists, each tensor from those at its place."""
        log, inputs, outputs, values = self._log, self._log.inputs, self._log.outputs, self._values
        if not len(outputs.value):
            return
        fresh = self.outputs.copy()
        fresh[outputs.start[sums[outputs.count[sums] > 0]]] = True
        read = _bits_read(log)
        left = read != NO_DIGEST
        left[: inputs.start[min(first + 1, len(log))]] = False  # what was read before has the same bits by chance
        made = _bits_made(log)
        # what is read of the only result of a record, though no record made these bits, is a view of it
        views = left & (self._flow.value >= 0) & _unmade(log)
        views &= (outputs.count == 1)[self._flow.value]
        maker = outputs.start[np.where(views, self._flow.value, 0)]
        if not (left & ((first_equal(read, made[fresh]) >= 0) | (views & fresh[maker]))).any():
            return
        written = np.flatnonzero(values.slot < 0)
        row = np.append(outputs.row, values.maker[written])
        place = np.append(_places(outputs), -1 - values.slot[written])
        noise = np.concatenate((self.outputs, self.written[written]))
        fresh = np.append(fresh, np.zeros(len(written), bool))
        digests = values.digest[written] if _by_digests(log) else np.full(len(written), NO_DIGEST)
        bits = np.concatenate((read, made, _bits(digests, values.l1[written])))
        reader = inputs.row
        # of a list that is changed in place, as many tensors as were changed from the first one on
        changes = row[len(outputs.value) :]
        from_first = place[len(outputs.value) :] == np.arange(len(written)) - np.searchsorted(changes, changes)
        changed = np.bincount(changes[from_first], minlength=len(log))
        tensors = np.where(on_lists(log), np.where(outputs.count > 1, outputs.count, changed), 1).clip(min=1)
        cells = np.cumsum(tensors) - tensors
        reads, makes = (cells[of] + at % tensors[of] for of, at in ((reader, _places(inputs)), (row, place)))
        ids, many = numbered(bits.view(np.int64))
        mixes, result, followed = rows_where(log, _mixes), log.outputs.first(), fresh.copy()
        while True:
            named, hot = np.zeros(many, bool), np.zeros(int(tensors.sum()), bool)
            named[ids[len(read) :][fresh]] = True
            hit = np.flatnonzero((named[ids[: len(read)]] | (views & fresh[maker])) & left)
            if not len(hit):
                break
            left[hit], self.inputs[hit] = False, True
            size = np.bincount(reader[hit], inputs.value[hit], len(log))
            partly = mixes & (np.bincount(reader[hit], minlength=len(log)) < inputs.count)
            partly &= ~(size > _DOMINATES * result)
            hot[reads[hit[~partly[reader[hit]]]]] = True
            noise |= hot[makes]
            fresh = hot[makes] & ~followed
            followed |= fresh
        self.outputs, self.written[written] = np.split(noise, [len(outputs.value)])
        self.reads[reader[self.inputs]] = True
        with np.errstate(divide="ignore", invalid="ignore"):
            size = np.bincount(reader[self.inputs], inputs.value[self.inputs], len(log)) / result
        size[row[noise]] = 0.0
        self.share = np.where(mixes & (result > 0), size, 0.0)

    def places(self, name: str, records: Int64) -> tuple[Int64, Int64]:
        """The noise in `inputs` or `outputs` of some records: the number of the record among them, and the place."""
        lists: Ragged = getattr(self._log, name)
        at = np.flatnonzero(getattr(self, name))
        number = np.full(len(self._log), -1)
        number[records] = np.arange(len(records))
        row = lists.owner(at)
        found, place = number[row], at - lists.start[row]
        return found[found >= 0], place[found >= 0]

    def slots(self) -> dict[int, set[int]]:
        """The inputs changed in place that are noise, by record."""
        found: dict[int, set[int]] = {}
        columns = (column[self.written].tolist() for column in (self._values.maker, self._values.slot))
        for row, slot in zip(*columns, strict=True):
            found.setdefault(row, set()).add(-1 - slot)
        return found

    def names(self) -> Iterator[str]:
        """The names of the tensors that are noise, canonical."""
        for row, slots in self.slots().items():
            yield from (canonical(parameter_name(self._log, row, slot)) for slot in slots)
        returned = self._log.outputs.row[self.outputs]  # by an operation in place: what it changed
        for row in distinct(returned[in_place(self._log)[returned]]).tolist():
            yield canonical(parameter_name(self._log, row, 0))


def noise_of(log: OpLog, flow: Ragged, sums: Bool, *results: Sequence[tuple[int, int]]) -> Noise:
    """The noise, see `Noise`; kept with the log until it is asked for of other results."""
    held = vars(log).get(__name__)
    if held is None or held[0] is not flow or held[2] != results or not np.array_equal(held[1], sums):
        held = vars(log)[__name__] = flow, sums, results, Noise(log, flow, sums, *results)
    return held[3]


def _places(lists: Ragged) -> Int64:
    """int64: the place of each value in its list."""
    return np.arange(len(lists.value)) - lists.start[lists.row]


def _by_digests(log: OpLog) -> bool:
    """True if what a record reads is known again by its digest, not by its norm alone."""
    return np.array_equal(log.inputs.start, log.input_digests.start) and len(log.digests.value) > 0


@once_per_log
def _bits_read(log: OpLog) -> Hash:
    """The bits of each input."""
    norms = log.inputs.value
    return _bits(log.input_digests.value if _by_digests(log) else np.full(len(norms), NO_DIGEST), norms)


def _bits_made(log: OpLog) -> Hash:
    """The bits of each output."""
    digests = np.full(len(log.outputs.value), NO_DIGEST)
    if _by_digests(log):
        digests = log.digests.at(log.outputs.row, _places(log.outputs), NO_DIGEST)
    return _bits(digests, log.outputs.value)


@once_per_log
def _unmade(log: OpLog) -> Bool:
    """bool: the inputs whose bits no record made."""
    return first_equal(_bits_read(log), _bits_made(log)) < 0


def _mixes(law: Law) -> bool:
    return law.form in _MIXES and not law.on_lists


def _bits(digests: Hash, norms: Float64) -> Hash:
    """The bits by which some tensors are known: the digest, else those of the norm; NO_DIGEST for zeros."""
    known = ~is_mark(digests)
    bits = np.where(known, digests, float_bits(norms))
    return np.where((norms == 0) | (np.isnan(norms) & ~known), NO_DIGEST, bits)


def patched(a: OpLog, b: OpLog, i: Int64, j: Int64, of_a: Noise, of_b: Noise) -> OpLog:
    """Log b with what a has wherever one of the two is noise, in the pairs (i[k], j[k])."""
    changed: dict[str, Any] = {name: getattr(b, name).copy() for name in ("stats", "counts", "present")}
    texts: dict[str, dict[int, bytes]] = {}
    for kind, names in (("inputs", ("inputs", "input_digests")), ("outputs", ("outputs", "digests"))):
        both = of_a.places(kind, i), of_b.places(kind, j)
        k, place = (np.concatenate(of) for of in zip(*both, strict=True))
        for name in names:
            mine, theirs = getattr(a, name), getattr(b, name)
            fits = (place < mine.count[i[k]]) & (place < theirs.count[j[k]])
            value = theirs.value.copy()
            value[theirs.start[j[k[fits]]] + place[fits]] = mine.at(i[k[fits]], place[fits], 0)
            changed[name] = theirs.with_values(value)
    first = k[place == 0]
    for name in ("stats", "counts", "present"):
        changed[name][..., j[first]] = getattr(a, name)[..., i[first]]
    for pair, at in zip(k.tolist(), place.tolist(), strict=True):
        field = f"Output {at}" if at else "Sketch"
        if field in a.extra or field in b.extra:
            texts.setdefault(field, {})[int(j[pair])] = a.texts(field).raw(int(i[pair]))
    slots_a, slots_b = of_a.slots(), of_b.slots()
    for x, y in zip(i.tolist(), j.tolist(), strict=True):
        if slots := slots_a.get(x, set()) | slots_b.get(y, set()):
            raw = _slots_of(a.texts("Mutated").raw(x), b.texts("Mutated").raw(y), slots)
            texts.setdefault("Mutated", {})[y] = raw
    return replace(
        b, **changed, extra={**b.extra, **{field: b.texts(field).changed(rows) for field, rows in texts.items()}}
    )


def _slots_of(a: bytes, b: bytes, slots: set[int]) -> bytes:
    """The entries of b about what it changed in place, with those of a for some slots; a's text if all are alike."""
    try:
        one, other = json.loads(a or b"[]"), json.loads(b or b"[]")
    except (ValueError, RecursionError):
        return b
    mine = {entry.get("input"): entry for entry in one if isinstance(entry, dict)}
    theirs = {entry.get("input"): entry for entry in other if isinstance(entry, dict)}
    theirs = {slot: entry for slot, entry in theirs.items() if slot not in slots}
    theirs |= {slot: entry for slot, entry in mine.items() if slot in slots}
    return a if theirs == mine else json.dumps(list(theirs.values())).encode()
