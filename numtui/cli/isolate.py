"""`numtui isolate`: all independent causes of a difference, by captures with grafts behind those that are known."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from capture.keeping.bundle import Bundle, BundleError, read_bundle
from capture.keeping.form import find_bundles
from matchers.errors import InputError
from matchers.runs.run import find_logs
from matchers.verdict.expectation import Expect, Expectation
from numtui.cli.arguments import (
    Commands,
    add_command,
    add_expectation,
    add_log_options,
    add_screen,
    file_argument,
    on_screen,
    requested,
    whole_number,
)
from numtui.cli.explore import configured
from numtui.cli.output import ExitCode, complain, deliver
from numtui.cli.overview import has_screen, show
from numtui.experiments.capturing import OUTPUT, CaptureCommand
from numtui.inputs import OpenRequest
from numtui.paths import typed_path
from numtui.terminal.tty import wants_color
from numtui.text.counts import plural

if TYPE_CHECKING:
    from matchers.comparison import Comparison
    from matchers.logs.op_log import OpLog
    from numtui.experiments.journal import Journal
    from numtui.report.called_modules import Called
    from numtui.report.isolation import Found, Isolation
    from numtui.report.own_errors import OwnError

__all__ = ["add_parser"]

_DESCRIPTION = """\
Finds all independent causes of a difference: captures COMMAND, compares it with RUN_A, overwrites
what each cause hands on by what RUN_A kept there, and captures again, until only the causes are
left. RUN_A must have kept the boundaries of its modules: numtui capture --save 'boundary:*'.
With --all one capture, in which each module is given what RUN_A gave it, and a table of the
error that each adds by itself.

exit codes:
  0  nothing differs
  1  causes were found
  2  trouble: a capture failed, or RUN_A did not keep what is needed
