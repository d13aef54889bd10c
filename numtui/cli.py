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
from typing import TYPE_CHECKING, NoReturn

from matchers.errors import InputError, UserError
from numtui import __version__
from numtui.completion import SHELLS
from numtui.inputs import (
    DEFAULT_RULES,
    DEMOS,
    PRESETS,
    STDIN,
    OpenRequest,
    default_names,
    demo_logs,
    is_weight_log,
    only_name,
    resolve_log,
    resolve_logs,
)
from numtui.report import CONDITIONS, FORMATS, SUFFIXES, Target, format_of
from numtui.terminal import give_up_stdout, is_dumb_terminal, is_terminal, reopen_keyboard, safe_text

if TYPE_CHECKING:
    from numtui.commands import Command

__all__ = ["ExitCode", "commands", "main", "run"]

_DEMO_RULES = Path("numtui-demo.yaml")
"""The demo has rules of its own: those in the current folder belong to other logs."""

_WEIGHT_FORMATS = ("text", "jsonl")

_DESCRIPTION = """\
Shows where two training runs part: compares the per-operation numeric logs of
two runs and leads to the first operation whose inputs agree and whose output
does not."""

_COMMANDS = """\
commands:
  numtui A B             open the explorer (without a terminal: print the text report)
  numtui A               explore one log: its first NaN or Inf, its largest values
  numtui diff A B        print the comparison; see numtui diff --help
  numtui weights A B …   print where logs of weights over steps part
  numtui suggest A B     print the known kinds of drift, and rules for them
  numtui demo            open an example that is shipped; numtui demo bug: one with a planted bug
  numtui rules check F   say what is wrong with a rule file; with two logs, what each rule does
  numtui rules convert F turn an override file of torchtitan into a rule file
  numtui completion bash print completion for a shell: bash, zsh or fish

A and B are logs (rank_N_activations.log, also .gz; '-' for one of them reads
standard input) or the folders of two runs.

exit codes: 0 nothing red, 1 something red, 2 trouble
"""

_DIFF = """\
Prints the comparison of two logs, in one form or several.

forms:
{formats}

exit codes:
  0  the comparison fails on nothing
  1  it fails on one of the conditions of --fail-on:
{conditions}
  2  trouble: a log or a file of rules cannot be read, a report cannot be written
"""


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
    sys.exit(main())


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
        return _diff(_diff_parser().parse_args(argv[1:]))
    if argv[:1] == ["weights"]:
        args = _weights_parser().parse_args(argv[1:])
        return _weights(args.logs, args.format, args.output)
    if argv[:1] == ["suggest"]:
        return _suggest(_suggest_parser().parse_args(argv[1:]))
    if argv[:1] == ["demo"]:
        return _demo(_demo_parser().parse_args(argv[1:]))
    if argv[:1] == ["rules"]:
        args = _rules_parser().parse_args(argv[1:])
        return _check(args) if "hints" in args else _convert(args)
    if argv[:1] == ["completion"]:
        return _completion(_completion_parser().parse_args(argv[1:]).shell)
    return _open(_parser().parse_args(argv))


def commands() -> tuple[Command, ...]:
    """What the command line accepts, for completions and the manual page."""
    from numtui.commands import commands_of

    return commands_of(
        {
            "": _parser(),
            "diff": _diff_parser(),
            "weights": _weights_parser(),
            "suggest": _suggest_parser(),
            "demo": _demo_parser(),
            "rules": _rules_parser(),
            "completion": _completion_parser(),
        }
    )


def _parser() -> argparse.ArgumentParser:
    parser = _new_parser("numtui", _DESCRIPTION, epilog=_COMMANDS)
    _add_logs(parser, or_one=True)
    _add_expectation(parser)
    _add_screen(parser)
    parser.add_argument("--version", action="version", version=f"numtui {__version__}")
    return parser


def _diff_parser() -> argparse.ArgumentParser:
    formats, conditions = ("\n".join(f"     {k:<15} {v}" for k, v in t.items()) for t in (FORMATS, CONDITIONS))
    parser = _new_parser("numtui diff", _DIFF.format(formats=formats, conditions=conditions))
    _add_logs(parser)
    _add_expectation(parser)
    parser.add_argument(
        "--format",
        choices=FORMATS,
        metavar="FORM",
        help="the form (default: by the ending of -o, else text)",
    )
    _add_output(parser)
    parser.add_argument(
        "--also",
        metavar="FILE",
        action="append",
        default=[],
        help="write a second report to FILE, in the form its name ends in; as often as wanted",
    )
    parser.add_argument(
        "--fail-on",
        metavar="CONDITION",
        type=_conditions,
        action="extend",
        help="what makes the exit code 1, with commas between several (default: diverged)",
    )
    parser.add_argument("--allow", metavar="FILE", help="known differences, which fail nothing (docs/ci.md)")
    parser.add_argument("--no-color", action="store_true", help="no colours (also: NO_COLOR)")
    return parser


