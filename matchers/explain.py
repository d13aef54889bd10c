"""What is known about one row, in words: the text of the inspector and of the reports.

Pure: a comparison and a row in, text out. Nothing is escaped here; whoever prints it makes it safe.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from matchers.comparison import Comparison
from matchers.dataflow import consumers
from matchers.op_log import STATISTICS, OpLog, Phase
from matchers.pairing import Method
from matchers.resolve import key_reference
from matchers.shapes import numel
from matchers.status import Role, Status
from matchers.tolerance import EPSILON

__all__ = ["Explanation", "Fact", "InputFact", "consumers", "explain", "format_eps", "format_error", "row_epsilon"]

_MOST_LISTED = 64
"""Outputs that are listed one by one; more are never shown."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of the side-by-side table: what is compared, both sides as text, and their difference."""

    name: str
    a: str
    b: str
    difference: str
    agrees: bool | None
    """None when one side does not say."""


@dataclass(frozen=True, slots=True)
class InputFact:
    """One input position: its hash on both sides and the records that produced it (-1: not known)."""

    position: int
    a: str
    b: str
    difference: str
    agrees: bool | None
    producer_a: int
    producer_b: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything the inspector says about a row.

    Attributes:
        headline: verdict and role in one sentence ("origin: both inputs agree, the output differs by ≥1.2e-3 …").
        pairing: why these two were paired, confidence and runner-up; or why it is alone.
        notes: what is known and what cannot be known, a sentence each.
        facts: the table of both sides.
        inputs: inputs with their producers.
    """

    headline: str
    pairing: str
    notes: tuple[str, ...]
    facts: tuple[Fact, ...]
    inputs: tuple[InputFact, ...]


_HOW = {
    Method.OVERRIDE: "paired by a rule",
    Method.TEMPLATE: "paired by a template rule",
    Method.EXACT: "paired by their values: the same numbers, inputs included, occur nowhere else in either log",
    Method.ALIGNED: "paired by order of dispatch, names, data flow and values together",
    Method.VALUES: "paired by what they read, which is the same tensor by its norm",
    Method.DATAFLOW: "paired by data flow",
    Method.RELAXED: "paired because nothing else of its name was left on either side",
}
_STATISTIC_NAMES = {"L1 norm": "L1 norm", "L2 norm": "L2 norm", "Min": "min", "Max": "max", "Mean": "mean"}


def format_error(error: float, bound: bool) -> str:
    """`≥1.2e-03`, `0`, `—`: a relative error as it is shown everywhere."""
    if math.isnan(error):
        return "—"
    if math.isinf(error):
        return "∞"
    if error == 0:
        return "0"
    return f"{'≥' if bound else ''}{error:.1e}"


def format_eps(error: float, eps: float) -> str:
    """An error in units of the dtype's ε: `147 ε`; empty where there is nothing to say."""
    if not (math.isfinite(error) and math.isfinite(eps)) or error == 0:
        return ""
    n = error / eps
    return f"{n:.1f} ε" if n < 10 else f"{n:.0f} ε" if n < 1e5 else f"{n:.0e} ε".replace("e+0", "e")


def row_epsilon(c: Comparison, row: int) -> float:
    """ε of the coarser dtype of a row's two sides; NaN where neither has one."""
    found = [
        EPSILON[log.dtype_text(record)]
        for log, record in ((c.a, int(c.row_a[row])), (c.b, int(c.row_b[row])))
        if record >= 0 and log.dtype_text(record) in EPSILON
    ]
    return max(found, default=math.nan)


def explain(c: Comparison, row: int) -> Explanation:
    """Everything that is known about one row of a comparison."""
    i, j = int(c.row_a[row]), int(c.row_b[row])
    inputs = _inputs(c, row)
    return Explanation(
        headline=_headline(c, row, inputs),
        pairing=_pairing(c, row),
        notes=tuple(_notes(c, row, inputs)),
        facts=tuple(_facts(c, i, j)),
        inputs=inputs,
    )


