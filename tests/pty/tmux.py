"""The real program in a real terminal: keys in, screen out.

A `Terminal` is a tmux server of its own, without the user's configuration, with one session of a given size.
Waiting means polling the screen until it says something; nothing sleeps for a fixed time and hopes.
"""

from __future__ import annotations

import os
import select
import shlex
import subprocess
import tempfile
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

__all__ = ["POLL_SECONDS", "ScreenTimeout", "Terminal"]

POLL_SECONDS = 0.02
_TIMEOUT_SECONDS = 120.0
"""Generous: a busy machine is no failure. A test that passes never waits so long."""


class ScreenTimeout(AssertionError):
    """The screen never said what was waited for; the message shows what it said."""


class Terminal:
    """One program in one tmux session.

    ```python
    with Terminal([sys.executable, "-m", "numtui", "a.log", "b.log"], columns=120, rows=40) as t:
        t.wait_for("red")
        t.keys("n", "C-s")
        assert t.exit_code("q") == 1
    ```

    Args:
        command: the program and its arguments; no shell is involved.
        columns, rows: size of the screen.
        env: variables to set, on top of the test's own environment; None removes one.
        cwd: where the program runs.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        columns: int = 120,
        rows: int = 40,
        env: Mapping[str, str | None] | None = None,
        cwd: str | os.PathLike[str] | None = None,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tmux-")
        folder = Path(self._folder.name)
        # A short path: the name of a Unix socket has at most about a hundred characters.
        self._socket = str(folder / "s")
        self._status = folder / "status"
        (folder / "conf").write_text("set -g status off\nset -s escape-time 0\n")
        # Readline puts the size of the tests' own terminal into the environment, where os.environ does not show it.
        changes = {"TERM": "tmux-256color", "TMUX": None, "LINES": None, "COLUMNS": None, **(env or {})}
        unset = [f"-u{name}" for name, value in changes.items() if value is None]
        settings = [f"{name}={value}" for name, value in changes.items() if value is not None]
        program = shlex.join(["env", *unset, *settings, *command])
        # The shell outlives the program: it tells the exit code, also when a signal ended it, and keeps the screen as
        # it was left. The trap saves it from the Ctrl-C that is meant for the program.
        status = shlex.quote(str(self._status))
        script = f"trap : INT; {program}; echo $? > {status}.part; mv {status}.part {status}; exec tail -f /dev/null"
        self._tmux(
            *("-f", str(folder / "conf"), "new-session", "-d", "-s", "main"),
            *("-x", str(columns), "-y", str(rows), "-c", os.fspath(cwd or Path.cwd()), "sh", "-c", script),
        )
        # A client that stays, and is asked line by line: a process for each look at the screen costs more than a look.
        self._client = subprocess.Popen(
            [*self._server, "-u", "-C", "attach-session", "-f", "no-output,ignore-size", "-t", "main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._unread = b""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the session and everything in it."""
        self._client.communicate(timeout=30)  # reads to the end: a server waits until its clients have read all
        self._tmux("kill-server", check=False)
        self._folder.cleanup()

    def keys(self, *names: str) -> None:
        """Press keys, by tmux's names: `n`, `Enter`, `C-s`, `Escape`, `PageDown`."""
        self._call("send-keys", "-t", "main", *names)

    def type(self, text: str) -> None:
        """Type text as it is, also where it reads like the name of a key."""
        self._call("send-keys", "-t", "main", "-l", text)

    def resize(self, columns: int, rows: int) -> None:
        self._call("resize-window", "-t", "main", "-x", str(columns), "-y", str(rows))

    def screen(self, *, styles: bool = False) -> str:
        """The screen, line by line; with `styles`, including escape sequences, and blanks at its end."""
        return self._call("capture-pane", "-p", "-t", "main", *(["-e", "-N"] if styles else []))

    @property
    def device(self) -> str:
        """The file that the program writes to."""
        return self._call("display-message", "-p", "-t", "main", "#{pane_tty}").strip()

    @property
    def takes_mouse(self) -> bool:
        """Whether the program has asked for clicks; else the terminal's own selection works."""
        return self._call("display-message", "-p", "-t", "main", "#{mouse_any_flag}").strip() == "1"

    @property
    def is_restored(self) -> bool:
        """Whether the terminal is as a shell wants it: the main screen, the cursor shown, lines edited and echoed."""
        shown = self._call("display-message", "-p", "-t", "main", "#{alternate_on} #{cursor_flag}").split()
        with open(self.device, "rb", buffering=0) as device:
            flags = termios.tcgetattr(device)[3]
        return shown == ["0", "1"] and flags & (termios.ICANON | termios.ECHO) == termios.ICANON | termios.ECHO

    @property
    def pid(self) -> int:
        """Process id of the program (not of the shell around it)."""
        shell = self._call("display-message", "-p", "-t", "main", "#{pane_pid}").strip()
        children = Path(f"/proc/{shell}/task/{shell}/children").read_text(encoding="ascii").split()
        return int(children[0])

    @property
    def is_idle(self) -> bool:
        """True if no thread of the program runs, nor waits only for the machine to run it."""
        states = []
        for stat in Path(f"/proc/{self.pid}/task").glob("*/stat"):
            with suppress(FileNotFoundError, ProcessLookupError):
                states.append(stat.read_text(encoding="utf-8").rpartition(")")[2].split()[0])
        return "R" not in states

    def wait_for(
        self, wanted: str | Callable[[str], bool], timeout: float = _TIMEOUT_SECONDS, *, styles: bool = False
    ) -> str:
        """Wait until the screen contains a text, or satisfies a condition; returns the screen.

        With `styles`, the condition is given the escape sequences of colours too.

        Raises:
            ScreenTimeout: it never did.
        """
        end = time.monotonic() + timeout
        while True:
            screen = self.screen(styles=styles)
            if wanted in screen if isinstance(wanted, str) else wanted(screen):
                return screen
            if time.monotonic() > end:
                what = repr(wanted) if isinstance(wanted, str) else getattr(wanted, "__name__", "the condition")
                raise ScreenTimeout(f"{what} did not appear within {timeout:g} s; the screen:\n{screen}")
            time.sleep(POLL_SECONDS)

    def exit_code(self, *keys: str, timeout: float = _TIMEOUT_SECONDS) -> int:
        """Press `keys`, wait until the program has ended, and return its exit code (128 + n after signal n).

        Raises:
            ScreenTimeout: it did not end.
        """
        if keys:
            self.keys(*keys)
        end = time.monotonic() + timeout
        while not self._status.exists():
            if time.monotonic() > end:
                raise ScreenTimeout(f"the program did not end within {timeout:g} s; the screen:\n{self.screen()}")
            time.sleep(POLL_SECONDS)
        return int(self._status.read_text(encoding="ascii"))

    @property
    def _server(self) -> list[str]:
        return ["tmux", "-S", self._socket]

    def _tmux(self, *arguments: str, check: bool = True) -> None:
        """Run tmux."""
        done = subprocess.run([*self._server, *arguments], capture_output=True, check=False, timeout=30)
        if check and done.returncode:
            raise RuntimeError(f"tmux {shlex.join(arguments)}: {done.stderr.decode(errors='replace')}")

    def _call(self, *arguments: str) -> str:
        """What a command says: between `%begin …` and `%end …`, or `%error …`, with the same time, number and flags."""
        assert self._client.stdin is not None
        self._client.stdin.write((" ".join(map(_quoted, arguments)) + "\n").encode())
        self._client.stdin.flush()
        # other things are told in between; flags of 1: a command of this client's
        while not ((line := self._line()).startswith("%begin ") and line.endswith(" 1")):
            pass
        block, said = line.removeprefix("%begin"), []
        while (line := self._line()) not in (f"%end{block}", f"%error{block}"):
            said.append(line)
        if line.startswith("%error"):
            raise RuntimeError(f"tmux {shlex.join(arguments)}: {said}")
        return "".join(f"{line}\n" for line in said)

    def _line(self) -> str:
        """The next line from tmux, without its end."""
        assert self._client.stdout is not None
        while b"\n" not in self._unread:
            if not select.select([self._client.stdout], [], [], 30)[0]:
                raise ScreenTimeout("tmux says nothing")
            if not (more := os.read(self._client.stdout.fileno(), 1 << 16)):
                raise RuntimeError("tmux has ended")
            self._unread += more
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode("utf-8", errors="replace")


def _quoted(argument: str) -> str:
    """One argument in a line of tmux commands."""
    signs = (
        f"\\{ord(sign):03o}" if sign < " " or sign == "\x7f" else sign if sign.isalnum() or sign > "~" else f"\\{sign}"
        for sign in argument
    )
    return f'"{"".join(signs)}"'
