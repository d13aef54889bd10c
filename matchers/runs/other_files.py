"""Files of other tools in the folder of a run, which numtui does not read, and the commands that open them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from matchers.logs.imported.files import first_bytes

__all__ = ["other_files"]

_START: Final = 4096
_TRACES: Final = "dedicated_log_torch_trace_*.log"


def other_files(folder: Path) -> Iterator[str]:
    """Yield a sentence for the memory snapshots, the logs of torch.compile, and the pages of tlparse that lie there."""
    snapshots = sorted(
        path for ending in ("pickle", "pkl") for path in folder.glob(f"*.{ending}") if _is_snapshot(path)
    )
    if snapshots:
        command = ["python", "-m", "torch.cuda._memory_viz", "trace_plot", str(snapshots[0]), "-o", "memory.html"]
        yield _sentence(snapshots[0], len(snapshots), "snapshot of CUDA memory", command)
    for place in (folder, *sorted(path for path in folder.glob("*") if path.is_dir())):
        if traces := sorted(place.glob(_TRACES)):
            command = ["tlparse", str(traces[0]), "-o", "tl_out"]
            yield _sentence(traces[0], len(traces), "log of torch.compile", command)
        pages = [place / name for name in ("compile_directory.json", "failures_and_restarts.html")]
        if (place / "index.html").is_file() and any(page.is_file() for page in pages):
            command = ["python", "-m", "webbrowser", str(place / "index.html")]
            yield _sentence(place, 1, "output of tlparse", command)


def _sentence(path: Path, many: int, what: str, command: list[str]) -> str:
    more = f", and {many - 1:,} more" if many > 1 else ""
    return f"{what}, not read here: {path}{more}; to open it: {shlex.join(command)}"


def _is_snapshot(path: Path) -> bool:
    start = first_bytes(path, _START)
    return start[:1] == b"\x80" and b"segments" in start
