"""The command line.

Everything heavy is imported after the arguments are understood: `numtui --help` needs neither numpy nor Textual, a
report needs no Textual, and nothing needs torch.
"""

from __future__ import annotations

import argparse
import os
import signal
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from enum import IntEnum
from pathlib import Path
from typing import NoReturn

from matchers.errors import InputError, UserError
from numtui import __version__
from numtui.cli.arguments import (
    WEIGHT_FORMATS,
    commands,
    completion_parser,
    demo_parser,
    diff_parser,
    main_parser,
    requested,
    requested_of_one,
    rules_parser,
    suggest_parser,
    weights_parser,
)
from numtui.inputs import (
    DEMOS,
    STDIN,
    OpenRequest,
    demo_logs,
    is_weight_log,
    resolve_logs,
)
from numtui.report.options import SUFFIXES, Target, format_of
from numtui.terminal.tty import give_up_stdout, give_up_terminal, is_dumb_terminal, is_terminal, reopen_keyboard
from numtui.text.safe import safe_text

__all__ = ["ExitCode", "main", "run"]

_SIGNALLED = 128
"""An exit code above is that of a signal."""

_DEMO_RULES = Path("numtui-demo.yaml")
"""The demo has rules of its own: those in the current folder belong to other logs."""


class ExitCode(IntEnum):
    """What the program tells its caller; as `diff` does."""

    SAME = 0
    RED = 1
    TROUBLE = 2
    INTERRUPTED = 128 + signal.SIGINT
    BROKEN_PIPE = 128 + signal.SIGPIPE


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
        return int(_dispatch(list(sys.argv[1:] if argv is None else argv)))
    except UserError as error:
        _complain(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        give_up_stdout()  # whoever read it has enough
        return ExitCode.BROKEN_PIPE
    except Exception as error:  # noqa: BLE001 - a bug: the user gets a sentence, the details go where they can be sent from
        _report_bug(error)
        return ExitCode.TROUBLE


def _dispatch(argv: list[str]) -> int:
    if not argv:
        raise InputError(
            "which logs? numtui A B compares two logs or run folders, numtui demo opens an example, "
            "numtui --help tells the rest"
        )
    if argv[:1] == ["diff"]:
        return _diff(diff_parser().parse_args(argv[1:]))
    if argv[:1] == ["weights"]:
        args = weights_parser().parse_args(argv[1:])
        return _weights(args.logs, args.format, args.output)
    if argv[:1] == ["suggest"]:
        return _suggest(suggest_parser().parse_args(argv[1:]))
    if argv[:1] == ["demo"]:
        return _demo(demo_parser().parse_args(argv[1:]))
    if argv[:1] == ["rules"]:
        args = rules_parser().parse_args(argv[1:])
        return _check(args) if "hints" in args else _convert(args)
    if argv[:1] == ["completion"]:
        return _completion(completion_parser().parse_args(argv[1:]).shell)
    return _open(main_parser().parse_args(argv))


def _diff(args: argparse.Namespace) -> int:
    output = None if args.output in {None, "-"} else Path(args.output)
    form = args.format or ("text" if output is None else _form_of(args.output))
    if is_weight_log(args.a) or is_weight_log(args.b):
        return _diff_weights(args, form)
    return _report(
        requested(args),
        Target(form, output),
        *(_also(name) for name in args.also),
        fail_on=tuple(dict.fromkeys(args.fail_on or ["diverged"])),
        allow=None if args.allow is None else Path(args.allow),
    )


def _form_of(name: str) -> str:
    """The form that the name of `-o` asks for: text where it has no ending."""
    form = format_of(name)
    if form is None and (ending := Path(name).suffix):
        raise InputError(f"-o {name}: {ending} is the ending of no form ({', '.join(SUFFIXES)}); --format says which")
    return form or "text"


def _also(name: str) -> Target:
    form = format_of(name)
    if form is None:
        raise InputError(f"--also {name}: the form of a report is told by the end of its name: {', '.join(SUFFIXES)}")
    return Target(form, Path(name))


def _diff_weights(args: argparse.Namespace, form: str) -> int:
    """Two logs of weights, which have no operations: what is only about those is refused."""
    if form not in WEIGHT_FORMATS:
        raise InputError(f"logs of weights are reported as {' or '.join(WEIGHT_FORMATS)}, not as {form}")
    for option, given in (("--also", args.also), ("--fail-on", args.fail_on), ("--allow", args.allow)):
        if given:
            raise InputError(f"{option} is about logs of operations; these are logs of weights")
    return _weights([args.a, args.b], form, args.output)


def _suggest(args: argparse.Namespace) -> int:
    for path in (args.a, args.b):
        if is_weight_log(path):
            raise InputError(f"{path}: is a log of weights over steps, which has no operations to pair")
    from numtui.cli.diff import suggest

    suggest(requested(args), args.format, None if args.output in {None, "-"} else Path(args.output))
    return ExitCode.SAME


def _weights(logs: Sequence[str], form: str, output: str | None) -> int:
    from numtui.cli.weights import report_weights

    parts = report_weights(logs, form, None if output in {None, "-"} else Path(str(output)))
    return ExitCode.RED if parts else ExitCode.SAME


def _convert(args: argparse.Namespace) -> int:
    from numtui.cli.rules import convert_overrides

    convert_overrides(args.source, None if args.output in {None, "-"} else Path(args.output), force=args.force)
    return ExitCode.SAME


def _check(args: argparse.Namespace) -> int:
    from numtui.cli.rules import check_rules

    if args.a is not None and args.b is None:
        raise InputError(f"a rule file is about two logs, and only {args.a} was given")
    args.name_a = args.name_b = None
    logs = None if args.a is None else requested(args)
    return ExitCode.SAME if check_rules(Path(args.rules), logs, hints=args.hints) else ExitCode.RED


def _completion(shell: str) -> int:
    from numtui.cli.completion import completion

    sys.stdout.write(completion(shell, commands()))
    return ExitCode.SAME


def _demo(args: argparse.Namespace) -> int:
    path_a, path_b = resolve_logs(*demo_logs(args.pair))
    request = OpenRequest(
        path_a=path_a,
        path_b=path_b,
        name_a=DEMOS[args.pair][0],
        name_b=DEMOS[args.pair][1],
        rules_path=_DEMO_RULES,
        color=not args.no_color,
        theme=args.theme,
        mouse=args.mouse,
        resume=False,
    )
    return _explore(request)


def _open(args: argparse.Namespace) -> int:
    for path in (args.a, args.b):
        if path is not None and is_weight_log(path):
            raise InputError(
                f"{path}: is a log of weights over steps, which the explorer does not show: "
                f"compare it with 'numtui diff {args.a} {args.b or 'OTHER'}'"
            )
    return _explore(requested(args) if args.b is not None else requested_of_one(args))


def _explore(request: OpenRequest) -> int:
    """The explorer, or the text report where there is no screen to draw on."""
    if not is_terminal(sys.stdout):
        return _report(request, Target("text"))
    if is_dumb_terminal():
        _complain("this terminal cannot show the explorer (TERM is dumb or not set); this is the text report")
        return _report(request, Target("text"))
    with _rereadable(request) as ready:
        if not reopen_keyboard():
            _complain("there is no terminal to read keys from; this is the text report")
            return _report(ready, Target("text"))
        ready = _configured(ready)
        from numtui.tui.app import run_app

        return run_app(ready)


def _configured(request: OpenRequest) -> OpenRequest:
    """The request with the user's own settings, which what was said on the command line goes before.

    Raises:
        InputError: the settings mean nothing.
    """
    from numtui.cli.config import load_config

    config = load_config()
    return replace(
        request,
        keys=config.keys,
        editor=config.editor,
        theme=request.theme or config.theme,
        color=request.color and config.color,
        mouse=request.mouse or config.mouse,
        resume=request.resume and config.session,
    )


def _report(
    request: OpenRequest, *targets: Target, fail_on: tuple[str, ...] = ("diverged",), allow: Path | None = None
) -> int:
    if request.single:
        from numtui.cli.single_run import report_single

        return ExitCode.RED if report_single(request) else ExitCode.SAME
    from numtui.cli.diff import report

    return ExitCode.RED if report(request, targets, fail_on=fail_on, allow=allow) else ExitCode.SAME


@contextmanager
def _rereadable(request: OpenRequest) -> Iterator[OpenRequest]:
    """The request with files for what can be read only once (standard input, a FIFO).

    The explorer reads a log twice: its head, to show something at once, and then the whole.
    """
    import tempfile  # 3 ms, for a rare case

    paths = {"path_a": request.path_a, "path_b": request.path_b}
    with ExitStack() as stack:
        for side, path in paths.items():
            if not _once(path):
                continue
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="numtui-"))
            paths[side] = _copied(path, Path(folder) / f"{side[-1]}.log")
        # A copy that vanishes is no log to come back to.
        copied = (paths["path_a"], paths["path_b"]) != (request.path_a, request.path_b)
        yield replace(request, path_a=paths["path_a"], path_b=paths["path_b"], resume=request.resume and not copied)


