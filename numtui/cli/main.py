"""Entry point: parse and run a command line; turn errors into a sentence and an exit code.

Heavy imports follow argument parsing: `numtui --help` needs neither numpy nor Textual, a
report needs no Textual, and nothing needs torch.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from matchers.errors import UserError
from numtui import __version__
from numtui.cli.output import ExitCode, complain
from numtui.cli.parser import parse
from numtui.terminal.signals import EndedBySignalError, raising
from numtui.terminal.tty import give_up_stdout, give_up_terminal

__all__ = ["ExitCode", "main", "run"]

_SIGNALLED = 128
"""Higher exit codes are those of signals."""


def run() -> NoReturn:
    """Entry point of the console script and of `python -m numtui`."""
    # No matrix products here; starting numpy's threads costs as much as importing numpy.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    code = main()
    if code > _SIGNALLED:
        give_up_terminal()
    gc.freeze()  # all memory is given back at once: nothing is worth collecting before
    sys.exit(code)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; return the exit code. User errors are one line on standard error."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal in the C locale gets `\u2026` instead of a traceback.
        with suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        with raising():
            args = parse(sys.argv[1:] if argv is None else argv)
            gc.enable()
            return int(args.run(args))
    except UserError as error:
        complain(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except EndedBySignalError as end:
        return end.exit_code
    except BrokenPipeError:
        give_up_stdout()  # the reader has closed the pipe
        return ExitCode.BROKEN_PIPE
    except MemoryError:
        complain("not enough memory for these logs: fewer operations per log, or a machine with more, would do")
        return ExitCode.TROUBLE
    except Exception as error:  # noqa: BLE001 - a bug: a sentence for the user, the details in a file
        _report_bug(error)
        return ExitCode.TROUBLE


def _report_bug(error: Exception) -> None:
    """Print one line; write the traceback to a file for a bug report."""
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
    except Exception:  # noqa: BLE001 - a second trouble must not hide the first
        with suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(details)
        complain(summary)
    else:
        complain(f"{summary[:300]} (this is a bug; details: {path})")
