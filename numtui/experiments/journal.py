"""The log of an experiment's runs: JSON Lines, of which a run that was interrupted has none."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from matchers.errors import InputError
from matchers.files.file_lock import BusyError, wait_for_lock

__all__ = ["JOURNAL", "Journal"]

JOURNAL = "runs.jsonl"
_IGNORED = ".gitignore"
_MAX_SIZE = 64 << 20
_PATIENCE: Final = 10.0
"""Seconds to wait for what a killed experiment has left running."""


class Journal:
    """Log of an experiment: its options, and the outcome of each run.

    Until it is closed no other experiment goes on in its folder: it is locked, and the programs that are started
    meanwhile hold the lock, too, if this process is killed.

    Attributes:
        asked: everything that another answer would follow from.
        runs: by name, what was noted of each run that came to its end.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked: dict[str, Any] = {}
        self.runs: dict[str, Mapping[str, Any]] = {}
        self._file = path.open("a", encoding="utf-8")
        try:
            wait_for_lock(self._file.fileno(), path, _PATIENCE)
        except BusyError:
            self._file.close()
            busy = "in use: by another numtui, or by what a killed one has started"
            raise InputError(f"{path.parent}: {busy}; wait for its end, or end it") from None
        os.set_inheritable(self._file.fileno(), True)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @classmethod
    def begin(cls, folder: Path, asked: Mapping[str, Any]) -> Journal:
        """Begin one in a folder that is new or empty.

        Raises:
            InputError: it is not, or cannot be written to.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / JOURNAL
            begun = path.is_file() and b"\n" in path.read_bytes()  # else it was interrupted before anything was noted
            if begun or {each.name for each in folder.iterdir()} - {JOURNAL, _IGNORED}:
                more = "--resume goes on there, or name" if begun else "name"
                raise InputError(f"{folder}: not empty: {more} another folder with -o")
            (folder / _IGNORED).write_text("*\n", encoding="utf-8")
            journal = cls(path)
            os.truncate(path, 0)
            journal.asked = dict(asked)
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
        if not path.is_file():
            raise InputError(f"{folder}: nothing to resume: it has no {JOURNAL}")
        try:
            journal = cls(path)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}") from None
        try:
            journal._read()
        except BaseException:
            journal._file.close()
            raise
        return journal

    def _read(self) -> None:
        try:
            if self.path.stat().st_size > _MAX_SIZE:
                raise InputError(f"{self.path}: too large to be a log of runs")
            text = self.path.read_bytes()
        except OSError as error:
            raise InputError(f"{self.path}: {error.strerror or error}") from None
        whole = text[: text.rfind(b"\n") + 1]
        for number, line in enumerate(whole.decode("utf-8", "replace").split("\n")[:-1], 1):
            told: Any = None
            with suppress(ValueError, RecursionError):
                told = json.loads(line)
            if not isinstance(told, dict) or not (number == 1 or isinstance(told.get("run"), str)):
                raise InputError(f"{self.path}:{number}: not a line of a log of runs; begin anew in another folder")
            if number == 1:
                of = told.get("asked")
                self.asked = of if isinstance(of, dict) else {}
            else:
                self.runs[told["run"]] = told
        if not self.asked:
            raise InputError(f"{self.path}:1: it does not say what was asked for; begin anew in another folder")
        if whole != text:  # what is written next begins a line of its own
            os.truncate(self.path, len(whole))

    def check_asked(self, now: Mapping[str, Any]) -> None:
        """Check that what is asked for now, as far as it is named, is what was asked for.

        Raises:
            InputError: it is not.
        """
        for name, value in now.items():
            before = self.asked.get(name)
            if value not in (None, [], before):
                raise InputError(
                    f"--resume goes on as before: {name} was {before!r}; leave it out, or begin anew with -o"
                )

    def once(self, run: str, folder: Path, make: Callable[[], str], **told: Any) -> str:
        """Make a run in a folder, unless it was made before; return why there is none, empty if there is one.

        What an interrupted run has left there is removed.

        Args:
            make: makes it, and returns why it could not.
            told: what else is noted of it; it is made anew if that was something else.

        Raises:
            InputError: the disk is full.
        """
        known = self.runs.get(run, {})
        if isinstance(trouble := known.get("trouble"), str) and all(known.get(name) == told[name] for name in told):
            return trouble
        shutil.rmtree(folder, ignore_errors=True)
        trouble = make()
        self.note(run, trouble=trouble, **told)
        return trouble

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
        self._file.write(json.dumps(told) + "\n")
        self._file.flush()
