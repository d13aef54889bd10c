"""Files of the user that something happened to: each is read, or refused with a sentence; none ends the program."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from matchers.comparison import compare
from matchers.errors import UserError
from matchers.logs.parser import read_log
from matchers.logs.raw_record import raw_record
from matchers.rules.file import RuleFile
from matchers.rules.model import RuleSet
from numtui.cli.config import load_config
from numtui.report.known_differences import load_allow_list
from numtui.session.journal import Journal
from numtui.session.store import SavedSession, SessionStore
from tests.conftest import DATA
from tests.fuzz.logs import after_damages, damages
from tests.matchers.logs.imported.dumps import ACTIVATIONS, debug_tree, determinism, msprobe, routing, safetensors
from tests.matchers.logs.imported.samples import hashes, saved, text

__all__ = ["EXAMPLES", "READERS", "check_read", "user_files"]

_LOGS = ("a.log", "b.log")


def _msprobe() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return msprobe(Path(folder), summary="md5").read_bytes()


EXAMPLES: Mapping[str, bytes] = {
    "config": (
        b"keys:\n  next-red: [n, '] c']\n  html: []\ntheme: nord\ncolor: false\nmouse: true\nsession: false\n"
        b"cache: 4 GiB\neditor: code -g {file}:{line}\nsources: [/src, ~/torchtitan]\n"
    ),
    "known differences": (
        b"version: 1\nallow:\n  - match: 'layers.*/op_*_mm'\n    why: agreed\n    status: [diverged, shape]\n"
        b"    up_to: 1.0e-3\n    consequences: true\n"
    ),
    "rules": (
        b"version: 1\npairs:\n  - a: x\n    b: [y, z]\n    why: so\ntolerance:\n  - match: '*'\n    rtol: 1.0e-3\n"
        b"templates: [{a: 'layers.{i}/op_{n}_mm', b: 'blocks.{i}/op_{n}_mm'}]\n"
    ),
    "journal": json.dumps(
        {"version": 1, "time": 1.5e9, "host": "h", "pid": 1, "locked": False, "text": "version: 1\n"}, indent=1
    ).encode(),
    "session": json.dumps(
        {
            "version": 1,
            "cursor": [["x/op_0_mm", 0], None],
            "query": "is:red",
            "hidden": ["equal"],
            "order": "error",
            "folded": True,
            "filters": {"mine": "op:mm"},
            "marks": {"m": [["x/op_0_mm", 0], ["y/op_0_mm", 2]]},
            "notes": [{"row": [["x/op_0_mm", 0], None], "text": "odd"}],
            "rejected": ["- a: x"],
            "typed": {"search": ["mm"]},
        },
        indent=1,
    ).encode(),
    **{f"DebugMode {form.__name__}": form().encode() for form in (text, saved, hashes)},
    "safetensors": safetensors(ACTIVATIONS),
    "transformers": debug_tree(),
    "msprobe": _msprobe(),
    "determinism": determinism("summary").encode(),
    "routing": routing().encode(),
    "torch.save": (DATA / "torch_save.pt").read_bytes(),
}
"""A good file of each kind."""
_DUMPS = ("safetensors", "transformers", "msprobe", "torch.save", "determinism", "routing")
_NO_TREES = ("DebugMode text", "DebugMode hashes", "safetensors", "torch.save", "determinism", "routing")
"""Kinds that are lines, and no tree of values."""


def _journal(path: Path, data: bytes) -> None:
    folder = path.parent / "journal"
    folder.mkdir(exist_ok=True)
    journal = Journal(*_LOGS, path.parent / "rules.yaml", folder=folder)
    journal.write("version: 1\n")
    (mine,) = folder.glob("*.json")
    mine.rename(mine.with_name(mine.name.split("-", maxsplit=1)[0] + "-1-1.json"))
    (mine.parent / (mine.name.split("-", maxsplit=1)[0] + "-1-1.json")).write_bytes(data)
    journal.close()
    later = Journal(*_LOGS, path.parent / "rules.yaml", folder=folder)
    found = later.pending()
    assert found is None or isinstance(found.rules, str)
    later.clear()
    later.write("version: 1\n")
    assert later.problem is None
    later.clear()
    later.close()
    for left in folder.iterdir():
        left.unlink()


def _session(path: Path, data: bytes) -> None:
    store = SessionStore(*_LOGS, folder=path.parent)
    store.path.write_bytes(data)
    kept = store.load()
    store.save(kept)
    assert _content(SessionStore(*_LOGS, folder=path.parent).load()) == _content(kept)
    store.save(SavedSession(query="is:red"))
    assert SessionStore(*_LOGS, folder=path.parent).load().query == "is:red"


def _content(kept: SavedSession) -> SavedSession:
    """As it is stored: the rejected rules of several sessions are one set."""
    return replace(kept, rejected=tuple(sorted(set(kept.rejected))))


def _rules(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    file = RuleFile.load(path)
    assert file.rules == RuleFile.load(path).rules
    assert file.save(RuleSet(), force=True).rules == RuleSet()


def _plain(read: Callable[[Path], Any]) -> Callable[[Path, bytes], None]:
    def written_and_read(path: Path, data: bytes) -> None:
        path.write_bytes(data)
        read(path)

    return written_and_read


def _compared(path: Path) -> None:
    log = read_log(path)
    _ = compare(log, log)
    for row in range(len(log)):
        assert raw_record(log, row)


READERS: Mapping[str, Callable[[Path, bytes], None]] = {
    "config": _plain(load_config),
    "known differences": _plain(load_allow_list),
    "rules": _rules,
    "journal": _journal,
    "session": _session,
    **dict.fromkeys((f"DebugMode {form.__name__}" for form in (text, saved, hashes)), _plain(_compared)),
    **dict.fromkeys(_DUMPS, _plain(_compared)),
}
"""The reader of each kind."""

_odd: st.SearchStrategy[Any] = st.sampled_from(
    [
        *(None, True, -1, 0, 2, 1e300, float("inf"), float("-inf"), float("nan"), 10**30, 10**400, -(10**400), [], {}),
        *(
            "",
            "1_0",
            "1:30",
            "0x10",
            "~",
            "2020-01-01",
            "\x00",
            "\ud800",
            "\u202e",
            "*",
            "{i}",
            "a" * 5_000,
            [[]],
            {"a": 1},
        ),
    ]
)
_scalars = _odd | st.floats() | st.integers() | st.text(max_size=5)
_trees = st.recursive(
    _scalars,
    lambda inside: (
        st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=4) | st.just("text"), inside, max_size=3)
    ),
    max_leaves=8,
)


@st.composite
def _retold(draw: st.DrawFn, kind: str) -> bytes:
    """A good file with one of its values replaced by any tree."""
    value = yaml.safe_load(EXAMPLES[kind])
    inside = value
    while isinstance(inside, (dict, list)) and inside:
        key = draw(st.sampled_from(sorted(inside) if isinstance(inside, dict) else range(len(inside))))
        if not isinstance(inside[key], (dict, list)) or draw(st.integers(0, 2)) == 0:
            inside[key] = draw(_odd | _trees)
            break
        inside = inside[key]
    text = (
        json.dumps(value)
        if kind in ("journal", "session", "DebugMode saved", "transformers", "msprobe")
        else yaml.safe_dump(value, allow_unicode=True)
    )
    return text.encode("utf-8", "surrogatepass")


@st.composite
def _nested(draw: st.DrawFn, kind: str) -> bytes:
    """A good file with something deep, or many aliases, in place of a value."""
    depth = draw(st.sampled_from([15, 17, 1_000, 100_000]))
    deep = draw(st.sampled_from([b"[" * depth, b"[" * depth + b"]" * depth, b'{"a":' * depth, b"- " * depth]))
    data = EXAMPLES[kind]
    places = [0, *(place for place in range(len(data)) if data[place - 1 : place] in (b" ", b"["))]
    place = draw(st.sampled_from(places))
    return data[:place] + deep + data[place:]


@st.composite
def user_files(draw: st.DrawFn) -> tuple[str, bytes]:
    """A kind of file, and what such a file holds."""
    kind = draw(st.sampled_from(sorted(EXAMPLES)))
    how = draw(st.integers(0, 9))
    if how == 0:
        return kind, draw(st.binary(max_size=60))
    if how < 3:
        return kind, draw(_nested(kind))
    if how < 7 and kind not in _NO_TREES:
        return kind, draw(_retold(kind))
    return kind, after_damages(EXAMPLES[kind], draw(st.lists(damages, min_size=1, max_size=4)))


def check_read(folder: Path, kind: str, data: bytes) -> None:
    """Read such a file, as the program does; fail on any error but a sentence."""
    try:
        READERS[kind](folder / "file.yaml", data)
    except UserError as error:
        assert str(error).strip()  # noqa: PT017 - most files are read
