"""`numtui rules convert`: the overrides that somebody has for torchtitan's own comparer, as a rule file."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from matchers.errors import InputError, RulesError
from matchers.rules.file import LARGEST
from matchers.rules.torchtitan_csv import read_overrides
from numtui.headless import complain, deliver

__all__ = ["convert_overrides"]

_MOST_PROBLEMS = 20


def convert_overrides(source: str, output: Path | None, *, force: bool = False) -> None:
    """Write the pairs of an override file as YAML to `output`, or to standard output.

    Nothing is written when a line is not understood: a rule file with a pair missing looks like a whole one.

    Raises:
        InputError: `output` exists and `force` is not given, or it cannot be written.
        RulesError: the file cannot be read, or has lines that are no pairs; all but the last were complained about.
    """
    # Only a regular file has something to lose; `/dev/stdout` and pipes exist as well.
    if output is not None and not force and output.is_file():
        raise InputError(f"{output}: exists already; choose another file, or replace it with --force")
    try:
        with open(source, "rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise RulesError(f"{source}: cannot be read: {error.strerror or error}") from None
    if len(data) > LARGEST:
        raise RulesError(f"{source}: larger than {LARGEST >> 20} MiB: this is no override file")
    overrides = read_overrides(data, source)
    if overrides.problems:
        messages = [f"{problem.path}:{problem.line}: {problem.message}" for problem in overrides.problems]
        for message in messages[:_MOST_PROBLEMS]:
            complain(message)
        more = len(messages) - _MOST_PROBLEMS
        hidden = f" ({more} more than shown)" if more > 0 else ""
        lines = f"{len(messages)} line{'s' * (len(messages) > 1)}"
        raise RulesError(f"{source}: nothing was converted: {lines} could not be understood{hidden}")
    if len(overrides.yaml.encode()) > LARGEST:
        raise RulesError(f"{source}: as a rule file it would be larger than {LARGEST >> 20} MiB; split it")
    if not overrides.pairs:
        complain(f"{source}: there are no pairs in this file")

    def produce(out: TextIO) -> None:
        out.write(overrides.yaml)

    deliver(produce, output)
