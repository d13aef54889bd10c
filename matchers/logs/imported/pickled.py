"""Pickles, read without executing anything: a global is a name, and what it is called with is compared with nothing."""

from __future__ import annotations

import pickletools
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

__all__ = ["Made", "Unknown", "Unpickler"]

_MOST_STEPS: Final = 1 << 21


class Unknown(NamedTuple):
    """An object of a class or function that is not known here."""

    name: str


@dataclass(eq=False)
class Made:
    """An instance of a class that is not known here, with its attributes; made without running anything of it."""

    name: str
    state: Any = field(default_factory=dict)


class Unpickler:
    """A machine for the few instructions by which containers, texts and numbers are written.

    Of a global it keeps the name; a call of one makes what `called` returns.
    """

    def __init__(self, content: bytes, most_steps: int = _MOST_STEPS) -> None:
        self._bytes, self._most_steps = content, most_steps
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def called(self, name: str, arguments: tuple[Any, ...]) -> Any:  # noqa: ARG002 - of what other classes know
        """Return what calling a global of this name makes."""
        return Unknown(name)

    def referred(self, told: Any) -> Any:  # noqa: ARG002 - as above
        """Return what lies outside of the pickle."""
        raise ValueError("a reference to something else")

    def object(self) -> Any:
        """Return the object.

        Raises:
            ValueError, KeyError, IndexError, TypeError, AttributeError: it is damaged, or has other instructions.
        """
        for steps, (code, argument, _) in enumerate(pickletools.genops(self._bytes)):
            if code.name == "STOP":
                return self._stack.pop()
            if steps > self._most_steps:
                break
            self._step(code.name, argument)
        raise ValueError("it does not end")

    def _step(self, code: str, argument: Any) -> None:
        stack = self._stack
        if code in _VALUES:
            stack.append(argument)
        elif code in _MADE:
            stack.append(_MADE[code]())
        elif code in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(self._memo[int(argument)])
        elif code in ("BINPUT", "LONG_BINPUT", "PUT"):
            self._memo[int(argument)] = stack[-1]
        elif code == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif code == "MARK":
            self._marks.append(len(stack))
        elif code in _TUPLES:
            many = _TUPLES[code]
            stack[len(stack) - many :] = [tuple(stack[len(stack) - many :])]
        elif code == "TUPLE":
            stack.append(tuple(self._marked()))
        elif code in ("APPEND", "APPENDS"):
            items = self._marked() if code == "APPENDS" else [stack.pop()]
            stack[-1].extend(items)
        elif code in ("SETITEM", "SETITEMS"):
            items = self._marked() if code == "SETITEMS" else [stack.pop(-2), stack.pop()]
            stack[-1].update(zip(map(_key, items[::2]), items[1::2], strict=True))
        elif code == "GLOBAL":
            stack.append(Unknown(argument.replace(" ", ".")))
        elif code == "STACK_GLOBAL":
            name, module = stack.pop(), stack.pop()
            if not (isinstance(name, str) and isinstance(module, str)):  # writing out anything else may not end
                raise ValueError("a global whose name is no text")
            stack.append(Unknown(f"{module}.{name}"))
        elif code == "BINPERSID":
            stack.append(self.referred(stack.pop()))
        elif code in ("REDUCE", "NEWOBJ"):
            arguments, of = stack.pop(), stack.pop()
            name = of.name if isinstance(of, Unknown) else ""
            stack.append(self.called(name, arguments) if code == "REDUCE" else Made(name))
        elif code == "BUILD":
            attributes = stack.pop()
            if isinstance(stack[-1], Made):
                stack[-1].state = attributes
        elif code not in ("PROTO", "FRAME"):
            raise ValueError(f"an instruction {code} that is not known here")

    def _marked(self) -> list[Any]:
        """Take what lies above the last mark."""
        at = self._marks.pop()
        items = self._stack[at:]
        del self._stack[at:]
        return items


def _key(key: Any) -> Any:
    """A key of a dict; hashing a tuple within tuples may overflow the stack."""
    if isinstance(key, tuple) and any(isinstance(part, tuple) for part in key):
        raise ValueError("a key of a dict that is a tuple within a tuple")
    return key


_VALUES: Final = frozenset(
    {
        *("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE"),
        *("BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINSTRING", "SHORT_BINSTRING"),
    }
)
_MADE: Final[dict[str, Any]] = {
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
}
_TUPLES: Final = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
