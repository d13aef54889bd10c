"""Marks of the tests, and the programs and packages that each mark needs beyond the viewer's own dependencies."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from importlib.util import find_spec
from pathlib import PurePath

from hypothesis import settings

from capture.native_library import COMPILERS
from tests.browser.chromium import NAMES

__all__ = ["HAS_TORCH", "MARKS", "TORCH_FOLDERS", "examples", "lacking", "marks_of", "stride"]

MARKS = ("torch", "compiler", "pty", "browser", "screen", "slow")
"""As registered in pyproject.toml."""

HAS_TORCH = find_spec("torch") is not None
TORCH_FOLDERS = ("capture", "examples", "truth")
"""Folders below tests/ whose modules import torch."""

_MARK_OF_FOLDER = {**dict.fromkeys(TORCH_FOLDERS, "torch"), "pty": "pty", "browser": "browser", "fuzz": "slow"}
_COMPILED = (
    ("capture", "test_statistics.py"),
    ("capture", "test_native_library.py"),
    ("matchers", "test_graph.py"),
    ("matchers", "logs", "test_compiled_reader.py"),
)
_SLOW = (
    ("test_hostile_logs.py",),
    ("test_imports.py",),
    *(("numtui", "cli", name) for name in ("test_cache.py", "test_main.py", "test_rank_processes.py", "test_ranks.py")),
)
"""Attacks, and programs that tests start by the dozen."""
_MARK_OF_FIXTURE = {
    "two_ranks": "torch",
    "runs_bed": "torch",
    "forked": "torch",
    "path_with_numtui": "torch",
    "implementation": "torch",
    "chromium": "browser",
}


def marks_of(path: PurePath, fixtures: Collection[str]) -> set[str]:
    """The marks of a test: by its file, relative to tests/, and by the fixtures it uses."""
    marks = {_MARK_OF_FIXTURE[name] for name in fixtures if name in _MARK_OF_FIXTURE}
    if path.parts[0] in _MARK_OF_FOLDER:
        marks.add(_MARK_OF_FOLDER[path.parts[0]])
    if path.parts in _COMPILED:
        marks.add("compiler")
    if path.parts in _SLOW:
        marks.add("slow")
    if path.parts[:2] == ("numtui", "tui"):
        marks.add("screen")
    return marks


def lacking(mark: str) -> str:
    """The reason why tests with this mark cannot run on this machine; empty where they can."""
    if mark == "torch" and not HAS_TORCH:
        return "PyTorch is not installed: pip install -e '.[test-full]'"
    if mark == "compiler" and not any(map(shutil.which, COMPILERS)):
        return f"no C compiler ({', '.join(COMPILERS)}) is installed"
    if mark == "pty" and shutil.which("tmux") is None:
        return "tmux is not installed"
    if mark == "browser" and not any(map(shutil.which, NAMES)):
        return "Chromium is not installed"
    return ""


def examples(usual: int) -> int:
    """The number of random examples: `usual`, a tenth of it in the profile of `make test-fast`."""
    return max(usual * settings.default.max_examples // 50, 1) if settings.default is not None else usual


def stride(fast: int) -> int:
    """The step of a loop over all places: each of them, every `fast`-th in the profile of `make test-fast`."""
    return fast if examples(50) <= 5 else 1