def _weights_parser() -> argparse.ArgumentParser:
    parser = _new_parser(
        "numtui weights",
        "Prints at which step, and in which parameter, logs of weights part first;\n"
        "of more than two logs, the step for each pair.",
    )
    parser.add_argument("logs", metavar="LOG", nargs="+", help="rank_N_weights.log, also .gz")
    parser.add_argument(
        "--format", choices=_WEIGHT_FORMATS, default="text", help="text for people (default), jsonl for programs"
    )
    _add_output(parser)
    return parser


def _suggest_parser() -> argparse.ArgumentParser:
    parser = _new_parser(
        "numtui suggest",
        "Prints which known kinds of drift two logs show (renamed modules, shifted counters, lowered\n"
        "collectives, …), the rules that say so, and what these rules change.",
    )
    _add_logs(parser)
    parser.add_argument(
        "--format", choices=("text", "yaml"), default="text", help="text for people (default), yaml: a rule file for -r"
    )
    _add_output(parser)
    return parser


def _demo_parser() -> argparse.ArgumentParser:
    parser = _new_parser(
        "numtui demo",
        "Opens a shipped example: a training step run eagerly and as a traced graph, which agree; or (bug) a step run "
        "twice, once with the attention's output negated in one layer.",
    )
    parser.add_argument("pair", nargs="?", choices=tuple(DEMOS), default="traced", help="default: traced")
    _add_screen(parser)
    return parser


def _rules_parser() -> argparse.ArgumentParser:
    parser = _new_parser("numtui rules", "What can be done with rule files beside the explorer.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    about = "Turns an override file of torchtitan ('key of a, key of b' on each line) into a rule file."
    convert = commands.add_parser("convert", help=about, description=about, allow_abbrev=False)
    convert.add_argument("source", metavar="FILE", help="the override file (CSV)")
    convert.add_argument("-o", "--output", metavar="FILE", help="write to FILE instead of standard output")
    convert.add_argument("--force", action="store_true", help="replace FILE when it exists")
    about = "Says whether a rule file is understood; with two logs, also which rules match nothing or are in doubt."
    check = commands.add_parser("check", help=about, description=about, allow_abbrev=False)
    check.add_argument("rules", metavar="FILE", help="the rule file (YAML)")
    check.add_argument("a", metavar="A", nargs="?", help="log or run folder of one run")
    check.add_argument("b", metavar="B", nargs="?", help="log or run folder of the other run")
    check.add_argument("--rank", type=_rank, metavar="N", help="which rank's logs to take from the folders")
    check.add_argument("--hints", action="store_true", help="list the rules that these two logs do not need, too")
    return parser


def _completion_parser() -> argparse.ArgumentParser:
    parser = _new_parser(
        "numtui completion", "Prints what makes a shell complete numtui; its first line says where that belongs."
    )
    parser.add_argument("shell", choices=SHELLS, help="which shell")
    return parser


def _new_parser(prog: str, description: str, epilog: str | None = None) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog=prog,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        # An abbreviation that works today is ambiguous tomorrow.
        allow_abbrev=False,
    )


def _add_logs(parser: argparse.ArgumentParser, *, or_one: bool = False) -> None:
    parser.add_argument("a", metavar="A", help="log or run folder of one run")
    other = "log or run folder of the other run"
    if or_one:
        parser.add_argument("b", metavar="B", nargs="?", help=f"{other}; without it, A by itself")
    else:
        parser.add_argument("b", metavar="B", help=other)
    parser.add_argument("-r", "--rules", metavar="FILE", help=f"rule file (default: {DEFAULT_RULES} in this folder)")
    parser.add_argument("--name-a", metavar="NAME", help="what to call side a")
    parser.add_argument("--name-b", metavar="NAME", help="what to call side b")
    parser.add_argument("--rank", type=_rank, metavar="N", help="which rank's logs to take from the folders")


def _add_expectation(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what to expect (docs/matching.md)")
    group.add_argument(
        "--expect",
        choices=PRESETS,
        help="bitwise: any difference is red; reduction-order: red is what neither an operation's own rounding nor "
        "its inputs explain; low-precision: the same, at the coarsest precision of the two runs",
    )
    group.add_argument(
        "--rtol", type=_tolerance, metavar="X", help="relative error that is close, where no rule says another"
    )
    group.add_argument(
        "--noise",
        metavar="C",
        help="a third log or run folder: one of the two runs again, or perturbed (python -m capture --perturb); "
        "what it differs by is noise",
    )


def _tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"a tolerance is a number from 0 on, not {safe_text(text, 40)!r}")
    return value


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write to FILE, which is replaced only when all is written"
    )


