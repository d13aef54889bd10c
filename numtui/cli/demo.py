"""`numtui demo`: the explorer on a shipped pair of runs."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from numtui.cli.arguments import Commands, add_command, add_screen, on_screen
from numtui.cli.explore import explore
from numtui.inputs import DEMOS, OpenRequest, demo_logs, resolve_logs

__all__ = ["add_parser"]

_RULES = Path("numtui-demo.yaml")
"""Rules of the demo: those in the current folder belong to other logs."""


def add_parser(commands: Commands) -> None:
    """Add the sub-command."""
    parser = add_command(
        commands,
        "demo",
        _run,
        "Opens a shipped example: a training step run twice, once with the attention's output negated in one layer; or "
        "(agree) a step run eagerly and as a traced graph, which agree.",
        help="",
    )
    parser.add_argument("pair", nargs="?", choices=tuple(DEMOS), default="bug", help="default: bug")
    add_screen(parser)


def _run(args: argparse.Namespace) -> int:
    path_a, path_b = resolve_logs(*demo_logs(args.pair))
    request = OpenRequest(
        path_a=path_a,
        path_b=path_b,
        name_a=DEMOS[args.pair][0],
        name_b=DEMOS[args.pair][1],
        rules_path=_RULES,
    )
    # Nobody comes back to an example.
    return explore(replace(on_screen(request, args), resume=False))
