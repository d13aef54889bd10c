"""Options of the capture's command line; importing this module is cheap."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any, NoReturn

from .keeping.form import parse_size
from .messages import printable
from .settings import MAX_OPERATIONS, Settings
from .step_numbers import StepNumbers

__all__ = ["ABOUT", "EXAMPLES", "USAGE", "add_options", "from_text", "make_parser", "settings_of"]

ABOUT = "Record every operation of a training step."
USAGE = "%(prog)s [options] -- script.py ARGS | -m module ARGS"
EXAMPLES = """\
examples:
  %(prog)s -o outputs/run_A -- train.py --lr 1e-3
  %(prog)s --steps 1,2 -o outputs/run_A -- -m package.train ARGS
  %(prog)s -o outputs/run_A -- -m torch.distributed.run --nproc_per_node 8 train.py
  NUMTUI_CAPTURE=outputs/run_A accelerate launch train.py

The script and its numbers stay unchanged. Processes that it starts are captured too; with
NUMTUI_CAPTURE=DIR in the environment (and options in NUMTUI_CAPTURE_ARGS), so is every Python that
trains. By default step 1 is captured: it shows a difference where it arises; by step 2 it has
spread into every weight. Compare two runs with `numtui DIR_A DIR_B`.
"""


_SEVERAL: dict[str, Any] = {"nargs": "+", "action": "extend", "default": []}
"""Of an option that takes several values, and may be given again."""
_MOST = 100_000
_FIRST = StepNumbers(frozenset({1}))


def _numbers(text: str) -> tuple[int, ...]:
    """Parse a list of numbers such as `1,2,5-7`."""
    found: dict[int, None] = {}
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            if "_" in part:  # Python reads 1_0 as 10
                raise ValueError
            numbers = range(int(first), int(last if dash else first) + 1)
        except ValueError:
            numbers = range(0)
        if not numbers:
            raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers such as 1,2,5-7")
        if numbers.stop - numbers.start + len(found) > _MOST:
            raise argparse.ArgumentTypeError(f"{text!r} is more than {_MOST:,} numbers")
        found |= dict.fromkeys(numbers)
    return tuple(found)


def _step_numbers(text: str) -> StepNumbers:
    """Parse a list such as `1,2,5-7,every:100`."""
    parts = [part.strip() for part in text.split(",")]
    every = [part.partition(":")[2] for part in parts if part.startswith("every:")]
    if any(not (n.isascii() and n.isdigit() and int(n)) for n in every):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of steps such as 1,5-7,every:100")
    numbers = ",".join(part for part in parts if not part.startswith("every:"))
    return StepNumbers(frozenset(_steps(numbers) if numbers else ()), frozenset(map(int, every)))


def _steps(text: str) -> tuple[int, ...]:
    steps = _numbers(text)
    if min(steps) < 1:
        raise argparse.ArgumentTypeError("steps are counted from 1")
    return steps


def _weights(text: str) -> tuple[int, ...] | None:
    return None if text == "every" else _steps(text)


def _module_glob(text: str) -> str:
    kind, colon, glob = text.partition(":")
    if not (kind == "module" and colon and glob):
        raise argparse.ArgumentTypeError(f"{text!r}: expected module:GLOB, as in module:layers.3")
    return glob


def _function(text: str) -> str:
    module, colon, function = text.partition(":")
    if not (module and colon and function):
        raise argparse.ArgumentTypeError(f"{text!r}: expected module:function, as in mypackage.train:update")
    return text


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number


class _Calls(argparse.Action):
    """Calls to record in place of steps."""

    def __call__(self, _parser: Any, namespace: argparse.Namespace, values: Any, _option: str | None = None) -> None:
        namespace.steps, namespace.forward = values, True


class _When(argparse.Action):
    """A condition, for which every step is recorded unless others are asked for."""

    def __call__(self, _parser: Any, namespace: argparse.Namespace, values: Any, _option: str | None = None) -> None:
        namespace.when = values
        if namespace.steps is _FIRST:
            namespace.steps = StepNumbers(frozenset(), frozenset({1}))


def _seed(text: str) -> int:
    seed = int(text)
    if not 0 <= seed < 1 << 64:
        raise argparse.ArgumentTypeError(f"the seed must be from 0 to 2**64 - 1, not {seed}")
    return seed


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options; the command to capture follows them after `--`."""
    add = parser.add_argument
    add("--steps", "--step", type=_step_numbers, default=_FIRST, metavar="1,5-7,every:N",
        help="steps to record, from 1 (default: 1), or every N-th")  # fmt: skip
    add("-o", "--output", type=Path, default=Path(), metavar="DIR", help="logs go to DIR/numerics (default: .)")
    add("--forward", action="store_true",
        help="a step is one outermost call of a model, trained or not (inference, decode steps)")  # fmt: skip
    add("--calls", type=_step_numbers, action=_Calls, dest="calls", default=argparse.SUPPRESS, metavar="1,5-7,every:N",
        help="calls to record, from 1 (default: 1); means --forward")  # fmt: skip
    add("--of", type=_module_glob, **_SEVERAL, metavar="module:GLOB",
        help="count calls of these modules (module:layers.3); means --forward")  # fmt: skip
    add("--step-at", type=_function, metavar="module:function",
        help="a step ends where this function (or module:Class.method) returns, as at capture.step()")  # fmt: skip
    add("--max-operations", type=_positive, default=MAX_OPERATIONS, metavar="N",
        help="stop recording a step after N operations (default: 2,000,000)")  # fmt: skip
    add("--ops", **_SEVERAL, metavar="GLOB", help="record only operations with these names")
    add("--exclude-ops", **_SEVERAL, metavar="GLOB", help="leave operations with these names out")
    add("--modules", **_SEVERAL, metavar="GLOB", help="record only these modules and what is in them")
    add("--dtypes", **_SEVERAL, metavar="NAME", help="record only results of these dtypes (float32 ...)")
    add("--min-numel", type=int, default=0, metavar="N", help="leave results with fewer elements out")
    add("--hash", default=None, metavar="module:function", help="record a value of your own for every result")
    add("--rows", **_SEVERAL, metavar="GLOB",
        help="measure each row of these modules' results, or of MODULE/OPERATION: a decode step, packed or padded "
        "sequences are then compared row by row")  # fmt: skip
    add("--weights", type=_weights, default=(), metavar="every|STEPS",
        help="after these steps, a line for every parameter, gradient and state of the optimizer")  # fmt: skip
    add("--no-sketch", dest="sketch", action="store_false", help="no sketches: cheaper, but errors are only bounds")
    add("--compact", action="store_true", help="logs of less than half the size: what repeats is written once")
    add(
        "--keep-diff", action="store_true", help="keep the uncommitted changes of the training code in the log's header"
    )
    add("--save", **_SEVERAL, metavar="SPEC",
        help="keep whole: operations of a plan or of module:GLOB, for numtui replay; what modules of boundary:GLOB "
        "are given and give, for --graft; weights")  # fmt: skip
    add("--save-limit", type=_size, default=2 << 30, metavar="SIZE", help="bytes that they may fill (default: 2GiB)")
    add("--against", metavar="TABLE",
        help="keep whole the first operations that differ from numtui plan --digests RUN, on a CPU")  # fmt: skip
    add("--stop", action="store_true", help="with --against: end the process, with 1, at the first of them")
    add("--ranks", type=_numbers, default=None, metavar="0,3", help="only these ranks write logs (default: all)")
    add("--deterministic", type=_seed, nargs="?", const=42, default=None, metavar="SEED",
        help="seed everything and use deterministic algorithms before the script starts (seed: 42)")  # fmt: skip
    add("--deterministic-warn-only", action="store_true",
        help="with or for --deterministic: warn where an operation has no deterministic implementation")  # fmt: skip
    add("--when", action=_When, metavar="loss-is-nan|grad-norm-above:X",
        help="record every step (or --steps), and write the first one of which this is true")  # fmt: skip
    add("--keep-last", type=int, default=1, metavar="K",
        help="with --when: write that step and those recorded before it, K together; each costs its log")  # fmt: skip
    add("--perturb", type=int, nargs="?", const=0, default=None, metavar="SEED",
        help="move all parameters, and floats of the batch, by one rounding error before the first step")  # fmt: skip
    add("--graft", action="append", default=[], metavar="MODULES=RUN",
        help="overwrite what these modules are given, inputs and gradients, by what RUN kept with --save "
        "boundary:GLOB; HERE:THERE=RUN where they have other names there")  # fmt: skip
    add("--graft-after", action="append", default=[], metavar="MODULES=RUN",
        help="the same for what they give: outputs, gradients of inputs and of weights")  # fmt: skip
    add("--graft-like", default=None, metavar="RUN",
        help="an earlier capture of this command without grafts: of tensors without placement, those that all its "
        "ranks hold alike are whole")  # fmt: skip
    add("--synthetic", type=_seed, default=None, metavar="SEED",
        help="give weights and batch values by name and position, the same in every layout")  # fmt: skip
    add("--weights-from", default=None, metavar="FILE",
        help="begin with these whole weights, in any layout: safetensors, a folder of them, or a run with "
        "--save weights")  # fmt: skip


