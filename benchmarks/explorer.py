"""Response of the explorer to each key, over logs of any size: latency, bytes sent, blocked event loop.

    python -m benchmarks.explorer A.log B.log [--size 200x50] [--only next,filter]

The real program runs on a pseudo-terminal. For each kind of key, the median and the worst over some strokes of

    first       milliseconds from the key to the first frame after it (a search shows "…" before its first result)
    done        the same to the last frame
    deaf        the longest time in which the event loop was blocked; `own` is that time without waiting for a
                processor because of other programs
    processor   milliseconds of all threads, until the program is idle again
    bytes       written to the terminal: mean and most
    MB          peak memory of the program so far

The last line is of steps of the cursor, twenty a second, while a search for drift (`s`) runs in the background.

Targets at a million rows: 50 ms per key (median) and for the event loop, 16 KB for a page, 900 B for a step of the
cursor, and 1.5 GB.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_DOWN, _PAGE_DOWN, _ENTER, _ESC = b"\x1b[B", b"\x1b[6~", b"\r", b"\x1b"
_BEAT = 0.004
"""Seconds between two clock readings of the event loop."""
_TYPED, _PACE = 60, 0.05
"""Steps of the cursor while a search runs, and seconds from one to the next."""
_QUIET = 0.25
"""Seconds without output and work after which a key is done."""


@dataclass(frozen=True, slots=True)
class Strokes:
    """A kind of key: the measured keys, their repetitions, and keys typed before the first and after each."""

    name: str
    keys: bytes
    times: int = 1
    before: tuple[bytes, ...] = ()
    after: tuple[bytes, ...] = ()
    quiet: float = _QUIET


_PLAN = (
    Strokes("down", _DOWN, 20, before=(b"g",)),
    Strokes("down, scrolling", _DOWN, 60, before=(b"g", 50 * _DOWN)),
    Strokes("page down", _PAGE_DOWN, 10, before=(b"g",)),
    Strokes("bottom G", b"G", 3, after=(b"g",)),
    Strokes("top g", b"g", 3, before=(b"G",)),
    Strokes("next red n", b"n", 20),
    Strokes("previous red N", b"N", 20, before=(b"G",)),
    Strokes("next cause o", b"o", 10, before=(b"g",)),
    Strokes("previous cause O", b"O", 10),
    Strokes("producer p", b"p", 5),
    Strokes("consumer c", b"c", 5),
    Strokes("back", b"\x0f", 5),
    Strokes("down, red rows", _DOWN, 20, before=(b"g", b"n")),
    Strokes("search /", b"/", 1, after=(_ESC,)),
    Strokes("search, typed", b"w", 1, before=(b"/",)),
    Strokes("search, typed", b"q", 1),
    Strokes("next hit ;", b";", 10, before=(_ENTER,), after=(_ESC, b"g")),
    Strokes("filter f", b"f", 3, after=(_ESC,)),
    Strokes("filter, typed", b"a", 1, before=(b"f", b"op:mm phase:bwd m")),
    Strokes("filter, entered", _ENTER),
    Strokes("filter dropped", _ESC),
    Strokes("filter by error", _ENTER, 1, before=(b"f", b"error>1e-4 status:red"), after=(_ESC,)),
    Strokes("filter by cause", _ENTER, 1, before=(b"f", b"cause:1"), after=(_ESC,)),
    Strokes("filter by file", _ENTER, 1, before=(b"f", b"file:model"), after=(_ESC,)),
    Strokes("filters F", b"F", after=(_ESC,)),
    *(Strokes(f"toggle {digit}", digit.encode(), 2, quiet=0.7) for digit in "123456"),
    Strokes("fold =", b"=", 4),
    Strokes("sort S", b"S", 3, before=(b"g",)),
    Strokes("group B", b"B", 3, after=(_ESC,)),
    Strokes("causes C", b"C", 3, after=(_ESC,)),
    Strokes("plot v", b"v", 3, after=(_ESC,)),
    Strokes("plot, moved", b"l", 5, before=(b"v",)),
    Strokes("plot, closer", b"+", after=(_ESC,)),
    Strokes("why w", b"w", 3, before=(b"g", b"n", b"n", b"n", b"n"), after=(_ESC,)),
    Strokes("neighbours P", b"P", 3, after=(_ESC,)),
    Strokes("places J", b"J", 3, after=(_ESC,)),
    Strokes("inspector enter", _ENTER, 2, after=(_ESC,)),
    Strokes("palette", b"\x10", 2, after=(_ESC,)),
    Strokes("palette, typed", b"m", 1, before=(b"\x10",), after=(_ESC,)),
    Strokes("info I", b"I", 2, after=(_ESC,)),
    Strokes("help ?", b"?", 2, after=(_ESC,)),
    Strokes("unpair x", b"x", 3, after=(_ESC,)),
    Strokes("template t", b"t", 3, after=(_ESC,)),
    Strokes("ignore i", b"i", 3, after=(_ESC,)),
    Strokes("realign a", b"a", 1, after=(_ESC,)),
    Strokes("confirmed", _ENTER, 1, before=(b"x",)),
    Strokes("undo u", b"u"),
    Strokes("redo", b"\x12", 1, after=(b"u",)),
    Strokes("suggestions s", b"s", 2, after=(_ESC,)),
    Strokes("rules r", b"r", 2, after=(_ESC,)),
    Strokes("page H", _ENTER, 1, before=(b"H",)),
)


# -- inside the program


def _run_watched(arguments: Sequence[str], beats: BinaryIO) -> None:
    """Run the explorer and log when its event loop was late, by how much, and how much of that was its own work."""
    import numtui.tui.app
    from numtui.cli.main import run

    class Watched(numtui.tui.app.Numtui):
        CSS_PATH = str(Path(numtui.tui.app.__file__).with_name("app.tcss"))

        def _on_mount(self) -> None:
            loop = asyncio.get_running_loop()
            loop.call_later(_BEAT, beat, loop, loop.time() + _BEAT, waited())

    def waited() -> float:
        """Return the seconds that the first thread was runnable but waited for a processor."""
        return int(os.pread(state, 64, 0).split()[1]) / 1e9

    # opened once: what reading takes counts as the program's own work
    state = os.open("/proc/thread-self/schedstat", os.O_RDONLY)

    def beat(loop: asyncio.AbstractEventLoop, due: float, before: float) -> None:
        late, wait = loop.time() - due, waited()
        if late > _BEAT:
            beats.write(struct.pack("ddd", time.perf_counter(), late, late - (wait - before)))
            beats.flush()
        loop.call_later(_BEAT, beat, loop, loop.time() + _BEAT, wait)

    numtui.tui.app.Numtui = Watched  # type: ignore[misc]
    sys.argv[1:] = arguments
    run()


# -- outside of it


@dataclass(frozen=True, slots=True)
class Answer:
    """Response to one key; times in seconds."""

    first: float
    done: float
    deaf: float
    own: float
    processor: float
    size: int


class Program:
    """The explorer on a pseudo-terminal."""

    def __init__(self, arguments: Sequence[str], columns: int, rows: int, state: str) -> None:
        self._beats, theirs = os.pipe()
        os.set_inheritable(theirs, True)
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.environ |= {"TERM": "xterm-256color", "XDG_STATE_HOME": state}
            os.chdir(state)
            os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
            me = [sys.executable, "-m", "benchmarks.explorer", "--watched", str(theirs), *arguments]
            os.execv(sys.executable, me)
        os.close(theirs)
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def processor(self) -> float:
        """Return the processor time in seconds of its live threads."""
        total = 0
        for task in os.listdir(f"/proc/{self.pid}/task"):
            with contextlib.suppress(OSError):
                total += int(Path(f"/proc/{self.pid}/task/{task}/schedstat").read_text().split()[0])
        return total / 1e9

    def memory(self) -> float:
        """Return its peak memory in bytes."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return 1024 * next(float(line.split()[1]) for line in lines if line.startswith("VmHWM"))

    def press(self, keys: bytes, quiet: float = _QUIET) -> Answer:
        """Type keys and wait until the program is idle."""
        self._late()
        before, start = self.processor(), time.perf_counter()
        os.write(self._terminal, keys)
        first, done, size = 0.0, 0.0, 0
        worked = before
        while True:
            if select.select([self._terminal], [], [], quiet)[0]:
                size += len(os.read(self._terminal, 1 << 16))
                done = time.perf_counter() - start
                first = first or done
            elif self.processor() - worked < quiet / 10:
                break
            worked = self.processor()
        deaf, own = (max(times) for times in zip((0.0, 0.0), *self.late(), strict=True))
        return Answer(first, done, deaf, own, worked - before, size)

    def type_while(self, work: bytes, keys: bytes) -> list[float]:
        """Start some work, type keys at a pace, and return the seconds from each to the first output after it."""
        os.write(self._terminal, work)
        self._drain(_PACE)
        taken = []
        for _ in range(_TYPED):
            start = time.perf_counter()
            os.write(self._terminal, keys)
            if select.select([self._terminal], [], [], 5)[0]:
                taken.append(time.perf_counter() - start)
            self._drain(max(start + _PACE - time.perf_counter(), 0.0))
        return taken

    def _drain(self, seconds: float) -> None:
        end = time.perf_counter() + seconds
        while select.select([self._terminal], [], [], max(end - time.perf_counter(), 0.0))[0]:
            os.read(self._terminal, 1 << 16)

    def late(self) -> list[tuple[float, float]]:
        """Return by how much the event loop was late since the last call, and how much of that was its own work."""
        return [(late, own) for _, late, own in self._late()]

    def _late(self) -> Iterator[tuple[float, float, float]]:
        while select.select([self._beats], [], [], 0)[0]:
            data = os.read(self._beats, 24 * 256)
            if not data:
                return
            yield from struct.iter_unpack("ddd", data)

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._terminal)


