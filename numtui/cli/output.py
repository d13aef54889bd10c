"""Output of a command: reports to standard output or a file, messages to standard error, exit code."""

from __future__ import annotations

import io
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import TextIO, cast

from matchers.errors import InputError
from numtui.terminal.tty import give_up_stdout
from numtui.text.safe import inert, safe_text

__all__ = ["ExitCode", "briefly", "complain", "complain_briefly", "complain_of_reader", "deliver"]

_IN_MEMORY = 64 << 20
"""Characters of a report that wait in memory for its end; more of them wait in a temporary file."""


class ExitCode(IntEnum):
    """Exit codes; the first three as `diff` has them."""

    SAME = 0
    RED = 1
    TROUBLE = 2
    INTERRUPTED = 128 + signal.SIGINT
    BROKEN_PIPE = 128 + signal.SIGPIPE


def complain(text: str) -> None:
    """Print a message on standard error."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"numtui: {inert(safe_text(text))}\n")


def briefly(texts: Sequence[str], rest: Callable[[int], str], *, number: int | None = None, most: int = 5) -> list[str]:
    """Return the first of `number` texts (default: all), and with `rest` the count of the others."""
    more = (len(texts) if number is None else number) - most
    return [*texts[:most], *([rest(more)] if more > 0 else [])]


def complain_briefly(texts: Sequence[str], rest: Callable[[int], str], *, number: int | None = None) -> None:
    """Print what `briefly` returns."""
    for text in briefly(texts, rest, number=number):
        complain(text)


def complain_of_reader() -> None:
    """Say why logs are read slowly here, if they are."""
    from matchers.logs.reader_library import notice

    if text := notice():
        complain(text)


def deliver(produce: Callable[[TextIO], None], output: Path | None, check: Callable[[], None] | None = None) -> None:
    """Write a report to `output`, or to standard output: the whole report, or none of it if making it fails.

    Args:
        check: called just before the file is put in its place; what it raises prevents that.

    Raises:
        InputError: it cannot be written there.
        BrokenPipeError: the reader of standard output is gone.
    """
    if output is None:
        _to_stdout(produce)
        return
    from matchers.files.atomic_write import atomic_writer

    try:
        with atomic_writer(output, check=check) as out:
            produce(out)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(f"{output}: cannot be written: {error.strerror or error}") from None


def _to_stdout(produce: Callable[[TextIO], None]) -> None:
    out: TextIO | None = sys.stdout
    if out is None:
        raise InputError("standard output is closed; write to a file with -o FILE")
    # All of it first: half a report, cut off by an error, would read as a whole one.
    with _Held() as whole:
        try:
            produce(cast("TextIO", whole))
            whole.finish()
        except OSError as error:
            raise InputError(f"no room for the report: {error.strerror or error}; write it with -o FILE") from None
        try:
            whole.copy_to(out)
            # Here, where a full disk can still be reported; at exit it would be too late.
            out.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            give_up_stdout()
            raise InputError(f"standard output cannot be written: {error.strerror or error}") from None


class _Held(io.TextIOBase):
    """A report until its end: in memory as it comes, or in a temporary file if it is large."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._size = 0
        self._file: TextIO | None = None

    def write(self, text: str) -> int:
        self._texts.append(text)
        self._size += len(text)
        if self._size > _IN_MEMORY:
            self._to_file()
        return len(text)

    def _to_file(self) -> None:
        if self._file is None:
            from tempfile import TemporaryFile

            file = TemporaryFile("w+", encoding="utf-8", errors="surrogatepass", newline="")  # noqa: SIM115 - see close
            self._file = cast("TextIO", file)
        self._file.writelines(self._texts)
        self._texts, self._size = [], 0

    def finish(self) -> None:
        """All is written: get it ready to be copied."""
        if self._file is not None:
            self._to_file()
            self._file.seek(0)

    def copy_to(self, out: TextIO) -> None:
        """Write all of it."""
        out.writelines(self._texts)
        if self._file is not None:
            shutil.copyfileobj(self._file, out, 1 << 20)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        super().close()
