"""Operations of a GPU, kept whole: they run again to the bits of the log, from the bundle or from a script alone."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from capture.keeping.bundle import read_bundle
from capture.keeping.form import find_bundles
from capture.keeping.replay import AGAIN, Kept, replayed
from capture.keeping.script import write_script
from tests.gpu.test_steps import FORMS, HEAD, TRAIN, captured, run

LEAST = 0.98
"""Of the operations that are kept, those that give the bits of the log."""
ELSEWHERE = ("c10d", "_c10d_functional")
"""Collectives, which are put together from what each rank gave."""


def kept_below(folder: Path) -> list[Kept]:
    return [Kept(bundle, call) for bundle in find_bundles(folder) for call in read_bundle(bundle).calls]


@pytest.mark.parametrize("form", ["plain", "amp", "fused", "checkpointed", "dropout", "streams", "fsdp2", "tp"])
def test_kept_operations_replay_to_their_bits(tmp_path: Path, form: str) -> None:
    """Without the environment of the run: cuBLAS chooses by a variable that the bundle has, too."""
    text = HEAD + FORMS[form] + TRAIN
    plain = run(tmp_path, text)
    said, _ = captured(tmp_path, text, "kept", "--save", "module:*")
    assert said == plain.stdout, "keeping changed the step"
    kept = [one for one in kept_below(tmp_path / "kept") if not one.call["operator"].startswith(ELSEWHERE)]
    assert len(kept) > 150
    other: Counter[str] = Counter()
    (results,) = replayed(kept, [AGAIN])
    for one, result in zip(kept, results, strict=True):
        told, gave = one.call["digests"], [*result.get("returned", ()), *result.get("written", ())]
        wanted = [*told["returned"], *told["left"]]
        if len(gave) != len(wanted) or any(want not in (got, "-") for got, want in zip(gave, wanted, strict=True)):
            other[f"{one.call['operator']}: {result.get('refused') or result.get('failed') or 'other bits'}"] += 1
    print(form, len(kept), "kept,", sum(other.values()), "not to their bits:", dict(other))  # noqa: T201  the rate, with -s
    assert sum(other.values()) <= (1 - LEAST) * len(kept), other


def test_a_script_gives_the_bits_alone(tmp_path: Path) -> None:
    captured(tmp_path, HEAD + FORMS["dropout"] + TRAIN, "kept", "--save", "module:*")
    kept = kept_below(tmp_path / "kept")
    chosen = {one.call["operator"].partition(".")[0]: one for one in kept}
    for name in ("aten::native_dropout", "aten::mm", "aten::native_layer_norm"):
        folder = tmp_path / name.partition("::")[2]
        write_script(folder, {"a": chosen[name]})
        done = subprocess.run(
            [sys.executable, "-I", "repro.py"], cwd=folder, capture_output=True, text=True, timeout=100, check=False
        )
        assert done.returncode == 0, done.stderr
