"""The program on a bare pseudo-terminal, without tmux in between: what it writes, and what it leaves behind.

For what tmux would smooth over: a terminal that goes away, or changes its size a hundred times a second.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["RawTerminal"]

_TIMEOUT_SECONDS = 120.0


class RawTerminal:
    """One program on a terminal.

    Args:
        controls: whether it is the program's controlling terminal, whose end is a signal.

    Attributes:
        written: everything that it has written so far.
        process: the program.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        columns: int = 100,
        rows: int = 30,
        env: Mapping[str, str] | None = None,
        controls: bool = True,
    ) -> None:
        self._ours, self._theirs = os.openpty()
        self.resize(columns, rows)
        self._at_first = termios.tcgetattr(self._theirs)
        self.written = b""
        self.process = subprocess.Popen(
            command,
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            # As most people run it: what is written waits in buffers.
            env={**os.environ, "PYTHONUNBUFFERED": "", "TERM": "tmux-256color", **(env or {})},
            start_new_session=True,
            preexec_fn=_take_terminal if controls else None,  # noqa: PLW1509 - a test starts no thread before
        )

    def __enter__(self) -> RawTerminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for descriptor in {self._ours, self._theirs} - {-1}:
            os.close(descriptor)

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def resize(self, columns: int, rows: int) -> None:
        """The kernel tells the program."""
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds: float = 0.0) -> bytes:
        """What has been written since, waiting so long for the first of it."""
        found = b""
        while select.select([self._ours], [], [], 0 if found else seconds)[0]:
            found += os.read(self._ours, 1 << 16)
        self.written += found
        return found

    def wait_for(self, wanted: str) -> None:
        """Read until the program has written something that it had not written before the last such wait."""
        found, end = b"", time.monotonic() + _TIMEOUT_SECONDS
        while wanted.encode() not in found:
            found += self.read(0.1)
            assert time.monotonic() < end, f"{wanted!r} was not written, but {found[-3000:]!r}"

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Read until something outside the terminal is so."""
        end = time.monotonic() + _TIMEOUT_SECONDS
        while not condition():
            self.read(0.05)
            assert time.monotonic() < end, f"{condition} never held; written was {self.written[-3000:]!r}"
        self.read()

    def exit_code(self) -> int:
        """Read until the program has ended; its exit code, 128 + n after signal n."""
        end = time.monotonic() + _TIMEOUT_SECONDS
        while self.process.poll() is None:
            if self._ours >= 0:
                self.read(0.05)
            else:
                time.sleep(0.01)
            assert time.monotonic() < end, f"the program did not end, and wrote {self.written[-3000:]!r}"
        if self._ours >= 0:
            self.read()
        assert b"internal error" not in self.written, self.written[-1000:]
        code = self.process.returncode
        return code if code >= 0 else 128 - code

    def vanish(self) -> None:
        """The terminal goes away, as with a connection that is lost."""
        os.close(self._theirs)
        os.close(self._ours)
        self._ours = self._theirs = -1

    @property
    def restored(self) -> bool:
        """Whether the terminal is as the program found it: its settings, and every mode of what is shown and read."""
        modes = {25: b"h", 7: b"h"}  # the cursor, and lines that wrap
        for change in re.finditer(rb"\x1b\[\?(\d+)([hl])", self.written):
            modes[int(change[1])] = change[2]
        settings: list[Any] = termios.tcgetattr(self._theirs)
        return (
            settings == self._at_first
            and {mode for mode, state in modes.items() if state == b"h"} == {25, 7}
            and len(re.findall(rb"\x1b\[>\d*u", self.written)) == self.written.count(b"\x1b[<u")  # the kitty keyboard
        )


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
