"""Cost of capturing: start-up, and time and peak memory of a step, beside DebugMode's own recording in the same run.

    python -m benchmarks.capture_cost [--rounds N] [--device cpu|cuda] [-- switches of examples/train.py]
    python -m benchmarks.capture_cost --brief [--rounds N] [--clock wall|cpu]

The brief form is one table: what capture adds to a script that compiles nothing, from `import torch` to the end of its
only, tiny step; and a captured step beside a plain one, of a Llama of 15 million parameters at 640 tokens and of the
example at 2,048, with torch's own number of threads (OMP_NUM_THREADS). `--clock cpu` takes the time that the process
computes, for a machine with other load.

In the long form, every round runs each variant once, so that other load on the machine affects all alike. The baseline
records all that DebugMode can: norms of inputs and outputs, stack traces, the module tracker. `added` is the time
beyond the plain step, `of baseline` its ratio to the time that the baseline adds. Memory is measured in a process per
variant. On a GPU the capture runs with synchronisation forbidden.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils._debug_mode import DebugMode

from capture.schedule import trace

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
_PROCESSES = 5
TOKENS = ("--seq-len", "512", "--batch", "4")
LLAMA = (
    *("--layers", "6", "--dim", "384", "--heads", "6", "--kv-heads", "6", "--vocab", "6000"),
    *("--seq-len", "320", "--batch", "2"),
)
"""A model of 15 million parameters and its 640 tokens."""
SCRIPT = """
import sys, time
clock = getattr(time, sys.argv[1])
import torch
model = torch.nn.Linear(8, 8)
model(torch.ones(8)).sum().backward()
with torch.no_grad():
    model.weight -= model.weight.grad
