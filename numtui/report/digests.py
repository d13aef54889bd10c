"""Digests of a run, for `numtui capture --against`: of each operation its key, and those of its inputs and results.

JSON, an operation a line; the capture reads it with the standard library alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

import numpy as np

from capture.keeping.form import DIGESTS_VERSION
from matchers.arrays import Hash
from matchers.errors import InputError
from matchers.logs.op_log import MARKS, OpLog
from numtui import __version__

__all__ = ["write_digests"]


def write_digests(logs: Iterable[OpLog], out: TextIO) -> None:
    """Write the table of the logs of a run, in ASCII.

    Raises:
        InputError: a log has no digests, or does not say its rank and step.
    """
    head = json.dumps({"digests": DIGESTS_VERSION, "numtui": __version__})
    out.write(f'{head.removesuffix("}")}, "logs": [\n')
    for number, log in enumerate(logs):
        of = {name: log.header.run.get(name) for name in ("rank", "step")}
        if not all(isinstance(each, int) for each in of.values()) or not len(log.digests.value):
            raise InputError(f"{log.path}: has no digests, or no rank and step: numtui capture writes them")
        out.write(f'{"," * (number > 0)}{json.dumps(of).removesuffix("}")}, "records": [\n')
        out.write(",\n".join(map(json.dumps, _records(log.written))))
        out.write("\n]}\n")
    out.write("]}\n")


def _records(log: OpLog) -> Iterator[list[Any]]:
    """Yield key, digests of inputs and outputs, and of the inputs that were changed, by slot."""
    changed = dict(log.texts("Mutated").items())
    for row, key in enumerate(log.keys):
        try:
            left = {
                str(int(each["input"])): str(each.get("digest", "-")) for each in json.loads(changed.get(row, "[]"))
            }
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise InputError(f"{log.path}:{log.line[row]}: its changed inputs cannot be read") from None
        yield [key, _texts(log.input_digests[row]), _texts(log.digests[row]), left]


def _texts(digests: Hash) -> list[str]:
    return ["-" if one in MARKS else f"{one:016x}" for one in np.asarray(digests).tolist()]
