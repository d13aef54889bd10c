"""Table of other tools' logs: is a bug in its module, is the same step quiet, and is our own log of it like them?

    python -m tests.truth.imported [--keep DIR] [--only FORMAT] [--site DIR]… [--python WRITER=FILE]… [--verbose]

Each tool runs examples/train.py four times: twice as it is, for a healthy pair, and with three bugs. A bug is right if
the first cause, or else the first difference, lies in its module. Against numtui's own capture of the same step it
counts how many operations both logs have (by module; by operation and source line where the log has lines), how many
of these are paired, and how many pairs are of other modules or lines. `--site`: site-packages of a tool that the
environment lacks. `--python debugmode=FILE`: the Python of an environment with another torch, for one of the writers.
`--keep`: logs of an earlier run are used again. Needs torch.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from matchers.comparison import compare
from matchers.logs.imported.format import NATIVE_KEY
from matchers.logs.op_log import OpLog, Phase
from matchers.logs.parser import read_log
from matchers.ops.module_path import NO_MODULE, canonical
from numtui.cli.main import main as numtui

_REPOSITORY = Path(__file__).parents[3]
_SIZE = ("--steps", "1", "--layers", "2")
_BUGS = {
    "softmax-scale": "layers.1.attention",
    "negated-attention": "layers.1.attention",
    "norm-eps": "layers.1.attention_norm",
}
"""The bugs of the second layer, and the modules that compute them."""


_CLASSES = {"attention": "Attention", "attention_norm": "RMSNorm"}


class Form(NamedTuple):
    """Files of a writer that are one log.

    Attributes:
        writer: of `tests.truth.imported.writers`.
        file: a pattern below its folder.
        options: of `numtui diff`: what only says whether bits are equal is to be compared as such.
        size: arguments of the example besides.
        own: our own capture logs the same operations.
    """

    writer: str
    file: str
    options: Sequence[str] = ()
    size: Sequence[str] = ()
    own: bool = True


_BITS = ("--expect", "bitwise")
FORMS: Mapping[str, Form] = {
    "torch DebugMode (save_logs)": Form("debugmode", "saved.json"),
    "torch DebugMode (debug_string)": Form("debugmode", "printed.txt"),
    "torch DebugMode (dump_tensor_hashes), by schema": Form("debugmode", "hashes.txt"),
    "msprobe L0": Form("msprobe-L0", "step0/*/dump.json"),
    "msprobe L1": Form("msprobe-L1", "step0/*/dump.json"),
    "msprobe mix": Form("msprobe-mix", "step0/*/dump.json"),
    "msprobe md5": Form("msprobe-md5", "step0/*/dump.json", _BITS),
    "msprobe xor": Form("msprobe-xor", "step0/*/dump.json", _BITS),
    "msprobe tensors": Form("msprobe-tensor", "step0/*/dump.json"),
    "transformers debug tree": Form("transformers", "*_FULL_TENSORS.json"),
    "transformers debug tree (printed numbers)": Form("transformers-repr", "*_FULL_TENSORS.json"),
    "transformers debug tree (summary)": Form("transformers-repr", "*_SUMMARY.json"),
    "safetensors, index": Form("results", "together/*.index.json"),
    "safetensors, folder": Form("results", "each"),
    "torch.save": Form("results", "results.pt"),
    "SGLang dumper, by schema": Form("results", "dumper/*dump_index=1___*"),
    "Megatron (full), by schema": Form("results", "full/*.jsonl", _BITS),
    "Megatron (sampled), by schema": Form("results", "sampled/*.jsonl", _BITS),
    "Megatron (summary), by schema": Form("results", "summary/*.jsonl"),
    "Megatron routing, by schema": Form("routing", "routing.jsonl", size=("--experts", "4"), own=False),
}


class _Bed:
    """The logs of all writers in a folder, written where they are missing."""

    def __init__(self, folder: Path, sites: Sequence[str], pythons: Mapping[str, str]) -> None:
        self._folder, self._pythons = folder, pythons
        self._sites = [text for site in sites for text in ("--site", site)]
        self._failed: dict[str, str] = {}

    def log(self, form: Form, case: str) -> Path | str:
        """Return the log of a case, or why there is none."""
        bug = ["--bug", f"{case}@1"] if case in _BUGS else []
        folder = self._folder / form.writer / case
        if form.writer not in self._failed and not folder.exists():
            part = folder.with_name(f"{case}.part")
            why = self._write(form, part, [*_SIZE, *form.size, *bug])
            if why:
                self._failed[form.writer] = why
            else:
                part.rename(folder)
        found = sorted(folder.glob(form.file))
        return found[0] if found else self._failed.get(form.writer, "not written by this version")

    def _write(self, form: Form, folder: Path, arguments: Sequence[str]) -> str:
        python = self._pythons.get(form.writer, sys.executable)
        command = [python, "-m", "tests.truth.imported.writers", form.writer, str(folder), *self._sites]
        done = self._run([*command, "--", *arguments])
        return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["failed"])[-1]

    def own(self) -> Path:
        """Return our own capture of the healthy run."""
        folder = self._folder / "numtui"
        if not folder.exists():
            command = [sys.executable, "-m", "numtui", "capture", "-o", str(folder), "--", "examples/train.py", *_SIZE]
            self._run(command).check_returncode()
        return next(folder.rglob("rank_0_activations.log"))

    def _run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(_REPOSITORY)}
        return subprocess.run(command, check=False, cwd=_REPOSITORY, env=environment, capture_output=True, text=True)


def _told(a: Path, b: Path, options: Sequence[str]) -> dict[str, Any]:
    """Return the report of two logs."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        numtui(["diff", str(a), str(b), "--format", "json", *options])
    told: dict[str, Any] = json.loads(out.getvalue())
    return told


