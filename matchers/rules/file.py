"""A rule file on disk: read, edited in place, and saved without losing any of the user's text.

`RuleFile` is a snapshot of the file as read. `render` returns its text with other rules in it, keeping comments, order
and quoting (`matchers.rules.edit`); `save` writes that text atomically and returns a snapshot of the new file.
"""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Final

from matchers.errors import RulesError
from matchers.files.atomic_write import atomic_write
from matchers.files.file_lock import PATIENCE, BusyError
from matchers.rules.block_style import LayoutError
from matchers.rules.edit import edited
from matchers.rules.grammar import Document, parse_document
from matchers.rules.item import new_file
from matchers.rules.model import RuleProblem, RuleSet

__all__ = ["RuleFile", "RulesBusyError", "RulesChangedError", "parse_rules"]

LARGEST: Final = 4 << 20
"""Maximum size of a rule file in bytes: some forty thousand rules."""

_ADVICE: Final = {
    errno.ENOSPC: "make room and save again",
    errno.EDQUOT: "make room in your quota and save again",
    errno.EACCES: "save to a file in a folder of your own",
    errno.EPERM: "save to a file in a folder of your own",
    errno.EROFS: "save to a file on a disk that can be written",
    errno.ENOENT: "make the folder and save again",
}


class RulesChangedError(RulesError):
    """The file changed on disk since it was read; saving would overwrite that change."""


class RulesBusyError(RulesError):
    """Another process is saving the file and does not end; saving again may succeed."""


@dataclass(frozen=True, slots=True)
class RuleFile:
    """A rule file as it was read.

    Attributes:
        path: as given; used in messages.
        raw: the bytes read (at most `LARGEST` + 1), None if there was no file.
        document: its rules and their positions.
        mark: the byte order mark before the text, kept on saving.
        readable: False if the file as a whole is invalid: it is then overwritten only by force.
    """

    path: Path
    raw: bytes | None
    document: Document
    mark: str = ""
    readable: bool = True

    @classmethod
    def load(cls, path: str | PathLike[str]) -> RuleFile:
        """Read a file. Errors inside are in `rules.problems`; `RulesError` if it cannot be read at all."""
        path = Path(path)
        try:
            raw = _read(path)
        except OSError as error:
            raise RulesError(f"{path}: cannot read the rules: {error.strerror or error}") from error
        except ValueError as error:
            raise RulesError(f"{path}: not a path: {error}") from error
        return cls._of(path, raw)

    @classmethod
    def empty(cls, path: str | PathLike[str]) -> RuleFile:
        """A file without rules, created by the first save."""
        return cls(Path(path), None, parse_document("", str(path)))

    @classmethod
    def open(cls, path: str | PathLike[str]) -> RuleFile:
        """Load the file if it exists, else return an empty one that a save creates."""
        try:
            return cls.load(path)
        except RulesError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return cls.empty(path)
            raise

    @classmethod
    def _of(cls, path: Path, raw: bytes) -> RuleFile:
        name = str(path)
        trouble = None
        text = ""
        if len(raw) > LARGEST:
            trouble = RuleProblem(name, 0, 0, f"larger than {LARGEST >> 20} MiB: not a rule file")
        else:
            try:
                text = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                before = raw[: error.start]
                line = before.count(b"\n") + 1
                column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8")) + 1
                trouble = RuleProblem(name, line, column, f"not UTF-8: byte 0x{raw[error.start]:02x}")
        if trouble is not None:
            rules = RuleSet((), (trouble,), name)
            return cls(path, raw, replace(parse_document("", name), rules=rules, readable=False), readable=False)
        document = parse_document(text, name)
        mark = "\ufeff" if text.startswith("\ufeff") else ""
        return cls(path, raw, document, mark, document.readable)

    @property
    def rules(self) -> RuleSet:
        """The rules in the file."""
        return self.document.rules

    @property
    def text(self) -> str:
        """The text as read; empty for a file that is not text."""
        return self.mark + self.document.text

    def differs(self, rules: RuleSet) -> bool:
        """True if saving these rules would change the file: other rules, or other text for them."""
        return rules != self.rules or any(rule.written is not None for rule in rules)

    def render(self, rules: RuleSet) -> str:
        """The text of the file with these rules in it; a new text if the file cannot be edited in place."""
        try:
            return self._edited(rules)
        except LayoutError:
            return new_file(rules)

    def _edited(self, rules: RuleSet) -> str:
        if not self.readable:
            raise LayoutError(str(self.rules.problems[0]))
        return self.mark + edited(self.document, rules.rules)

    def changed_on_disk(self) -> bool:
        """True if saving would overwrite changes made since the file was read.

        False for a deleted file, which has nothing to overwrite, and for a pipe, which cannot be saved to.
        """
        try:
            if self.path.exists() and not self.path.is_file():
                return False
            return _read(self.path) != self.raw
        except FileNotFoundError:
            return False
        except OSError:
            return True

    def save(self, rules: RuleSet, *, force: bool = False, patience: float = PATIENCE) -> RuleFile:
        """Write these rules and return the file as it is now.

        `force` overwrites a file that changed on disk, and rewrites one that cannot be edited in place, keeping its old
        content as `<name>.orig`. Of several processes that save the file at once, one succeeds.

        Raises:
            RulesChangedError: the file changed on disk (without `force`).
            RulesBusyError: another process is saving it, still after `patience` seconds.
            RulesError: the file cannot be edited in place (without `force`), or writing failed; the file is then
                unchanged.
        """
        target = Path(os.path.realpath(self.path))

        def unchanged() -> None:
            if not force and (self.changed_on_disk() or Path(os.path.realpath(self.path)) != target):
                raise RulesChangedError(f"{self.path}: the file changed on disk since it was read; not saved")

        def about_to_replace() -> None:
            unchanged()
            if keep and target.exists():
                _keep_aside(target)

        unchanged()
        keep = False
        try:
            text = self._edited(rules)
            check = parse_document(text, str(self.path)).rules
            if check != rules or len(check.problems) > len(self.rules.problems):
                raise LayoutError("its layout cannot be edited in place")
        except LayoutError as error:
            if not force:
                raise RulesError(f"{self.path}: not saved, because writing would lose its content ({error})") from error
            keep, text = True, new_file(rules)
        data = text.encode("utf-8")
        try:
            # Writing takes a while, seconds on a slow disk: another program may save meanwhile.
            atomic_write(target, data, check=about_to_replace, patience=patience)
        except BusyError as error:
            raise RulesBusyError(f"{self.path}: {error.strerror}; try again") from error
        except OSError as error:
            advice = _ADVICE.get(error.errno or 0, "save to another file")
            raise RulesError(f"{self.path}: not saved: {error.strerror or error}; {advice}") from error
        return RuleFile._of(self.path, data)


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(LARGEST + 1)


def _keep_aside(target: Path) -> None:
    """Copy the file to `<name>.orig`, or the next free name of this kind."""
    number = 1
    aside = target.with_name(f"{target.name}.orig")
    while aside.exists():
        number += 1
        aside = target.with_name(f"{target.name}.orig{number}")
    shutil.copy2(target, aside)


def parse_rules(text: str, path: str = "") -> RuleSet:
    """Parse the text of a rule file; errors are in `problems` (nothing is raised)."""
    return parse_document(text, path).rules
