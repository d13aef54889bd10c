"""The numbers and names of one row, side by side: the table of the inspector."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from matchers.comparison import Comparison
from matchers.logs.op_log import MARKS, STATISTICS, OpLog, Phase
from matchers.ops.arguments import (
    argument_differences,
    arguments_of,
    forms_of,
    overload_of,
    shown,
    tells_arguments,
)
from matchers.ops.autocast import autocast_at
from matchers.ops.common_numbers import tell_inputs
from matchers.ops.input_statistics import statistics_apart, statistics_read, tell_statistics
from matchers.ops.json_values import parsed_object
from matchers.ops.last_contents import GRADIENT
from matchers.ops.laws import law_of
from matchers.ops.placement import MERGED, describe_placement
from matchers.ops.run_info import MERGED_RANKS
from matchers.ops.shapes import numel, sharded_runs
from matchers.ops.start import weights_by_digest
from matchers.ops.values import first_outputs, records_changes, written
from matchers.status import Status
from matchers.verdict.expectation import Expect
from matchers.verdict.fused import are_parts, folded
from matchers.verdict.judge_values import Limits
from matchers.verdict.reason import Reason
from matchers.verdict.relative_error import relative_difference
from matchers.verdict.sketches import estimates
from matchers.verdict.slots import judge_slots
from matchers.verdict.tolerance import MOST_ALLOWED

__all__ = [
    "OTHER_BITS",
    "Fact",
    "InputFact",
    "facts_of",
    "format_eps",
    "format_error",
    "ground_of",
    "inputs_of",
    "phase_label",
    "read_numbers",
]

OTHER_BITS = "≠ bits"
"""The difference of an input whose norm agrees and whose digest does not."""

_MAX_OUTPUTS = 64
"""Outputs that are listed one by one; further ones are left out."""
_MAX_CHANGED = 8
_MAX_FRAMES = 6
_STATISTIC_NAMES = {"L1 norm": "L1 norm", "L2 norm": "L2 norm", "Min": "min", "Max": "max", "Mean": "mean"}


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of the side-by-side table: a name, both sides as text, and their difference."""

    name: str
    a: str
    b: str
    difference: str
    agrees: bool | None
    """None where a side is not logged."""


@dataclass(frozen=True, slots=True)
class InputFact:
    """One input: its norm on both sides, the records that produced it (-1: unknown), and its name if it is a
    parameter. `bits`: True where both are bitwise equal, None where a log has no digest of it. `weights`: the names
    of what it is in a and in b, if each read another weight.
    """

    position: int
    a: str
    b: str
    difference: str
    agrees: bool | None
    producer_a: int
    producer_b: int
    name: str = ""
    bits: bool | None = None
    weights: tuple[str, str] | None = None

    @property
    def is_gradient(self) -> bool:
        return self.name.endswith(GRADIENT)

    @property
    def title(self) -> str:
        """`the gradient of 0.weight`, `0.weight` or `input 3`."""
        if self.is_gradient:
            return f"the gradient of {self.name.removesuffix(GRADIENT)}"
        return self.name or f"input {self.position}"


def format_error(error: float, bound: bool) -> str:
    """A relative error as it is shown everywhere: `≥1.2e-03` (a bound), `≈1.2e-03` (an estimate), `0`, `—`."""
    if math.isnan(error):
        return "—"
    if math.isinf(error):
        return "∞"
    if error == 0:
        return "0"
    return f"{'≥' if bound else '≈'}{error:.1e}"


def format_eps(error: float, eps: float) -> str:
    """An error in units of the dtype's ε: `147 ε`; empty for no error or an unknown ε."""
    if not (math.isfinite(error) and math.isfinite(eps)) or error == 0:
        return ""
    n = error / eps
    return f"{n:.1f} ε" if n < 10 else f"{n:,.0f} ε" if n < 1e5 else f"{n:.0e} ε".replace("e+0", "e")


def _scale(c: Comparison, i: int, j: int, name: str) -> float:
    """The scale of a statistic's relative difference (see verdict/judge.py); NaN for its own magnitude."""
    if name in ("Min", "Max"):
        sizes = [abs(float(x)) for log, r in ((c.a, i), (c.b, j)) for x in log.stats[2:4, r] if math.isfinite(x)]
        return max(sizes, default=math.nan) or math.nan
    if name == "Mean":
        n = float(np.fmax(numel(c.a)[c.a.shape[i]], numel(c.b)[c.b.shape[j]]))
        sizes = [float(x) for log, r in ((c.a, i), (c.b, j)) for x in log.outputs[r][:1] if math.isfinite(x)]
        return max(sizes, default=math.nan) / n or math.nan
    return math.nan


