"""`numtui isolate`: all independent causes of a difference, by captures with grafts behind those that are known."""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from capture.keeping.bundle import Bundle, BundleError, read_bundle
from capture.keeping.form import find_bundles
from matchers.errors import InputError
from matchers.runs.run import find_logs
from numtui.cli.arguments import (
    Commands,
    add_command,
    add_expectation,
    add_log_options,
    file_argument,
    requested,
    whole_number,
)
from numtui.cli.output import ExitCode, complain, deliver
from numtui.paths import typed_path
from numtui.terminal.tty import wants_color

if TYPE_CHECKING:
    from matchers.comparison import Comparison
    from numtui.report.isolation import Called, Found, Isolation
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
_STATE = "isolate.json"
_VERSION = 1


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
    parser.add_argument("--capture", metavar="'OPTIONS'", default="", help="options for every numtui capture")
    parser.add_argument("--resume", action="store_true", help="go on with what an interrupted isolation has in DIR")
    file_argument(parser, "-o", "--output", metavar="DIR", default="isolated", help="captures go to DIR (isolated)")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="the form (default: text)")
    add_log_options(parser)
    add_expectation(parser)
    parser.add_argument("--step", type=whole_number, metavar="S", help="captured step, where there are several")
    parser.add_argument("--no-color", action="store_true", help="no colours (also: NO_COLOR)")


def _runs(text: str) -> int:
    if not (number := whole_number(text)):
        raise argparse.ArgumentTypeError("at least one capture is needed")
    return number


def _run(args: argparse.Namespace) -> int:
    from numtui.report.isolation import write_json, write_text

    if not args.command:
        raise InputError(f"what is captured? Put the command after --, as in: numtui isolate {args.a} -- train.py")
    folder = Path(typed_path(args.output))
    found = _Isolating(args, folder).run()
    color = wants_color(sys.stdout, no_color=args.no_color)
    write = write_json if args.format == "json" else partial(write_text, every=args.all, color=color)
    deliver(partial(write, found), None)
    return ExitCode.RED if found.causes or found.red else ExitCode.SAME


@dataclass
class _Round:
    """A capture and what it was grafted with."""

    before: list[str]
    after: list[str]


