"""Limits of work: what is read, paired, judged and compared does not depend on them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matchers.arrays import numbered_together
from matchers.comparison import compare
from matchers.files.cache_folder import CacheFolder
from matchers.logs import file_identity
from matchers.logs.cache import read_cached
from matchers.logs.head import read_ends
from matchers.logs.parser import read_log
from matchers.rules.model import IgnoreRule, RuleSet, TemplateRule
from matchers.weights.checkpoints import read_checkpoint
from matchers.weights.state_compare import compare_states
from tests.captured import Step, write_captured
from tests.matchers.contents import contents
from tests.matchers.logs.imported import samples
from tests.matchers.logs.imported.dumps import msprobe
from tests.matchers.weights.checkpoints import fused, saved, separate
from tests.matchers.work_limits import LIMITS

RULES = RuleSet((TemplateRule(a=("layers.{i}/op_0_mm",), b=("blocks.{i}/op_0_mm",)), IgnoreRule(match="*/op_2_exp")))


def step(layers: str, noise: float) -> list[Step]:
    """Layers under this name, of which a gradient is changed in place; they differ by so much."""
    steps: list[Step] = []
    x: Any = np.random.default_rng(3).standard_normal((8, 8)).astype(np.float32)
    for k in range(6):
        for op in ("mm", "tanh", "exp"):
            made, x = steps[-1].key if steps else "", np.tanh(x * np.float32(1 + k + noise))
            changed = {0: x / 2} if op == "tanh" else {}
            n = len(steps) % 3
            steps.append(
                Step(key=f"{layers}.{k}/op_{n}_{op}", gives=[x, x + 1], reads=[x / 3], made=[made], changed=changed)
            )
    return steps


def compared(folder: Path) -> Any:
    paths = [folder / f"{name}.log" for name in "ab"]
    for path, layers, noise in zip(paths, ("layers", "blocks"), (0, 1e-6), strict=True):
        write_captured(path, step(layers, noise))
    c = compare(read_log(str(paths[0])), read_log(str(paths[1])), RULES)
    cache = CacheFolder(folder / "cache", 1 << 30)
    logs = [contents(log) for log in (c.a, c.b, read_cached(str(paths[0]), cache))]
    cache.flush()
    kept = contents(read_cached(str(paths[0]), cache))
    columns = [getattr(c, name).tolist() for name in ("row_a", "row_b", "status", "reason", "error", "cause")]
    number = numbered_together(np.array([5, 1 << 40, 5, 7]), np.array([9, 0, 9, 4]))
    return read_ends(str(paths[0])), logs, kept, str(columns), number.tolist()


def imported(folder: Path) -> Any:
    (folder / "text.log").write_text(samples.text(), "utf-8")
    return [contents(read_log(str(path))) for path in (folder / "text.log", msprobe(folder / "rank0"))]


def weights(folder: Path) -> Any:
    changed = separate()
    changed["embed.weight"][3] += 1
    one, other = (saved(folder / f"{k}.safetensors", of) for k, of in enumerate((changed, fused(separate()))))
    judged = compare_states(read_checkpoint(one), read_checkpoint(other)).judged
    return [(of.pair.a.name, of.pair.b.name, str(of.numbers)) for of in judged]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[Path], Any]], Any]:
    """The outcome of a workload with the limits as they are."""
    found: dict[Any, Any] = {}

    def of(workload: Callable[[Path], Any]) -> Any:
        if workload not in found:
            found[workload] = workload(tmp_path_factory.mktemp("known"))
        return found[workload]

    return of


@pytest.mark.parametrize(("file", "name"), LIMITS)
def test_results_are_equal_with_another(
    known: Callable[[Callable[[Path], Any]], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, name: str
) -> None:
    monkeypatch.setattr(file_identity, "WORTHWHILE", 1)
    workload = imported if "/imported/" in file else weights if "/weights/" in file else compared
    expected = known(workload)
    module = import_module(file.removesuffix(".py").replace("/", "."))
    monkeypatch.setattr(module, name, LIMITS[file, name])
    assert workload(tmp_path) == expected
