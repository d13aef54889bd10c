"""Evidence behind the outcome: how much was compared, by what (digests, printed norms, tolerance), and its limits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from matchers.comparison import Comparison
from matchers.coverage.coverage import Coverage
from matchers.explain.regions import regions_of
from matchers.logs.op_log import OpLog
from matchers.logs.tells import coarser
from matchers.ops.common_numbers import tell_inputs
from matchers.ops.run_info import contradictions
from matchers.status import Status
from numtui.text.counts import plural

__all__ = ["agreement", "broken_entries", "certificate", "extent", "lacking", "log_trouble", "why_nothing"]

_MAX_PARTS = 6


def extent(c: Comparison) -> str:
    """Return how much was compared, in one sentence: the first one of every report."""
    told = c.coverage.sentence
    ignored = c.coverage.larger.ignored
    return f"{told}; rules ignore {ignored:,}." if ignored else f"{told}."


def broken_entries(many: int) -> str:
    """Say that so many entries of the rule file are broken."""
    return f"{many:,} rule {'entry is' if many == 1 else 'entries are'} broken"


def agreement(c: Comparison) -> str:
    """Return the outcome of a comparison without red rows, in one sentence."""
    broken = f"; {broken_entries(len(c.rules.problems))}" if c.rules.problems else ""
    return f"{_agreement(c)}{broken}."


def _agreement(c: Comparison) -> str:
    known = c.coverage
    if known.nothing:
        return f"Nothing was compared: {why_nothing(c)}"
    agree = known.larger.compared
    agrees = f"{plural(agree, 'operation')} {'agrees' if agree == 1 else 'agree'}"
    if known.parts:
        return f"{lacking(known)}: {known.missing}, which {known.parts[0].why}; {agrees}"
    if by_rules := int(np.count_nonzero(c.within_rules_only)):
        return (
            f"{plural(by_rules, 'row')} {'is' if by_rules == 1 else 'are'} within a tolerance that rules set; {agrees}"
        )
    if odd := [side for side, log in c.logs if contradictions(log.header.run)]:
        return f"The ranks of {' and of '.join(odd)} contradict each other; {agrees}"
    bits = " bitwise" if c.counts[Status.EQUAL] and not (c.counts[Status.SAME_PRINT] + c.counts[Status.CLOSE]) else ""
    start = "".join(f"; {of.many}" for of in (c.start.parameters, c.start.buffers) if of is not None)
    return f"No divergence: {agrees}{bits}{_unjudged(c)}{start}"


def _unjudged(c: Comparison) -> str:
    """Say how many rows were not judged, and which is the first; empty for none."""
    rows = np.flatnonzero(c.status == Status.NOT_JUDGED)
    if not len(rows):
        return ""
    log, record = c.shown(rows[0])
    which = "at" if len(rows) == 1 else "the first at"
    return f"; {len(rows):,} not judged, {which} {log.keys[int(record)]}"


def lacking(known: Coverage) -> str:
    """Say in a word or two what happened to the parts that were not compared."""
    return "Not compared" if known.understood else "Not understood"


def why_nothing(c: Comparison) -> str:
    """Say why not one row was compared."""
    empty = [side for side, log in c.logs if not len(log)]
    if empty:
        return "both logs are empty" if len(empty) == 2 else f"{empty[0]} is empty"
    n = c.counts
    if n[Status.IGNORED] == len(c):
        return "rules ignore every operation"
    silent = [side for side, log in c.logs if not _has_values(log)]
    if len(silent) == 2 and all(log.texts("User hash") for _, log in c.logs):
        return "the logs have hashes alone, which show that tensors differ, never that they agree; none differs"
    if silent:
        return "neither log has values under a known name" if len(silent) == 2 else f"{silent[0]} has no known values"
    if n[Status.NO_VALUES]:
        return "the two logs have no kind of value in common"
    if n[Status.ONLY_A] or n[Status.ONLY_B]:
        return "no operation of one run has a match in the other"
    return "no operation could be judged"


def _has_values(log: OpLog) -> bool:
    return bool((log.outputs.count > 0).any() or log.present.any() or log.texts("Mutated"))


def certificate(c: Comparison) -> Iterator[str]:
    """Yield sentences about the evidence; none where nothing was compared."""
    n = c.counts
    if n[Status.EQUAL]:
        what = plural(n[Status.EQUAL], "operation")
        read = "inputs and " if tell_inputs(c.a, c.b) else ""
        yield f"{what} by digest: {read}outputs are bitwise equal."
    if n[Status.SAME_PRINT]:
        tells = coarser(c.a.tells, c.b.tells)
        yield f"{plural(n[Status.SAME_PRINT], 'operation')} by {tells.numbers}, which miss {tells.misses}."
    if n[Status.CLOSE]:
        yield f"{plural(n[Status.CLOSE], 'operation')} within tolerance, {_largest(c)}."
    if covered := c.coverage.larger.covered:
        yield f"{plural(covered, 'operation')} by what they lead to, which agrees."
    if others := [region for region in regions_of(c) if region.kind == "covered" and region.a and region.b]:
        most = max(others, key=lambda region: len(region.a) + len(region.b))
        ways = f"{plural(len(most.a), 'operation')} of a, {len(most.b):,} of b"
        where = f" in {most.module}" if most.module else ""
        yield f"{plural(len(others), 'region')} reached in another way, which agree; the largest{where}: {ways}."
    left = {
        "unpaired": n[Status.ONLY_A] + n[Status.ONLY_B],
        "recomputed on one side": n[Status.RECOMPUTE],
        "sharded differently": n[Status.SHARDED],
        "partial sums in another reduction order": n[Status.PARTIAL],
        "without values": n[Status.NO_VALUES],
        "not judged": n[Status.NOT_JUDGED],
        "logged before they finished": n[Status.UNFINISHED],
        "ignored by rules": n[Status.IGNORED],
    }
    if any(left.values()):
        yield "Not compared: " + ", ".join(f"{k:,} {what}" for what, k in left.items() if k) + "."
    parts = [f"{part} {part.why}" for part in c.coverage.parts]
    if parts:
        more = f"; {len(parts) - _MAX_PARTS:,} more" if len(parts) > _MAX_PARTS else ""
        yield f"Parts that were not compared: {', '.join(parts[:_MAX_PARTS])}{more}."


def _largest(c: Comparison) -> str:
    from matchers.explain.sentences import format_error  # not for the rows in machine formats

    close = np.flatnonzero(c.status == Status.CLOSE)
    error = c.error[close]
    if np.isnan(error).all():
        return "errors unknown"
    worst = int(close[np.nanargmax(error)])
    return f"largest error {format_error(float(c.error[worst]), bool(c.bound[worst]))}"


def log_trouble(log: OpLog) -> Iterator[str]:
    """Yield sentences about operations missing from a log: cut off, or unlike the header's count."""
    declared = log.header.declared
    if log.complete is False:
        missing = "operations at its end are missing"
        if declared is not None and declared > len(log):
            missing = f"{len(log):,} of {declared:,} operations are present"
        elif declared == len(log) and log.header.format is None:  # torchtitan counts before it writes
            missing = "the end of its last record is missing"
        why = f": {log.header.incomplete}" if log.header.incomplete else ""
        yield f"the log is cut off, {missing}{why}"
    elif declared is not None and declared != len(log):
        yield f"the header declares {plural(declared, 'operation')}, the log has {len(log):,}"
