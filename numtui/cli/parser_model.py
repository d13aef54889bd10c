"""What the parsers of the command line accept, as plain data: what completions and the manual page are made of."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

__all__ = ["Argument", "Command", "commands_of"]


@dataclass(frozen=True, slots=True)
class Argument:
    """An option or a positional argument.

    Attributes:
        flags: `-o`, `--output`; empty for a positional argument.
        value: what its value is called, empty for an option without one.
        choices: the values that it takes, empty where any will do.
        help: a sentence without its full stop.
        optional: a positional argument that may be left out.
        repeated: it takes several values.
    """

    flags: tuple[str, ...]
    value: str
    choices: tuple[str, ...]
    help: str
    optional: bool = False
    repeated: bool = False

    @property
    def is_path(self) -> bool:
        """Whether a value is the name of a file or folder."""
        return not self.choices and self.value in ("FILE", "A", "B", "C", "LOG")


@dataclass(frozen=True, slots=True)
class Command:
    """`name` is the words behind `numtui` (empty for the explorer), `about` what it does, in lines."""

    name: str
    about: str
    arguments: tuple[Argument, ...]

    @property
    def options(self) -> tuple[Argument, ...]:
        return tuple(a for a in self.arguments if a.flags)

    @property
    def positional(self) -> tuple[Argument, ...]:
        return tuple(a for a in self.arguments if not a.flags)


def commands_of(parsers: Mapping[str, argparse.ArgumentParser]) -> tuple[Command, ...]:
    """The commands, by the words behind `numtui`; a parser with commands of its own stands for those."""
    return tuple(command for name, parser in parsers.items() for command in _commands(name, parser, ""))


def _commands(name: str, parser: argparse.ArgumentParser, about: str) -> Iterator[Command]:
    nested = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]  # noqa: SLF001 - no other way
    for action in nested:
        for word, inner in action.choices.items():
            yield from _commands(f"{name} {word}", inner, inner.description or "")
    if not nested:
        arguments = tuple(_argument(action) for action in parser._actions)  # noqa: SLF001 - as above
        yield Command(name, about or parser.description or "", arguments)


def _argument(action: argparse.Action) -> Argument:
    metavar = action.metavar[0] if isinstance(action.metavar, tuple) else action.metavar
    takes = action.nargs != 0
    choices = tuple(str(choice) for choice in action.choices or ())
    value = metavar or ("WORD" if choices else action.dest.upper())
    return Argument(
        flags=tuple(action.option_strings),
        value=value if takes else "",
        choices=choices,
        help=(action.help or "").replace("%%", "%"),
        optional=action.nargs in ("?", "*"),
        repeated=action.nargs in ("*", "+"),
    )
