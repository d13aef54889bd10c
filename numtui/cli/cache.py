"""`numtui cache`: where logs that were read are kept, how much that is, and how to be rid of it."""

from __future__ import annotations

import argparse
from collections import Counter

from matchers.errors import InputError
from numtui.cli.arguments import Commands, add_command
from numtui.cli.output import ExitCode, deliver
from numtui.cli.user_cache import user_cache
from numtui.folders import cache_folder
from numtui.text.counts import plural
from numtui.text.sizes import shown_size

__all__ = ["add_parser"]

_DESCRIPTION = """\
Prints where logs that were read and reports on them are kept, and their size; clear
deletes them. They are only ever used for logs with exactly the same bytes, and can be
deleted at any time. `cache: 4 GiB` in the settings sets how large they may become,
`cache: false` turns them off (also: --no-cache, NUMTUI_CACHE=0).
"""


def add_parser(commands: Commands) -> None:
    """Add the sub-command."""
    parser = add_command(commands, "cache", _run, _DESCRIPTION, help="")
    parser.add_argument("action", nargs="?", choices=("clear",), help="delete everything")


def _run(args: argparse.Namespace) -> int:
    from matchers.files.cache_folder import CacheFolder
    from numtui.cli.kept_report import REPORT

    used = user_cache()
    folder = used or CacheFolder(cache_folder(), 0)
    if args.action == "clear":
        try:
            told = f"{folder.path}: {shown_size(folder.clear())} deleted"
        except OSError as error:
            raise InputError(f"{error.filename}: cannot be deleted: {error.strerror or error}") from None
    else:
        items = folder.items()
        kinds = Counter(item.path.suffix for item in items)
        reports = kinds[f".{REPORT}"]
        content = f"{plural(len(items) - reports, 'log')} and {plural(reports, 'report')}"
        size = shown_size(sum(item.size for item in items))
        limit = f"of {shown_size(used.limit)}" if used else "(turned off)"
        told = f"{folder.path}: {content}, {size} {limit}"
        if folder.path.exists() and not folder.is_private():
            told += "\n  others may write there: nothing of it is used"
    deliver(lambda out: print(told, file=out), None)
    return ExitCode.SAME
