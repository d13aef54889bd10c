"""The limit of a row's error in words: its terms, and where each of them comes from.

A limit is not stored with its terms. They are computed again here, by the functions that judged, and are said only if
they make the very limit that was applied.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

import numpy as np

from matchers.explain.reason_facts import has_limit
from matchers.explain.subject import Subject
from matchers.ops.laws import law_of
from matchers.ops.shapes import reduction_length
from matchers.rules.resolve import resolve
from matchers.verdict import tolerance as coefficients
from matchers.verdict.digests import altered_by_one_run, inputs_equal
from matchers.verdict.judge import determined_by_copying, longer_sums, print_resolution
from matchers.verdict.reason import Reason
from matchers.verdict.tolerance import (
    ACCUMULATED,
    ANYTHING,
    DECIDED,
    EPSILON,
    EXTREMES,
    MOST_ALLOWED,
    NOISE,
    RESOLUTION,
)

__all__ = ["limit_of"]

_ZERO = {
    Reason.NOT_BITWISE: "bitwise equality is expected",
    Reason.NOT_REPEATED: "others of this form repeat to the bit",
    Reason.OTHER_WHOLE_NUMBERS: "whole numbers do not round",
    Reason.OTHER_START: "no step was made in between, and most weights are bitwise equal",
    Reason.CHANGED_BY_ONE_RUN: "the two were equal before, and only one run changes it",
    Reason.RECOMPUTED_OTHERWISE: "a recomputed copy repeats every bit",
}
"""Reasons that allow nothing."""
_SCALES = {
    EXTREMES: "min and max are single elements, over which rounding does not average",
    ACCUMULATED: "the tensors themselves are compared, whose errors exceed those of norms",
}


def limit_of(of: Subject) -> Iterator[str]:
    """The limit of a row and its terms, a clause each; nothing where no error was held against one."""
    if has_limit(of.c, of.row):
        limit = float(of.c.tolerance[of.row])
        if not limit and of.reason in _ZERO:
            yield f"Limit 0: {_ZERO[of.reason]}"
            return
        told = [*_of_user(of, limit)] or [*_of_inputs(of, limit)] or [*_of_dtype(of, limit)]
        yield from told or [f"Limit {limit:.1e}; where it comes from is not stored"]


def _of_user(of: Subject, limit: float) -> Iterator[str]:
    """The tolerance of a rule or of the command line."""
    c, (i, j) = of.c, of.records
    resolved = resolve(c.rules, c.a, c.b)
    rule = int(min(resolved.tolerance_a[i], resolved.tolerance_b[j])) if of.pair >= 0 else len(c.rules)
    if rule < len(c.rules) and resolved.tolerances[rule] == limit:
        yield f"Limit {limit:.1e}: set by rule {rule + 1} ({c.rules.path})"
    elif c.expectation.rtol == limit:
        yield f"Limit {limit:.1e}: set by --rtol"


def _of_inputs(of: Subject, limit: float) -> Iterator[str]:
    """The limit by rounding and by the errors of the inputs, where rounding is expected."""
    g, k = of.c.arithmetic, of.pair
    if g is None or k < 0 or g.reason[k] == Reason.PENDING:
        return
    own, received, earned, growth = (float(column[k]) for column in (g.own, g.received, g.earned, g.growth))
    noise = NOISE * float(np.nan_to_num(g.noise[k]))
    rounds = f"its own rounding, {_in_epsilon(own, _dtypes(of)[0])}{_terms(of)}"
    if math.isclose(limit, DECIDED * math.sqrt(received)):
        yield f"Limit {limit:.1e} = {DECIDED:g} · √{received:.1e}: signs or whole numbers, decided by such inputs"
    elif limit == ANYTHING > own + max(growth * received, noise):
        yield f"Limit {limit:g}: it holds values that rounding has picked, and may be anything"
    else:
        for came_in, scale in product((received, earned, 0.0), (1.0, EXTREMES)):
            grown = max(growth * came_in, noise)
            if math.isclose(limit, scale * (own + grown)):
                break
        else:
            return
        times = f"{scale:g} × " if scale != 1 else ""
        if not grown:
            yield f"Limit {limit:.1e}{f' = {times}{own:.1e},' if times else ':'} {rounds}"
            yield "No input adds to it: errors of red rows and of other data explain nothing"
        else:
            by_noise = grown > growth * came_in
            source = f"{NOISE:g} × {noise / NOISE:.1e}" if by_noise else f"{growth:.3g} × {came_in:.1e}"
            told = f"{own:.1e} + {source}"
            yield f"Limit {limit:.1e} = {f'{times}({told})' if times else told}"
            yield f"{own:.1e} is {rounds}"
            most = "room for growth in one operation" if growth == 4 else "the most that it may enlarge that"
            measured = of.c.expectation.noise
            yield (
                f"{noise / NOISE:.1e} is the noise of {measured.source} here; {NOISE:g} times as much is allowed"
                if by_noise and measured is not None
                else f"{came_in:.1e} is the largest error of its inputs, {growth:.3g} is {most}"
            )
        if times:
            yield f"× {scale:g} because {_SCALES[EXTREMES]}"
        if own + growth * earned > MOST_ALLOWED >= limit:
            yield f"An estimate, {growth:.3g} × {received:.1e} of its inputs, would allow nearly anything"
            return
        if came_in < received:
            yield f"Up to {received:.1e} is not supposed of its inputs here: one run alone made one of them"
            return
    if earned < received:
        shown = f"{earned:.1e}" if earned else "nothing"
        yield f"The logs show {shown} of that error; the rest is supposed, for values that no log shows"
    if of.reason == Reason.ROUNDING_UNLIMITED:
        unearned = limit <= MOST_ALLOWED
        yield (
            "Only errors that no log shows would explain it, so it is not judged"
            if unearned
            else f"A limit above {MOST_ALLOWED:g} judges nothing: another tensor would pass, too"
        )
    if of.reason == Reason.SYSTEMATIC:
        yield f"The norm changed by {g.norm[k]:.1e}; rounding of this size moves it by {g.norm_limit[k]:.1e} at most"


def _of_dtype(of: Subject, limit: float) -> Iterator[str]:
    """The limit by the dtype and the operation alone."""
    c, row = of.c, of.row
    alone = bool(c.inputs_equal[row])
    if not alone and of.pair >= 0:
        leads = c.pairing.lead_a, c.pairing.lead_b
        alone = bool(altered_by_one_run(c.a, c.b, *leads, c.inputs_equal[c.row_of_pair])[of.pair])
    scales = (1.0, EXTREMES) if c.bound[row] else (1.0,) if alone else (ACCUMULATED,)
    longer = {1.0, float(longer_sums(c.a, c.b, *_leads(of))[0]) if of.pair >= 0 else 1.0}
    cancels = c.cancellation.get(of.pair, 1.0)
    for dtype, scale, times in product(_dtypes(of), scales, longer):
        base, of_dtype, why = _base(of, dtype, alone)
        if math.isclose(limit, base * times * scale * cancels):
            factors = "".join(f" × {factor:.3g}" for factor in (times, scale, cancels) if factor != 1)
            yield f"Limit {limit:.1e} = {_in_epsilon(base, of_dtype)}{factors}"
            yield why
            if times != 1:
                yield f"× {times:.3g}{_terms(of)}"
            if scale != 1:
                yield f"× {scale:g} because {_SCALES[scale]}"
            if cancels != 1:
                yield f"× {cancels:.3g} because its terms are larger than their sum, and round as they do"
            return


def _base(of: Subject, dtype: str, alone: bool) -> tuple[float, str, str]:
    """The tolerance of a dtype here, the dtype that it comes from, and the reason for its size."""
    c, usual = of.c, coefficients.default_tolerance
    if not alone:
        coarsest = max((dtype, *(name for pair in c.policy for name in pair)), key=usual)
        printed = print_resolution(c.a, c.b, *_leads(of))[0] if of.pair >= 0 else 0.0
        if printed > usual(coarsest):
            return printed, dtype, "The logs have so few digits"
        if usual(coarsest) > usual(dtype) or c.policy:
            return usual(coarsest), coarsest, "The runs have other dtypes throughout, so the coarser one counts"
        return usual(dtype), dtype, "Inputs are not known to be bitwise equal: they may bring other rounding"
    if of.pair >= 0 and determined_by_copying(c.a, c.b, *_leads(of))[0]:
        return RESOLUTION, dtype, "Inputs are bitwise equal and it copies them: only sums in the logged norms round"
    by_element = law_of(*c.shown(of.row)).by_element
    how = "each element is computed by itself" if by_element else "sums in it may be added up in another order"
    but = ", but for noise of sums that cancel" if c.inputs_equal[of.row] else ", but for what one run alone updates"
    equal = "bitwise equal" + but * (of.pair >= 0 and not inputs_equal(c.a, c.b, *_leads(of))[0])
    return coefficients.own_tolerance(dtype, by_element), dtype, f"Inputs are {equal}; {how}"


def _dtypes(of: Subject) -> list[str]:
    """The dtypes of the two results, the coarser first; of a further output or a changed tensor perhaps another."""
    found = [log.dtype_text(k) for log, k in zip((of.c.a, of.c.b), of.records, strict=True) if k >= 0]
    found = sorted(filter(None, dict.fromkeys(found)), key=lambda name: -EPSILON.get(name, 0.0))
    return found if found and of.row not in of.c.slots else [*dict.fromkeys((*found, *of.c.a.dtypes, "float32"))]


def _in_epsilon(tolerance: float, dtype: str) -> str:
    """`128 ε of float32`, or the resolution of what a log prints."""
    if tolerance in (coefficients.PRINT_RESOLUTION, RESOLUTION) or dtype not in EPSILON:
        return "rounding of logged norms" if tolerance == RESOLUTION else "the last printed digit"
    return f"{tolerance / EPSILON[dtype]:.3g} ε of {dtype}"


def _leads(of: Subject) -> tuple[np.ndarray, np.ndarray]:
    return np.array(of.records[:1]), np.array(of.records[1:])


def _terms(of: Subject) -> str:
    """` for sums of 16,384 terms`, of an operation whose rounding is larger for them; else empty."""
    if not longer_sums(of.c.a, of.c.b, *_leads(of))[0] > 1:
        return ""
    longest = max(reduction_length(log)[k] for log, k in zip((of.c.a, of.c.b), of.records, strict=True))
    return f" for sums of {longest:,.0f} terms" if math.isfinite(longest) else " for a norm over whole lists"
