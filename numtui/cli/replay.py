"""`numtui replay`: kept operations run again, to see who is right."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capture.keeping.bundle import Bundle, BundleError, read_bundle
from capture.keeping.form import RESULT, find_bundles
from matchers.errors import InputError
from numtui.cli.arguments import Commands, add_command, add_output, file_argument
from numtui.cli.output import ExitCode, complain, deliver
from numtui.paths import typed_path
from numtui.terminal.tty import wants_color
from numtui.text.counts import plural

if TYPE_CHECKING:
    from capture.keeping.replay import Kept, Variant
    from numtui.report.replayed import Case

__all__ = ["add_parser"]

_DESCRIPTION = """\
Runs operations again that numtui capture --save has kept, each variant in a fresh process with
torch: as captured, once more, in float64, with other threads and flags. Says whose bits come
out, what the two runs asked otherwise, and which side float64 sides with. Of many operations
without --op only how many replay to the bits of the log.

exit codes:
  0  every operation replays to the bits of its log
  1  some do not
  2  trouble: a bundle cannot be read, there is no torch
"""
_FEW = 24
"""Operations that are looked at one by one."""


def add_parser(commands: Commands) -> None:
    """Add the sub-command."""
    parser = add_command(commands, "replay", _run, _DESCRIPTION, help="")
    file_argument(parser, "a", metavar="A", help="bundle (rank_N_kept), or folder of a run that has one")
    file_argument(parser, "b", metavar="B", nargs="?", help="the same of the other run")
    parser.add_argument("--op", metavar="KEY", help="only the operations whose keys begin so")
    parser.add_argument("--import", dest="imports", action="append", default=[], metavar="MODULE",
        help="import MODULE first, whose operators may then run too")  # fmt: skip
    file_argument(parser, "--python", metavar="FILE", default=sys.executable, help="a Python that has torch")
    file_argument(
        parser, "--script", metavar="DIR", help="write DIR/repro.py of the first operation: needs torch alone"
    )
    file_argument(
        parser, "--export", metavar="FILE.zip", help="say what is in it, and write the operations to send them"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="the form (default: text)")
    add_output(parser)
    parser.add_argument("--no-color", action="store_true", help="no colours (also: NO_COLOR)")


def _run(args: argparse.Namespace) -> int:
    from capture.keeping.replay import ReplayError

    try:
        bundles = {side: _bundles(path) for side, path in (("a", args.a), ("b", args.b)) if path is not None}
        if args.export is not None:
            return _export(args, bundles)
        if args.script is not None:
            return _write_script(args, bundles)
        if args.b is None and args.op is None and sum(len(each.calls) for each in bundles["a"]) > _FEW:
            return _survey(args, bundles["a"])
        return _cases(args, bundles)
    except (BundleError, ReplayError) as error:
        raise InputError(str(error)) from None


def _bundles(path: str) -> list[Bundle]:
    found = [read_bundle(folder) for folder in find_bundles(typed_path(path))]
    if not found:
        raise _nothing_kept(path)
    return found


def _nothing_kept(path: str) -> InputError:
    return InputError(f"{path}: no kept operations here: numtui capture --save keeps them (docs/why.md)")


def _survey(args: argparse.Namespace, bundles: Sequence[Bundle]) -> int:
    from capture.keeping.replay import AGAIN, Kept
    from numtui.report.kept import replayed_cases
    from numtui.report.replay import write_survey

    found = []
    for bundle in bundles:
        pairs = [("", "", {"a": Kept(bundle.folder, call)}) for call in bundle.calls]
        cases = replayed_cases(pairs, ways=[AGAIN], imports=args.imports, python=args.python)
        found.append([case.sides["a"] for case in cases])
    for bundle, calls in zip(bundles, found, strict=True):
        deliver(partial(write_survey, str(bundle.folder), calls, len(bundle.missed)), args.output)
    return ExitCode.SAME if all(call.certified for calls in found for call in calls) else ExitCode.RED


def _pairs(args: argparse.Namespace, bundles: Mapping[str, Sequence[Bundle]]) -> list[tuple[str, str, dict[str, Kept]]]:
    """Return reason, run that lacks it, and kept calls by side, of each operation: by the plan's record, else by key.

    Raises:
        InputError: no operation is asked for.
    """
    from capture.keeping.replay import Kept

    found: dict[tuple[object, ...], dict[str, Kept]] = {}
    told: dict[tuple[object, ...], tuple[str, str]] = {}
    for side, group in bundles.items():
        for bundle in group:
            of = str(bundle.run.get("rank")), str(bundle.run.get("step"))
            for call in bundle.calls:
                for name, why, lacks, certain in _names(side, call, alone=len(bundles) < 2):
                    key = (*of, name)
                    held = found.setdefault(key, {})
                    told[key] = why, lacks
                    if certain or side not in held:
                        held[side] = Kept(bundle.folder, call)
    if not found:  # of boundaries of modules alone, say
        raise _nothing_kept(args.a)
    wanted = [
        (*told[name], sides)
        for name, sides in sorted(found.items(), key=lambda item: item[0][-1] if isinstance(item[0][-1], int) else inf)
        if args.op is None or any(kept.call["key"].startswith(args.op) for kept in sides.values())
    ]
    if args.op is None and len(wanted) > _FEW:
        wanted = [each for each in wanted if _arises(each[2])][:_FEW]
        if not wanted:
            raise InputError("of many kept operations none differs with equal inputs: name some with --op KEY")
    if not wanted:
        keys = ", ".join(str(kept.call["key"]) for sides in list(found.values())[:8] for kept in sides.values())
        raise InputError(f"no kept operation has a key that begins with {args.op!r}; there are {keys}")
    return wanted


def _arises(sides: Mapping[str, Kept]) -> bool:
    """Return True if a difference arises in an operation: equal inputs on both sides, and other results."""
    from numtui.report.replayed import Case, Replayed, other_inputs

    if len(sides) < 2:
        return False
    case = Case("", {side: Replayed(kept.call) for side, kept in sides.items()})
    return case.sides["a"].recorded != case.sides["b"].recorded and not other_inputs(case)


def _names(side: str, call: Mapping[str, Any], *, alone: bool) -> Iterator[tuple[object, str, str, bool]]:
    """Yield what names an operation in both runs, why it was kept, who lacks it, and if it repeats the plan's run."""
    records = [each for each in call["planned"] if isinstance(each, dict)]
    for record in records:
        lacks = next((other for other in "ab" if record.get(f"key_{other}") is None), "")
        if alone or lacks != side:
            number = record.get("id")
            name = number if isinstance(number, int) else call["key"]
            yield name, str(record.get("why", "")), lacks, record.get("inputs") in (side, "both")
    if not records:
        yield call["key"], "", "", True


