"""`numtui A [B]`: the explorer, or the text report without a terminal."""

from __future__ import annotations

import argparse
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matchers.errors import InputError
from matchers.weights.recognised import is_weight_log
from numtui import __version__
from numtui.cli.arguments import (
    Commands,
    add_command,
    add_expectation,
    add_log_options,
    add_logs,
    add_run_options,
    add_screen,
    requested,
    requested_of_one,
)
from numtui.cli.output import complain
from numtui.inputs import STDIN, OpenRequest
from numtui.report.options import Target
from numtui.terminal.tty import is_dumb_terminal, is_terminal, reopen_keyboard
from numtui.text.safe import safe_text

if TYPE_CHECKING:
    from numtui.session.ranks import RanksCursor

__all__ = ["HIDDEN", "add_options", "add_parser", "configured", "explore"]

HIDDEN = "A [B]"
"""Internal name of the sub-command; shown by the manual page only."""

_DESCRIPTION = """\
Finds where two training runs diverge: compares the per-operation numeric logs of
two runs and leads to the first operation whose inputs agree and whose output
does not."""

_COMMANDS = """\
commands:
  numtui A B             open the explorer (without a terminal: the text report)
  numtui A               explore one log: first NaN or Inf, largest values
  numtui diff A B        print the comparison; see numtui diff --help
  numtui explain A B ROW explain the verdict on one row, step by step
  numtui isolate A -- X  find all causes, by captures of X with grafts of A
  numtui bisect -- X.py  find the commit since which a run differs (git)
  numtui floor -- X.py   measure what rounding does to a run, as limits
  numtui check RUN       check one run against itself, across its ranks
  numtui merge PART …    join the parts of a comparison of many ranks
  numtui weights RUN …   show at which step the weights of runs diverge
  numtui capture -- X.py record a training script's steps (needs torch)
  numtui suggest A B     print the known kinds of drift, and rules for them
  numtui demo            find a planted bug; demo agree: two runs that agree
  numtui rules check F   say what is wrong with a rule file, also for two logs
  numtui rules convert F turn an override file of torchtitan into a rule file
  numtui cache           say what is kept of logs that were read; cache clear
  numtui completion bash print completion for a shell: bash, zsh or fish

A and B are logs (rank_N_activations.log, also .gz; '-' for one of them reads
standard input) or the folders of two runs, of one rank or many.

exit codes: 0 the runs agree, 1 something is red or was not compared, 2 trouble
"""


def add_parser(commands: Commands) -> None:
    """Add the unnamed sub-command: `numtui.cli.parser` inserts it when no other is named."""
    parser = add_command(commands, HIDDEN, _run, _DESCRIPTION, prog="numtui", epilog=_COMMANDS)
    add_logs(parser, or_one=True)
    add_options(parser)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the explorer, completed beside the sub-commands."""
    add_log_options(parser)
    add_expectation(parser)
    add_run_options(parser, parts=False)
    add_screen(parser)
    parser.add_argument("--version", action=_Version, help="show program's version number and exit")


class _Version(argparse.Action):
    """Prints the version, and the reader of logs that is there."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from matchers.logs.reader_library import available

        sys.stdout.write(f"numtui {__version__} ({available()} reader)\n")
        parser.exit()


def _run(args: argparse.Namespace) -> int:
    for path in (args.a, args.b):
        if path is not None and is_weight_log(path):
            raise InputError(
                f"{path}: is a log of weights over steps, which the explorer does not show: "
                f"compare it with 'numtui weights {args.a} {args.b or 'OTHER'}'"
            )
    from numtui.cli.ranks import are_runs, explore_runs  # which shows the explorer, too
    from numtui.cli.steps import at_first_difference

    args = at_first_difference(args, None if is_terminal(sys.stdout) else sys.stdout)
    if are_runs(args):
        return explore_runs(args)
    return explore(requested(args) if args.b is not None else requested_of_one(args))


def explore(request: OpenRequest, ranks: RanksCursor | None = None) -> int:
    """Run the explorer, or print the text report without a terminal; return the exit code.

    Args:
        ranks: the overview that has asked for it, which knows the other ranks.
    """
    if not is_terminal(sys.stdout):
        return _report(request)
    if is_dumb_terminal():
        complain("this terminal cannot show the explorer (TERM is dumb or not set); this is the text report")
        return _report(request)
    with _rereadable(request) as ready:
        if not reopen_keyboard():
            complain("there is no terminal to read keys from; this is the text report")
            return _report(ready)
        ready = configured(ready)
        from numtui.tui.app import run_app

        return run_app(ready, ranks)


def configured(request: OpenRequest) -> OpenRequest:
    """Add the user's settings to a request; the command line takes precedence.

    Raises:
        InputError: the settings are invalid.
    """
    from numtui.cli.config import load_config

    config = load_config()
    return replace(
        request,
        keys=config.keys,
        editor=config.editor,
        sources=config.sources,
        replay_python=config.replay_python,
        floor=request.floor or "found",
        theme=request.theme or config.theme,
        color=request.color and config.color,
        mouse=request.mouse or config.mouse,
        resume=request.resume and config.session,
    )


def _report(request: OpenRequest) -> int:
    if request.single:
        from numtui.cli.single_run import report_single

        return report_single(request)
    from numtui.cli.diff import report

    return report(request, [Target("text")])


@contextmanager
def _rereadable(request: OpenRequest) -> Iterator[OpenRequest]:
    """Copy logs that can be read only once (standard input, a FIFO) to files.

    The explorer reads a log twice: its head, to show something at once, then the whole.
    """
    import tempfile  # 3 ms, for a rare case

    paths = {"path_a": request.path_a, "path_b": request.path_b}
    with ExitStack() as stack:
        for side, path in paths.items():
            if not _once(path):
                continue
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="numtui-"))
            paths[side] = _copied(path, Path(folder) / f"{side[-1]}.log")
        # A temporary copy cannot be resumed.
        copied = (paths["path_a"], paths["path_b"]) != (request.path_a, request.path_b)
        yield replace(request, path_a=paths["path_a"], path_b=paths["path_b"], resume=request.resume and not copied)


def _copied(path: str, copy: Path) -> str:
    from numtui.terminal.copying import copied

    try:
        # Without blocking, so that a FIFO without a writer can be given up.
        source = os.dup(0) if path == STDIN else os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            with copy.open("wb") as out:
                copied(source, out, "standard input" if path == STDIN else safe_text(path, 200))
        finally:
            os.close(source)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    return str(copy)


def _once(path: str) -> bool:
    """Return True for a log that can be read only once."""
    if path == STDIN:
        return True
    try:
        mode = os.stat(path).st_mode
        return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
    except OSError:
        return False
