"""`numtui rules convert`: the overrides that somebody has for torchtitan's own comparer, as a rule file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from matchers.errors import InputError, RulesError
from matchers.rules.file import LARGEST, RuleFile
from matchers.rules.resolve import RuleUsage
from matchers.rules.torchtitan_csv import read_overrides
from numtui.cli.diff import compared, complain, deliver
from numtui.inputs import OpenRequest
from numtui.text.safe import safe_text

__all__ = ["check_rules", "convert_overrides"]

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


_LONGEST = 2000


def check_rules(path: Path, logs: OpenRequest | None, *, hints: bool = False) -> bool:
    """Write what is wrong with a rule file to standard output, a line each, and a summary; whether nothing is.

    Without logs only what can be said of the file by itself. `hints` lists the rules that the logs do not need, too.

    Raises:
        UserError: the file, or a log, cannot be read.
    """
    file = RuleFile.load(path)
    usage: Sequence[RuleUsage] = () if logs is None else compared(logs)[0].usage
    wrong = [str(problem) for problem in file.rules.problems] + [use.problem for use in usage if use.problem]
    needless = [use.hint for use in usage if use.hint]

    def produce(out: TextIO) -> None:
        out.writelines(f"{safe_text(text, _LONGEST)}\n" for text in (*wrong, *(needless if hints else ())))
        out.write(f"{safe_text(str(path), 200)}: {', '.join(_summary(file, logs is not None, usage, needless))}\n")

    deliver(produce, None)
    return not wrong


def _summary(file: RuleFile, matched: bool, usage: Sequence[RuleUsage], needless: Sequence[str]) -> Iterator[str]:
    rules = file.rules.rules
    sections = Counter(rule.section for rule in rules)
    kinds = ", ".join(f"{n} {name.removesuffix('s') if n == 1 else name}" for name, n in sections.items())
    yield f"{_count(len(rules))}{f' ({kinds})' if kinds else ''}"
    if disabled := sum(not rule.enabled for rule in rules):
        yield f"{disabled} disabled"
    if file.rules.problems:
        yield f"{_count(len(file.rules.problems))} broken"
    if matched:
        doubtful = [use for use in usage if use.problem]
        idle = sum(not use.matched for use in doubtful)
        for number, one, many in ((idle, "matches", "match"), (len(doubtful) - idle, "is in doubt", "are in doubt")):
            if number:
                yield f"{number} {one if number == 1 else many}{' nothing' if one == 'matches' else ''}"
        if needless:
            is_are = "is" if len(needless) == 1 else "are"
            yield f"{len(needless)} {is_are} not needed for these two logs (--hints lists them; others may need them)"
    if not file.rules.problems and not any(use.problem for use in usage):
        yield "nothing is wrong" if matched else "all are understood"


def _count(number: int) -> str:
    return f"{number:,} rule{'s' * (number != 1)}"
