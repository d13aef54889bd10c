"""Steps that something from outside ends, such as a collective that a rank skips: what was recorded is written."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.capture.conftest import HEAD
from tests.capture.logs import Log, Row, read_logs
from tests.forks import Forks

HALF = """
import ctypes, os, signal, sys, threading
from functools import partial
model = net()
model(x).sum().backward()
terminate = partial(ctypes.CDLL(None).kill, os.getpid(), signal.SIGTERM)
"""
"""A step that has not come to its optimizer, of which torch.optim, slow to import, need not know."""
STUCK = """
list(map(partial.__call__, [terminate, partial(torch.distributed.HashStore().wait, ["never"])]))
"""
"""The main thread waits in C++ without end, and is in C since the signal: no handler of Python's runs."""

Ended = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(forked: Forks, tmp_path: Path) -> Ended:
    """`run(script, *before)`: captures a script in a process of its own, in the test's folder."""

    def to_the_end(script: str, *before: str) -> subprocess.CompletedProcess[str]:
        path = tmp_path / "script.py"
        path.write_text(script)
        return forked([*before, "-m", "capture", "-o", str(tmp_path / "out"), "--", str(path)], tmp_path)

    return to_the_end


def half_a_step(tmp_path: Path) -> Log:
    """The only log, which has the forward pass and no footer."""
    (log,) = read_logs(tmp_path / "out").values()
    assert log.ops["addmm"] == 2
    assert not log.complete
    return log


def test_a_process_that_waits_without_end_dies_of_the_signal_and_leaves_a_log(run: Ended, tmp_path: Path) -> None:
    """Also of that of a terminal that is closed; SIGTERM is below, torchrun's."""
    done = run(HEAD + HALF.replace("SIGTERM", "SIGHUP") + STUCK)
    assert done.returncode == -signal.SIGHUP
    assert half_a_step(tmp_path).run["incomplete"] == "SIGHUP"


@pytest.mark.parametrize("in_the_main_thread", [False, True])
def test_what_takes_too_long_to_write_is_cut_off_and_there(
    run: Ended, tmp_path: Path, in_the_main_thread: bool
) -> None:
    """On a slow machine a launcher's SIGKILL comes before the end; what is known by then is on the disk."""
    slow = """
    modules = {name.rpartition(".")[2]: module for name, module in sys.modules.items() if "capture." in name}
    pieces = modules["log_writer"]._pieces
    def slowly(records):
        yield from pieces(records)
        torch.distributed.HashStore().wait(["never"])
    modules["log_writer"]._pieces = slowly
    modules["termination"]._LIMIT = 0.2
    """
    end = "terminate()\n" if in_the_main_thread else STUCK
    done = run(HEAD + HALF + slow.replace("\n    ", "\n") + end)
    assert done.returncode == -signal.SIGTERM
    assert half_a_step(tmp_path).run["incomplete"] == "SIGTERM"


def test_a_handler_of_the_program_runs_after_the_log_is_written(run: Ended, tmp_path: Path) -> None:
    handler = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: print('saved'))\n"
    done = run(HEAD + handler + HALF + "terminate()\nprint('and on')\n")
    assert (done.returncode, done.stdout) == (0, "saved\nand on\n")
    assert half_a_step(tmp_path).run["incomplete"] == "SIGTERM"


def test_a_handler_of_the_program_runs_once_for_a_signal_at_the_end_of_writing(run: Ended, tmp_path: Path) -> None:
    handler = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: print('saved'))\n"
    signalled = """
    (module,) = (module for name, module in sys.modules.items() if name.endswith("capture.termination"))
    give_back = module.Termination.give_back
    def terminated(self):
        terminate()
        give_back(self)
    module.Termination.give_back = terminated
    """
    done = run(HEAD + handler + HALF + signalled.replace("\n    ", "\n"))
    assert (done.returncode, done.stdout) == (0, "saved\n")
    assert half_a_step(tmp_path).run["incomplete"] == "the script ended before an optimizer stepped"