def place(told: Mapping[str, Any]) -> tuple[str, str]:
    """Return key and source line of the first cause, or else of the first difference; empty for none."""
    found = next(iter(told["causes"]), None) or told["first_difference"]
    return (str(next(iter(found["a_keys"] or found["b_keys"]), "")), found["location"]) if found else ("", "")


def right(key: str, module: str, frames: Sequence[str] = ()) -> bool:
    """Return True if an operation lies in a module, or is called in its source where its log has no modules.

    Args:
        frames: the source lines that call it, each inside the next.
    """
    name = key.rpartition("/")[0]
    if name != NO_MODULE:
        return f".{module}." in f".{name}."
    source = _lines(_CLASSES[module.rpartition(".")[2]])
    return any(int(frame.rpartition(":")[2] or 0) in source for frame in frames if _MODEL in frame)


_MODEL = "model.py:"


def frames_of(logs: Iterable[OpLog], key: str, line: str) -> Sequence[str]:
    """The source lines that call an operation, of a log with stacks; else the one that is known."""
    for log in logs:
        rows = [row for row in log.texts("Stack") if log.keys[row] == key]
        if rows:
            return [frame.rpartition(":")[0] for frame in log.texts("Stack")[rows[0]].split(" < ")]
    return [line]


@cache
def _lines(name: str) -> range:
    """Return the lines of a class of the example's model."""
    source = (_REPOSITORY / "examples" / "model.py").read_text()
    (found,) = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == name)
    return range(found.lineno, (found.end_lineno or 0) + 1)


class Like(NamedTuple):
    """Likeness of a log to our own of the same step: operations of both, pairs, pairs of other places, red rows."""

    both: int
    paired: int
    wrong: int
    red: int


