"""Places of causes, and the errors of modules that they explain."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from matchers.logs.op_log import Phase
from numtui.report.isolation import Found
from numtui.report.own_errors import BEFORE_OPTIMIZER, OUTSIDE

__all__ = ["explains", "of_module"]


def of_module(
    module: str,
    phase: Phase,
    line: str = "",
    what: str = "given the same, it gives something else: no operation tells why",
    *,
    cut: bool = False,
) -> Found:
    """Return the cause of which only the module is known."""
    return Found("", "", (), module, phase.label, line, what, cut=cut)


def explains(found: Iterable[Found], modules: Collection[str], phases: Sequence[Phase]) -> bool:
    """Return True if a cause lies in one of some modules, in one of some phases: in names that stand for one, too."""
    labels = [phase.label for phase in phases]
    return any(_whereabouts(cause) in modules and cause.phase in labels for cause in found)


def _whereabouts(cause: Found) -> str:
    """Return the module of a cause, or what stands for it in a table of errors."""
    if cause.module:
        return cause.module
    return BEFORE_OPTIMIZER if cause.phase == Phase.GRADIENTS.label else OUTSIDE
