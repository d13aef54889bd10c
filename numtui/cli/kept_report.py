"""The text report on two large logs, kept for the next time that it is asked for.

A report is a function of the two logs, the rules, the known differences, the options and this program. Its entry is
named by all of them, and it is used only if the bytes of both logs still have the digests that they had.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TextIO

from matchers.files.cache_folder import CacheFolder, Entry, entry_name, source_digest
from matchers.logs.file_identity import FileIdentity
from numtui.cli.rule_files import RuleFiles
from numtui.inputs import OpenRequest

__all__ = ["REPORT", "KeptReport", "Outcome"]

REPORT = "report"
"""Kind of these entries."""
_PACKAGES = Path(__file__).parents[2]
_PROGRAM = (_PACKAGES / "matchers", _PACKAGES / "numtui", _PACKAGES / "capture" / "log_format.py")
_LIBRARIES = ("numpy", "rapidfuzz", "yaml")


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that a report tells: warnings, the report itself, reasons for failing, the exit code."""

    warnings: tuple[str, ...]
    text: str
    reasons: tuple[str, ...]
    code: int


class KeptReport:
    """The place of one report in the cache."""

    def __init__(
        self, cache: CacheFolder, name: str, logs: Sequence[FileIdentity], files: Sequence[FileIdentity]
    ) -> None:
        self._cache = cache
        self._name = name
        self._logs = logs
        self._files = files
        self._text = io.StringIO()

    @classmethod
    def of(cls, request: OpenRequest, rules: RuleFiles, *options: object, files: Sequence[Path]) -> KeptReport | None:
        """The place of the report on a request; None where it is made anew each time.

        Args:
            request: the logs and their names; with a third log or a floor nothing is kept.
            rules: the rule file that is applied, and the one that is only mentioned.
            options: what else the report depends on, as text.
            files: other files that it depends on.
        """
        cache = request.cache
        if cache is None or request.noise_path is not None or request.floor:
            return None
        logs = _identities([request.path_a, request.path_b])
        others = _identities([*files, *([rules.applied] if rules.applied is not None else [])])
        program = source_digest(*_PROGRAM)
        if logs is None or others is None or not program or not all(log.worthwhile for log in logs):
            return None
        contents = [file.content() for file in others]
        states = [log.key for log in logs]
        key = [states, repr(request), repr(rules), repr(options), contents, program, sys.version, _libraries()]
        return cls(cache, entry_name(json.dumps(key), REPORT), logs, others)

    def outcome(self) -> Outcome | None:
        """The report as it was made, if it is there and both logs still have the bytes that they had."""
        entry = self._cache.get(self._name)
        if entry is None or entry.meta.get("logs") != [log.content() for log in self._logs]:
            return None
        try:
            text = bytes(entry.sections["text"]).decode("utf-8", "surrogatepass")
            warnings, reasons = (tuple(map(str, entry.meta[name])) for name in ("warnings", "reasons"))
            return Outcome(warnings, text, reasons, int(entry.meta["code"]))
        except (KeyError, TypeError, ValueError):
            return None

    def copying(self, produce: Callable[[TextIO], None]) -> Callable[[TextIO], None]:
        """Produce the report as before, and keep a copy."""

        def both(out: TextIO) -> None:
            self._text = io.StringIO()
            produce(self._text)
            out.write(self._text.getvalue())

        return both

    def keep(self, contents: Sequence[str], warnings: Sequence[str], reasons: Sequence[str], code: int) -> None:
        """Keep the copied report on logs of these contents, once there is time for it."""
        if not all(contents) or any(FileIdentity.of(file.path) != file for file in self._files):
            return  # something changed while it was read
        meta = {"logs": list(contents), "warnings": list(warnings), "reasons": list(reasons), "code": code}
        text = self._text.getvalue().encode("utf-8", "surrogatepass")
        self._cache.later(lambda: self._cache.put(self._name, Entry(meta, {"text": text})))


def _identities(paths: Sequence[str | Path]) -> list[FileIdentity] | None:
    """The files at these paths; None if one is none (a pipe can be read only once, by who needs it)."""
    found = [FileIdentity.of(os.fspath(path)) for path in paths]
    return None if None in found else [file for file in found if file is not None]


def _libraries() -> list[tuple[str, int]]:
    """The libraries that results may depend on: place and time of their installation, without importing them."""
    specs = [spec for name in _LIBRARIES if (spec := find_spec(name)) and spec.origin]
    return [(str(spec.origin), os.stat(str(spec.origin)).st_mtime_ns) for spec in specs]
