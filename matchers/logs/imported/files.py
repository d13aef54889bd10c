"""Logs of other tools in a folder, found by the names of files: steps, ranks, and what together is one log."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final

__all__ = [
    "FoundLog",
    "dumper_files",
    "dumper_tags",
    "files_of",
    "first_bytes",
    "imported_logs",
    "natural",
    "tensor_files",
]

_DIGITS: Final = re.compile(r"(\d+)")
_STEP, _RANK = re.compile(r"step(\d+)", re.ASCII), re.compile(r"(?:rank|proc)(\d+)", re.ASCII)
_TRAINING_STEP: Final = re.compile(r"step_(\d+)", re.ASCII)
_MOST_FOLDERS: Final = 256
"""Folders of one that are looked into for stages."""
_TRACE: Final = re.compile(r"rank_(\d{6})\.jsonl(?:\.gz)?", re.ASCII)
_TAG: Final = "___"
_TREES: Final = ("*_debug_tree_FULL_TENSORS.json", "*_debug_tree_SUMMARY.json")
_DUMP: Final = "dump.json"
_TENSORS: Final = "*.safetensors"
_INDEX: Final = "*.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class FoundLog:
    """A log in the folder of a run: a file, which may stand for those beside it, or a folder.

    Attributes:
        step: None where the folder has one captured step only, or it is unknown.
        stage: the folder of a part of the program that has logs of its own, such as `actor_update`; empty: none.
    """

    path: Path
    rank: int
    step: int | None
    stage: str = ""


def natural(name: str) -> list[tuple[int, str]]:
    """The key by which `layers.2` comes before `layers.10`."""
    parts = _DIGITS.split(name)
    return [(int(part) if k % 2 and part.isascii() else -1, part) for k, part in enumerate(parts)]


def first_bytes(path: Path, many: int) -> bytes:
    """Return the first bytes of a file, by which it is known; none of one that cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(many)
    except OSError:
        return b""


def imported_logs(folder: Path) -> list[FoundLog]:
    """Find the logs of other tools in a folder, by step and rank; empty if there are none.

    Raises:
        OSError: the folder cannot be read.
    """
    return _without_stages(folder) or _of_stages(folder)


def _without_stages(folder: Path) -> list[FoundLog]:
    return next(filter(None, (find(folder) for find in _FINDERS)), [])


def _of_stages(folder: Path) -> list[FoundLog]:
    """Logs in `STAGE/` or, as verl has them, in `step_S/STAGE/`, where a stage counts its own steps from 0."""
    found: list[FoundLog] = []
    for place in _folders(folder):
        step = _TRAINING_STEP.fullmatch(place.name)
        for stage in _folders(place) if step else (place,):
            logs = _without_stages(stage)
            several = step is not None and len({log.step for log in logs}) > 1
            for log in logs:
                name = f"{stage.name}/step{log.step}" if several else stage.name
                found.append(replace(log, step=int(step[1]) if step else log.step, stage=name))
    return sorted(found, key=lambda log: (-1 if log.step is None else log.step, log.stage, log.rank))


def _folders(folder: Path) -> list[Path]:
    return sorted(islice(folder.glob("*/"), _MOST_FOLDERS))


def files_of(path: str) -> list[str]:
    """The files that a log is read from, in their order: for almost all formats the one of this path."""
    log = Path(path)
    if os.path.isdir(path):
        beside: Iterable[Path] = tensor_files(log)
    elif log.name == _DUMP:
        beside = (log, *log.parent.glob("*.json"), *log.parent.glob("dump_tensor_data/*.pt"))
    elif log.suffix == ".pt":
        beside = (log, *(dumper_files(log) if dumper_tags(log.name) else ()))
    elif log.suffix == ".json":
        beside = (log, *log.parent.glob(_TENSORS))
    elif log.suffix == ".jsonl":
        beside = (log, *log.parent.glob("*.bin"))
    else:
        return [path]
    return sorted({os.fspath(file) for file in beside}, key=natural)


def tensor_files(folder: Path) -> Sequence[Path]:
    """The safetensors files of a folder, or their index."""
    return sorted(folder.glob(_INDEX)) or sorted(folder.glob(_TENSORS), key=lambda path: natural(path.name))


def _of_msprobe(folder: Path) -> list[FoundLog]:
    """`dump.json` in the folder of a rank, of a step, or of all steps; a process without a rank has rank 0."""
    if (folder / _DUMP).is_file():
        return [FoundLog(folder / _DUMP, _rank(folder.name), None)]
    found = [FoundLog(path, _rank(path.parent.name), None) for path in folder.glob(f"*/{_DUMP}")]
    for path in () if found else folder.glob(f"*/*/{_DUMP}"):
        if step := _STEP.fullmatch(path.parts[-3]):
            found.append(FoundLog(path, _rank(path.parent.name), int(step[1])))
    return sorted(found, key=lambda log: (-1 if log.step is None else log.step, log.rank))


def _rank(name: str) -> int:
    told = _RANK.fullmatch(name)
    return int(told[1]) if told and name.startswith("rank") else 0


def dumper_tags(name: str) -> dict[str, str]:
    """The tags in the name of a file of SGLang's dumper, `step=0___rank=0___dump_index=1___name=x.pt`; empty: none."""
    tags = dict(part.partition("=")[::2] for part in name.removesuffix(".pt").split(_TAG))
    tags.setdefault("step", tags.get("curr_step", tags.get("forward_pass_id", "")))
    numbers = (tags.get(key, "") for key in ("step", "rank", "dump_index"))
    return tags if name.endswith(".pt") and all(text.isascii() and text.isdigit() for text in numbers) else {}


def dumper_files(path: Path) -> list[Path]:
    """The files of the dumper that are one log with this one, of its step and rank, in the order of dumping."""
    own = dumper_tags(path.name)
    found = [(tags, file) for file in path.parent.glob("*.pt") if (tags := dumper_tags(file.name))]
    of_log = [(int(tags["dump_index"]), file) for tags, file in found if _at(tags) == _at(own)]
    return [file for _, file in sorted(of_log)]


def _at(tags: Mapping[str, str]) -> tuple[int, int]:
    return int(tags["step"]), int(tags["rank"])


def _of_dumper(folder: Path) -> list[FoundLog]:
    first: dict[tuple[int, int], tuple[int, Path]] = {}
    for file in folder.glob("*.pt"):
        if tags := dumper_tags(file.name):
            here = int(tags["dump_index"]), file
            first[_at(tags)] = min(here, first.get(_at(tags), here))
    return [FoundLog(file, rank, step) for (step, rank), (_, file) in sorted(first.items())]


def _of_traces(folder: Path) -> list[FoundLog]:
    """Determinism traces of Megatron-LM."""
    named = ((_TRACE.fullmatch(path.name), path) for path in sorted(folder.glob("rank_*.jsonl*")))
    return [FoundLog(path, int(match[1]), None) for match, path in named if match]


def _of_trees(folder: Path) -> list[FoundLog]:
    found = next(filter(None, (sorted(folder.glob(name)) for name in _TREES)), [])
    return [FoundLog(path, 0, None) for path in found]


def _of_tensors(folder: Path) -> list[FoundLog]:
    files = tensor_files(folder)
    return [FoundLog(files[0] if len(files) == 1 else folder, 0, None)] if files else []


_FINDERS: Final = (_of_msprobe, _of_dumper, _of_traces, _of_trees, _of_tensors)