"""
_ASKED = ("command", "reference", "capture", "step")
_BOUNDARIES = ("--save", "boundary:*")


def add_parser(commands: Commands) -> None:
    """Add the sub-command."""
    parser = add_command(commands, "isolate", _run, _DESCRIPTION, help="")
    file_argument(parser, "a", metavar="RUN_A", help="the run that is right, with kept boundaries")
    parser.add_argument(
        "command", nargs="*", metavar="-- COMMAND", help="the other run, as numtui capture takes it: train.py ARGS"
    )
    about = "with --all: in front of these ('layers.*'; default: layers and what stands beside them)"
    parser.add_argument("--modules", metavar="GLOB", help=about)
    parser.add_argument("--all", action="store_true", help="one capture, grafted in front of every block at once")
    parser.add_argument("--runs", type=_runs, default=8, metavar="N", help="captures at most (default: 8)")
    parser.add_argument("--reference", metavar="'COMMAND_A'", help="make RUN_A's tensors again by this command")
    parser.add_argument("--capture", metavar="'OPTIONS'", help="options for every numtui capture")
    parser.add_argument("--resume", action="store_true", help="go on with the isolation of DIR, as it was asked for")
    file_argument(parser, "-o", "--output", metavar="DIR", default="isolated", help="captures go to DIR (isolated)")
    about = "print, also on a terminal: text, json, html (default without a terminal: text)"
    parser.add_argument("--format", choices=("text", "json", "html"), help=about)
    add_log_options(parser)
    add_expectation(parser)
    parser.add_argument("--step", type=whole_number, metavar="S", help="captured step, where there are several")
    add_screen(parser)


def _runs(text: str) -> int:
    if not (number := whole_number(text)):
        raise argparse.ArgumentTypeError("at least one capture is needed")
    return number


def _run(args: argparse.Namespace) -> int:
    from numtui.experiments.journal import Journal

    if not args.command and not args.resume:
        raise InputError(f"what is captured? Put the command after --, as in: numtui isolate {args.a} -- train.py")
    folder = Path(typed_path(args.output))
    asked = {"a": str(args.a)} | {name: getattr(args, name) for name in _ASKED}
    with Journal.resumed(folder) if args.resume else Journal.begin(folder, asked) as journal:
        journal.check_asked(asked)
        vars(args).update({name: journal.asked.get(name) for name in _ASKED})
        found, request = _Isolating(args, folder, journal).run()
    code = 0
    if args.format is None and has_screen():
        code = _show(found, request, args)
    else:
        deliver(partial(_write, found, args), None)
    return code or (ExitCode.RED if found.causes or found.red else ExitCode.SAME)


def _write(found: Isolation, args: argparse.Namespace, out: TextIO) -> None:
    from numtui.report.isolated import write_html, write_json, write_text

    if args.format == "json":
        write_json(found, out)
    elif args.format == "html":
        write_html(found, out)
    else:
        write_text(found, out, color=wants_color(sys.stdout, no_color=args.no_color))


def _show(found: Isolation, request: OpenRequest, args: argparse.Namespace) -> int:
    from numtui.session.isolated import IsolatedCursor
    from numtui.tui.screens.isolated import IsolatedScreen

    settings = configured(on_screen(request, args))
    cursor = IsolatedCursor(found, settings)
    return show(cursor, lambda: IsolatedScreen(cursor), settings)


class _Isolating:
    """An isolation in a folder, in whose journal each capture is noted."""

    def __init__(self, args: argparse.Namespace, folder: Path, journal: Journal) -> None:
        self._args, self._folder, self._journal = args, folder, journal
        self._options = shlex.split(args.capture or "")
        self._step: int | None = args.step
        self._a, self._bundles = self._reference()
        if self._step is None:
            self._step = next(bundle.run.get("step") for bundle in self._bundles)

    def run(self) -> tuple[Isolation, OpenRequest]:
        """Capture and compare until the causes of the last comparison need no other grafts; return its request, too."""
        from matchers.ops.start import table
        from numtui.report.called_modules import Called
        from numtui.report.grafts_behind import grafts_behind
        from numtui.report.independent_causes import found_causes, of_one_line, places
        from numtui.report.isolation import Isolation, limit_of
        from numtui.report.lost_gradients import lost_gradients

        called = Called.of(call for bundle in self._bundles for call in bundle.boundaries)
        before, why = self._modules(called) if self._args.all else [], ""
        after: list[str] = []
        causes: list[Found] = []
        for number in range(self._args.runs):
            run = self._grafted(number, before, after)
            request, c = self._compared(self._a, run)
            kept = _boundaries(run, self._step)
            errors = self._own_errors(c.a, kept, called)
            causes = found_causes(c, called, errors, lost_gradients(self._bundles, kept), causes)
            complain(f"capture {number + 1}: {plural(len(of_one_line(c, called, causes)), 'cause')}")
            more = [[one for one in new if one not in known]
                    for new, known in zip(grafts_behind(c, called, causes), (before, after), strict=True)]  # fmt: skip
            if self._args.all or not any(more):
                break
            before, after = [*before, *more[0]], [*after, *more[1]]
        else:
            why = f"There may be more causes: {self._args.runs} captures were made (--runs)."
        missed = table(table(c.b.header.run, "grafts"), "missed")
        names, red = (str(self._args.a), shlex.join(self._args.command)), int(c.red.sum())
        rows, limit = places(c, called, errors), 0.0 if self._args.all else limit_of(errors)
        causes = of_one_line(c, called, causes)
        found = Isolation(names, number + 1, causes, red, errors, [*before, *after], missed, why, rows, limit)
        return found, request

    def _modules(self, called: Called) -> list[str]:
        glob = self._args.modules
        if glob is None:
            return called.blocks()
        if not (found := [name for name in called.inner if fnmatchcase(name, glob)]):
            raise InputError(f"--modules {glob}: {self._a} kept no such module")
        return found

    def _own_errors(self, a: OpLog, kept: Sequence[Bundle], called: Called) -> list[OwnError]:
        from numtui.report.grafts_behind import sharing
        from numtui.report.own_errors import own_errors

        modules = set(self._modules(called)) if self._args.all else set(called.inner)
        return own_errors(self._bundles, kept, modules.__contains__, sharing(a, called))

    # Captures

    def _reference(self) -> tuple[Path, list[Bundle]]:
        """Return the run with its boundaries, which is made again where RUN_A did not keep them.

        Raises:
            InputError: they were not kept, and nothing says how to make them again.
        """
        path, command = Path(typed_path(self._args.a)), self._args.reference
        if path.is_dir() and (found := _boundaries(path, self._step)):
            return path, found
        if command is None:
            advice = "name the command that made it, --reference 'COMMAND_A', or capture it again"
            raise InputError(f"{path}: kept no boundaries of modules; {advice}: numtui capture --save 'boundary:*'"
                f" -o {shlex.quote(str(path))} -- COMMAND_A")  # fmt: skip
        again = self._captured("a", shlex.split(command), _BOUNDARIES)
        if path.is_dir() and find_logs(path) and (red := int(self._compared(again, path)[1].red.sum())):
            complain(f"{again} is not {path}: {red:,} rows differ; its causes are those of this new run")
        return again, _boundaries(again, self._step)

    def _grafted(self, number: int, before: Sequence[str], after: Sequence[str]) -> Path:
        options = [*_BOUNDARIES]
        for option, specs in (("--graft", before), ("--graft-after", after)):
            options += [text for spec in specs for text in (option, f"{spec}={self._a}")]
        if number:
            options += ["--graft-like", str(self._folder / "run_0")]
        return self._captured(f"run_{number}", self._args.command, options)

    def _captured(self, name: str, command: Sequence[str], options: Sequence[str]) -> Path:
        """Return the folder of a capture, which is made unless an interrupted isolation has made it.

        Raises:
            InputError: it fails, or keeps no boundaries.
        """
        folder = self._folder / name
        steps = [] if self._step is None else ["--steps", str(self._step)]
        capture = CaptureCommand(command, [*self._options, *steps])

        def make() -> str:
            complain(f"capturing {folder}")
            trouble = capture.run(folder, Path.cwd(), options)
            if trouble or not find_bundles(folder):
                why = trouble or "no boundaries of modules were kept"
                raise InputError(f"{shlex.join(command)}: {why}; what it printed is in {folder / OUTPUT}")
            return ""

        self._journal.once(name, folder, make, options=[*options])
        return folder

    def _compared(self, a: Path, b: Path) -> tuple[OpenRequest, Comparison]:
        from numtui.cli.comparing import compared, warnings_of
        from numtui.cli.rule_files import rule_files

        request = requested(argparse.Namespace(**{**vars(self._args), "a": str(a), "b": str(b)}))
        c = compared(request, rule_files(request).applied)
        asked = (request.expect, request.rtol, request.noise_path, request.floor)
        if c.policy and not any(one not in (None, "") for one in asked):
            # the runs round to other dtypes throughout: that much is no cause
            request = replace(request, expect=Expect.LOW_PRECISION.value)
            c = c.with_expectation(Expectation(Expect.LOW_PRECISION))
        for text in warnings_of(c, rules_too=True):
            complain(text)
        return request, c


def _boundaries(path: Path, step: int | None) -> list[Bundle]:
    """Return the bundles of a run with boundaries, of one step.

    Raises:
        InputError: one cannot be read, or there are several steps.
    """
    try:
        found = [bundle for folder in find_bundles(path) if (bundle := read_bundle(folder)).boundaries]
    except BundleError as error:
        raise InputError(str(error)) from None
    steps = sorted({bundle.run.get("step", 1) for bundle in found})
    if step is None and len(steps) > 1:
        raise InputError(f"{path}: kept steps {', '.join(map(str, steps))}: choose one with --step")
    return [bundle for bundle in found if step is None or bundle.run.get("step", 1) == step]