def _headline(c: Comparison, row: int, inputs: tuple[InputFact, ...]) -> str:
    status, role = Status(c.status[row]), Role(c.role[row])
    error, bound = float(c.error[row]), bool(c.bound[row])
    size = format_error(error, bound)
    eps = format_eps(error, row_epsilon(c, row))
    by = f"{size} ({eps})" if eps else size
    if status == Status.DIVERGED:
        if role == Role.ORIGIN:
            agree = "its input agrees" if len(inputs) == 1 else "all its inputs agree" if inputs else "it has no inputs"
            return f"ORIGIN: {agree}, the output differs by {by}"
        if role == Role.UNKNOWN:
            return f"UNKNOWN: the output differs by {by}, and {_what_is_unknown(inputs)}"
        return f"RECEIVER: the output differs by {by}, {_received(c, inputs)}"
    if status == Status.NAN:
        return f"{role.label.upper()}: NaN or Inf ({_nan_sides(c, row)})"
    if status == Status.SHAPE:
        return _what_shape(c, row)
    if status in (Status.ONLY_A, Status.ONLY_B):
        side = "a" if status == Status.ONLY_A else "b"
        if c.cause[row]:
            return f"FIRST CAUSE: only {side} has this operation, and what reads its result diverges"
        return f"only {side} has this operation"
    return {
        Status.PENDING: "not paired yet",
        Status.EQUAL: "equal: the digests agree, the bits are the same",
        Status.SAME_PRINT: "same in print: every printed number is equal",
        Status.CLOSE: f"close: differs by {by}, within the tolerance of {float(c.tolerance[row]):.1e}",
        Status.SHARDED: "sharded: the two sides hold different parts of one tensor; not judged row by row",
        Status.UNFINISHED: "unfinished: the numbers were taken before the communication was done; they mean nothing",
        Status.RECOMPUTE: f"recomputed copy{_of_original(c, row)}: the backward pass ran it again",
        Status.IGNORED: "ignored by a rule",
    }[status]


def _what_shape(c: Comparison, row: int) -> str:
    i, j = int(c.row_a[row]), int(c.row_b[row])
    differing = [
        f"{what} differs: {x} against {y}"
        for what, x, y in (
            ("shape", c.a.shape_text(i), c.b.shape_text(j)),
            ("dtype", c.a.dtype_text(i), c.b.dtype_text(j)),
        )
        if x != y
    ]
    return ", ".join(differing)


def _what_is_unknown(inputs: tuple[InputFact, ...]) -> str:
    differing = [fact for fact in inputs if fact.agrees is False]
    if not differing:
        return "not all inputs are known: suspect the operation one hop before"
    positions = ", ".join(str(fact.position) for fact in differing[:4])
    noun = "input" if len(differing) == 1 else "inputs"
    verb = "differs" if len(differing) == 1 else "differ"
    return (
        f"{noun} {positions} {verb} already though no captured operation is to blame: "
        "suspect what was not captured one hop before"
    )


def _received(c: Comparison, inputs: tuple[InputFact, ...]) -> str:
    for fact in inputs:
        for log, record, at in ((c.a, fact.producer_a, c.at_a), (c.b, fact.producer_b, c.at_b)):
            if record >= 0 and (c.red[at[record]] or c.cause[at[record]]):
                made = f"made by {log.keys[record]}"
                if fact.agrees:
                    return f"and input {fact.position}, {made}, is not what its norm says"
                return f"as does input {fact.position}, {made}"
    differing = [fact for fact in inputs if fact.agrees is False]
    if differing:
        return f"and input {differing[0].position} differs by {differing[0].difference} already"
    return "a consequence of what came before"


def _nan_sides(c: Comparison, row: int) -> str:
    sides = []
    for name, log, record in (("a", c.a, int(c.row_a[row])), ("b", c.b, int(c.row_b[row]))):
        numbers = [*log.outputs[record].tolist(), *log.stats[:, record].tolist()]
        shown = [
            *log.outputs[record].tolist(),
            *(x for k, x in enumerate(log.stats[:, record]) if log.present[record] >> k & 1),
        ]
        if any(not math.isfinite(x) for x in shown) and numbers:
            sides.append(name)
    return "in both runs" if len(sides) == 2 else f"only in {sides[0]}" if sides else "in an input"


def _of_original(c: Comparison, row: int) -> str:
    original = int(c.original[row])
    if original < 0:
        return ""
    log, rows = (c.a, c.row_a) if c.row_a[row] >= 0 else (c.b, c.row_b)
    return f" of {log.keys[int(rows[original])]}"


