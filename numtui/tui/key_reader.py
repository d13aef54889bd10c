"""Counts and sequences of keys (`123G`, `zz`, `]c`), as vim and less read them.

Textual's bindings know single keys. What is in between is kept here, without a screen and without a clock: the screen
feeds keys and says when the person has paused.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from numtui.actions import ACTIONS, Action, key_name, sequences

__all__ = ["LETTER", "KeyReader"]

LETTER = "letter"
"""What stands in a sequence for any letter or digit."""

_MAX_DIGITS = 7
"""Digits of a count that are kept: more rows than any log has."""


@dataclass(slots=True)
class KeyReader:
    """What was typed and is not yet a command.

    A digit can begin a count (`5j`) and some digits alone are commands (`1` hides the red rows): a digit waits for
    what follows, and after a pause it is the command.
    """

    digits: str = ""
    letter: str = ""
    """The letter that the last sequence ended with, where it may be any."""
    prefix: tuple[str, ...] = ()
    actions: tuple[Action, ...] = ACTIONS
    _sequences: dict[tuple[str, ...], Action] = field(init=False)
    _typed: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self._sequences = sequences(self.actions)
        self._typed = {key_name(part): part for a in self.actions for key in a.keys for part in key.split(" ")}

    @property
    def pending(self) -> str:
        """What has been typed so far, for the status line."""
        return self.digits + "".join(self._typed.get(k, k) for k in self.prefix)

    def following(self) -> list[tuple[str, Action]]:
        """The keys that can follow the prefix that was typed, as people write them, and what they do."""
        return [
            (self._typed.get(keys[-1], keys[-1]), action)
            for keys, action in self._sequences.items()
            if self.prefix and keys[:-1] == self.prefix
        ]

    def feed(self, key: str) -> Action | bool:
        """Take a key.

        Returns:
            the action that a sequence completes; True when the key was taken and more is awaited (or an unfinished
            sequence was dropped); False when the key is not one of these: it is a command of its own, and `count()`
            has what was typed in front of it.
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
        """The count that was typed, which is used up by asking."""
        digits, self.digits = self.digits, ""
        return int(digits) if digits else None

    def await_letter(self, name: str) -> None:
        """The next letter is for this action, as if the keys in front of it had been typed."""
        self.prefix = next(keys[:-1] for keys, action in self._sequences.items() if action.id == name)

    def settle(self) -> Action | None:
        """The person paused: a single digit is the command it stands for, a longer count goes on waiting."""
        if len(self.digits) != 1 or self.prefix:
            return None
        action = next((a for a in self.actions if self.digits in a.keys), None)
        if action is not None:
            self.digits = ""
        return action

    def clear(self) -> bool:
        """Forget what was typed; True when there was something."""
        had = bool(self.digits or self.prefix)
        self.digits, self.prefix = "", ()
        return had