def _number(x: float | None) -> str:
    """A logged number as torchtitan prints it."""
    return "" if x is None else f"{x:.6e}"


def _delta(x: float | None, y: float | None, scale: float = math.nan) -> tuple[str, bool | None]:
    if x is None or y is None:
        return "", None
    difference = relative_difference(x, y, scale)
    if math.isnan(difference) or math.isinf(difference):
        return "≠", False
    return ("0", True) if difference == 0 else (f"{difference:.1e}", False)


def _sides(c: Comparison, row: int, of: Callable[[OpLog, int], str]) -> tuple[str, str]:
    """The texts of the two records of a row; empty for no record."""
    i, j = int(c.row_a[row]), int(c.row_b[row])
    return of(c.a, i) if i >= 0 else "", of(c.b, j) if j >= 0 else ""


def _numbers(name: str, x: float | None, y: float | None, scale: float = math.nan) -> Iterator[Fact]:
    """Yield the line of two logged numbers, of which one may be missing."""
    if x is not None or y is not None:
        difference, agrees = _delta(x, y, scale)
        yield Fact(name, _number(x), _number(y), difference, agrees)


def _texts(name: str, x: str, y: str) -> Iterator[Fact]:
    """Yield the line of two texts, of which one may be missing."""
    if x or y:
        agrees = x == y if x and y else None
        yield Fact(name, x, y, "≠" if agrees is False else "", agrees)


def facts_of(c: Comparison, row: int) -> list[Fact]:
    """The side-by-side table of a row."""
    i, j = int(c.row_a[row]), int(c.row_b[row])
    facts: list[Fact] = []
    parts = _together(c, row)
    for name, x, y in parts:
        scale = max(abs(z) for _, *both in parts[2:] for z in both) if name in ("min", "max") else math.nan
        facts += _numbers(f"{name} together", x, y, scale)
    outputs = [_known(log, log.outputs[r]) if r >= 0 else [] for log, r in ((c.a, i), (c.b, j))]
    norms = list(zip_longest(*outputs))
    for k, (one, other) in enumerate(norms[:_MAX_OUTPUTS]):
        facts += _numbers("L1" if len(norms) == 1 else f"L1 of output {k}", one, other)
    for k, name in enumerate(STATISTICS):
        scale = _scale(c, i, j, name) if i >= 0 and j >= 0 else math.nan
        facts += _numbers(_STATISTIC_NAMES[name], _statistic(c.a, i, k), _statistic(c.b, j, k), scale)
    facts += read_numbers(c, row)
    facts += _measured(c, row, i, j)
    for name, of in _TEXTS:
        facts += _texts(name, *_sides(c, row, of))
    facts += _arguments(c, row)
    facts += _autocast(c, row)
    frames_a, frames_b = (text.split(" < ") for text in _sides(c, row, _stack))
    if frames_a == frames_b:
        frames_a = frames_b = [" < ".join(frames_a)]
    for k, frames in enumerate(list(zip_longest(frames_a, frames_b, fillvalue=""))[:_MAX_FRAMES]):
        facts += _texts("stack" if k == 0 else f"called from {k}", *frames)
    return facts


def _arguments(c: Comparison, row: int) -> Iterator[Fact]:
    """Yield the arguments of each side, besides its tensors."""
    logs = [(log, int(of[row])) for log, of in ((c.a, c.row_a), (c.b, c.row_b))]
    if not any(tells_arguments(log) for log, record in logs if record >= 0):
        return
    x, y = _sides(c, row, overload_of)
    told = bool(x and y)
    yield Fact("overload", x, y, "≠" if told and x != y else "", x == y if told else None)
    given_a, given_b = (arguments_of(log, record) if record >= 0 else {} for log, record in logs)
    differing = {each.name: each for each in argument_differences(c.a, c.b, *(r for _, r in logs))} if told else {}
    for name in dict.fromkeys([*given_a, *given_b]):
        agrees = name not in differing if told else None
        values = (shown(given_a.get(name)), shown(given_b.get(name))) if agrees is not False else differing[name].values
        x, y = (text if name in given else "" for text, given in zip(values, (given_a, given_b), strict=True))
        yield Fact(f"{name} =", x, y, "≠" if agrees is False else "", agrees)
    for name, of in (("inputs are", forms_of), ("draws", lambda log, record: log.texts("Random").get(record, ""))):
        x, y = _sides(c, row, of)
        if x or y:
            yield Fact(name, x, y, "≠" if told and x != y else "", x == y if told else None)


