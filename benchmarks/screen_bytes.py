"""Bytes that the explorer sends to the terminal, and their time, key by key.

    python benchmarks/screen_bytes.py A.log B.log [--size 200x50] [--keys "PageDown j n"]

The program runs on a pseudo-terminal that answers nothing; bytes are counted until it is quiet for a while. Target: one
page down at 200×50 in at most 16 KB.
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

KEYS = {
    "PageDown": b"\x1b[6~",
    "PageUp": b"\x1b[5~",
    "Down": b"\x1b[B",
    "Enter": b"\r",
    "Esc": b"\x1b",
    "C-d": b"\x04",
    "C-o": b"\x0f",
}
QUIET = 0.4
"""Seconds without output after which a key is done; longer than any timer of the program."""


def read_quiet(fd: int, quiet: float = QUIET) -> tuple[bytes, float]:
    """Return the output until `quiet` seconds without any, and the time of its last byte, in seconds from now."""
    data, start, last = b"", time.perf_counter(), 0.0
    while select.select([fd], [], [], quiet)[0]:
        try:
            piece = os.read(fd, 1 << 16)
        except OSError:
            break
        if not piece:
            break
        data += piece
        last = time.perf_counter() - start
    return data, last


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("a")
    parser.add_argument("b")
    parser.add_argument("--size", default="200x50", help="columns x rows")
    parser.add_argument(
        "--keys", default="PageDown PageDown PageDown PageUp j j k n n = C-d", help="separated by spaces"
    )
    parser.add_argument("--wait", type=float, default=3.0, help="seconds of quiet after which the logs count as read")
    parser.add_argument("--rules", default=os.devnull, help="a rule file")
    parser.add_argument("--term", default="tmux-256color")
    chosen = parser.parse_args()
    columns, rows = map(int, chosen.size.split("x"))

    pid, fd = pty.fork()
    if pid == 0:
        os.environ["TERM"] = chosen.term
        with tempfile.TemporaryDirectory() as state:
            os.environ["XDG_STATE_HOME"] = state
            os.execv(sys.executable, [sys.executable, "-m", "numtui", chosen.a, chosen.b, "-r", chosen.rules])
    try:
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        opened, seconds = read_quiet(fd, chosen.wait)
        print(f"{'opened':<10} {len(opened):>8} bytes {seconds * 1e3:>8.0f} ms until quiet")
        for key in chosen.keys.split():
            os.write(fd, KEYS.get(key, key.encode()))
            data, seconds = read_quiet(fd)
            print(f"{key:<10} {len(data):>8} bytes {seconds * 1e3:>8.0f} ms")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(fd)
    return 0


if __name__ == "__main__":
    sys.exit(main())
