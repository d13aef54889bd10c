"""A rule file on disk: read, edited in place, saved so that nothing of the user's is ever lost.

`RuleFile` is a picture of the file as it was read. `render` gives its text with other rules in it, keeping comments,
order and quoting (`matchers.rules.edit`); `save` writes that text atomically and returns the picture of the new file.
"""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Final

from matchers.atomic_write import atomic_write
from matchers.errors import RulesError
from matchers.rules.block_style import LayoutError
from matchers.rules.edit import edited
from matchers.rules.grammar import Document, parse_document
from matchers.rules.item import new_file
from matchers.rules.model import RuleProblem, RuleSet

__all__ = ["RuleFile", "RulesChangedError", "load_rules", "parse_rules"]

LARGEST: Final = 4 << 20
"""Bytes of the largest file that is taken for a rule file: some forty thousand rules."""

_ADVICE: Final = {
    errno.ENOSPC: "make room and save again",
    errno.EDQUOT: "make room in your quota and save again",
    errno.EACCES: "save to a file in a folder of your own",
    errno.EPERM: "save to a file in a folder of your own",
    errno.EROFS: "save to a file on a disk that can be written",
    errno.ENOENT: "make the folder and save again",
}


class RulesChangedError(RulesError):
    """The file on disk is not the one that was read; saving would overwrite what somebody else wrote."""


@dataclass(frozen=True, slots=True)
class RuleFile:
    """A rule file as it was read.

    Attributes:
        path: as it was given; messages use it.
        raw: the bytes on disk when it was read (at most `LARGEST` + 1 of them), None when there was no file.
        document: its rules and where they stand.
        mark: the byte order mark in front of the text, kept on saving.
        readable: False when the file as a whole could not be understood: it is then overwritten only by force.
    """

    path: Path
    raw: bytes | None
    document: Document
    mark: str = ""
    readable: bool = True

    @classmethod
    def load(cls, path: str | PathLike[str]) -> RuleFile:
        """Reads a file. What is wrong inside is in `rules.problems`; `RulesError` when it cannot be read at all."""
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
        """No rules yet; the file is written by the first save."""
        return cls(Path(path), None, parse_document("", str(path)))

    @classmethod
    def open(cls, path: str | PathLike[str]) -> RuleFile:
        """The file if there is one, else an empty one that a save creates."""
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
            trouble = RuleProblem(name, 0, 0, f"larger than {LARGEST >> 20} MiB: this is no rule file")
        else:
            try:
                text = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                before = raw[: error.start]
                line = before.count(b"\n") + 1
                column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8")) + 1
                trouble = RuleProblem(name, line, column, f"not UTF-8: byte 0x{raw[error.start]:02x}")
        if trouble is not None:
            empty = parse_document("", name)
            document = Document(
                text="",
                lines=empty.lines,
                root=None,
                stop=None,
                sections=(),
                rules=RuleSet((), (trouble,), name),
                readable=False,
            )
            return cls(path, raw, document, readable=False)
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
        """Whether these rules are others than the file's, or written otherwise: whether there is something to save."""
        return rules != self.rules or any(rule.written is not None for rule in rules)

    def render(self, rules: RuleSet) -> str:
        """The text of the file with these rules in it; a new text where the file's own cannot be edited in place."""
        try:
            return self._edited(rules)
        except LayoutError:
            return new_file(rules)

    def _edited(self, rules: RuleSet) -> str:
        if not self.readable:
            raise LayoutError(str(self.rules.problems[0]))
        return self.mark + edited(self.document, rules.rules)

    def changed_on_disk(self) -> bool:
        """Whether saving would overwrite what somebody else wrote since the file was read.

        A file that is gone is no such case: there is nothing to overwrite. Neither is a pipe, which cannot be saved to.
        """
        try:
            if self.path.exists() and not self.path.is_file():
                return False
            return _read(self.path) != self.raw
        except FileNotFoundError:
            return False
        except OSError:
            return True

    def save(self, rules: RuleSet, *, force: bool = False) -> RuleFile:
        """Writes these rules and returns the file as it is now.

        Without `force`, a file that somebody else changed raises `RulesChangedError`, and one that cannot be edited in
        place raises `RulesError`. With `force` the former is overwritten, and the latter is written anew, its old
        content kept beside it as `<name>.orig`. `RulesError` too when the disk says no: the file is then as it was.
        """
        if not force and self.changed_on_disk():
            raise RulesChangedError(f"{self.path}: the file was changed by somebody else since it was read; not saved")
        keep = False
        try:
            text = self._edited(rules)
            check = parse_document(text, str(self.path)).rules
            if check != rules or len(check.problems) > len(self.rules.problems):
                raise LayoutError("its layout cannot be edited in place")
        except LayoutError as error:
            if not force:
                raise RulesError(
                    f"{self.path}: not saved, because writing would lose what is in it ({error})"
                ) from error
            keep, text = True, new_file(rules)
        data = text.encode("utf-8")
        try:
            target = Path(os.path.realpath(self.path))
            if keep and target.exists():
                _keep_aside(target)
            atomic_write(target, data)
        except OSError as error:
            advice = _ADVICE.get(error.errno or 0, "save to another file")
            raise RulesError(f"{self.path}: not saved: {error.strerror or error}; {advice}") from error
        return RuleFile._of(self.path, data)


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(LARGEST + 1)


def _keep_aside(target: Path) -> None:
    """Copies the file to `<name>.orig`, or the next free name of this kind."""
    number = 1
    aside = target.with_name(f"{target.name}.orig")
    while aside.exists():
        number += 1
        aside = target.with_name(f"{target.name}.orig{number}")
    shutil.copy2(target, aside)


def parse_rules(text: str, path: str = "") -> RuleSet:
    """The rules in the text of a rule file; whatever is wrong with it is in `problems` (nothing is raised)."""
    return parse_document(text, path).rules


def load_rules(path: str | PathLike[str]) -> RuleFile:
    """The rule file at `path`, as `RuleFile.load`."""
    return RuleFile.load(path)