def _autocast(c: Comparison, row: int) -> Iterator[Fact]:
    """Yield what autocast was on in each run, where it was on in one."""
    x, y = _sides(c, row, autocast_at)
    if not {x, y} <= {"", "off"}:
        yield from _texts("autocast", x, y)


def _together(c: Comparison, row: int) -> list[tuple[str, float, float]]:
    """L1, L2, min and max of an operation and of its parts together; empty for other rows."""
    pair = int(c.pair[row])
    if pair < 0 or not c.pairing.grouped[pair]:
        return []
    rows_a, rows_b = c.pairing.members(pair)
    if not are_parts(c.a, c.b, rows_a, rows_b):
        return []
    x, y = folded(c.a, rows_a), folded(c.b, rows_b)
    named = (("L1", "l1"), ("L2 norm", "l2"), ("min", "min"), ("max", "max"))
    return [(name, getattr(x, of), getattr(y, of)) for name, of in named]


def _known(log: OpLog, values: NDArray[Any], unread: bool = False) -> list[float | None]:
    """Norms; None for those that a log does not tell, or merged ranks do not know together, which it has as NaN."""
    unknown = MERGED_RANKS in log.header.run or unread
    return [None if unknown and math.isnan(value) else float(value) for value in values.tolist()]


def _get(values: Sequence[float | None], k: int) -> float | None:
    return values[k] if k < len(values) else None


def _statistic(log: OpLog, record: int, k: int) -> float | None:
    return float(log.stats[k, record]) if record >= 0 and log.present[record] >> k & 1 else None


def phase_label(log: OpLog, record: int) -> str:
    """The phase of a record, such as `backward`."""
    return Phase(log.phase[record]).label


def inputs_of(c: Comparison, row: int) -> tuple[InputFact, ...]:
    """The inputs of a row, with their producers; a sum's or product's of b in the order of a."""
    i, j = int(c.row_a[row]), int(c.row_b[row])
    unread = (c.a.tells.unread and c.b.tells.unread) or not tell_inputs(c.a, c.b)
    values_a = _known(c.a, c.a.inputs[i], unread) if i >= 0 else []
    values_b = _known(c.b, c.b.inputs[j], unread) if j >= 0 else []
    made_a = c.flow.a[i].tolist() if c.flow is not None and i >= 0 else []
    made_b = c.flow.b[j].tolist() if c.flow is not None and j >= 0 else []
    digests_a, digests_b = (list(log.input_digests[r]) if r >= 0 else [] for log, r in ((c.a, i), (c.b, j)))
    names = [log.texts("Parameter").get(r, "").split(";") for log, r in ((c.a, i), (c.b, j))]
    if made_a and made_b and c.flow is not None:
        pair = np.array([i]), np.array([j])
        if c.flow.exchanged(*pair, c.pairing.of_a, c.pairing.of_b)[0]:
            for of_b in (values_b, made_b, digests_b, names[1]):
                of_b.reverse()
    told = dict(_differing_statistics(c, row))
    out = []
    for k in range(max(len(values_a), len(values_b))):
        x, y = _get(values_a, k), _get(values_b, k)
        difference, agrees = _delta(x, y)
        bits = _same_bits(digests_a, digests_b, k)
        if bits is not None:
            agrees = bits
            difference = "0" if bits else difference if difference not in ("", "0") else OTHER_BITS
        elif agrees is not False and k in told:
            difference, agrees = told[k], False
        maker_a = int(made_a[k]) if k < len(made_a) else -1
        maker_b = int(made_b[k]) if k < len(made_b) else -1
        name = next((known[k] for known in names if k < len(known) and known[k]), "")
        held = [
            weights_by_digest(log).get(int(digests[k]), "") if k < len(digests) else ""
            for log, digests in ((c.a, digests_a), (c.b, digests_b))
        ]
        weights = (held[0], held[1]) if all(held) and held[0] != held[1] else None
        out.append(InputFact(k, _number(x), _number(y), difference, agrees, maker_a, maker_b, name, bits, weights))
    return tuple(out)


def _differing_statistics(c: Comparison, row: int) -> Iterator[tuple[int, str]]:
    """Yield the inputs of which more than a norm is told and differs, and by how much."""
    i, j = int(c.row_a[row]), int(c.row_b[row])
    if min(i, j) < 0 or not tell_statistics(c.a, c.b):
        return
    places = np.arange(min(len(c.a.inputs[i]), len(c.b.inputs[j])))
    error, other = statistics_apart(c.a, c.b, np.full(len(places), i), np.full(len(places), j), places)
    for k in np.flatnonzero((error > 0) | other).tolist():
        yield k, f"{error[k]:.1e}" if error[k] > 0 else OTHER_BITS


