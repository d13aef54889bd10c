"""`numtui kept`: where operations are kept, how much that is, and how to be rid of it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TextIO

from capture.keeping.form import StoredBundle, parse_size, remove_bundle, stored_bundles
from matchers.errors import InputError
from numtui.cli.arguments import Commands, add_command, file_argument
from numtui.cli.output import ExitCode, deliver
from numtui.paths import typed_path
from numtui.text.counts import plural
from numtui.text.safe import safe_text, write_lines
from numtui.text.sizes import shown_size

__all__ = ["add_parser"]

_DESCRIPTION = """\
Lists the operations that numtui capture --save has kept below a folder, with their sizes, the
newest first; they are tensors of your runs. clear deletes them, --most SIZE only the oldest
until the rest is not larger. Logs stay, and so does any other file.
"""


def add_parser(commands: Commands) -> None:
    """Add the sub-command."""
    parser = add_command(commands, "kept", _run, _DESCRIPTION, help="")
    file_argument(parser, "folder", metavar="DIR", help="look below this folder")
    parser.add_argument("action", nargs="?", choices=("clear",), help="delete what was kept")
    parser.add_argument("--most", type=_size, metavar="SIZE", help="delete the oldest until SIZE is left: 10GiB")


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _run(args: argparse.Namespace) -> int:
    folder = Path(typed_path(args.folder))
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    found = stored_bundles(folder)
    gone: list[StoredBundle] = []
    if args.action == "clear":
        gone = found
    elif args.most is not None:
        room = args.most
        for bundle in found:
            room -= bundle.size
            if room < 0:
                gone.append(bundle)
    for bundle in gone:
        try:
            remove_bundle(bundle.folder)
        except OSError as error:
            raise InputError(f"{error.filename}: cannot be deleted: {error.strerror or error}") from None
    left = [bundle for bundle in found if bundle not in gone]

    def write(out: TextIO) -> None:
        lines = [f"{shown_size(one.size):>10}  {safe_text(str(one.folder), 400)}" for one in left]
        total = sum(one.size for one in left)
        lines.append(f"{shown_size(total):>10}  {plural(len(left), 'bundle')} below {safe_text(str(folder), 400)}")
        if gone:
            size = sum(one.size for one in gone)
            lines.append(f"{shown_size(size):>10}  {plural(len(gone), 'bundle')} deleted")
        write_lines(lines, out)

    deliver(write, None)
    return ExitCode.SAME