def test_a_later_handler_of_the_program_stays_the_only_one(run: Ended, tmp_path: Path) -> None:
    done = run(HEAD + HALF + "signal.signal(signal.SIGTERM, lambda *_: sys.exit(4))\nterminate()\n")
    assert done.returncode == 4
    assert half_a_step(tmp_path).run["incomplete"] == "SystemExit: 4"


def test_a_signal_while_the_log_is_written_waits_for_it(run: Ended, tmp_path: Path) -> None:
    signalled = """
    (recorder,) = (module for name, module in sys.modules.items() if name.endswith("capture.recorder"))
    write = recorder.write_log
    def terminated(*args, **kwargs):
        terminate()
        write(*args, **kwargs)
    recorder.write_log = terminated
    raise ValueError("of the program")
    """
    done = run(HEAD + HALF + signalled.replace("\n    ", "\n"))
    assert done.returncode == -signal.SIGTERM
    assert half_a_step(tmp_path).run["incomplete"] == "ValueError: of the program"


def test_a_child_that_is_terminated_does_not_take_its_parent_along(run: Ended, tmp_path: Path) -> None:
    child = """
    begun, begins = os.pipe()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        os.write(begins, b"!")
        while os.getppid() == parent:
            pass
        os._exit(0)
    os.read(begun, 1)
    os.kill(child, signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    """
    done = run(HEAD + HALF + child.replace("\n    ", "\n"))
    assert (done.returncode, done.stdout) == (0, f"{-signal.SIGTERM}\n")
    logs = read_logs(tmp_path / "out")
    assert logs["rank_0_activations.log"].complete


@pytest.mark.skipif(sys.platform != "linux", reason="std::terminate is caught in libstdc++, Linux's")
def test_a_library_that_gives_up_in_a_thread_of_its_own(run: Ended, tmp_path: Path) -> None:
    """As gloo does if the members of a group call collectives of different sizes."""
    gives_up = """
    cpp = ctypes.CDLL("libstdc++.so.6")
    threading.Thread(target=lambda: cpp._ZSt9terminatev()).start()
    torch.distributed.HashStore().wait(["never"])
    """
    done = run(HEAD + HALF + gives_up.replace("\n    ", "\n"))
    assert done.returncode == -signal.SIGABRT
    assert "std::terminate" in half_a_step(tmp_path).run["incomplete"]


def test_ranks_of_which_one_skips_a_collective(run: Ended, tmp_path: Path) -> None:
    """The time-out ends the waiting rank, and torchrun the other, which waits for something else."""
    script = """
    from datetime import timedelta
    import torch.distributed as dist
    dist.init_process_group("gloo")
    group = dist.new_group(timeout=timedelta(seconds=3))
    store = dist.distributed_c10d._get_default_store()
    model = net()
    model(x).sum().backward()
    for number, parameter in enumerate(model.parameters()):
        # however long one takes to come here: the limit is for the collective alone
        store.set(f"{number} {dist.get_rank()}", "")
        store.wait([f"{number} 0", f"{number} 1"])
        if dist.get_rank() == 1 and number == 2:
            dist.HashStore().wait(["never"])
        dist.all_reduce(parameter.grad, group=group)
    """
    done = run(HEAD + script.replace("\n    ", "\n"), "-m", "torch.distributed.run", "--nproc_per_node=2")
    assert done.returncode == 1
    waits, skips = (log for log in read_logs(tmp_path / "out").values())
    assert waits.run["incomplete"].startswith("RuntimeError: ")
    assert skips.run["incomplete"] == "SIGTERM"
    assert not waits.complete
    assert not skips.complete
    assert [numbered(row) for row in skips.of("allreduce_")] == [0, 1]
    first, second, third = waits.of("allreduce_")
    assert [numbered(row) for row in (first, second, third)] == [0, 1, 2]
    assert first.digests == skips.of("allreduce_")[0].digests != [""]
    assert "Digest" not in third.fields, "the result never came"
    exchanged = json.loads(third.fields["Exchanged"])
    assert exchanged["out"] == []
    assert [entry["digest"] for entry in exchanged["in"]] == third.input_digests


def numbered(row: Row) -> int:
    number: int = json.loads(row.fields["Group"])["nth"]
    return number