def main() -> int:
    """Measure and print."""
    if sys.argv[1:2] == ["--watched"]:
        _run_watched(sys.argv[3:], os.fdopen(int(sys.argv[2]), "wb"))
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("a")
    parser.add_argument("b")
    parser.add_argument("--size", default="200x50", help="columns x rows")
    parser.add_argument("--only", default="", help="words, with commas: only kinds of keys with one of them")
    chosen = parser.parse_args()
    columns, rows = map(int, chosen.size.split("x"))
    words = [word for word in chosen.only.split(",") if word]
    plan = [kind for kind in _PLAN if not words or any(word in kind.name for word in words)]
    with tempfile.TemporaryDirectory() as state:
        logs = [os.path.abspath(path) for path in (chosen.a, chosen.b)]
        program = Program([*logs, "-r", os.path.join(state, "rules.yaml")], columns, rows, state)
        try:
            opened = program.press(b"", quiet=2.0)
            print(f"opened: last frame after {opened.done:.1f} s, {program.memory() / 1e6:,.0f} MB\n")
            heads = f"{'first ms':>14}{'done ms':>14}{'deaf ms':>10}{'own':>6}{'processor':>11}{'bytes':>16}{'MB':>8}"
            print(" " * 18 + heads)
            for kind in plan:
                _measure(program, kind)
            if not words or "typing" in words:
                _type_while_searching(program)
        finally:
            program.end()
    return 0


