"""Run a script as Python would and record its steps, and those of the processes that it starts."""

from __future__ import annotations

import os
import runpy
import shlex
import shutil
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

from .inherited import passed_on
from .messages import describe, printable
from .options import make_parser, settings_of
from .process import Capture

__all__ = ["main"]


def main(argv: Sequence[str] | None = None, prog: str = "python -m capture") -> int:
    """Run the command line and return the exit code; exceptions of the script pass through.

    Args:
        argv: its arguments, None for those of this process.
        prog: how it begins.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = make_parser(prog)
    options, command = arguments, None
    if "--" in arguments:
        cut = arguments.index("--")
        options, command = arguments[:cut], _without_python(arguments[cut + 1 :])
    args = parser.parse_args(options)
    if not command or (command[0] == "-m" and len(command) < 2):
        parser.error(f"nothing to capture. Put the script after --, as in: {prog} -o DIR -- train.py")
    if command[0] != "-m" and (not os.path.exists(command[0]) or _is_binary(command[0])):
        program = _program(command[0])
        if program is None:
            advice = f" (a program is captured by NUMTUI_CAPTURE={args.output} {command[0]} …)"
            parser.error(f"{command[0]}: no such script{advice if shutil.which(command[0]) else ''}")
        command[0] = program
    with_forward = shlex.join([*prog.split(), "--forward", *arguments])
    return _run(args, options, command, prog, with_forward)


def _run(args: Namespace, options: list[str], command: list[str], prog: str, with_forward: str) -> int:
    _enter_as_python_would(command)
    try:
        settings = settings_of(args)
    except ValueError as error:
        sys.stderr.write(f"{prog}: {printable(str(error))}\n")
        return 2
    with passed_on(args.output, options, with_forward):
        capture = Capture(lambda: (args, settings), args.output, inherited=False, with_forward=with_forward)
        # not torch yet: what the script sets in the environment before it imports torch must count
        capture.begin()
        if args.deterministic is not None or args.deterministic_warn_only:
            import_module("torch")
        reason = None
        try:
            # its globals live until the last step is written, which names models by what holds them
            if command[0] == "-m":
                _held = runpy.run_module(command[1], run_name="__main__", alter_sys=True)
            else:
                _held = runpy.run_path(command[0], run_name="__main__")
        except BaseException as error:
            if not (isinstance(error, SystemExit) and error.code in (None, 0)):
                reason = describe(error)
            raise
        finally:
            capture.close(reason)
    return 0


def _without_python(command: list[str]) -> list[str]:
    """Leave out the interpreter in `python train.py` and `python -m train`, if it is the one that runs."""
    rest = command[1:]
    plain = not rest or rest[0] == "-m" or not rest[0].startswith("-")
    return rest if command and plain and _is_this_python(command[0]) else command


def _is_this_python(name: str) -> bool:
    """True of the interpreter that runs: of its folder, for others may have other packages."""
    found = shutil.which(name)
    folder, program = os.path.split(os.path.abspath(found)) if found else ("", "")
    return (
        program.startswith("python")
        and folder == os.path.dirname(os.path.abspath(sys.executable))
        and _is_binary(found)
    )


def _is_binary(path: str | None) -> bool:
    with suppress(OSError, TypeError), open(path or "", "rb") as file:
        return b"\0" in file.read(200)
    return False


def _program(name: str) -> str | None:
    """Find a program of this Python's environment that is a Python script, such as `torchrun`."""
    path = os.path.join(os.path.dirname(sys.executable), name)
    with suppress(OSError), open(path, "rb") as file:
        start = file.read(200)
        return path if start.startswith(b"#!") and b"python" in start else None
    return None


def _enter_as_python_would(command: list[str]) -> None:
    """Set `sys.argv` and `sys.path` as if the script had been started directly."""
    try:
        here = os.getcwd()
    except OSError:  # it was deleted
        here = ""
    # `python -m` put the working directory first, a program of its own the folder that it lies in
    replaced = {"", here, os.path.dirname(os.path.abspath(sys.argv[0]))}
    if command[0] == "-m":
        sys.argv = command[1:]
        first = here
    else:
        sys.argv = list(command)
        first = os.path.dirname(os.path.abspath(command[0]))
    if sys.path and sys.path[0] in replaced:
        sys.path[0] = first
    else:
        sys.path.insert(0, first)