def _cases(args: argparse.Namespace, bundles: Mapping[str, Sequence[Bundle]]) -> int:
    from capture.keeping.replay import variants
    from numtui.report.kept import store_cases
    from numtui.report.replay import write_json, write_text

    weights = list(_weights(bundles))
    pairs = _pairs(args, bundles) if args.op is not None or not weights or any(_calls(bundles)) else []
    ways = variants([kept.call for _, _, sides in pairs for kept in sides.values()])
    cases = _replayed(args, pairs, ways) if pairs else []
    color = args.output is None and wants_color(sys.stdout, no_color=args.no_color)
    text = partial(write_text, weights, cases, color=color)
    deliver(partial(write_json, weights, cases) if args.format == "json" else text, args.output)
    folder = bundles["a"][0].folder
    try:
        store_cases(folder, weights, cases)
    except OSError as error:
        complain(f"{folder / RESULT}: not written: {error.strerror or error}")
    good = all(replayed.certified for case in cases for replayed in case.sides.values())
    return ExitCode.SAME if good else ExitCode.RED


def _calls(bundles: Mapping[str, Sequence[Bundle]]) -> Iterator[Mapping[str, object]]:
    return (call for group in bundles.values() for bundle in group for call in bundle.calls)


def _weights(bundles: Mapping[str, Sequence[Bundle]]) -> Iterator[str]:
    """Yield what differs of the weights of the same rank and step of both runs."""
    from numtui.report.elements import weight_lines

    for a in bundles["a"]:
        for b in bundles.get("b", ()):
            if a.weights and b.weights and all(a.run.get(name) == b.run.get(name) for name in ("rank", "step")):
                held = {"a": a, "b": b}
                named = {side: {each["name"]: each["tensor"] for each in one.weights} for side, one in held.items()}
                whose = f" of rank {a.run.get('rank')}" if len(bundles["a"]) > 1 else ""
                yield from weight_lines({side: (one.folder, named[side]) for side, one in held.items()}, whose)


def _replayed(
    args: argparse.Namespace, pairs: Sequence[tuple[str, str, dict[str, Kept]]], ways: Sequence[Variant]
) -> list[Case]:
    from capture.keeping.replay import Running
    from numtui.report.kept import replayed_cases
    from numtui.terminal.progress import ProgressLine

    many = sum(len(sides) for _, _, sides in pairs)
    with ProgressLine() as progress:
        progress(f"replaying {plural(many, 'call')}", 0.0)
        running = Running(lambda name, done: progress(f"replaying {plural(many, 'call')} {name}", done))
        return replayed_cases(pairs, ways=ways, imports=args.imports, python=args.python, running=running)


def _write_script(args: argparse.Namespace, bundles: Mapping[str, Sequence[Bundle]]) -> int:
    from capture.keeping.script import write_script

    _, _, sides = _pairs(args, bundles)[0]
    path = Path(typed_path(args.script))
    try:
        write_script(path, sides)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    complain(f"{path / 'repro.py'}: python repro.py, in that folder, asserts the bits of {' and '.join(sides)}")
    return ExitCode.SAME


def _export(args: argparse.Namespace, bundles: Mapping[str, Sequence[Bundle]]) -> int:
    from tempfile import TemporaryDirectory

    from capture.keeping.script import write_script
    from numtui.report.kept_archive import Archive

    cases, scripts = [sides for *_, sides in _pairs(args, bundles)], {}
    path = Path(typed_path(args.export))
    try:
        with TemporaryDirectory() as folder, suppress(BundleError):
            write_script(Path(folder), cases[0])
            scripts = {file.name: file.read_bytes() for file in sorted(Path(folder).iterdir())}
        archive = Archive(cases, [bundle for group in bundles.values() for bundle in group], scripts)
        for line in archive.told():
            complain(line)
        archive.write(path)
    except OSError as error:
        raise InputError(f"{error.filename or path}: {error.strerror or error}") from None
    complain(f"{path}: written; numtui replay {path.stem}/a {path.stem}/b replays it where it is unpacked")
    return ExitCode.SAME
