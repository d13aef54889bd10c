"""The entry point: a command line is parsed and run, and whatever goes wrong becomes a sentence and an exit code.

Everything heavy is imported after the arguments are understood: `numtui --help` needs neither numpy nor Textual, a
report needs no Textual, and nothing needs torch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from matchers.errors import UserError
from numtui import __version__
from numtui.cli.output import ExitCode, complain
from numtui.cli.parser import parse
from numtui.terminal.tty import give_up_stdout, give_up_terminal

__all__ = ["ExitCode", "main", "run"]

_SIGNALLED = 128
"""An exit code above is that of a signal."""


def run() -> NoReturn:
    """Entry point of the console script and of `python -m numtui`."""
    # Nothing here multiplies matrices, and starting numpy's threads for it costs as much as importing numpy.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    code = main()
    if code > _SIGNALLED:
        give_up_terminal()
    sys.exit(code)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code. Errors of the user are one line on standard error."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal in the C locale gets `\u2026` instead of a traceback.
        with suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        args = parse(sys.argv[1:] if argv is None else argv)
        return int(args.run(args))
    except UserError as error:
        complain(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        give_up_stdout()  # whoever read it has enough
        return ExitCode.BROKEN_PIPE
    except Exception as error:  # noqa: BLE001 - a bug: the user gets a sentence, the details go where they can be sent from
        _report_bug(error)
        return ExitCode.TROUBLE


def _report_bug(error: Exception) -> None:
    """One line for the user, the traceback in a file that can be attached to a report."""
    import time
    import traceback

    from numtui.folders import state_folders

    details = "".join(traceback.format_exception(error))
    summary = f"internal error: {type(error).__name__}: {error}"
    try:
        folder = state_folders()[0]
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / f"crash-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
        path.write_text(
            f"numtui {__version__}, Python {sys.version}\n{sys.argv}\n\n{details}",
            encoding="utf-8",
            errors="backslashreplace",
        )
    except OSError:
        sys.stderr.write(details)
        complain(summary)
    else:
        complain(f"{summary[:300]} (this is a bug; details: {path})")
