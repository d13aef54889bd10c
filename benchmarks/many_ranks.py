"""Two runs of many ranks, of which three differ: time and memory of `numtui diff RUN_A RUN_B`.

    python -m benchmarks.many_ranks [--ranks N] [--layers L] [--keep DIR]
    python -m benchmarks.many_ranks --pipelines [--keep DIR]

Captures one rank of the example among N that communicate nothing (`--fake-world`, 14,000 operations with 60 layers),
and makes both runs of hard links to its log; three ranks of run B have one changed operation each, and footers to
match. Compares them in processes of this machine, on a Dask cluster of two workers, and in four parts that are merged:
the three reports must be equal, and name those ranks. Prints seconds, processor seconds and peak memory (PSS) of all
processes together. Needs torch and distributed, and Linux.

`--pipelines`: 64 ranks instead, eight copies beside each other of a pipeline of four stages, each on two ranks (tensor
parallel), whose eight logs are real ones (`tests.truth.wide`). They are compared with a run in which one rank has a
changed operation, and merged with one process; both are checked alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from matchers.runs.diff.comparison import RunComparison
from matchers.runs.diff.part_file import joined, read_part

_PARTS = 4
_TICKS = os.sysconf("SC_CLK_TCK")
_PAUSE = 0.05
"""Seconds between two looks at the processes."""
_CHANGED = ("L2 norm", "Min", "Max", "Mean", "Output hash")


def captured(folder: Path, ranks: int, layers: int) -> bytes:
    """Capture the example on rank 0 of many; return its log."""
    model = f"--parallel fsdp2 --fake-world {ranks} --layers {layers} --micro-batches 2 --dim 32 --vocab 64"
    command = ["-m", "capture", "-o", str(folder), "--", "examples/train.py", *model.split()]
    sizes = ["--seq-len", "8", "--batch", "1", "--steps", "1"]
    subprocess.run([sys.executable, *command, *sizes], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return (folder / "numerics" / "rank_0_activations.log").read_bytes()


def with_footer(head: bytes, records: Sequence[bytes]) -> bytes:
    """Return a log with the footer that its records have (docs/log-format.md)."""
    digests = [re.search(rb"^  Digest: (.*)$", record, re.MULTILINE) for record in records]
    joint = b"\n".join(found[1] if found else b"" for found in digests)
    content = b"".join(records)
    digest, of_content = (hashlib.sha256(data).hexdigest()[:16] for data in (joint, content))
    footer = f"End of capture: {len(records)} records, digest {digest}, content {of_content}\n"
    return head + content + footer.encode()


def divided(log: bytes) -> tuple[bytes, list[bytes]]:
    """Return what precedes the records of a log, and each record."""
    first, end = log.index(b"\n[") + 1, log.rindex(b"End of capture: ")
    return log[:first], re.split(rb"(?m)^(?=\[)", log[first:end])[1:]


def changed(log: bytes, layer: int) -> bytes:
    """Return a log in which the first matrix product of a layer is larger by half."""
    head, records = divided(log)
    at = next(k for k, each in enumerate(records) if re.match(rb"\[layers\.%d\.\S*_mm\]" % layer, each))
    lines = []
    for line in records[at].decode().splitlines():
        name, _, value = line.strip().partition(": ")
        if name in _CHANGED:
            line = f"  {name}: {float(value) * 1.5!r}"
        elif name == "Digest":
            line = f"  Digest: {layer:016x}"
        if name != "Sketch":
            lines.append(line)
    records[at] = "\n".join(lines).encode() + b"\n"
    if not records[at].endswith(b"\n\n"):
        records[at] += b"\n"
    return with_footer(head, records)


def write_runs(folder: Path, log: bytes, ranks: int, layers: int) -> tuple[str, str, tuple[int, ...]]:
    """Write both runs; return their paths and the ranks that differ."""
    odd = tuple(ranks * part // 8 + k for k, part in enumerate((1, 4, 7)))
    kept = folder / "same.log"
    kept.write_bytes(log)
    for run in ("a", "b"):
        logs = folder / run / "numerics"
        logs.mkdir(parents=True)
        for rank in range(ranks):
            path = logs / f"rank_{rank}_activations.log"
            if run == "b" and rank in odd:
                path.write_bytes(changed(log, (1 + odd.index(rank)) * layers // 4))
            else:
                path.hardlink_to(kept)
    return str(folder / "a"), str(folder / "b"), odd


_COPIES = 8


def copied(log: bytes, copy: int, ranks: int) -> bytes:
    """Return the log of a rank of a run of `ranks`, as that of its counterpart in a copy of these beside it."""
    start = copy * ranks

    def of_group(found: re.Match[bytes]) -> bytes:
        group = json.loads(found[1])
        group["ranks"] = [start + rank for rank in group["ranks"]]
        group |= {name: start + group[name] for name in ("peer", "root") if name in group}
        return b"  Group: " + json.dumps(group).encode()

    def of_run(found: re.Match[bytes]) -> bytes:
        run = json.loads(found[1], strict=False)
        own = run.get("mesh_coordinates", {})
        more = {"mesh": {"dp": _COPIES, **run.get("mesh", {})}, "mesh_coordinates": {"dp": copy, **own}}
        return (
            b"Run: " + json.dumps({**run, "rank": start + run["rank"], "world_size": _COPIES * ranks, **more}).encode()
        )

    head, records = divided(log)
    head = re.sub(rb"(?m)^Run: (.*)$", of_run, head)
    return with_footer(head, [re.sub(rb"(?m)^  Group: (.*)$", of_group, record) for record in records])


def pipelines(folder: Path) -> int:
    """Capture a pipeline and one process, make 64 ranks of it, compare and check them; 1 if an answer is wrong."""
    from tests.truth.wide.captures import capture_all
    from tests.truth.wide.subject import Run

    ranks, one = (Run(subject="gpt", form=form, ranks=of) for form, of in (("tp-1f1b4-deep", 8), ("micro4", 1)))
    capture_all([ranks, one], folder)
    many, other = folder / "many", folder / "other"
    for run in (many, other):
        run.mkdir(exist_ok=True)
    for rank in range(ranks.ranks):
        log = (folder / ranks.folder / f"rank_{rank}_activations.log").read_bytes()
        for copy in range(_COPIES):
            name, made = f"rank_{copy * ranks.ranks + rank}_activations.log", copied(log, copy, ranks.ranks)
            (many / name).write_bytes(made)
            # the first rank of the second stage
            (other / name).write_bytes(changed(made, 1) if (copy, rank) == (3, 2) else made)
    wrong = False
    for title, arguments, code, says in (
        ("diff, rank by rank", ["diff", many, other], 1, "rank 26"),
        ("diff with one process", ["diff", folder / one.folder, many], 0, "No divergence"),
        ("check", ["check", many], 0, "no finding"),
        ("check of the other", ["check", other], 1, "ranks 26"),
    ):
        took = Measured([sys.executable, "-m", "numtui", *map(str, arguments), "--no-cache"], {**os.environ})
        right = took.code == code and says in took.printed
        print(f"{title:24}{took}  {'' if right else f'WRONG: exit {took.code}'}", flush=True)
        wrong |= not right
    return int(wrong)


class Measured:
    """A command and what it took, with all processes below this one.

    Attributes:
        code: its exit code.
        seconds, processor: of the clock, and of all processors.
        memory: peak of the proportional set sizes together, in bytes.
    """

    def __init__(self, command: Sequence[str], environment: dict[str, str], *, too: bool = False) -> None:
        """Run a command; `too` counts this process itself, where a scheduler runs in it."""
        before = sum(_processor(pid) for pid in _tree(os.getpid()))
        self.memory = 0.0
        spent: dict[int, float] = {}
        start = time.perf_counter()
        program = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while program.poll() is None:
            pids = [pid for pid in _tree(os.getpid()) if too or pid != os.getpid()]
            spent |= {pid: _processor(pid) for pid in pids}
            self.memory = max(self.memory, sum(map(_memory, pids)))
            time.sleep(_PAUSE)
        self.seconds = time.perf_counter() - start
        self.processor = sum(spent.values()) - (before if too else 0.0)
        self.printed, told = program.communicate()
        self.code = program.returncode
        if program.returncode not in (0, 1):
            raise SystemExit(f"{' '.join(command)}: exit code {program.returncode}\n{told}")

    def __str__(self) -> str:
        """Return the numbers as a row of a table."""
        return f"{self.seconds:7.1f} s  {self.processor:7.1f} processor s  {self.memory / 1e6:7.0f} MB"


def _tree(pid: int) -> Iterator[int]:
    yield pid
    try:
        below = [text for path in Path(f"/proc/{pid}/task").glob("*/children") for text in path.read_text().split()]
    except OSError:
        return
    for text in below:
        yield from _tree(int(text))


def _processor(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _memory(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((1024.0 * float(line.split()[1]) for line in lines if line.startswith("Pss:")), 0.0)


def compared(folder: Path, a: str, b: str) -> Iterator[tuple[str, Measured]]:
    """Compare both runs in each way; the last result is that of the merged parts."""
    numtui = [sys.executable, "-m", "numtui"]

    def own_cache() -> dict[str, str]:
        return {**os.environ, "XDG_CACHE_HOME": tempfile.mkdtemp(dir=folder)}

    yield "processes", Measured([*numtui, "diff", a, b], own_cache())
    with ExitStack() as stack:
        from distributed import LocalCluster

        workers = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
        cluster = stack.enter_context(workers)
        on = ["--dask", cluster.scheduler_address]
        yield "Dask, 2 workers", Measured([*numtui, "diff", a, b, *on], own_cache(), too=True)
    parts = [str(folder / f"part_{k}.json") for k in range(1, _PARTS + 1)]
    for k, part in enumerate(parts, 1):
        shard = ["--shard", f"{k}/{_PARTS}", "-o", part]
        yield f"part {k} of {_PARTS}", Measured([*numtui, "diff", a, b, *shard], own_cache())
    yield "numtui merge", Measured([*numtui, "merge", *parts], own_cache())


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the runs, compare them, check the answers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=60)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="make the runs there, and keep them")
    parser.add_argument("--pipelines", action="store_true", help="64 ranks of pipelines with tensor parallel stages")
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if options.pipelines:
            return pipelines(folder)
        log = captured(folder / "captured", options.ranks, options.layers)
        head, records = divided(log)
        assert with_footer(head, records) == log
        a, b, odd = write_runs(folder, log, options.ranks, options.layers)
        print(f"{options.ranks:,} ranks of {len(records):,} operations, {len(log) / 1e6:.1f} MB each; {odd} differ")
        reports = {}
        for name, took in compared(folder, a, b):
            print(f"{name:16}{took}", flush=True)
            if not name.startswith("part "):
                reports[name] = took.printed
        parts = {str(path): read_part(path) for path in folder.glob("part_*.json")}
        found = RunComparison((a, b), joined(parts)).red
        print(f"red ranks: {found}; {'one report' if len(set(reports.values())) == 1 else 'REPORTS DIFFER'}")
        return int(found != odd or len(set(reports.values())) > 1)


if __name__ == "__main__":
    sys.exit(main())