def _copied(path: str, copy: Path) -> str:
    import shutil

    try:
        # A duplicate, because closing descriptor 0 itself would give its number to the next file that is opened.
        with os.fdopen(os.dup(0), "rb") if path == STDIN else open(path, "rb") as source, copy.open("wb") as out:
            shutil.copyfileobj(source, out, 1 << 20)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    return str(copy)


def _once(path: str) -> bool:
    """Whether a log can be read only once."""
    if path == STDIN:
        return True
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


def _complain(text: str) -> None:
    with suppress(OSError, AttributeError):
        print(f"numtui: {safe_text(text)}", file=sys.stderr)  # noqa: T201


def _report_bug(error: Exception) -> None:
    """One line for the user, the traceback in a file that can be attached to a report."""
    import time
    import traceback

    from numtui.session.journal import state_folder

    details = "".join(traceback.format_exception(error))
    summary = f"internal error: {type(error).__name__}: {error}"
    try:
        folder = state_folder()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / f"crash-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
        path.write_text(
            f"numtui {__version__}, Python {sys.version}\n{sys.argv}\n\n{details}",
            encoding="utf-8",
            errors="backslashreplace",
        )
    except OSError:
        sys.stderr.write(details)
        _complain(summary)
    else:
        _complain(f"{summary[:300]} (this is a bug; details: {path})")
