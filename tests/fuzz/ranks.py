"""Folders of ranks to which something happened: nothing that is missing, doubled, damaged or of another step passes.

A good folder is compared with its damaged copy, in both directions, rank by rank and merged. Whatever happened is in
the exit code; a change that leaves what is compared as it was is none.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from hypothesis import strategies as st

from numtui.cli.main import main
from tests.builders import log_text, training_step

__all__ = ["FolderDamage", "GoodFolder", "check_folder", "folder_pairs"]

_FORMS = ("copies", "samples", "world")
_OTHER_NAMES = ("rank_0{}_activations.log", "rank_{}_activations.log.gz", "../numerics/step_2/rank_{}_activations.log")
_NUMBER = re.compile(rb"-?\d+\.\d+e[-+]\d+")


class GoodFolder(NamedTuple):
    """Logs of so many ranks: copies of one, or with samples of their own; a `world` says in its headers what it is."""

    form: str
    ranks: int
    seed: int


class FolderDamage(NamedTuple):
    """One thing that happens to a folder: its kind, the rank, and which of its variants; both wrap around."""

    kind: str
    rank: int
    variant: int


@lru_cache(maxsize=128)
def _log(good: GoodFolder, rank: int) -> bytes:
    ops = training_step(1, seed=good.seed + (0 if good.form == "copies" else rank))
    run = {"world_size": good.ranks, "rank": rank, "step": 2, "batch": [{"digest": f"{rank:04x}"}]}
    return log_text(ops, run=run if good.form == "world" else None, footer=good.form == "world").encode()


def _write(good: GoodFolder, folder: Path) -> Path:
    _path(folder, 0).parent.mkdir(parents=True)
    for rank in range(good.ranks):
        _path(folder, rank).write_bytes(_log(good, rank))
    return folder


def _path(folder: Path, rank: int) -> Path:
    return folder / "step_2" / f"rank_{rank}_activations.log"


# Damage


def _missing(path: Path, _: int) -> None:
    path.unlink()


def _doubled(path: Path, variant: int) -> None:
    rank = path.name.split("_")[1]
    other = path.parent / _OTHER_NAMES[variant % len(_OTHER_NAMES)].format(rank)
    other.parent.mkdir(parents=True, exist_ok=True)
    data = path.read_bytes() if variant % 2 else _times(path.read_bytes(), 100)
    other.write_bytes(gzip.compress(data) if other.suffix == ".gz" else data)


def _other_digits(path: Path, variant: int) -> None:
    rank = path.name.split("_")[1]
    digits = str.maketrans("0123456789", "".join(chr((0x660, 0x966, 0xFF10)[variant % 3] + k) for k in range(10)))
    path.rename(path.with_name(path.name.replace(rank, rank.translate(digits), 1)))


def _cut(path: Path, variant: int) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * (variant % 99) // 100])


def _nan(path: Path, variant: int) -> None:
    """All numbers of a log, or those of its end."""
    data = path.read_bytes()
    keep = data.rfind(b"\n[", 0, len(data) * 3 // 4) if variant % 2 else 0
    path.write_bytes(data[:keep] + _NUMBER.sub(b"nan", data[keep:]))


def _scaled(path: Path, variant: int) -> None:
    path.write_bytes(_times(path.read_bytes(), (100.0, 0.5, -2.0, 1.01)[variant % 4]))


def _times(data: bytes, factor: float) -> bytes:
    return _NUMBER.sub(lambda found: b"%.6e" % (float(found[0]) * factor), data)


def _other_step(path: Path, _: int) -> None:
    """This rank alone is of another step."""
    other = path.parent.parent / "step_7"
    other.mkdir(exist_ok=True)
    path.rename(other / path.name)


def _more(path: Path, variant: int) -> None:
    """A rank more, with the log of this one."""
    ranks = [int(other.name.split("_")[1]) for other in path.parent.glob("rank_?_activations.log")]
    shutil.copy(path, _path(path.parent.parent, max(ranks) + 1 + variant % 2))


def _garbage(path: Path, variant: int) -> None:
    path.write_bytes((b"", b"\n", b"no log\n", bytes(64), b"\x1f\x8b broken")[variant % 5])


_DAMAGES: Mapping[str, Callable[[Path, int], None]] = {
    "missing": _missing,
    "doubled": _doubled,
    "other digits": _other_digits,
    "cut": _cut,
    "nan": _nan,
    "scaled": _scaled,
    "other step": _other_step,
    "more": _more,
    "garbage": _garbage,
}

folder_pairs = st.tuples(
    st.builds(GoodFolder, st.sampled_from(_FORMS), st.integers(1, 4), st.integers(0, 3)),
    st.lists(
        st.builds(FolderDamage, st.sampled_from(sorted(_DAMAGES)), st.integers(0, 3), st.integers(0, 98)),
        min_size=1,
        max_size=3,
    ),
)


def check_folder(folder: Path, example: tuple[GoodFolder, list[FolderDamage]]) -> int:
    """Damage the copy of a good folder and compare both; return the number of folders."""
    good, damages = example
    own = Path(tempfile.mkdtemp(dir=folder))
    try:
        one, other = _write(good, own / "good"), _write(good, own / "bad")
        assert _compared(one, other)[0] == 0, "a folder and its copy"
        for damage in damages:
            path = _path(other, damage.rank % good.ranks)
            if path.exists():
                _DAMAGES[damage.kind](path, damage.variant)
        if _contents(one) == _contents(other):  # a log has gone, and a copy of it under another name stayed
            return 0
        for sides in ((one, other), (other, one)):
            for options in ((), ("--merged",)):
                code, said = _compared(*sides, *options)
                assert code in (1, 2), f"{options}: exit code {code}\n{said}"
                assert "this is a bug" not in said, said
    finally:
        shutil.rmtree(own)
    return 1


def _contents(folder: Path) -> list[tuple[str, bytes]]:
    """Each log of the common step by its name, without `.gz` and with no zero before its number, and what it holds."""
    return sorted(
        (
            path.relative_to(folder)
            .as_posix()
            .removesuffix(".gz")
            .replace("rank_0", "rank_")
            .replace("rank__", "rank_0_"),
            gzip.decompress(held) if path.suffix == ".gz" else held,
        )
        for path in folder.rglob("step_2/*.log*")
        for held in (path.read_bytes(),)
    )


def _compared(a: Path, b: Path, *options: str) -> tuple[int, str]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(["diff", str(a), str(b), "--workers", "1", "--no-cache", *options])
    return code, said.getvalue()
