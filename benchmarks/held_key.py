"""Time until the explorer's screen rests after a held key is released, over a slow line.

    python -m benchmarks.held_key A.log B.log [--size 200x50] [--key PageDown] [--rate 50000]

The program runs on a pseudo-terminal that is read no faster than the line allows. Output queued at the release, in the
program and in the kernel's buffer, still has to be drawn. Target: 30 pages down at 30 per second, over 50 KB/s, come
to rest within 1 s.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import tempfile
import termios
import time
from dataclasses import dataclass, field

from benchmarks.screen_bytes import KEYS, read_quiet

STEP = 0.01
"""Seconds between two reads of the terminal: the line takes its bytes in small pieces."""
QUIET = 0.7
"""Seconds without a byte that mean rest; longer than any timer of the program."""


@dataclass
class Line:
    """A terminal at the other end of a line that takes `rate` bytes a second."""

    fd: int
    rate: float
    taken: int = 0
    last: float = 0.0
    """Time of the last byte (`time.perf_counter`)."""
    _credit: float = 0.0
    _then: float = field(default_factory=time.perf_counter)

    def take(self) -> int:
        """Read as many bytes as the line has had time for."""
        now = time.perf_counter()
        # Unused time of an idle line does not accumulate.
        self._credit = min(self._credit + (now - self._then) * self.rate, self.rate * STEP * 2)
        self._then = now
        if self._credit < 1 or not select.select([self.fd], [], [], 0)[0]:
            return 0
        data = os.read(self.fd, int(self._credit))
        self._credit -= len(data)
        self.taken += len(data)
        self.last = now
        return len(data)

    def watch(self, seconds: float) -> None:
        """Read the output for some seconds."""
        end = time.perf_counter() + seconds
        while (now := time.perf_counter()) < end:
            self.take()
            time.sleep(min(STEP, max(end - now, 0)))

    def rest(self) -> None:
        """Read the output until the program is quiet."""
        start = time.perf_counter()
        while time.perf_counter() - max(self.last, start) < QUIET:
            self.take()
            time.sleep(STEP)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("a")
    parser.add_argument("b")
    parser.add_argument("--size", default="200x50", help="columns x rows")
    parser.add_argument("--key", default="PageDown")
    parser.add_argument("--first", default="", help="keys pressed before: `?` holds it in the help")
    parser.add_argument("--count", type=int, default=30, help="how often the key repeats")
    parser.add_argument("--hz", type=float, default=30.0, help="how often a second")
    parser.add_argument("--rate", type=float, default=50_000, help="bytes a second")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--wait", type=float, default=3.0, help="seconds of quiet after which the logs count as read")
    parser.add_argument("--term", default="tmux-256color")
    chosen = parser.parse_args()
    columns, rows = map(int, chosen.size.split("x"))

    pid, fd = pty.fork()
    if pid == 0:
        os.environ["TERM"] = chosen.term
        with tempfile.TemporaryDirectory() as state:
            os.environ["XDG_STATE_HOME"] = state
            os.execv(sys.executable, [sys.executable, "-m", "numtui", chosen.a, chosen.b, "-r", os.devnull])
    try:
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        read_quiet(fd, chosen.wait)
        for key in chosen.first.split():
            os.write(fd, KEYS.get(key, key.encode()))
            read_quiet(fd)
        for _ in range(chosen.times):
            line = Line(fd, chosen.rate)
            for _ in range(chosen.count):
                os.write(fd, KEYS.get(chosen.key, chosen.key.encode()))
                line.watch(1 / chosen.hz)
            released, taken = time.perf_counter(), line.taken
            line.rest()
            print(
                f"{chosen.count} {chosen.key} at {chosen.hz:g} a second, {chosen.rate / 1000:g} KB/s: "
                f"{max(line.last - released, 0):.2f} s from release to rest; "
                f"{line.taken:,} bytes in all, {line.taken - taken:,} of them after the release"
            )
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(fd)
    return 0


if __name__ == "__main__":
    sys.exit(main())
