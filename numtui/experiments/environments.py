"""Find the environment since which kept operations give other bits: by replaying them, without a training run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from capture.keeping.replay import AGAIN, Kept, ReplayError, replayed

__all__ = ["Changed", "Environments", "bisect_environments"]


@dataclass(frozen=True, slots=True)
class Changed:
    """A kept operation over environments.

    Attributes:
        key, operator: of the operation.
        before, since: the last environment that gives the bits of the first one, and the first that gives others; empty
            where all that was run give the same.
        skipped: environments between them in which it did not run, with the reason.
        recorded: the first environment gives the bits of the log.
        trouble: why nothing is known; empty if it is.
    """

    key: str
    operator: str
    before: str = ""
    since: str = ""
    skipped: Mapping[str, str] | None = None
    recorded: bool = False
    trouble: str = ""


class Environments:
    """Results of kept operations by environment; each environment is started once for all of them.

    Args:
        calls: the operations.
        imports: modules whose operators may run besides torch's own.
        tell: called before each start, with a line about it.

    Attributes:
        made: number of environments that were started.
    """

    def __init__(
        self, calls: Sequence[Kept], imports: Sequence[str] = (), tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self.calls, self.made = calls, 0
        self._imports, self._tell = imports, tell
        self._known: dict[str, list[tuple[str, ...] | str]] = {}

    def gave(self, python: str, call: int) -> tuple[str, ...] | str:
        """Return the digests that an operation gives there; text: why it did not run."""
        if python not in self._known:
            self.made += 1
            self._tell(f"run {self.made}: {python}")
            try:
                (results,) = replayed(self.calls, [AGAIN], imports=self._imports, python=python)
                self._known[python] = [_bits(each) for each in results]
            except ReplayError as error:
                self._known[python] = [str(error)] * len(self.calls)
        return self._known[python][call]


def _bits(found: Mapping[str, Any]) -> tuple[str, ...] | str:
    if "returned" in found:
        return (*found["returned"], *found["written"])
    return str(found.get("refused") or found.get("failed") or "no result")


def bisect_environments(environments: Environments, pythons: Sequence[str]) -> list[Changed]:
    """Return for each operation the environment since which its bits are not those of the first one.

    Args:
        pythons: in their order, the first one good, the last one bad.
    """
    return [_changed(environments, number, list(pythons)) for number in range(len(environments.calls))]


def _changed(environments: Environments, number: int, pythons: list[str]) -> Changed:
    call = environments.calls[number].call
    key, operator = str(call["key"]), str(call["operator"])
    good, bad = (environments.gave(pythons[at], number) for at in (0, -1))
    for bits, where in ((good, pythons[0]), (bad, pythons[-1])):
        if isinstance(bits, str):
            return Changed(key, operator, trouble=f"{where}: {bits}")
    wanted = (*call["digests"]["returned"], *call["digests"]["left"])
    recorded = all(want in (one, "-") for one, want in zip(good, wanted, strict=False))
    if good == bad:
        return Changed(key, operator, recorded=recorded)
    skipped: dict[str, str] = {}
    while len(pythons) > 2:
        middle = len(pythons) // 2
        bits = environments.gave(pythons[middle], number)
        if isinstance(bits, str):
            skipped[pythons.pop(middle)] = bits
        else:
            pythons = pythons[middle:] if bits == good else pythons[: middle + 1]
    return Changed(key, operator, pythons[0], pythons[1], skipped, recorded)
