"""The log of an experiment's runs: JSON Lines, of which a run that was interrupted has none."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from matchers.errors import InputError

__all__ = ["JOURNAL", "Journal"]

JOURNAL = "runs.jsonl"
_MAX_SIZE = 64 << 20


class Journal:
    """Log of an experiment: its options, and the outcome of each run.

    Attributes:
        asked: everything that another answer would follow from.
        runs: by name, what was noted of each run that came to its end.
    """

    def __init__(self, path: Path, asked: Mapping[str, Any], runs: Mapping[str, Mapping[str, Any]]) -> None:
        self.path, self.asked, self.runs = path, dict(asked), dict(runs)

    @classmethod
    def begin(cls, folder: Path, asked: Mapping[str, Any]) -> Journal:
        """Begin one in a folder that is new or empty.

        Raises:
            InputError: it is not, or cannot be written to.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                more = "--resume goes on there, or name" if (folder / JOURNAL).exists() else "name"
                raise InputError(f"{folder}: not empty: {more} another folder with -o")
            (folder / ".gitignore").write_text("*\n", encoding="utf-8")
            journal = cls(folder / JOURNAL, asked, {})
            journal._write({"asked": journal.asked})
        except OSError as error:
            raise InputError(f"{error.filename or folder}: {error.strerror or error}") from None
        return journal

    @classmethod
    def resumed(cls, folder: Path) -> Journal:
        """Read the one of a folder; a last line that was cut off does not count.

        Raises:
            InputError: there is none, or it cannot be read.
        """
        path = folder / JOURNAL
        try:
            if path.stat().st_size > _MAX_SIZE:
                raise InputError(f"{path}: too large to be a log of runs")
            text = path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            raise InputError(f"{folder}: nothing to resume: it has no {JOURNAL}") from None
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}") from None
        asked: Mapping[str, Any] = {}
        runs: dict[str, Mapping[str, Any]] = {}
        whole = text[: text.rfind("\n") + 1]
        for number, line in enumerate(whole.splitlines(), 1):
            told: Any = None
            with suppress(ValueError, RecursionError):
                told = json.loads(line)
            if not isinstance(told, dict) or not (number == 1 or isinstance(told.get("run"), str)):
                raise InputError(f"{path}:{number}: not a line of a log of runs; begin anew in another folder")
            if number == 1:
                of = told.get("asked")
                asked = of if isinstance(of, dict) else {}
            else:
                runs[told["run"]] = told
        if not asked:
            raise InputError(f"{path}:1: it does not say what was asked for; begin anew in another folder")
        if whole != text:  # what is written next begins a line of its own
            os.truncate(path, len(whole.encode()))
        return cls(path, asked, runs)

    def note(self, run: str, **told: Any) -> None:
        """Note what a run came to.

        Raises:
            InputError: the disk is full.
        """
        self.runs[run] = {"run": run, **told}
        try:
            self._write(self.runs[run])
        except OSError as error:
            raise InputError(f"{self.path}: {error.strerror or error}") from None

    def _write(self, told: Mapping[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as out:
            out.write(json.dumps(told) + "\n")
