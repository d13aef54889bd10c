"""`numtui completion`: shell completion scripts, made by shtab."""

from __future__ import annotations

import argparse

from numtui.cli.arguments import Commands, add_command
from numtui.cli.explore import add_options
from numtui.cli.output import ExitCode, deliver

__all__ = ["add_parser"]

# shtab completes sub-commands and options; these also complete logs in place of a sub-command. In bash they quote the
# word to complete, without which shtab finds nothing in a folder with a blank in its name.
_LOGS = {
    "bash": """\
_shtab_numtui_pos_0_nargs=1
_shtab_numtui_pos_0_COMPGEN=_shtab_compgen_files
_shtab_numtui_pos_1_COMPGEN=_shtab_compgen_files
_shtab_compgen_files() { compgen -f -- "$1"; }
""",
    "zsh": """\
_numtui_explorer_options=("${_shtab_numtui_options[@]}")
functions[_numtui_command]=$functions[_shtab_numtui]
_numtui_first() { _shtab_numtui_commands; _files }
_shtab_numtui() {
  if (( CURRENT > 2 && ${+parameters[_shtab_numtui_${words[2]}_options]} )); then _numtui_command "$@"
  else _arguments -s $_numtui_explorer_options ':log or command:_numtui_first' ':log:_files'; fi
}
""",
    "fish": """\
complete -c numtui -n '_shtab_numtui_using; and test $_shtab_numtui_npos -le 1' \\
  -ka '(__fish_complete_path (commandline -ct))'
""",
}


def add_parser(commands: Commands) -> None:
    """Add the sub-command."""
    about = "Prints a completion script; its first lines say where to install it."
    parser = add_command(commands, "completion", _run, about, help="")
    parser.add_argument("shell", choices=tuple(_LOGS), help="which shell")


def _run(args: argparse.Namespace) -> int:
    import shtab

    from numtui.cli.parser import root_parser

    root = root_parser()
    add_options(root)
    logs = _LOGS[args.shell]
    # zsh runs its function at the end of the script; fish forgets at the start how it completed the program before.
    before, after = (logs, "") if args.shell == "zsh" else ("", f"\n{logs}")
    script = shtab.complete(root, shell=args.shell, preamble=before)
    deliver(lambda out: print(script, end=after, file=out), None)
    return ExitCode.SAME
