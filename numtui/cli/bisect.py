"""`numtui bisect`: the commit, or the environment, since which two runs differ."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from matchers.errors import InputError
from numtui.cli.arguments import Commands, add_command, add_log_options, file_argument, positive_number, requested_for
from numtui.cli.output import ExitCode, complain, deliver
from numtui.paths import typed_path
from numtui.terminal.tty import wants_color

if TYPE_CHECKING:
    from matchers.comparison import Comparison
    from numtui.experiments.journal import Journal
    from numtui.experiments.revisions import Revisions
    from numtui.experiments.worktree import Worktree

__all__ = ["add_parser"]

_DESCRIPTION = """\
Finds the commit since which a training run differs from that of a good revision. git bisects in
a worktree of its own; each revision is captured in the same way, and compared with the good one.
A revision has the fault if any of its independent causes is the one of the bad revision. Each
cause of the bad revision is bisected. Your checkout, index, stash and branches are not touched.

With --replay, a kept operation is run again in several environments instead, the first of which
is good and the last bad: numtui bisect --replay runs/a --python old/bin/python new/bin/python

exit codes:
  0  nothing differs
  1  something does; its commit or environment is named, if it was found
  2  trouble: a revision does not run, the runs begin with other weights or batches
"""
_OPTIONS = "--deterministic"
_FOLDER = "numtui-bisect"
_ASKED = ("good", "bad", "install", "repeat", "capture", "link", "python", "command", "timeout")


def add_parser(commands: Commands) -> None:
    """Add the sub-command."""
    parser = add_command(commands, "bisect", _run, _DESCRIPTION, help="")
    parser.add_argument("--good", metavar="REV", help="revision that is right, and the reference")
    parser.add_argument("--bad", metavar="REV", help="later revision that differs (default: HEAD)")
    parser.add_argument("--install", metavar="CMD", help="shell command that makes a checked out revision ready to run")
    parser.add_argument("--repeat", metavar="N", type=positive_number,
        help="runs of a revision that shows no cause, if it is not deterministic (default: 1)")  # fmt: skip
    parser.add_argument(
        "--capture",
        metavar="OPTIONS",
        help=f"options of numtui capture, as --capture='--steps 2' (default: {_OPTIONS})",
    )
    parser.add_argument("--link", metavar="PATH", action="append",
        help="data in the checkout that git does not track: every revision gets a link to it")  # fmt: skip
    parser.add_argument("--timeout", metavar="SECONDS", type=positive_number, help="skip a revision that runs longer")
    file_argument(
        parser, "-o", "--output", metavar="DIR", default=_FOLDER, help=f"logs and runs go there (default: {_FOLDER})"
    )
    parser.add_argument("--resume", action="store_true", help="go on with the bisection of DIR, as it was asked for")
    file_argument(
        parser, "--python", metavar="FILE", nargs="+", help="Python that captures; with --replay, those to bisect over"
    )
    file_argument(
        parser, "--replay", metavar="CASE", help="bundle of kept operations (rank_N_kept), or a run that has one"
    )
    parser.add_argument("--op", metavar="KEY", help="with --replay: only operations whose keys begin so")
    parser.add_argument("--import", dest="imports", action="append", default=[], metavar="MODULE",
        help="with --replay: import MODULE first, whose operators may then run too")  # fmt: skip
    add_log_options(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="the form (default: text)")
    parser.add_argument("--no-color", action="store_true", help="no colours (also: NO_COLOR)")
    file_argument(parser, "command", nargs="*", metavar="-- script.py ARGS | -m module ARGS", help="what is captured")


def _run(args: argparse.Namespace) -> int:
    if args.replay is not None:
        return _environments(args)
    if not args.resume and (args.good is None or not args.command):
        raise InputError("numtui bisect --good REV --bad REV -- COMMAND: name the good revision and the command")
    from numtui.experiments.journal import Journal
    from numtui.experiments.worktree import Worktree, repository_of

    folder = Path(typed_path(args.output)).absolute()
    if args.resume:
        with Journal.resumed(folder) as journal:
            return _with_journal(args, folder, journal)
    repository = repository_of(Path.cwd())
    worktree = Worktree(repository, folder)
    args.bad = args.bad or "HEAD"
    args.capture = _OPTIONS if args.capture is None else args.capture
    args.good, args.bad = worktree.commit_of(args.good), worktree.commit_of(args.bad)
    asked = {name: getattr(args, name) for name in _ASKED}
    asked |= {"cwd": os.path.relpath(os.path.realpath("."), repository), "repository": str(repository)}
    _check(args, repository)
    with Journal.begin(folder, asked) as journal:
        return _with_journal(args, folder, journal)


def _with_journal(args: argparse.Namespace, folder: Path, journal: Journal) -> int:
    from numtui.experiments.capturing import CaptureCommand
    from numtui.experiments.revisions import Revisions
    from numtui.experiments.worktree import Worktree, repository_of

    repository = repository_of(Path(str(journal.asked.get("repository"))))
    place = folder / "worktree" / repository.name  # a log names files by the last folder of their path, too
    worktree = Worktree(repository, place, tuple(journal.asked.get("link") or ()))
    now = {name: getattr(args, name) for name in _ASKED}
    now |= {name: worktree.commit_of(now[name]) for name in ("good", "bad") if now[name] is not None}
    journal.check_asked(now)
    vars(args).update({name: journal.asked.get(name) for name in _ASKED})
    capture = CaptureCommand(
        command=args.command,
        options=shlex.split(args.capture),
        python=(args.python or [sys.executable])[0],
        patience=args.timeout,
        moved=(repository, place),
    )
    with worktree:
        revisions = Revisions(
            folder / "runs",
            worktree,
            capture,
            partial(_comparisons, args),
            journal,
            cwd=str(journal.asked.get("cwd") or "."),
            install=args.install,
            repeat=args.repeat or 1,
            tell=complain,
        )
        return _bisected(args, worktree, revisions)


def _check(args: argparse.Namespace, repository: Path) -> None:
    """Refuse what would run the user's checkout, or cannot be compared.

    Raises:
        InputError: it would.
    """
    script = Path(args.command[0])
    if script.is_absolute() and script.is_relative_to(repository):
        inside = os.path.relpath(script, os.getcwd())
        raise InputError(f"{script}: that is the script of your checkout at each revision; write {inside}")
    for link in args.link or ():
        place = (repository / link).resolve()
        if not place.exists():
            raise InputError(f"--link {link}: there is no such path in {repository}")
        if Path(link).is_absolute() or ".." in Path(link).parts:
            raise InputError(f"--link {link}: name a path in the repository, from its top folder")
    try:
        options = shlex.split(args.capture)
    except ValueError as error:
        raise InputError(f"--capture {args.capture}: {error}") from None
    if {"-o", "--output"} & set(options):
        raise InputError("--capture: bisect chooses the folders of the logs; leave -o out")


def _comparisons(args: argparse.Namespace, good: Path, other: Path) -> list[Comparison]:
    """Compare two runs rank by rank, or all ranks of each together where their layouts differ."""
    from matchers.runs.run import find_runs
    from numtui.cli.comparing import compare_logs
    from numtui.cli.rule_files import rule_files
    from numtui.inputs import other_layouts

    if layouts := other_layouts(str(good), str(other)):
        pairs: Sequence[tuple[str, str]] = [layouts]
    else:
        one, two = find_runs(str(good), str(other))
        pairs = [(one.paths[rank], two.paths[rank]) for rank in one.paths if rank in two.paths]
        if args.rank is not None:
            pairs = [(one.paths[args.rank], two.paths[args.rank])] if args.rank in one.paths else []
        if len(one.paths) != len(two.paths):
            raise InputError(f"it has logs of {len(two.paths)} ranks, the good revision of {len(one.paths)}")
    found = []
    for a, b in pairs:
        request = requested_for(args, a, b, args.rank, ("good", other.name))
        found.append(compare_logs(request, rule_files(request).applied))
    return found


def _bisected(args: argparse.Namespace, worktree: Worktree, revisions: Revisions) -> int:
    from numtui.experiments.bisection import bisect_causes, separate_changes
    from numtui.experiments.blamed_lines import changes_of
    from numtui.report.bisect import Bisection, write_json, write_text

    good, bad = args.good, args.bad
    revisions.begin(good)
    found = revisions(bad)
    if found.trouble:
        what = "differ before the step" if found.start else "cannot be compared"
        raise InputError(f"the good and the bad revision {what}: {found.trouble}")
    causes = bisect_causes(good, bad, revisions, worktree) if good != bad else []
    separate = separate_changes(revisions.tested, found.causes)
    changes = [
        changes_of(worktree, each.commits[0], (each.seen or each.cause).places, f"{good}..{bad}")
        if len(each.commits) == 1
        else ()
        for each in causes
    ]
    named = {good, bad, *revisions.tested, *(commit for each in causes for commit in each.commits)}
    named |= {commit for of_cause in changes for change in of_cause for commit in change.again}
    told = Bisection(
        commits=worktree.commits(named),
        good=good,
        bad=bad,
        between=worktree.count(good, bad),
        command=args.command,
        runs=revisions.made,
        tested=revisions.tested,
        causes=causes,
        changes=changes,
        separate=separate,
    )
    color = wants_color(sys.stdout, no_color=args.no_color)
    deliver(partial(write_json, told) if args.format == "json" else partial(write_text, told, color=color), None)
    return ExitCode.RED if causes else ExitCode.SAME


def _environments(args: argparse.Namespace) -> int:
    """Bisect over environments by replaying kept operations."""
    from capture.keeping.bundle import BundleError, read_bundle
    from capture.keeping.form import find_bundles
    from capture.keeping.replay import Kept
    from numtui.experiments.environments import Environments, bisect_environments
    from numtui.report.bisect import write_environments, write_environments_json

    for name in ("good", "bad", "install", "repeat", "capture", "link", "resume", "command"):
        if getattr(args, name):
            raise InputError(
                f"{name}: of revisions; with --replay, operations are run again in the Pythons of --python"
            )
    pythons = args.python or []
    if len(pythons) < 2:
        raise InputError("--replay: name the Pythons of at least two environments: --python GOOD … BAD")
    try:
        bundles = [read_bundle(folder) for folder in find_bundles(typed_path(args.replay))]
    except BundleError as error:
        raise InputError(str(error)) from None
    if not any(bundle.calls for bundle in bundles):
        raise InputError(f"{args.replay}: no kept operations here: numtui capture --save keeps them (docs/why.md)")
    calls = [
        Kept(bundle.folder, call)
        for bundle in bundles
        for call in bundle.calls
        if args.op is None or call["key"].startswith(args.op)
    ]
    if not calls:
        raise InputError(f"{args.replay}: no kept operation has a key that begins with {args.op!r}")
    environments = Environments(calls, args.imports, complain)
    found = bisect_environments(environments, pythons)
    write = write_environments_json if args.format == "json" else write_environments
    deliver(partial(write, found, pythons, environments.made), None)
    if all(each.trouble for each in found):
        return ExitCode.TROUBLE
    return ExitCode.RED if any(each.since for each in found) else ExitCode.SAME