def _measure(program: Program, kind: Strokes) -> None:
    for keys in kind.before:
        program.press(keys)
    answers = []
    for _ in range(kind.times):
        answers.append(program.press(kind.keys, kind.quiet))
        for keys in kind.after:
            program.press(keys)
    first, done = (
        (statistics.median(values), max(values))
        for values in zip(*((1e3 * a.first, 1e3 * a.done) for a in answers), strict=True)
    )
    size, peak = [a.size for a in answers], program.memory() / 1e6
    deaf, own = (1e3 * max(times) for times in zip(*((a.deaf, a.own) for a in answers), strict=True))
    processor = statistics.median(1e3 * a.processor for a in answers)
    print(
        f"{kind.name:18}{first[0]:7.0f}{first[1]:7.0f}{done[0]:7.0f}{done[1]:7.0f}"
        f"{deaf:10.0f}{own:6.0f}{processor:11.0f}{statistics.mean(size):8.0f}{max(size):8.0f}{peak:8.0f}",
        flush=True,
    )


def _type_while_searching(program: Program) -> None:
    """Change the rules, so that nothing is known of drift, and type while it is searched for."""
    for keys in (_ESC, b"g", b"n", b"x", _ENTER):
        program.press(keys)
    program.press(b"")
    taken = [1e3 * seconds for seconds in program.type_while(b"s" + _ESC, _DOWN)]
    deaf, own = (1e3 * max(times) for times in zip((0.0, 0.0), *program.late(), strict=True))
    print(f"typing during s   {statistics.median(taken):7.0f}{max(taken):7.0f}{'':14}{deaf:10.0f}{own:6.0f}")


if __name__ == "__main__":
    sys.exit(main())