def make_parser(prog: str) -> argparse.ArgumentParser:
    """Return the parser of a command line that begins with `prog`."""
    parser = _Saying(
        prog=prog,
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage=USAGE,
    )
    add_options(parser)
    return parser


class _Saying(argparse.ArgumentParser):
    """A parser that repeats arguments in a form that a terminal does not act upon."""

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


class _Raising(argparse.ArgumentParser):
    """A parser that ends no process."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def from_text(arguments: list[str], output: Path) -> argparse.Namespace:
    """Parse options that no command line gave.

    Raises:
        ValueError: they are none.
    """
    parser = _Raising(add_help=False)
    add_options(parser)
    args = parser.parse_args(arguments)
    args.output = output
    return args


def settings_of(args: argparse.Namespace) -> Settings:
    """Return the settings that the options ask for.

    Raises:
        ValueError: there can be no such capture.
    """
    try:
        folder = args.output.absolute()
    except OSError:
        raise ValueError(f"-o {args.output}: the current folder was deleted; give a path that begins with /") from None
    # the first that there is; the others are made when a log is written
    found = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if not os.path.isdir(found):
        raise ValueError(f"-o {args.output}: {found} is no folder")
    forward = args.forward or bool(args.of)
    if forward and args.weights != ():
        given = "every" if args.weights is None else ",".join(map(str, args.weights))
        raise ValueError(f"--weights {given}: of training steps; the log of a call has all weights' digests")
    if forward and args.step_at is not None:
        raise ValueError(f"--step-at {args.step_at}: of training steps; the steps of --forward are calls")
    if forward and args.when is not None:
        raise ValueError(f"--when {args.when}: of training steps; the steps of --forward are calls")
    if args.when is not None and (args.save or args.against is not None):
        raise ValueError(f"--when {args.when}: what --save and --against keep is written at once")
    if args.stop and args.against is None:
        raise ValueError("--stop: at the first difference from a run that --against names")
    return Settings(
        ops=tuple(args.ops),
        exclude_ops=tuple(args.exclude_ops),
        modules=tuple(args.modules),
        dtypes=tuple(name.removeprefix("torch.") for name in args.dtypes),
        min_numel=args.min_numel,
        max_operations=args.max_operations,
        sketch=args.sketch,
        compact=args.compact,
        keep_diff=args.keep_diff,
        hash=args.hash,
        rows=tuple(args.rows),
        forward=forward,
        of=tuple(args.of),
        ranks=args.ranks,
        save=tuple(args.save),
        save_limit=args.save_limit,
        against=args.against,
        stop=args.stop,
        when=args.when,
        keep_last=args.keep_last,
        perturb=args.perturb,
        graft=tuple(args.graft),
        graft_after=tuple(args.graft_after),
        graft_like=args.graft_like,
        weights_from=args.weights_from,
        synthetic=args.synthetic,
    )
