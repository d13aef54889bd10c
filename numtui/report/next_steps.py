"""Commands that say more about a comparison, for people and for programs that follow them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from matchers.status import Status
from numtui.text.counts import plural

if TYPE_CHECKING:
    from numtui.report.model import Report

__all__ = ["NextStep", "next_steps"]


class NextStep(NamedTuple):
    """A command as its arguments, and what it tells."""

    command: tuple[str, ...]
    why: str


def next_steps(r: Report) -> Iterator[NextStep]:
    """Yield the commands that would say more, the most useful first; none for logs that cannot be read again."""
    c, options = r.comparison, r.options
    if options.paths is None:
        return
    step = () if options.step is None else ("--step", str(options.step))
    given = step if options.rules_path is None else ("-r", options.rules_path, *step)
    expected = c.expectation.options
    found = options.rules_found
    if found is not None and found != options.rules_path:
        apply = ("numtui", "diff", *options.paths, "-r", found, *step, *expected)
        yield NextStep(apply, "the same with the rules found in this folder")
    diff = ("numtui", "diff", *options.paths, *given)
    if r.red:
        explore = ("numtui", *options.paths, *given, *expected)
        yield NextStep(explore, "the explorer: o goes to the first cause, w explains a row")
    if c.counts[Status.NAN]:
        yield NextStep(
            ("numtui", "diff", options.paths[1], *step), f"where NaN or Inf begins in {options.names[1]} by itself"
        )
    if r.red and c.expectation.is_open:
        preset = "low-precision" if c.policy else "reduction-order"
        yield NextStep((*diff, "--expect", preset), "separates rounding from other differences")
    if r.red and (r.doubt is not None or r.realignments):
        suggest = ("numtui", "suggest", *options.paths, *given, "--format", "yaml", "-o", "suggested.yaml")
        yield NextStep(suggest, "rules for pairs in doubt; then diff with -r suggested.yaml")
    if not r.red and c.counts[Status.CLOSE] and "bitwise" not in expected:
        many = plural(c.counts[Status.CLOSE], "row differs", "rows differ")
        yield NextStep((*diff, "--expect", "bitwise"), f"any difference is red: {many} within tolerance")
    if r.mismatches:
        yield NextStep(
            ("numtui", "diff", options.paths[0], *step), f"recompute mismatches of {options.names[0]} by itself"
        )
    if causes := c.consequences.causes:
        explain = ("numtui", "explain", *options.paths, str(causes[0].rows[0] + 1), *given, *expected)
        yield NextStep(explain, "the verdict on the first cause, step by step")
    if r.red and not (c.a.members or c.b.members) and len(c.a.digests.value) and len(c.b.digests.value):
        plan = ("numtui", "plan", *options.paths, *given, *expected, "-o", "plan.json")
        yield NextStep(plan, "what to keep next: numtui capture --save plan.json of both runs, then numtui replay")
    if r.red:
        page = (*diff, *expected, "-o", "report.html")
        yield NextStep(page, "a page of all rows, to send")
