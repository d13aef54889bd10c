"""`numtui rules check`: whether a rule file is understood, and what two logs make of each of its rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from matchers.rules.file import RuleFile
from matchers.rules.resolve import RuleUsage
from numtui.headless import compared, deliver
from numtui.inputs import OpenRequest
from numtui.text.safe import safe_text

__all__ = ["check_rules"]

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
