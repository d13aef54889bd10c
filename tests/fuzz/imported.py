"""Files of other tools to which something happened: each is an error in a sentence or a log, soon and in little memory.

What is read of a damaged file is also compared with the good one, now and then: whatever a reader lets through, the
comparison has to bear.
"""

from __future__ import annotations

import argparse
import gzip
import json
import pickle
import random
import resource
import shutil
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from hypothesis import strategies as st

from matchers.comparison import compare
from matchers.errors import UserError
from matchers.logs.parser import read_log
from matchers.runs.check import check_run
from matchers.runs.run import find_run
from tests.conftest import DATA
from tests.fuzz.folders import fast_folder
from tests.matchers.logs.imported.dumps import (
    ACTIVATIONS,
    debug_tree,
    determinism,
    msprobe,
    routing,
    safetensors,
)
from tests.matchers.logs.imported.samples import hashes, saved, text

__all__ = ["FORMATS", "check_imported", "damaged_files"]

MOST_SECONDS: Final = 5.0
"""Of processor time for a file of some kilobytes."""
MOST_MEMORY: Final = 1 << 20
"""KiB by which the process may grow."""
_COMPARED: Final = 8
"""One in so many is compared with the good log."""

_VALUES: Final[tuple[Any, ...]] = (
    None,
    True,
    0,
    -1,
    1 << 31,
    1 << 63,
    1 << 70,
    -(1 << 200),
    1e308,
    1e-320,
    float("nan"),
    float("inf"),
    "",
    "nan",
    "x" * 3000,
    "\ud800",
    "\x00\n[a/op_0_b]",
    "a.b.c",
    "1e999",
    "torch.float32",
    "0x" + "f" * 40,
    "-f" * 8,
    [],
    {},
    [[]],
    [None] * 40,
    [1, [2, [3, {}]]],
    {"value": 1},
    {"dtype": "x", "shape": [2]},
    [1e308] * 3,
    {"type": "tuple", "items": [{}]},
)
"""Values that stand where others were."""
_PIECES: Final = (
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b"\\",
    b",",
    b":",
    b"\n",
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"[" * 3000,
    b'{"a":' * 3000,
    b"1e999",
    b"-",
    b"NaN",
    b"9" * 5000,
    b'"\\ud800"',
    b"null",
    b"'" * 9,
    b"\x80\x02",
    b")" * 50,
    b"t$1: f32[2]",
)
"""Bytes that come in between."""


def _text(write: Callable[[], str]) -> Callable[[Path], str]:
    def written(folder: Path) -> str:
        (folder / "a.log").write_text(write())
        return "a.log"

    return written


def _msprobe(folder: Path, **options: Any) -> str:
    return msprobe(folder, **options).name


def _msprobe_tensors(folder: Path) -> str:
    told = {
        "dtype": "torch.float32",
        "shape": [2],
        "Max": 1.0,
        "Min": 1.0,
        "Mean": 1.0,
        "Norm": 1.0,
        "data_name": "x.pt",
    }
    entry = {"input_args": [told], "input_kwargs": {}, "output": [told]}
    msprobe(folder, changes={"Torch.relu.0.forward": entry})
    (folder / "dump_tensor_data").mkdir()
    shutil.copy(DATA / "torch_tensor.pt", folder / "dump_tensor_data" / "x.pt")
    return "dump.json"


def _routing(folder: Path) -> str:
    (folder / "trace.jsonl").write_text(routing(hidden=True))
    (folder / "hidden_states_rank0.bin").write_bytes(bytes(range(48)))
    return "trace.jsonl"


def _tree(folder: Path) -> str:
    (folder / "M_debug_tree_FULL_TENSORS.json").write_bytes(debug_tree(folder=folder))
    return "M_debug_tree_FULL_TENSORS.json"


def _printed_tree(folder: Path) -> str:
    (folder / "M_debug_tree_SUMMARY.json").write_bytes(debug_tree())
    return "M_debug_tree_SUMMARY.json"


def _safetensors(folder: Path) -> str:
    (folder / "a.safetensors").write_bytes(safetensors(ACTIVATIONS))
    return "a.safetensors"