class _Isolating:
    """An isolation in a folder, whose state is written after each capture."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self._args, self._folder = args, folder
        self._asked = {
            "version": _VERSION, "a": str(args.a), "command": list(args.command), "modules": args.modules,
            "all": args.all, "reference": args.reference, "capture": args.capture, "step": args.step,
        }  # fmt: skip
        self._rounds = self._resumed() if args.resume else []
        folder.mkdir(parents=True, exist_ok=True)
        self._a = self._reference()
        self._bundles = _bundles(self._a, args.step)

    def run(self) -> Isolation:
        """Capture and compare until the causes of the last comparison need no other grafts."""
        from numtui.report.isolation import Called, found_causes, grafts_behind

        called = Called.of(call for bundle in self._bundles for call in bundle.boundaries)
        before, why = self._first_grafts(called), ""
        after: list[str] = []
        causes: list[Found] = []
        for number in range(self._args.runs):
            run = self._captured(number, before, after)
            c = self._compared(run)
            errors = self._own_errors(run, called)
            causes = found_causes(c, called, errors)
            self._say(number, len(causes))
            more = [[one for one in new if one not in known]
                    for new, known in zip(grafts_behind(c, called, causes), (before, after), strict=True)]  # fmt: skip
            if self._args.all or not any(more):
                break
            before, after = [*before, *more[0]], [*after, *more[1]]
        else:
            why = f"There may be more causes: {self._args.runs} captures were made (--runs)."
        return self._outcome(c, causes, errors, why, number + 1, [*before, *after])

    def _first_grafts(self, called: Called) -> list[str]:
        return self._modules(called) if self._args.all else []

    def _modules(self, called: Called) -> list[str]:
        glob = self._args.modules
        if glob is None:
            return called.blocks()
        if not (found := [name for name in called.inner if fnmatchcase(name, glob)]):
            raise InputError(f"--modules {glob}: {self._a} kept no such module")
        return found

    def _own_errors(self, run: Path, called: Called) -> list[OwnError]:
        from numtui.report.own_errors import own_errors

        modules = set(self._modules(called)) if self._args.all else set(called.inner)
        return own_errors(self._bundles, _bundles(run, self._args.step), modules.__contains__)

    def _outcome(
        self,
        c: Comparison,
        causes: Sequence[Found],
        errors: Sequence[OwnError],
        why: str,
        runs: int,
        grafted: Sequence[str],
    ) -> Isolation:
        from numtui.report.isolation import Isolation

        missed: dict[str, str] = {}
        for log in (c.b,):
            of_log = log.header.run.get("grafts")
            missed |= of_log.get("missed", {}) if isinstance(of_log, dict) else {}
        names = str(self._args.a), shlex.join(self._args.command)
        red = int(c.red.sum())
        return Isolation(names, runs, causes, red, errors, grafted, missed, why)

    # Captures

    def _reference(self) -> Path:
        """Return the run with the boundaries, which is made again where RUN_A did not keep them.

        Raises:
            InputError: they were not kept, and nothing says how to make them again.
        """
        path, command = Path(typed_path(self._args.a)), self._args.reference
        if _keeps_boundaries(path):
            return path
        if command is None:
            advice = "name the command that made it, --reference 'COMMAND_A', or capture it again"
            raise InputError(f"{path}: kept no boundaries of modules; {advice}: numtui capture --save 'boundary:*'"
                f" -o {shlex.quote(str(path))} -- COMMAND_A")  # fmt: skip
        again = self._folder / "a"
        if not (self._args.resume and _keeps_boundaries(again)):
            self._capture(again, ["--save", "boundary:*"], shlex.split(command))
        if path.is_dir() and find_logs(path):
            self._check_same(path, again)
        return again

    def _check_same(self, path: Path, again: Path) -> None:
        c = self._compared(again, path)
        if c.red.any():
            complain(f"{again} is not {path}: {int(c.red.sum()):,} rows differ; its causes are those of this new run")

    def _captured(self, number: int, before: Sequence[str], after: Sequence[str]) -> Path:
        """Return the folder of a capture with grafts, which is made unless an interrupted isolation has made it."""
        run, now = self._folder / f"run_{number}", _Round([*before], [*after])
        if number < len(self._rounds) and self._rounds[number] == now and find_bundles(run):
            return run
        del self._rounds[number:]
        options = ["--save", "boundary:*"]
        for option, specs in (("--graft", before), ("--graft-after", after)):
            options += [text for spec in specs for text in (option, f"{spec}={self._a}")]
        self._capture(run, options, self._args.command)
        self._rounds.append(now)
        self._store()
        return run

    def _capture(self, run: Path, options: Sequence[str], command: Sequence[str]) -> None:
        steps = [] if (step := self._step) is None else ["--steps", str(step)]
        given = [*shlex.split(self._args.capture), *steps, *options, "-o", str(run)]
        line = [sys.executable, "-m", "numtui", "capture", *given, "--", *command]
        _remove_bundles(run)
        code = _launched(line)
        if not find_bundles(run):
            raise InputError(f"{shlex.join(command)}: ended with {code} and left no capture in {run}")
        if code:
            complain(f"{shlex.join(command)}: ended with {code}")

    @property
    def _step(self) -> int | None:
        if self._args.step is not None:
            return int(self._args.step)
        steps = {bundle.run.get("step") for bundle in self._bundles} if hasattr(self, "_bundles") else set()
        return next(iter(steps)) if len(steps) == 1 else None

    def _compared(self, run: Path, a: Path | None = None) -> Comparison:
        from numtui.cli.comparing import compared, warnings_of
        from numtui.cli.rule_files import rule_files

        args = argparse.Namespace(**{**vars(self._args), "a": str(self._a if a is None else a), "b": str(run)})
        request = requested(args)
        c = compared(request, rule_files(request).applied)
        for text in warnings_of(c, rules_too=True):
            complain(text)
        return c

    def _say(self, number: int, causes: int) -> None:
        of = "cause" if causes == 1 else "causes"
        complain(f"capture {number + 1}: {causes} {of}")

    # State

    def _resumed(self) -> list[_Round]:
        """Return the captures that an interrupted isolation has made.

        Raises:
            InputError: there is none in the folder, or another one.
        """
        path = self._folder / _STATE
        try:
            told = json.loads(path.read_bytes())
            rounds = [_Round([*each["before"]], [*each["after"]]) for each in told["rounds"]]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(f"{path}: is no state of an isolation: {error}; leave --resume out") from None
        if other := [name for name, value in self._asked.items() if told.get(name) != value]:
            raise InputError(f"{path}: was begun with another {other[0]}; leave --resume out to begin anew")
        return rounds

    def _store(self) -> None:
        from matchers.files.atomic_write import atomic_writer

        told = {**self._asked, "rounds": [asdict(each) for each in self._rounds]}
        with atomic_writer(self._folder / _STATE) as out:
            out.write(json.dumps(told, indent=1) + "\n")


def _bundles(path: Path, step: int | None) -> list[Bundle]:
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


def _keeps_boundaries(path: Path) -> bool:
    if not path.is_dir():
        return False
    try:
        return any(read_bundle(folder).boundaries for folder in find_bundles(path))
    except BundleError as error:
        raise InputError(str(error)) from None


def _launched(line: Sequence[str]) -> int:
    """Run a command line, what it prints on standard error, and return its exit code."""
    return subprocess.run(line, stdout=sys.stderr, check=False).returncode  # noqa: S603 - the user's own command


def _remove_bundles(run: Path) -> None:
    """Remove what an earlier capture kept, so that what is there afterwards is of this one."""
    from capture.keeping.form import remove_bundle

    for folder in find_bundles(run):
        remove_bundle(folder)