print(clock() - float(sys.argv[2]))
"""
"""Prints the seconds until the end of a step without a compiler and an optimizer."""

Around = Callable[[Any, Path], Any]


@contextlib.contextmanager
def plain(_model: Any, _folder: Path) -> Iterator[None]:
    """Run the step without recording."""
    yield


@contextlib.contextmanager
def baseline(_model: Any, _folder: Path) -> Iterator[None]:
    """Record with DebugMode."""
    mode = DebugMode(record_nn_module=True, record_stack_trace=True, record_ids=True)
    with mode, DebugMode.log_tensor_hashes(hash_fn="norm", hash_inputs=True):
        yield


def captured(*, sketch: bool) -> Around:
    """Record with the capture, including writing the log."""

    @contextlib.contextmanager
    def around(model: Any, folder: Path) -> Iterator[None]:
        with trace(model, path=folder / "rank_0_activations.log", sketch=sketch):
            yield

    return around


VARIANTS: dict[str, Around] = {
    "plain": plain,
    "baseline": baseline,
    "capture": captured(sketch=True),
    "capture --no-sketch": captured(sketch=False),
}


class Workload:
    """One training step of the example."""

    def __init__(self, switches: list[str], device: str) -> None:
        sys.path.insert(0, str(EXAMPLES))
        import data
        import settings
        import train

        self.device = device
        self._settings = settings.parse(switches)
        torch.set_num_threads(self._settings.threads)
        self.model = train.build(self._settings).to(device)
        self._optimizer = train.make_optimizer(self.model, self._settings)
        self.tokens = self._settings.batch * self._settings.seq_len
        shape = (self._settings.batch, self._settings.seq_len)
        batch = data.micro_batch(self._settings.seed, 1, 0, shape, self._settings.vocab)
        self._batch = [tensor.to(device) for tensor in batch]
        self._run = train.make_step(self.model, self.model, self._settings, self.tokens)

    def step(self) -> None:
        """Run forward, backward, clipping and optimizer; return when the device is done."""
        s = self._settings
        self._optimizer.zero_grad()
        self._run(*self._batch)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), s.clip)
        self._optimizer.step()

    def wait(self) -> None:
        """Wait for the device."""
        if self.device != "cpu":
            torch.cuda.synchronize()


def timed(work: Workload, around: Around, folder: Path, *, no_sync: bool = False) -> float:
    """Return the seconds of one step inside `around`, including its exit."""
    work.wait()
    begin = time.perf_counter()
    with around(work.model, folder):
        if no_sync:
            torch.cuda.set_sync_debug_mode("error")
        try:
            work.step()
        finally:
            if no_sync:
                torch.cuda.set_sync_debug_mode("default")
    work.wait()
    return time.perf_counter() - begin


def peak_memory(name: str, device: str, switches: list[str]) -> float:
    """Return the peak memory in MB of a process with two steps of one variant; on the host, the median of some."""
    command = [sys.executable, "-m", "benchmarks.capture_cost", "--memory-of", name, "--device", device]
    command += ["--", *switches]
    peaks = []
    for _ in range(_PROCESSES if device == "cpu" else 1):
        out = subprocess.run(command, check=True, capture_output=True, text=True, cwd=EXAMPLES.parent)
        peaks.append(float(out.stdout.strip().splitlines()[-1]))
    return statistics.median(peaks)


def start_up(rounds: int, clock: str) -> float:
    """Return the median seconds that capture adds to a script until the end of its only step."""
    added = []
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"
        script.write_text(SCRIPT)
        for _ in range(rounds + 1):
            took = []
            for before in ((), ("-m", "capture", "-o", folder, "--")):
                # the monotonic clock is that of the machine, the other begins with the process
                zero = time.monotonic() if clock == "monotonic" else 0.0
                command = [sys.executable, *before, str(script), clock, str(zero)]
                out = subprocess.run(command, check=True, capture_output=True, text=True, cwd=EXAMPLES.parent)
                took.append(float(out.stdout))
            added.append(took[1] - took[0])
    return statistics.median(added[1:])


def brief(rounds: int, clock: str) -> None:
    """Print start-up and step cost in one table."""
    now = getattr(time, clock)
    print(f"medians of {rounds} rounds, {torch.get_num_threads()} threads, {clock}")
    print(f"{'':36}{'plain':>10}{'captured':>10}")
    print(f"{'start-up over import torch':36}{'':10}{start_up(rounds, clock):+9.3f}s")
    threads = ("--threads", str(torch.get_num_threads()))
    for switches in (LLAMA, TOKENS):
        work = Workload([*switches, *threads], "cpu")
        took: dict[str, list[float]] = {"plain": [], "capture": []}
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(rounds + 1):
                for name, seconds in took.items():
                    began = now()
                    timed(work, VARIANTS[name], Path(folder))
                    seconds.append(now() - began)
        plain, captured = (statistics.median(seconds[1:]) for seconds in took.values())
        ratio = statistics.median(b / a for a, b in zip(took["plain"][1:], took["capture"][1:], strict=True))
        count = sum(parameter.numel() for parameter in work.model.parameters())
        title = f"{work.tokens} tokens, {count / 1e6:.1f} M parameters"
        print(f"{title:36}{plain:9.3f}s{captured:9.3f}s  × {ratio:.2f}")


def _memory_here(name: str, device: str, switches: list[str]) -> float:
    work = Workload(switches, device)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            timed(work, VARIANTS[name], Path(folder))
    if device != "cpu":
        return torch.cuda.max_memory_allocated() / 2**20
    return _peak_resident()


def _peak_resident() -> float:
    """Return the peak resident memory in MB; not `ru_maxrss`, which starts at the parent's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return float(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no VmHWM")


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--brief", action="store_true", help="start-up and step cost on the CPU in one table")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="of --brief")
    parser.add_argument("--memory-of", choices=list(VARIANTS), help=argparse.SUPPRESS)
    options, rest = parser.parse_known_args()
    switches = [argument for argument in rest if argument != "--"] or list(TOKENS)
    if options.memory_of:
        print(_memory_here(options.memory_of, options.device, switches))
        return 0

    if options.brief:
        brief(options.rounds, {"wall": "monotonic", "cpu": "process_time"}[options.clock])
        return 0
    if not torch.cuda.is_available():
        print("no GPU: the figures are those of the CPU")
    work = Workload(switches, options.device)
    took: dict[str, list[float]] = {name: [] for name in VARIANTS}
    with tempfile.TemporaryDirectory() as folder:
        for around in VARIANTS.values():
            timed(work, around, Path(folder))
        for _ in range(options.rounds):
            for name, around in VARIANTS.items():
                no_sync = options.device != "cpu" and name.startswith("capture")
                took[name].append(timed(work, around, Path(folder), no_sync=no_sync))

    middle = {name: statistics.median(seconds) for name, seconds in took.items()}
    added = {name: seconds - middle["plain"] for name, seconds in middle.items()}
    memory = {name: peak_memory(name, options.device, switches) for name in VARIANTS}
    print(f"{work.tokens} tokens on {options.device}, medians of {options.rounds} rounds")
    print(f"{'':20}{'step':>10}{'added':>10}{'of baseline':>13}{'peak memory':>14}")
    for name in VARIANTS:
        share = f"{added[name] / added['baseline']:.2f}" if name != "plain" else ""
        more = f"{memory[name]:.0f} MB {memory[name] / memory['plain'] - 1:+.0%}"
        print(f"{name:20}{middle[name]:9.3f}s{added[name]:9.3f}s{share:>13}{more:>14}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
