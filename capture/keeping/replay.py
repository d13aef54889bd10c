"""Run kept calls again in fresh processes, one for each variant. Standard library alone: torch is in those only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock, Timer
from typing import Any

from . import form

__all__ = ["AGAIN", "WIDE", "Kept", "ReplayError", "Running", "Variant", "replayed", "variants"]

_PROGRAM = Path(__file__).with_name("perform.py")
_PATIENCE = 600
"""Seconds for a variant of all calls."""


class ReplayError(Exception):
    """A variant whose process cannot be started."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to run a call: its name, and what is other than in the capture."""

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Kept:
    """A call of a bundle, and where its contents are."""

    folder: Path
    call: Mapping[str, Any]

    @property
    def results(self) -> list[dict[str, Any]]:
        """The tensors that it returned, and those that it left in what it wrote to."""
        return form.results_of(self.call)


AGAIN = Variant(form.AGAIN)
WIDE = Variant(form.WIDE, {"wide": True})


def variants(calls: Sequence[Mapping[str, Any]]) -> list[Variant]:
    """Return the ways to run calls again that may give other bits."""
    flags = [call["flags"] for call in calls]
    threads = {each.get("threads") for each in flags}
    found = [AGAIN, Variant(form.ONCE_MORE), WIDE, Variant("with contiguous inputs", {"contiguous": True})]
    found.append(Variant("with 2 threads" if threads == {1} else "with 1 thread", _flags(threads=1 + (threads == {1}))))
    for name, said in (("deterministic", "deterministic algorithms"), ("mkldnn", "oneDNN"), ("cudnn", "cuDNN")):
        on = {bool(each.get(name)) for each in flags}
        if len(on) == 1 and (name != "cudnn" or any(_on_gpu(call) for call in calls)):
            found.append(Variant(f"with{'out' if on == {True} else ''} {said}", _flags(**{name: on == {False}})))
    if any(_on_gpu(call) for call in calls):
        found.append(Variant("without TF32", _flags(matmul_precision="highest", cudnn_tf32=False)))
    return found


def _flags(**flags: Any) -> dict[str, Any]:
    return {"flags": flags}


def _on_gpu(call: Mapping[str, Any]) -> bool:
    return any(told["device"].startswith("cuda") for told in form.given_to(call))


class Running:
    """A replay that another thread may cancel, and that says how far it is.

    Args:
        told: called with the name of a variant that begins, and the fraction that is done.
    """

    def __init__(self, told: Callable[[str, float], None] = lambda _name, _done: None) -> None:
        self.told = told
        self.cancelled = False
        self._process: subprocess.Popen[str] | None = None
        self._lock = Lock()

    def cancel(self) -> None:
        """End it, with all that it has started."""
        self.cancelled = True
        self.kill()

    def kill(self) -> None:
        """End the process that runs."""
        with self._lock, suppress(ProcessLookupError):
            if self._process is not None:
                os.killpg(self._process.pid, signal.SIGKILL)

    def started(self, process: subprocess.Popen[str] | None) -> None:
        """Note the process that runs, the leader of its group."""
        with self._lock:
            self._process = process
        if self.cancelled:
            self.kill()


def replayed(
    calls: Sequence[Kept],
    variants: Sequence[Variant],
    *,
    against: Sequence[Mapping[str, Kept]] = (),
    imports: Sequence[str] = (),
    python: str = sys.executable,
    running: Running | None = None,
) -> list[list[dict[str, Any]]]:
    """Run calls in a fresh process for each variant; return for each of these what came out of each call, as JSON.

    Args:
        calls: of bundles that were checked.
        variants: how.
        against: for each call, kept calls by side, whose results are measured against the one in float64.
        imports: modules whose operators may run besides torch's own.
        python: of an environment with torch.

    Raises:
        ReplayError: it cannot be started, has no torch, or was cancelled.
    """
    told = []
    for number, kept in enumerate(calls):
        sides = against[number] if against else {"own": kept}
        measured = {side: {"folder": str(other.folder), "results": other.results} for side, other in sides.items()}
        told.append({**kept.call, "folder": str(kept.folder), "against": measured, "record": ""})
    job = {"calls": told, "imports": list(imports)}
    running = running or Running()
    # what a library starts when it is imported may not be forked
    jobs = [[variant] for variant in variants] if imports else [list(variants)]
    found: list[Any] = []
    for of in jobs:
        found += _performed({**job, "variants": [dict(v.changes) | {"name": v.name} for v in of]}, python, running)
    for number, (variant, results) in enumerate(zip(variants, found, strict=True)):
        if isinstance(results, str) and len(calls) > 1:  # one of them ended the process: the others are known apart
            half = len(calls) // 2
            options: Any = {"imports": imports, "python": python, "running": running}
            found[number] = [
                each
                for part in (slice(half), slice(half, None))
                for each in replayed(calls[part], [variant], against=against[part], **options)[0]
            ]
        elif isinstance(results, str):
            found[number] = [{"failed": f"its process was ended: {results}"}]
    return found


def _performed(job: Mapping[str, Any], python: str, running: Running) -> list[Any]:
    """Return the results of each variant, by call; text where its process ended before."""
    names = [variant["name"] for variant in job["variants"]]
    with TemporaryFile("w+", encoding="utf-8", errors="replace") as complaints:
        try:
            process = subprocess.Popen(  # noqa: S603 - our own program, in the Python that the user names
                [python, str(_PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
                start_new_session=True,
            )
        except OSError as error:
            raise ReplayError(f"{python}: {error.strerror or error}") from None
        running.started(process)
        patience = Timer(_PATIENCE * len(names), running.kill)
        patience.start()
        found: list[Any] = []
        try:
            with suppress(BrokenPipeError), process:  # it may end before it has read all
                assert process.stdin is not None
                assert process.stdout is not None
                json.dump(job, process.stdin)
                process.stdin.close()
                running.told(names[0], 0.0)
                for line in process.stdout:
                    if not line.endswith("\n"):
                        break  # the process was ended in the middle of it
                    found.append(json.loads(line))
                    running.told(names[min(len(found), len(names) - 1)], len(found) / len(names))
        finally:
            patience.cancel()
            if process.poll() is None:  # the user has interrupted this one, and the signal did not reach its group
                running.kill()
            running.started(None)
        if running.cancelled:
            raise ReplayError("cancelled")
        complaints.seek(0)
        reason = (complaints.read().strip().splitlines() or [f"ended with {process.returncode}"])[-1]
    if "No module named 'torch'" in reason and not found:
        raise ReplayError(f"{python} has no torch; name one that has with --python")
    return found + [reason] * (len(names) - len(found))