def _pairing(c: Comparison, row: int) -> str:
    pair = int(c.pair[row])
    if pair < 0:
        status = Status(c.status[row])
        if status == Status.PENDING:
            return ""
        if status == Status.RECOMPUTE:
            return "no partner: the other run did not run this copy, or ran it under a form that was not recognised"
        return "no partner: nothing of its kind (op, shape, phase) in the neighbourhood fits better elsewhere"
    method = Method(c.pairing.method[pair])
    text = _HOW[method]
    if method not in (Method.OVERRIDE, Method.TEMPLATE):
        text += f", confidence {float(c.pairing.confidence[pair]):.2f}"
        rival = int(c.pairing.runner_up[pair])
        if rival >= 0 and c.pairing.runner_up_score[pair] >= 0.005:
            text += f"; runner-up {key_reference(c.b, rival)} {float(c.pairing.runner_up_score[pair]):.2f}"
        elif method == Method.ALIGNED:
            text += "; no rival worth naming"
    if c.pairing.grouped[pair]:
        a, b = c.pairing.members(pair)
        log, side = (c.a, a) if len(a) > 1 else (c.b, b)
        names = " + ".join(log.op_name(record) for record in side)
        text += f"; {names} together are this one operation, compared at the last"
    return text


def _notes(c: Comparison, row: int, inputs: tuple[InputFact, ...]) -> list[str]:
    notes: list[str] = []
    status = Status(c.status[row])
    i, j = int(c.row_a[row]), int(c.row_b[row])
    if i >= 0 and j >= 0:
        same: list[str] = []
        other: list[str] = []
        for what, x, y in (
            ("module", c.a.module_name(i), c.b.module_name(j)),
            ("op", c.a.op_name(i), c.b.op_name(j)),
            ("counter", str(int(c.a.counter[i])), str(int(c.b.counter[j]))),
            ("phase", _phase(c.a, i), _phase(c.b, j)),
            ("location", c.a.location_text(i), c.b.location_text(j)),
        ):
            if x or y:
                (same if x == y else other).append(what)
        if same:
            notes.append(f"same {', '.join(same)}" + (f"; other {', '.join(other)}" if other else ""))
        elif other:
            notes.append(f"other {', '.join(other)}")
    if status == Status.SAME_PRINT:
        if i >= 0 and not len(c.a.outputs[i]) and not c.a.present[i]:
            notes.append("the log says only what went in: what the operation did is not known")
        else:
            notes.append("norms of seven digits cannot see the order of elements, signs in L1, or a change below 5e-7")
    if status in (Status.DIVERGED, Status.CLOSE) and c.bound[row]:
        notes.append("≥: a lower bound from the norms; the tensors themselves may differ by more")
    if status == Status.DIVERGED:
        notes.append(f"the tolerance is {float(c.tolerance[row]):.1e}")
        grown = _growth(c, row, inputs)
        if grown:
            notes.append(grown)
    if status == Status.UNFINISHED:
        notes.append("judged instead where the value is waited for or read")
    if c.cause[row]:
        notes.append("first cause: no red row explains it")
    if int(c.pair[row]) >= 0 and c.pairing.method[int(c.pair[row])] == Method.RELAXED:
        notes.append("a doubtful pair: the same op in the same module, left over on both sides, with other numbers")
    return notes


def _growth(c: Comparison, row: int, inputs: tuple[InputFact, ...]) -> str:
    """What the operation added to the error that came in."""
    worst = 0.0
    i, j = int(c.row_a[row]), int(c.row_b[row])
    for fact in inputs:
        if fact.agrees is False:
            x, y = float(c.a.inputs[i][fact.position]), float(c.b.inputs[j][fact.position])
            difference = _difference(x, y)
            if math.isfinite(difference):
                worst = max(worst, difference)
    error = float(c.error[row])
    if worst <= 0 or not math.isfinite(error):
        return ""
    return f"error out over error in: {error / worst:.2g} (by the norms)"


def _scale(c: Comparison, i: int, j: int, name: str) -> float:
    """What the verdict measures a statistic by (see verdict.py); NaN for its own magnitude."""
    if name in ("Min", "Max"):
        sizes = [abs(float(x)) for log, r in ((c.a, i), (c.b, j)) for x in log.stats[2:4, r] if math.isfinite(x)]
        return max(sizes, default=math.nan) or math.nan
    if name == "Mean":
        n = float(np.fmax(numel(c.a)[c.a.shape[i]], numel(c.b)[c.b.shape[j]]))
        sizes = [float(x) for log, r in ((c.a, i), (c.b, j)) for x in log.outputs[r][:1] if math.isfinite(x)]
        return max(sizes, default=math.nan) / n or math.nan
    return math.nan


