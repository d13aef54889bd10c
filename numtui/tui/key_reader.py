"""Parse counts and key sequences (`123G`, `zz`, `]c`), as in vim and less.

Textual binds single keys only. The state in between is kept here, without a screen or a clock: the screen feeds keys
and reports pauses.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from numtui.actions import ACTIONS, Action, key_name, sequences

__all__ = ["LETTER", "KeyReader"]

LETTER = "letter"
"""Placeholder in a sequence for any letter or digit."""

_MAX_DIGITS = 7
"""Digits kept of a count: enough for any log."""


@dataclass(slots=True)
class KeyReader:
    """Typed keys that are not yet a command.

    A digit can begin a count (`5j`), and some digits alone are commands (`1` hides the red rows): a digit waits for the
    next key, and after a pause it is the command.
    """

    digits: str = ""
    letter: str = ""
    """The letter that ended the last sequence with a placeholder."""
    prefix: tuple[str, ...] = ()
    actions: tuple[Action, ...] = ACTIONS
    _sequences: dict[tuple[str, ...], Action] = field(init=False)
    _typed: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self._sequences = sequences(self.actions)
        self._typed = {key_name(part): part for a in self.actions for key in a.keys for part in key.split(" ")}

    @property
    def pending(self) -> str:
        """Return the typed keys for the status line."""
        return self.digits + "".join(self._typed.get(k, k) for k in self.prefix)

    def following(self) -> list[tuple[str, Action]]:
        """Return the keys that can follow the typed prefix, with their actions."""
        return [
            (self._typed.get(keys[-1], keys[-1]), action)
            for keys, action in self._sequences.items()
            if self.prefix and keys[:-1] == self.prefix
        ]

    def feed(self, key: str) -> Action | bool:
        """Take a key.

        Returns:
            the action of a completed sequence; True when the key was taken and more is awaited (or an unfinished
            sequence was dropped); False when the key is a command of its own, and `count()` has the digits before it.
        """
        self.letter = ""
        if self.prefix:
            begun, self.prefix = self.prefix, ()
            if action := self._sequences.get((*begun, key)):
                return action
            if len(key) == 1 and key.isalnum():
                self.letter = key
            return self._sequences.get((*begun, LETTER), True) if self.letter else True
        if key.isascii() and key.isdigit() and (key != "0" or self.digits):
            self.digits = (self.digits + key)[:_MAX_DIGITS]
            return True
        if any(sequence[0] == key for sequence in self._sequences):
            self.prefix = (key,)
            return True
        return False

    def count(self) -> int | None:
        """Return and clear the typed count."""
        digits, self.digits = self.digits, ""
        return int(digits) if digits else None

    def await_letter(self, name: str) -> None:
        """Expect a letter for this action, as if its prefix had been typed."""
        self.prefix = next(keys[:-1] for keys, action in self._sequences.items() if action.id == name)

    def settle(self) -> Action | None:
        """Handle a pause: a single digit becomes its command, a longer count keeps waiting."""
        if len(self.digits) != 1 or self.prefix:
            return None
        action = next((a for a in self.actions if self.digits in a.keys), None)
        if action is not None:
            self.digits = ""
        return action

    def clear(self) -> bool:
        """Forget the typed keys; True when there were any."""
        had = bool(self.digits or self.prefix)
        self.digits, self.prefix = "", ()
        return had