def read_numbers(c: Comparison, row: int) -> Iterator[Fact]:
    """Yield extremes and mean of inputs that these tell apart."""
    i, j = int(c.row_a[row]), int(c.row_b[row])
    for k, _ in _differing_statistics(c, row):
        x, y = statistics_read(c.a, i, k).tolist(), statistics_read(c.b, j, k).tolist()
        size = max(map(abs, (*x[:2], *y[:2])))
        for name, one, other in zip(("min", "max", "mean"), x, y, strict=False):
            if not (math.isnan(one) or math.isnan(other)):
                yield from _numbers(f"{name} of input {k}", one, other, size)
        if x[3] != y[3] and not (math.isnan(x[3]) or math.isnan(y[3])):
            yield Fact(f"checksum of input {k}", f"{x[3]:.0f}", f"{y[3]:.0f}", "≠", False)


def _same_bits(digests_a: Sequence[np.uint64], digests_b: Sequence[np.uint64], k: int) -> bool | None:
    """True where the k-th inputs are bitwise equal; None where a log has no digest of them."""
    if k >= min(len(digests_a), len(digests_b)) or digests_a[k] in MARKS or digests_b[k] in MARKS:
        return None
    return bool(digests_a[k] == digests_b[k])


def _measured(c: Comparison, row: int, i: int, j: int) -> list[Fact]:
    """Measurements of our own capture only: digests, the tensors' distance, counts, and inputs changed in place."""
    facts = []
    digest_a, digest_b = _digests(c.a, i), _digests(c.b, j)
    if digest_a or digest_b:
        known = digest_a and digest_b and "-" not in digest_a + digest_b
        agrees = digest_a == digest_b if known else None
        facts.append(Fact("digest", digest_a, digest_b, "≠" if agrees is False else "", agrees))
    if i >= 0 and j >= 0:
        one = np.ones(1, np.int64)
        _, error = estimates(first_outputs(c.a, one * i), first_outputs(c.b, one * j), one > 0)
        if error[0] > 0:
            facts.append(Fact("‖a − b‖/‖b‖", "by sketch", "", format_error(float(error[0]), False), False))
    for k, name in ((1, "NaN"), (2, "Inf"), (3, "zeros")):
        x, y = (int(log.counts[k, r]) if r >= 0 else -1 for log, r in ((c.a, i), (c.b, j)))
        if max(x, y) > 0:
            same = None if min(x, y) < 0 else x == y
            text_x, text_y = (str(n) if n >= 0 else "" for n in (x, y))
            facts.append(Fact(name, text_x, text_y, "≠" if same is False else "", same))
    facts.extend(_changed(c, row, i, j))
    facts.extend(_noise(c, row))
    return facts


def _noise(c: Comparison, row: int) -> list[Fact]:
    """The noise that further runs show here, and the error of the row as a multiple of it."""
    measured = c.expectation.noise
    if (
        measured is None
        or c.arithmetic is None
        or c.pair[row] < 0
        or not (noise := float(c.arithmetic.noise[c.pair[row]])) >= 0
    ):
        return []
    times = f"{float(c.error[row]) / noise:.1f} times" if noise > 0 and math.isfinite(c.error[row]) else ""
    return [Fact("noise", f"by {measured.source}", format_error(noise, False), times, None)]


def _digests(log: OpLog, record: int) -> str:
    digests = log.digests[record] if record >= 0 else ()
    return " ".join("-" if d in MARKS else f"{d:016x}" for d in digests)