def _difference(x: float, y: float, scale: float = math.nan) -> float:
    if x == y:
        return 0.0
    if math.isnan(x) or math.isnan(y):
        return math.nan
    if math.isinf(x) or math.isinf(y):
        return math.inf
    return abs(x - y) / (max(abs(x), abs(y)) if math.isnan(scale) else scale)


def _number(x: float | None) -> str:
    """A logged number as torchtitan prints it."""
    return "" if x is None else f"{x:.6e}"


def _delta(x: float | None, y: float | None, scale: float = math.nan) -> tuple[str, bool | None]:
    if x is None or y is None:
        return "", None
    difference = _difference(x, y, scale)
    if math.isnan(difference) or math.isinf(difference):
        return "≠", False
    return ("0", True) if difference == 0 else (f"{difference:.1e}", False)


def _facts(c: Comparison, i: int, j: int) -> list[Fact]:
    facts: list[Fact] = []

    def number(name: str, x: float | None, y: float | None, scale: float = math.nan) -> None:
        if x is not None or y is not None:
            difference, agrees = _delta(x, y, scale)
            facts.append(Fact(name, _number(x), _number(y), difference, agrees))

    def text(name: str, x: str, y: str) -> None:
        if x or y:
            agrees = None if not x or not y else x == y
            facts.append(Fact(name, x, y, "" if agrees is not False else "≠", agrees))

    outputs_a = c.a.outputs[i].tolist() if i >= 0 else []
    outputs_b = c.b.outputs[j].tolist() if j >= 0 else []
    for k in range(min(max(len(outputs_a), len(outputs_b)), _MOST_LISTED)):
        name = "L1" if max(len(outputs_a), len(outputs_b)) == 1 else f"L1 of output {k}"
        number(name, _get(outputs_a, k), _get(outputs_b, k))
    for k, name in enumerate(STATISTICS):
        scale = _scale(c, i, j, name) if i >= 0 and j >= 0 else math.nan
        number(_STATISTIC_NAMES[name], _statistic(c.a, i, k), _statistic(c.b, j, k), scale)
    if (i >= 0 and len(c.a.digests[i])) or (j >= 0 and len(c.b.digests[j])):
        text(
            "digest",
            *(
                " ".join(f"{d:016x}" for d in log.digests[r].tolist()) if r >= 0 else ""
                for log, r in ((c.a, i), (c.b, j))
            ),
        )
    text("shape", c.a.shape_text(i) if i >= 0 else "", c.b.shape_text(j) if j >= 0 else "")
    text("dtype", c.a.dtype_text(i) if i >= 0 else "", c.b.dtype_text(j) if j >= 0 else "")
    text("phase", _phase(c.a, i), _phase(c.b, j))
    text("location", c.a.location_text(i) if i >= 0 else "", c.b.location_text(j) if j >= 0 else "")
    for name in sorted({*c.a.extra, *c.b.extra} - {"Sketch"}):
        text(name.lower(), c.a.texts(name).get(i, ""), c.b.texts(name).get(j, ""))
    return facts


def _get(values: list[float], k: int) -> float | None:
    return values[k] if k < len(values) else None


def _statistic(log: OpLog, record: int, k: int) -> float | None:
    return float(log.stats[k, record]) if record >= 0 and log.present[record] >> k & 1 else None


def _phase(log: OpLog, record: int) -> str:
    return Phase(log.phase[record]).label if record >= 0 else ""


def _inputs(c: Comparison, row: int) -> tuple[InputFact, ...]:
    i, j = int(c.row_a[row]), int(c.row_b[row])
    values_a = c.a.inputs[i].tolist() if i >= 0 else []
    values_b = c.b.inputs[j].tolist() if j >= 0 else []
    made_a = c.flow.a[i].tolist() if c.flow is not None and i >= 0 else []
    made_b = c.flow.b[j].tolist() if c.flow is not None and j >= 0 else []
    out = []
    for k in range(max(len(values_a), len(values_b))):
        x, y = _get(values_a, k), _get(values_b, k)
        difference, agrees = _delta(x, y)
        maker_a = int(made_a[k]) if k < len(made_a) else -1
        maker_b = int(made_b[k]) if k < len(made_b) else -1
        out.append(InputFact(k, _number(x), _number(y), difference, agrees, maker_a, maker_b))
    return tuple(out)