def _index(folder: Path) -> str:
    named = list(ACTIVATIONS)
    parts = {"a.safetensors": named[:3], "b.safetensors": named[3:]}
    for file, names in parts.items():
        (folder / file).write_bytes(safetensors({name: ACTIVATIONS[name] for name in names}))
    files = {name: file for file, names in parts.items() for name in names}
    (folder / "a.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    return "a.safetensors.index.json"


def _torch_save(folder: Path) -> str:
    shutil.copy(DATA / "torch_save.pt", folder / "a.pt")
    return "a.pt"


def _dumper(folder: Path) -> str:
    names = [f"step=0___rank=0___dump_index={k}___name=h{k}.pt" for k in (1, 2)]
    for name in names:
        shutil.copy(DATA / "torch_save.pt", folder / name)
    return names[0]


def _recorder(folder: Path, *, pickled: bool) -> str:
    entry: dict[str, Any] = {
        "record_id": 0,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": 1,
        "p2p_seq_id": 0,
    }
    entry |= {"profiling_name": "nccl:all_reduce", "input_sizes": [[4]], "input_dtypes": ["Float"]}
    entry |= {"output_sizes": [[4]], "output_dtypes": ["Float"], "retired": False, "state": "started"}
    entry["frames"] = [{"name": "f", "filename": "/t.py", "line": 3}]
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    dump = {
        "version": "2.10",
        "pg_config": config,
        "pg_status": {"0": {"last_enqueued_collective": 1}},
        "entries": [entry],
    }
    for rank in (0, 1):
        data = pickle.dumps(dump, 2) if pickled else json.dumps(dump).encode()
        (folder / f"nccl_trace_rank_{rank}").write_bytes(data)
    return "."


FORMATS: Final[Mapping[str, Callable[[Path], str]]] = {
    "save_logs": _text(saved),
    "debug_string": _text(text),
    "hash dump": _text(hashes),
    "msprobe": _msprobe,
    "msprobe L0": lambda folder: _msprobe(folder, level="L0"),
    "msprobe md5": lambda folder: _msprobe(folder, summary="md5"),
    "msprobe xor": lambda folder: _msprobe(folder, summary="xor"),
    "msprobe tensors": _msprobe_tensors,
    **{f"determinism {mode}": _text(partial(determinism, mode)) for mode in ("full", "summary", "sampled", "metadata")},
    "routing": _routing,
    "tree": _tree,
    "printed tree": _printed_tree,
    "safetensors": _safetensors,
    "safetensors index": _index,
    "torch.save": _torch_save,
    "dumper": _dumper,
    "flight recorder, JSON": lambda folder: _recorder(folder, pickled=False),
    "flight recorder, pickle": lambda folder: _recorder(folder, pickled=True),
}
"""By format what writes a good one in a folder, and returns the name that is opened."""


def damaged_files() -> st.SearchStrategy[tuple[str, int]]:
    """A format, and a number that everything random follows from."""
    return st.tuples(st.sampled_from(sorted(FORMATS)), st.integers(0, 2**32 - 1))


@cache
def _good(form: str) -> tuple[str, Mapping[str, bytes]]:
    """The name that is opened, and the bytes of all files."""
    with tempfile.TemporaryDirectory() as own:
        folder = Path(own)
        name = FORMATS[form](folder)
        return name, {
            str(path.relative_to(own)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
        }


def check_imported(folder: Path, example: tuple[str, int]) -> int:
    """Read a damaged file; return the number of tries, 1.

    Raises:
        AssertionError: as `try_imported`.
    """
    try_imported(folder, *example)
    return 1


def try_imported(folder: Path, form: str, seed: int) -> str:
    """Read a damaged file; return how that ended: `refused`, `said` (problems are told), or empty.

    Raises:
        AssertionError: it took too long, or too much memory, or the log is none.
    """
    chance = random.Random(seed)
    name, files = _good(form)
    own = Path(tempfile.mkdtemp(dir=folder))
    try:
        victim = chance.choice(sorted(files))
        for path, data in files.items():
            (own / path).parent.mkdir(parents=True, exist_ok=True)
            (own / path).write_bytes(_damaged(data, chance) if path == victim else data)
        before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        end = _read(own / name, form, compared=seed % _COMPARED == 0)
        spent = time.process_time() - started
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert spent < MOST_SECONDS, f"{form} {seed}: {spent:.1f} s"
        assert grown < MOST_MEMORY, f"{form} {seed}: {grown >> 10:,} MiB"
    finally:
        shutil.rmtree(own)
    return end


def _read(path: Path, form: str, *, compared: bool) -> str:
    try:
        if path.is_dir():
            check_run(find_run(str(path), dumps=True))
            return ""
        log = read_log(path)
    except UserError as error:
        assert str(path.parent) in str(error) or str(path) in str(error)  # noqa: PT017
        return "refused"
    assert len(log.keys) == len(log.line) == log.stats.shape[1]
    assert "\n" not in "".join(log.keys)
    assert all(problem.line >= 1 and problem.message for problem in log.problems)
    assert log.producers.value.max(initial=-1) < len(log)
    if compared:
        with tempfile.TemporaryDirectory() as own:
            name, files = _good(form)
            for file, data in files.items():
                Path(own, file).parent.mkdir(parents=True, exist_ok=True)
                Path(own, file).write_bytes(data)
            compare(log, read_log(Path(own, name)))
    return "said" if log.problems or log.complete is False else ""


def _damaged(data: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        changed = _with_other_values(data, chance) if chance.random() < 0.4 else None
        data = changed if changed is not None else chance.choice(_DAMAGES)(data, chance)
    return data


def _with_other_values(data: bytes, chance: random.Random) -> bytes | None:
    """JSON with another value, or without one; None for what is no JSON."""
    lines = data.splitlines(keepends=True)
    at = chance.randrange(len(lines)) if lines else 0
    for parts in ((b"", data, b""), (b"".join(lines[:at]), lines[at] if lines else b"", b"".join(lines[at + 1 :]))):
        try:
            value = json.loads(parts[1])
        except (ValueError, RecursionError):
            continue
        places = list(_places(value))
        if places:
            container, key = chance.choice(places)
            if chance.random() < 0.2:
                del container[key]
            else:
                container[key] = chance.choice(_VALUES)
            told = json.dumps(value, indent=1 if parts[0] == parts[2] == b"" and chance.random() < 0.5 else None)
            return parts[0] + told.encode() + (b"\n" if parts[1].endswith(b"\n") else b"") + parts[2]
    return None


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Containers, and the keys in them."""
    found: list[tuple[Any, Any]] = []
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, (dict, list)):
            keys = list(item) if isinstance(item, dict) else list(range(len(item)))
            found += [(item, key) for key in keys]
            stack += [item[key] for key in keys]
    return found


def _cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _flipped(data: bytes, chance: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 3, 30)) if out else 0):
        out[chance.randrange(len(out))] = chance.randrange(256)
    return bytes(out)


def _with_a_piece(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice(_PIECES) + data[at + chance.choice((0, 0, 1, 20)) :]


def _with_a_number(data: bytes, chance: random.Random) -> bytes:
    """Sizes and offsets of binary files."""
    at = chance.randrange(len(data) + 1)
    number = struct.pack(chance.choice(["<I", "<Q", ">I", ">Q"]), chance.choice((0, 1, 255, 2**16, 2**31, 2**32 - 1)))
    return data[:at] + number + data[at + len(number) :]


def _moved(data: bytes, chance: random.Random) -> bytes:
    a, b, to = sorted(chance.randrange(len(data) + 1) for _ in range(3))
    kept = data if chance.random() < 0.5 else data[:a] + data[b:]
    return kept[:to] + data[a:b] + kept[to:]


def _huge(data: bytes, chance: random.Random) -> bytes:
    """A text of megabytes, or brackets without end."""
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice((b'"' + b"x" * (1 << 21) + b'"', b"[" * 100_000, b'{"a":' * 100_000)) + data[at:]


def _in_other_words(data: bytes, chance: random.Random) -> bytes:
    """Another encoding, or a compressed file that is damaged itself."""
    if chance.random() < 0.5:
        return chance.choice((_cut, _flipped))(gzip.compress(data, 1, mtime=0), chance)
    return data.decode("utf-8", "replace").encode(
        chance.choice(("utf-16", "utf-32-be", "utf-8-sig", "utf-7")), "replace"
    )


_DAMAGES: Final = (_cut, _cut, _flipped, _flipped, _flipped, _flipped, _with_a_piece, _with_a_piece, _with_a_piece,
    _with_a_number, _with_a_number, _moved, _moved, _moved, _in_other_words, _in_other_words, _huge)  # fmt: skip


def main() -> int:
    """Try as many damaged files of each format, and print a table."""
    options = argparse.ArgumentParser(prog="python -m tests.fuzz.imported", description=main.__doc__)
    options.add_argument("--count", type=int, default=10_000, help="of each format")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--only", choices=list(FORMATS), action="append")
    args = options.parse_args()
    failed = 0
    print(f"{'':<26}{'tried':>8}{'failures':>10}{'refused':>9}{'said':>8}{'seconds':>9}")
    for form in args.only or FORMATS:
        chance = random.Random(f"{form} {args.seed}")
        began, failures, ends = time.process_time(), 0, Counter[str]()
        with tempfile.TemporaryDirectory(dir=fast_folder()) as folder:
            for _ in range(args.count):
                seed = chance.getrandbits(32)
                try:
                    ends[try_imported(Path(folder), form, seed)] += 1
                except Exception as error:  # noqa: BLE001 - any is a failure
                    failures += 1
                    print(f"--- {form} {seed}: {type(error).__name__}: {error}", flush=True)
        spent = time.process_time() - began
        print(
            f"{form:<26}{args.count:>8,}{failures:>10,}{ends['refused']:>9,}{ends['said']:>8,}{spent:>9.0f}", flush=True
        )
        failed += failures
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