def _changed(c: Comparison, row: int, i: int, j: int) -> list[Fact]:
    """The inputs that changed in place, the largest differences first."""
    many = [len(written(log, record)) if record >= 0 else 0 for log, record in ((c.a, i), (c.b, j))]
    if not any(many):
        return []
    text_a, text_b = (f"{n} input{'s' * (n != 1)}" for n in many)
    if i < 0 or j < 0:
        return [Fact("changed", text_a if i >= 0 else "", text_b if j >= 0 else "", "", None)]
    recorded = records_changes(c.a) and records_changes(c.b)
    difference = "" if recorded else "not compared"
    facts = [Fact("changed", text_a, text_b, difference, None if many[0] == many[1] or not recorded else False)]
    shards = sharded_runs(c.a, c.b)
    explained = c.arithmetic is not None and c.pair[row] >= 0 and c.arithmetic.reason[c.pair[row]] != Reason.PENDING
    limits = Limits(
        rtol=float(c.tolerance[row]) if explained else math.nan,
        shards=shards,
        alone=bool(c.inputs_equal[row]),
        by_element=law_of(c.a, i).by_element,
        policy=c.policy,
    )
    blocks = judge_slots(c.a, c.b, np.array([i]), np.array([j]), limits, recorded)
    found = [slots.verdict(s) for slots in blocks for s in range(len(slots.pair))]
    found = [slot for slot in found if slot.status != Status.EQUAL]
    found.sort(key=lambda slot: (-slot.status, -np.nan_to_num(slot.error)))
    for slot in found[:_MAX_CHANGED]:
        change = "only a" if slot.only == "a" else "only b" if slot.only == "b" else slot.status.label
        difference = format_error(slot.error, slot.bound)
        facts.append(Fact(slot.name, change, "", difference, None if slot.status < Status.CLOSE else False))
    if len(found) > _MAX_CHANGED:
        facts.append(Fact("", f"… and {len(found) - _MAX_CHANGED:,} more that differ", "", "", None))
    return facts


def _micro_batch(log: OpLog, record: int) -> str:
    if (log.joined == record).any():
        return f"{log.batches} together"
    number = int(log.micro_batch[record])
    return str(number) if number >= 0 else ""


def _recompute(log: OpLog, record: int) -> str:
    return "yes" if log.recompute[record] else ""


def _placement(log: OpLog, record: int) -> str:
    merged = log.texts(MERGED).get(record, "")
    return merged or describe_placement(parsed_object(log.texts("Placement").get(record, "")))


def _group(log: OpLog, record: int) -> str:
    """The process group of a collective and its number within the group: `ranks 0, 1 · collective 3`."""
    text = log.texts("Group").get(record, "")
    group = parsed_object(text)
    if group is None or not isinstance(group.get("ranks"), list):
        return text
    what = "message" if "peer" in group else "collective"
    return f"ranks {', '.join(map(str, group['ranks']))} · {what} {group.get('nth', '?')}"


def _stack(log: OpLog, record: int) -> str:
    return log.texts("Stack").get(record, "")


_TEXTS: Final[tuple[tuple[str, Callable[[OpLog, int], str]], ...]] = (
    ("shape", OpLog.shape_text),
    ("dtype", OpLog.dtype_text),
    ("phase", phase_label),
    ("location", OpLog.location_text),
    ("micro-batch", _micro_batch),
    ("recompute", _recompute),
    ("placement", _placement),
    ("group", _group),
    ("user hash", lambda log, record: log.texts("User hash").get(record, "")),
)


def ground_of(c: Comparison, row: int) -> str:
    """A clause about the difference of a row (`explained by float arithmetic: …`); empty without an expectation."""
    if c.expectation.preset == Expect.BITWISE and c.status[row] == Status.DIVERGED and c.tolerance[row] == 0:
        return "bitwise equality is expected"
    pair = int(c.pair[row])
    if c.arithmetic is None or pair < 0:
        return ""
    g, limit = c.arithmetic, f"{float(c.tolerance[row]):.1e}"
    noise = float(g.noise[pair])
    received = f"an input error of {format_error(float(g.received[pair]), False)}"
    measured = c.expectation.noise
    source = (
        f"noise of {noise:.1e} in {measured.source}"
        if measured is not None and noise > 0
        else received
        if g.received[pair] > 0
        else ""
    )
    own = f"{float(g.own[pair]):.1e} rounding" + (f" and {source}" if source else "")
    allows = "allow" if source else "allows"
    reason = g.reason[pair]
    if reason == Reason.ROUNDING_EXPLAINED and source and measured is not None and measured.other_batch:
        return f"depends on the batch: {own} {allows} {limit}"
    if reason == Reason.ROUNDING_EXPLAINED:
        return f"explained by float arithmetic: {own} {allows} {limit}"
    if reason == Reason.ROUNDING_UNLIMITED:
        return f"{own} would allow {limit}" + ", which neither log shows" * bool(c.tolerance[row] <= MOST_ALLOWED)
    if reason == Reason.MORE_THAN_ROUNDING:
        return f"more than float arithmetic explains: {own} {allows} {limit}"
    if reason == Reason.SYSTEMATIC:
        norm, most = f"{float(g.norm[pair]):.1e}", f"{float(g.norm_limit[pair]):.1e}"
        changed = f"the norm changed by {norm}, rounding moves it by {most} at most"
        return f"more than float arithmetic explains: {changed}"
    return ""
