"""Run kept calls again in fresh processes, one for each variant. Standard library alone: torch is in those only."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import form

__all__ = ["AGAIN", "WIDE", "Kept", "ReplayError", "Variant", "replayed", "variants"]

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


def replayed(
    calls: Sequence[Kept],
    variants: Sequence[Variant],
    *,
    against: Sequence[Mapping[str, Kept]] = (),
    imports: Sequence[str] = (),
    python: str = sys.executable,
) -> list[list[dict[str, Any]]]:
    """Run calls in a fresh process for each variant; return for each of these what came out of each call, as JSON.

    Args:
        calls: of bundles that were checked.
        variants: how.
        against: for each call, kept calls by side, whose results are measured against the one in float64.
        imports: modules whose operators may run besides torch's own.
        python: of an environment with torch.

    Raises:
        ReplayError: it cannot be started, or has no torch.
    """
    told = []
    for number, kept in enumerate(calls):
        sides = against[number] if against else {"own": kept}
        measured = {side: {"folder": str(other.folder), "results": other.results} for side, other in sides.items()}
        told.append({**kept.call, "folder": str(kept.folder), "against": measured, "record": ""})
    job = {"calls": told, "imports": list(imports)}
    # what a library starts when it is imported may not be forked
    jobs = [[variant] for variant in variants] if imports else [list(variants)]
    found = [each for of in jobs for each in _performed({**job, "variants": [dict(v.changes) for v in of]}, python)]
    for number, (variant, results) in enumerate(zip(variants, found, strict=True)):
        if isinstance(results, str) and len(calls) > 1:  # one of them ended the process: the others are known apart
            half = len(calls) // 2
            parts = (slice(half), slice(half, None))
            found[number] = [
                each
                for part in parts
                for each in replayed(calls[part], [variant], against=against[part], imports=imports, python=python)[0]
            ]
        elif isinstance(results, str):
            found[number] = [{"failed": f"its process was ended: {results}"}]
    return found


def _performed(job: Mapping[str, Any], python: str) -> list[Any]:
    """Return the results of each variant, by call; text where its process ended before."""
    many = len(job["variants"])
    try:
        done = subprocess.run(  # noqa: S603 - our own program, in the Python that the user names
            [python, str(_PROGRAM)],
            input=json.dumps(job),
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE * many,
        )
    except OSError as error:
        raise ReplayError(f"{python}: {error.strerror or error}") from None
    except subprocess.TimeoutExpired:
        return [[{"failed": f"did not end within {_PATIENCE * many} seconds"}] * len(job["calls"])] * many
    if done.returncode or not done.stdout:
        reason = (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]
        if "No module named 'torch'" in reason:
            raise ReplayError(f"{python} has no torch; name one that has with --python")
        return [reason] * many
    found: list[Any] = json.loads(done.stdout)
    return found
