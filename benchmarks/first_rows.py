"""Time to the explorer's first rows, beside the first frame of an empty Textual program.

    python -m benchmarks.first_rows A.log B.log [RUNS]

Starts both in turn on a pseudo-terminal of 200×50; the clock runs from the start of the process to the first bytes
with an operation's key (or the empty program's text). Prints the medians and their ratio. A start before the measured
ones leaves compiled modules, as an installation does, also where PYTHONDONTWRITEBYTECODE is set.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import statistics
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Sequence
from pathlib import Path

_EMPTY = """
from textual.app import App
from textual.widgets import Static

class Empty(App):
    def compose(self):
        yield Static("first frame")

Empty().run(mouse=False)
"""


def seconds_until(command: list[str], text: bytes) -> float:
    """Return the seconds from the start of a command to a text on its terminal; infinite if it never comes."""
    start = time.perf_counter()
    process, terminal = pty.fork()
    if process == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
    seen, took = b"", float("inf")
    while select.select([terminal], [], [], 20)[0]:
        try:
            seen += os.read(terminal, 1 << 16)
        except OSError:
            break
        if text in seen:
            took = time.perf_counter() - start
            break
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    os.close(terminal)
    return took


def main(arguments: Sequence[str]) -> int:
    """Start both programs in turn."""
    if len(arguments) not in (2, 3):
        print("usage: python -m benchmarks.first_rows A.log B.log [RUNS]", file=sys.stderr)
        return 2
    logs = arguments[:2]
    runs = int(arguments[2]) if len(arguments) == 3 else 7
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "empty.py"
        program.write_text(_EMPTY)
        commands = ([sys.executable, str(program)], b"first frame"), ([sys.executable, "-m", "numtui", *logs], b"/op_")
        taken = [[seconds_until(*command) for command in commands] for _ in range(runs + 1)]
        empty, rows = zip(*taken[1:], strict=True)
    print(f"empty Textual program  {statistics.median(empty):.2f} s")
    print(f"first rows             {statistics.median(rows):.2f} s")
    print(f"ratio                  {statistics.median(rows) / statistics.median(empty):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