def _add_screen(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-color", action="store_true", help="no colours (also: NO_COLOR)")
    parser.add_argument("--theme", metavar="NAME", help="colour theme of the explorer")
    parser.add_argument("--mouse", action="store_true", help="take the mouse (else it selects text as ever)")
    parser.add_argument(
        "--no-session", action="store_true", help="neither go on where the last session ended nor keep this one"
    )


def _conditions(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in CONDITIONS:
            raise argparse.ArgumentTypeError(f"{safe_text(name, 40)!r} is none of {', '.join(CONDITIONS)}")
    return names


def _rank(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"a rank is a number from 0 on, not {safe_text(text, 40)!r}")
    return int(text)


def _request(args: argparse.Namespace) -> OpenRequest:
    """What the arguments ask for, with the logs found.

    Raises:
        InputError: see `resolve_logs`.
    """
    path_a, path_b = resolve_logs(args.a, args.b, rank=args.rank)
    expect, rtol, noise = (getattr(args, name, None) for name in ("expect", "rtol", "noise"))
    if expect is not None and rtol is not None:
        raise InputError("--expect and --rtol are two answers to one question: give one of them")
    if expect == "bitwise" and noise is not None:
        raise InputError("--expect bitwise allows no noise: leave out --noise")
    name_a, name_b = default_names(path_a, path_b)
    return OpenRequest(
        path_a=path_a,
        path_b=path_b,
        name_a=args.name_a or name_a,
        name_b=args.name_b or name_b,
        rules_path=DEFAULT_RULES if args.rules is None else Path(args.rules),
        rules_given=args.rules is not None,
        expect=expect,
        rtol=rtol,
        noise_path=None if noise is None else _third_log(noise, args.rank),
        color=not getattr(args, "no_color", True),
        theme=getattr(args, "theme", None),
        mouse=getattr(args, "mouse", False),
        resume=not getattr(args, "no_session", True),
    )


def _third_log(path: str, rank: int | None) -> str:
    """The log of noise that a path stands for; it is read once, so it may be no standard input."""
    if path == STDIN:
        raise InputError("--noise reads a file or a run folder, not standard input")
    return resolve_log(path, rank=rank if os.path.isdir(path) else None)


def _request_of_one(args: argparse.Namespace) -> OpenRequest:
    """What is asked for of one log by itself.

    Raises:
        InputError: it is not there, or what is asked for takes two.
    """
    for name in ("rules", "name_b", "expect", "rtol", "noise"):
        if getattr(args, name) is not None:
            raise InputError(f"--{name.replace('_', '-')} is about two logs, and only {args.a} was given")
    path = resolve_log(args.a, rank=args.rank)
    return OpenRequest(
        path_a=path,
        path_b="",
        name_a=args.name_a or only_name(path),
        name_b="",
        rules_path=DEFAULT_RULES,
        color=not args.no_color,
        theme=args.theme,
        mouse=args.mouse,
        resume=not args.no_session,
    )


def _diff(args: argparse.Namespace) -> int:
    output = None if args.output in {None, "-"} else Path(args.output)
    form = args.format or ("text" if output is None else _form_of(args.output))
    if is_weight_log(args.a) or is_weight_log(args.b):
        return _diff_weights(args, form)
    return _report(
        _request(args),
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
    if form not in _WEIGHT_FORMATS:
        raise InputError(f"logs of weights are reported as {' or '.join(_WEIGHT_FORMATS)}, not as {form}")
    for option, given in (("--also", args.also), ("--fail-on", args.fail_on), ("--allow", args.allow)):
        if given:
            raise InputError(f"{option} is about logs of operations; these are logs of weights")
    return _weights([args.a, args.b], form, args.output)


def _suggest(args: argparse.Namespace) -> int:
    for path in (args.a, args.b):
        if is_weight_log(path):
            raise InputError(f"{path}: is a log of weights over steps, which has no operations to pair")
    from numtui.headless import suggest

    suggest(_request(args), args.format, None if args.output in {None, "-"} else Path(args.output))
    return ExitCode.SAME


def _weights(logs: Sequence[str], form: str, output: str | None) -> int:
    from numtui.weights import report_weights

    parts = report_weights(logs, form, None if output in {None, "-"} else Path(str(output)))
    return ExitCode.RED if parts else ExitCode.SAME


def _convert(args: argparse.Namespace) -> int:
    from numtui.convert import convert_overrides

    convert_overrides(args.source, None if args.output in {None, "-"} else Path(args.output), force=args.force)
    return ExitCode.SAME


def _check(args: argparse.Namespace) -> int:
    from numtui.rules_check import check_rules

    if args.a is not None and args.b is None:
        raise InputError(f"a rule file is about two logs, and only {args.a} was given")
    args.name_a = args.name_b = None
    logs = None if args.a is None else _request(args)
    return ExitCode.SAME if check_rules(Path(args.rules), logs, hints=args.hints) else ExitCode.RED


def _completion(shell: str) -> int:
    from numtui.completion import completion

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
    return _explore(_request(args) if args.b is not None else _request_of_one(args))


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
        from numtui.app import run_app

        return run_app(ready)


def _configured(request: OpenRequest) -> OpenRequest:
    """The request with the user's own settings, which what was said on the command line goes before.

    Raises:
        InputError: the settings mean nothing.
    """
    from numtui.config import load_config

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
        from numtui.single_report import report_single

        return ExitCode.RED if report_single(request) else ExitCode.SAME
    from numtui.headless import report

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

    from numtui.journal import state_folder

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
