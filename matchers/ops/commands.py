"""Differences between the commands of two runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from capture.log_format import PRIVATE
from matchers.ops.shown_value import is_private, same_value, shown

__all__ = ["after_capture", "command_differences"]

_MAX_WORDS = 100
"""Of two commands that differ in more, words in clear and digests are not matched."""


def command_differences(a: list[Any], b: list[Any]) -> Iterator[str]:
    """Yield the differences between two commands, a sentence each; options of the capture itself are left out."""
    x, y = after_capture(a), after_capture(b)
    if not x or not y or x == y:
        return
    only = _unlike(x, y)
    if only is None:
        return
    hidden = [{_name_of(words, k) for k in of if is_private(words[k])} for words, of in zip((x, y), only, strict=True)]
    both = hidden[0] & hidden[1]
    sides = [
        f"{' '.join(told)} only in {side}"
        for side, words, of in zip("ab", (x, y), only, strict=True)
        if (told := [shown(words[k]) for k in of if not (is_private(words[k]) and _name_of(words, k) in both)])
    ]
    if sides or not both:
        differences = ", ".join(sides) or _reordered(x, y)
        yield f"the command lines differ: {differences}"
    if both:
        names = shown(", ".join(sorted(both - {""})))
        values = f"the values of {names} differ" if both != {""} else "unnamed arguments differ"
        yield f"{values} (kept private)"


def _unlike(x: list[Any], y: list[Any]) -> list[list[int]] | None:
    """The words of each of two commands that the other lacks; None if they differ in what is kept private of one."""
    only = [_beyond(x, y), _beyond(y, x)]
    if max(map(len, only)) > _MAX_WORDS:
        return only
    same = [(j, k) for j in only[0] for k in only[1] if same_value(x[j], y[k])]
    only = [sorted(set(of) - {pair[side] for pair in same}) for side, of in enumerate(only)]
    return None if same and not any(only) else only


def _beyond(words: list[Any], other: list[Any]) -> list[int]:
    """The places of words that the other command has less often, the last of them."""
    left, found = Counter(map(repr, other)), list[int]()
    for k, word in enumerate(map(repr, words)):
        if left[word]:
            left[word] -= 1
        else:
            found.append(k)
    return found


def _reordered(x: list[Any], y: list[Any]) -> str:
    """The difference between commands of the same words: the order, perhaps that of an option's values."""
    of_a, of_b = _options(x), _options(y)
    for name, values in of_a.items():
        if len(values) > 1 and of_b.get(name, values) != values:
            told = [" then ".join(map(shown, each)) for each in (values, of_b[name])]
            return f"{shown(name)} is {told[0]} in a, {told[1]} in b"
    return "only in word order"


def _options(words: list[Any]) -> dict[str, list[str]]:
    """Option → its values in order, one for each time that it is given."""
    found: dict[str, list[str]] = {}
    for word, following in zip(words, [*words[1:], "-"], strict=True):
        if isinstance(word, str) and word.startswith("-"):
            name, given, value = word.partition("=")
            found.setdefault(name, []).append(value if given or str(following).startswith("-") else str(following))
    return found


def _name_of(words: list[Any], k: int) -> str:
    """The option of a value that is kept private, "" if the command does not tell."""
    if name := PRIVATE.sub("", words[k]).rstrip("="):
        return name
    before = next((word for word in reversed(words[:k]) if not (is_private(word) and PRIVATE.match(word))), None)
    return before if isinstance(before, str) and before.startswith("-") and "=" not in before else ""


def after_capture(command: list[Any]) -> list[Any]:
    """Return the words of a command without those of the capture."""
    return command[command.index("--") + 1 :] if "--" in command else command[1:]
