"""Repositories whose commits are made up, and a capture of them that trains nothing.

A commit has a file `model.json`: factors of the operations of a small graph, names of its modules, and whether it
starts. A capture writes the log that such a model would.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from matchers.logs.op_log import OpLog
from numtui.experiments.capturing import CaptureCommand
from tests.captured import Step, captured_log, write_captured

__all__ = ["Model", "captured", "digests", "log_of", "make_repository", "model", "write_run"]

Model = dict[str, Any]
X = np.linspace(1, 2, 64, dtype=np.float32)
_WHO = b"A U Thor <a@example.com> 1700000000 +0000"


def model(
    *, left: float = 1, right: float = 1, top: float = 1, names: str = "layers", starts: bool = True, weights: str = "w"
) -> Model:
    """Two branches that read the same batch; `top` reads what `left` makes."""
    return {"left": left, "right": right, "top": top, "names": names, "starts": starts, "weights": weights}


def make_repository(folder: Path, models: Sequence[Model]) -> list[str]:
    """Make a repository with a commit for each model, each of which changes a note besides; return the hashes."""
    folder.mkdir()
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    stream = b""
    for number, each in enumerate(models):
        files = {"model.json": json.dumps(each, indent=1), "notes.txt": f"{number}\n", "sub/train.py": "\n"}
        message = f"commit {number}".encode()
        stream += b"commit refs/heads/main\nmark :%d\ncommitter %s\ndata %d\n%s\n" % (
            number + 1,
            _WHO,
            len(message),
            message,
        )
        stream += b"from :%d\n" % number if number else b""
        for name, text in files.items():
            stream += b"M 100644 inline %s\ndata %d\n%s\n" % (name.encode(), len(text), text.encode())
    subprocess.run(["git", "-C", str(folder), "fast-import", "--quiet"], input=stream, check=True)
    subprocess.run(["git", "-C", str(folder), "symbolic-ref", "HEAD", "refs/heads/main"], check=True)
    subprocess.run(["git", "-C", str(folder), "reset", "--hard", "--quiet"], check=True)
    told = subprocess.run(
        ["git", "-C", str(folder), "rev-list", "--reverse", "main"], check=True, capture_output=True, text=True
    )
    return told.stdout.split()


def captured(runs: list[str], before: Callable[[int], None] = lambda _: None) -> Callable[..., str]:
    """Return what stands for `CaptureCommand.run`; it notes the folder of each run in `runs`."""

    def run(_: CaptureCommand, output: Path, cwd: Path, options: Sequence[str] = ()) -> str:
        del options
        output.mkdir(parents=True, exist_ok=True)
        runs.append(output.name)
        before(len(runs))
        told: Model = json.loads((cwd / "model.json").read_text())
        if not told["starts"]:
            return "ended with 1: ImportError"
        write_run(output, told)
        return ""

    return run


def write_run(output: Path, told: Model) -> None:
    """Write the run of a model into a folder."""
    (output / "numerics").mkdir(parents=True)
    write_captured(output / "numerics" / "rank_0_activations.log", _steps(told), **_run(told))


def log_of(told: Model) -> OpLog:
    """Return the log of a model."""
    return captured_log(_steps(told), **_run(told))


def _steps(told: Model) -> list[Step]:
    def step(module: str, values: Any, factor: float, made: str = "") -> Step:
        key, place = f"{told['names']}.{module}/op_0_mul", {"location": f"model.py:{len(module)}"}
        result = values * np.float32(factor)
        return Step(key=key, reads=[values], gives=[result], made=[made] if made else (), fields=place)

    left = step("left", X, told["left"])
    top = step("top", left.gives[0], told["top"], left.key)
    return [left, step("right", X * 3, told["right"]), top, step("end", top.gives[0], 1, top.key)]


def _run(told: Model) -> dict[str, Any]:
    digest = hashlib.sha256(told["weights"].encode()).hexdigest()[:16]
    return {"parameter_digests": {"w": digest}, "batch": [{"shape": [64], "dtype": "float32", "digest": "ab" * 8}]}


def digests(folder: Path) -> dict[str, str]:
    """Return the digests of a checkout's files, of its index, and of all that `git` says of refs and stash."""
    found = {}
    for place, folders, files in os.walk(folder):
        if ".git" in folders:
            folders.remove(".git")
        for name in files:
            path = Path(place, name)
            found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    for name in ("index", "HEAD", "config", "logs/HEAD", "refs/stash"):
        path = folder / ".git" / name
        found[f".git/{name}"] = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""
    for command in ("for-each-ref", "worktree list", "stash list", "reflog", "status --porcelain --ignored"):
        told = subprocess.run(["git", "-C", str(folder), *command.split()], check=True, capture_output=True, text=True)
        found[command] = told.stdout
    return found
