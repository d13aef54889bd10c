"""Command line of the capture: run a script as Python would and record its steps."""

from __future__ import annotations

import argparse
import contextlib
import os
import runpy
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["main"]

_EPILOG = """\
examples:
  python -m capture -o outputs/run_A -- train.py --lr 1e-3
  python -m capture --steps 1,2 -o outputs/run_A -- -m package.train ARGS
  torchrun --nproc_per_node 8 -m capture -o outputs/run_A -- -m package.train ARGS

The script and its numbers stay unchanged. By default step 1 is captured: it shows a difference where it arises; by
step 2 it has spread into every weight. Compare two runs with `numtui DIR_A DIR_B`.
"""


def _numbers(text: str) -> tuple[int, ...]:
    """Parse a list of numbers such as `1,2,5-7`."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            found += range(int(first), int(last if dash else first) + 1)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers such as 1,2,5-7") from None
    return tuple(dict.fromkeys(found))


def _steps(text: str) -> tuple[int, ...]:
    steps = _numbers(text)
    if not steps or min(steps) < 1:
        raise argparse.ArgumentTypeError("steps are counted from 1")
    return steps


def _weights(text: str) -> tuple[int, ...] | None:
    return None if text == "every" else _steps(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m capture",
        description="Record every operation of a training step.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="python -m capture [options] -- script.py ARGS | -m module ARGS",
    )
    add = parser.add_argument
    add("--steps", "--step", type=_steps, default=(1,), metavar="1,2,5-7", help="steps to record, from 1 (default: 1)")
    add("-o", "--output", type=Path, default=Path(), metavar="DIR", help="logs go to DIR/numerics (default: .)")
    add("--ops", nargs="+", default=[], metavar="GLOB", help="record only operations with these names")
    add("--exclude-ops", nargs="+", default=[], metavar="GLOB", help="leave operations with these names out")
    add("--modules", nargs="+", default=[], metavar="GLOB", help="record only these modules and what is in them")
    add("--dtypes", nargs="+", default=[], metavar="NAME", help="record only results of these dtypes (float32 …)")
    add("--min-numel", type=int, default=0, metavar="N", help="leave results with fewer elements out")
    add("--hash", default=None, metavar="module:function", help="record a value of your own for every result")
    add("--weights", type=_weights, default=(), metavar="every|STEPS",
        help="after these steps, a line for every parameter, gradient and state of the optimizer")  # fmt: skip
    add("--no-sketch", dest="sketch", action="store_false", help="no sketches: cheaper, but errors are only bounds")
    add("--ranks", type=_numbers, default=None, metavar="0,3", help="only these ranks write logs (default: all)")
    add("--deterministic", type=int, nargs="?", const=42, default=None, metavar="SEED",
        help="seed everything and use deterministic algorithms before the script starts (seed: 42)")  # fmt: skip
    add("--perturb", type=int, nargs="?", const=0, default=None, metavar="SEED",
        help="move all parameters by one rounding error before the first step, for numtui --noise")  # fmt: skip
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; exceptions of the script pass through."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = _parser()
    options, command = arguments, None
    if "--" in arguments:
        cut = arguments.index("--")
        options, command = arguments[:cut], arguments[cut + 1 :]
    args = parser.parse_args(options)
    if not command or (command[0] == "-m" and len(command) < 2):
        parser.error("nothing to capture. Put the script after --, as in: python -m capture -o DIR -- train.py")
    if command[0] != "-m" and not os.path.exists(command[0]):
        parser.error(f"{command[0]}: no such script")
    return _run(args, command)


def _run(args: argparse.Namespace, command: list[str]) -> int:
    # torch is imported here so that --help and usage errors are answered at once
    from .determinism import make_deterministic
    from .messages import say
    from .schedule import AutomaticSchedule, describe
    from .settings import Settings
    from .weights_schedule import WeightsSchedule

    settings = Settings(
        ops=tuple(args.ops),
        exclude_ops=tuple(args.exclude_ops),
        modules=tuple(args.modules),
        dtypes=tuple(name.removeprefix("torch.") for name in args.dtypes),
        min_numel=args.min_numel,
        sketch=args.sketch,
        hash=args.hash,
        ranks=args.ranks,
        perturb=args.perturb,
    )
    _enter_as_python_would(command)
    try:
        settings.resolve_hash()
    except ValueError as error:
        sys.stderr.write(f"python -m capture: {error}\n")
        return 2
    if args.deterministic is not None:
        say(str(make_deterministic(args.deterministic)))
    weights = WeightsSchedule(args.output, args.weights, settings) if args.weights != () else None
    schedule = AutomaticSchedule(args.output, args.steps, settings, weights=weights)
    schedule.install()
    _on_terminate(schedule)
    reason = None
    try:
        if command[0] == "-m":
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(command[0], run_name="__main__")
    except BaseException as error:
        if not (isinstance(error, SystemExit) and error.code in (None, 0)):
            reason = describe(error)
        raise
    finally:
        schedule.close(reason)
        if weights is not None:
            weights.close()
    return 0


def _enter_as_python_would(command: list[str]) -> None:
    """Set `sys.argv` and `sys.path` as if the script had been started directly."""
    if command[0] == "-m":
        sys.argv = command[1:]
        first = os.getcwd()
    else:
        sys.argv = list(command)
        first = os.path.dirname(os.path.abspath(command[0]))
    # `python -m capture` put the working directory first
    if sys.path and sys.path[0] in ("", os.getcwd()):
        sys.path[0] = first
    else:
        sys.path.insert(0, first)


def _on_terminate(schedule: Any) -> None:
    """Write the captured operations on SIGTERM, then run the previous handler."""
    before = signal.getsignal(signal.SIGTERM)

    def terminate(number: int, frame: Any) -> None:
        schedule.close("SIGTERM")
        if callable(before):
            before(number, frame)
        else:
            signal.signal(number, before if before is not None else signal.SIG_DFL)
            os.kill(os.getpid(), number)

    # outside the main thread, the caller owns the signals
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGTERM, terminate)
