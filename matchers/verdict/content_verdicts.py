"""The verdicts on what the two runs leave in named tensors; see last_contents.py."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from matchers.arrays import Bool
from matchers.ops.dataflow import DataFlow
from matchers.ops.last_contents import GRADIENT, LastContents
from matchers.status import AGREE
from matchers.verdict.reason import Reason
from matchers.verdict.relative_error import relative_difference
from matchers.verdict.slots import SlotVerdict, worst

__all__ = ["ContentVerdict", "ContentVerdicts"]


@dataclass(frozen=True, slots=True)
class ContentVerdict:
    """The facts about the last content of one tensor.

    Attributes:
        name: canonical.
        a, b: the records that wrote it last; -1 where a run does not write to it, so that it is as it was before the
            step.
        verdict: None where it cannot be judged.
        alone: all that it was computed from is bitwise equal in the two runs.
        parameter: it is a parameter or a buffer, not a state of an optimizer.
        given: another tensor of its parameter, from which it is computed, differs before the step.
    """

    name: str
    a: int
    b: int
    verdict: SlotVerdict | None
    alone: bool
    parameter: bool
    given: bool = False

    @property
    def red(self) -> bool:
        return self.verdict is not None and self.verdict.status.red

    @property
    def agrees(self) -> bool:
        return self.verdict is not None and self.verdict.status in AGREE

    def record(self, side: str) -> int:
        """The record of a side."""
        return self.a if side == "a" else self.b


@dataclass(frozen=True)
class ContentVerdicts:
    """The tensors whose last contents are told by records that are not one pair.

    Attributes:
        contents: by name.
        at: by side and record, the red contents that it tells; each is at one record only, an unpaired one if possible.
        noise: the names of tensors that are rounding errors, which are not judged unless they agree.
    """

    contents: Mapping[str, ContentVerdict] = field(default_factory=dict)
    at: Mapping[tuple[str, int], tuple[ContentVerdict, ...]] = field(default_factory=dict)
    noise: Container[str] = ()
    _logs: tuple[LastContents, LastContents] | None = field(default=None, repr=False, compare=False)
    _unpaired: tuple[Bool, Bool] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def verdicts(self) -> dict[tuple[str, int], SlotVerdict]:
        """By side and record, the verdict on the content that differs most; on a parameter, if one differs."""
        return {place: _deciding(contents) for place, contents in self.at.items()}

    def of_row(self, a: int, b: int) -> tuple[ContentVerdict, ...]:
        """The contents that a row of these records is red for; -1 for no record."""
        return self.at.get(("a", a)) or self.at.get(("b", b)) or ()

    @property
    def given(self) -> set[tuple[str, int]]:
        """The records, by side, that are red only for what states before the step make of it."""
        return {place for place, contents in self.at.items() if all(content.given for content in contents)}

    @cached_property
    def agree(self) -> tuple[Bool, Bool]:
        """bool[n_a], bool[n_b]: unpaired records that wrote to named tensors, whose last contents all agree."""
        if self._logs is None or self._unpaired is None:
            return np.zeros(0, bool), np.zeros(0, bool)
        sides = []
        for contents, unpaired in zip(self._logs, self._unpaired, strict=True):
            agree = np.zeros(len(unpaired), bool)
            for row, names in contents.leaves(unpaired).items():
                members = [one for name in names if not name.endswith(GRADIENT) for one in contents.members(name)]
                kept = [name for name in members if not self._is_noise(name)]
                agree[row] = bool(kept) and all(map(self._agrees, kept))
            sides.append(agree)
        return sides[0], sides[1]

    def gradients(self, flow: DataFlow) -> list[tuple[int, int]]:
        """The records of a and of b that made what red contents were computed from: gradients that differ by more.

        -1 where the log does not tell.
        """
        if self._logs is None:
            return []
        (a, b), made = self._logs, []
        for content in self.contents.values():
            name = min(a.base(content.name), b.base(content.name), key=len) + GRADIENT
            if not (content.red and content.verdict is not None and name in a.last and name in b.last):
                continue
            x, y = a.last[name], b.last[name]
            if relative_difference(a.before(x).l1, b.before(y).l1) > content.verdict.limit:
                made.append((int(flow.a[x.row][x.slot]), int(flow.b[y.row][y.slot])))
        return made

    def _agrees(self, name: str) -> bool:
        if name in self.contents or self._logs is None:
            return name in self.contents and self.contents[name].agrees
        ends = [of.ends.get(name) for of in self._logs]  # of what neither names
        return None not in ends and len({end.digest for end in ends if end is not None}) == 1

    def _is_noise(self, name: str) -> bool:
        return name in self.noise and name not in self.contents


def _deciding(contents: tuple[ContentVerdict, ...]) -> SlotVerdict:
    of_kind = [content for content in contents if content.parameter] or contents
    decides = worst([content.verdict for content in of_kind if content.verdict is not None])
    assert decides is not None  # red contents have a verdict
    reason = decides.reason if decides.reason in _OF_CONTENTS else Reason.LAST_CONTENT
    return replace(decides, reason=reason, more=len(of_kind) - 1, alone=all(content.alone for content in contents))


_OF_CONTENTS = (Reason.CHANGED_BY_ONE_RUN, Reason.CHANGED_ONCE_MORE, Reason.BEYOND_WHOLE, Reason.ARGUMENTS)
"""Reasons of a last content that say more than that it differs."""
