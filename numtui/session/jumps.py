"""Jumps over the list and the way back from them, as in vim."""

from __future__ import annotations

from dataclasses import dataclass, field

from numtui.session.rule_edits import RecordPair

__all__ = ["Jumps"]

_MAX_JUMPS = 100


@dataclass
class Jumps:
    """Origins of jumps, the last one last."""

    back: list[RecordPair] = field(default_factory=list)
    forward: list[RecordPair] = field(default_factory=list)
    kind: str = ""
    """Kind of the last jump: a run of the same kind (`n n n`) is one entry."""

    def leave(self, start: RecordPair | None, kind: str) -> None:
        """Record the origin of a jump; None without a record."""
        if start is not None and not (kind and kind == self.kind):
            self.back.append(start)
            del self.back[:-_MAX_JUMPS]
        self.kind = kind
        self.forward.clear()