def like_own(theirs: OpLog, own: OpLog) -> Like:
    """Compare a log of another tool with our own."""
    c = compare(theirs, own)
    pairs = [(int(i), int(j)) for i, j in zip(c.row_a, c.row_b, strict=True) if i >= 0 and j >= 0]
    red = int(c.red.sum())
    if c.a.tells.modules:
        inside = {name for module in own.modules for name in _around(canonical(module))}
        both = [k for k in range(len(c.a)) if _module(c.a, k) in inside and c.a.phase[k] != Phase.BACKWARD]
        wrong = sum(not right(str(c.b.texts(NATIVE_KEY)[j]), _module(c.a, i)) for i, j in pairs)
        return Like(len(both), len(pairs), wrong, red)
    lines = len(theirs.locations) > 1
    mine, other = (Counter(_what(log, k, lines) for k in range(len(log)) if _counts(log, k)) for log in (c.a, c.b))
    alike = mine & other
    pairs = [(i, j) for i, j in pairs if _counts(c.a, i) and _what(c.a, i, lines)[1] and _what(c.b, j, lines)[1]]
    right_pairs = [pair for pair in pairs if _what(c.a, pair[0], lines) == _what(c.b, pair[1], lines)]
    paired = Counter(_what(c.a, i, lines) for i, _ in right_pairs) & alike
    return Like(alike.total(), paired.total(), len(pairs) - len(right_pairs), red)


def _around(module: str) -> Iterator[str]:
    parts = module.split(".")
    return (".".join(parts[: k + 1]) for k in range(len(parts)))


def _module(log: OpLog, record: int) -> str:
    """Return the module of a record, without the number of a step that some tools put before it."""
    name = canonical(log.module_name(record))
    first, _, rest = name.partition(".")
    return rest if first.rpartition("_")[0] in ("step", "iteration") else name


def _what(log: OpLog, record: int, lines: bool) -> tuple[str, str]:
    """Return an operation and its source line, or else its module."""
    line = Path(log.location_text(record)).name if lines else canonical(log.module_name(record))
    return log.op_name(record), line


def _counts(log: OpLog, record: int) -> bool:
    """Return True in the forward pass: msprobe has an entry for each function backward, and an optimizer no module."""
    return log.phase[record] in (Phase.FORWARD, Phase.OTHER) or not str(log.header.format).startswith("msprobe")


def main() -> int:
    """Print a line for each format."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    options.add_argument("--keep", type=Path, metavar="DIR")
    options.add_argument("--only", action="append", metavar="TEXT", help="formats with this in their name")
    options.add_argument("--site", action="append", default=[], metavar="DIR")
    options.add_argument("--python", action="append", default=[], metavar="WRITER=FILE")
    options.add_argument("--verbose", action="store_true", help="say what was found instead")
    args = options.parse_args()
    with contextlib.ExitStack() as stack:
        folder = args.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        bed = _Bed(folder.absolute(), args.site, dict(text.split("=", 1) for text in args.python))
        own = read_log(bed.own())
        print(f"{'format':<48}{'healthy':>9}{'':>3}{'  '.join(_BUGS)}   both  paired  wrong  red")
        for name, form in FORMS.items():
            if not args.only or any(text in name for text in args.only):
                print(f"{name:<48}{_line(bed, form, own, verbose=args.verbose)}", flush=True)
    return 0


def _line(bed: _Bed, form: Form, own: OpLog, *, verbose: bool) -> str:
    logs = {case: bed.log(form, case) for case in ("healthy", "again", *_BUGS)}
    if missing := next((log for log in logs.values() if isinstance(log, str)), ""):
        return f"   - {missing}"
    files = {case: Path(log) for case, log in logs.items()}
    quiet = _told(files["healthy"], files["again"], form.options)
    cells = [f"{quiet['red'] or place(quiet)[0] or 'quiet':>9}   "]
    for bug, module in _BUGS.items():
        found = place(_told(files["healthy"], files[bug], form.options))
        # a trace of routers shows a layer's error at its router
        wanted = module if form.own else ".".join(module.split(".")[:2])
        frames = frames_of((read_log(files[case]) for case in (bug, "healthy")), *found)
        verdict = "right" if right(found[0], wanted, frames) else "other" if found[0] else "missed"
        cells.append(f"{verdict:<{len(bug) + 2}}")
        if verbose and verdict != "right":
            cells.append(f"({' '.join(found)})  ")
    if form.own:
        found_like = like_own(read_log(files["healthy"]), own)
        cells.append(" {:>5}{:>8}{:>7}{:>5}".format(*found_like))
    return "".join(cells)


if __name__ == "__main__":
    sys.exit(main())
