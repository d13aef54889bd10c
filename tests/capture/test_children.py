"""Processes that a launcher, the environment or the script starts: each that trains leaves a log, the others nothing.

They run in an environment as pip leaves it, in which every Python reads `numtui_capture.pth` when it starts.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import venv
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from capture.inherited import begin
from capture.process import Capture, close
from capture.recorder import current_rank
from capture.session import SESSION, Places, end, join, written
from tests.capture.conftest import HEAD, LOOP, REPOSITORY, Script
from tests.capture.logs import read_logs
from tests.forks import Forks
from tests.two_ranks import free_port

SHOWN = """
print(model[0].weight.double().sum().item().hex())
import gc
gc.freeze()  # the end of Python would go through all of torch three times, for a second
"""
OWN = """
class SGD(torch.optim.Optimizer):
    # those of torch import its compiler, which takes each of these processes a second
    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    def add_param_group(self, group):
        self.param_groups.append(self.defaults | group)

    def zero_grad(self):
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = None

    @torch.no_grad()
    def step(self):
        for parameter in self.param_groups[0]["params"]:
            parameter.sub_(parameter.grad, alpha=self.defaults["lr"])
"""
TRAIN = HEAD + OWN + LOOP.replace("torch.optim.SGD", "SGD") + SHOWN

RANKS = """
import gc, os, sys
import torch.distributed as dist

def train(rank, world):
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(rank)
    model = net()
    optimizer = SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).sum().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
    # one write, so that lines of two processes do not mix
    os.write(1, f"{rank} {model[0].weight.double().sum().item().hex()}\\n".encode())
    dist.destroy_process_group()
    gc.freeze()  # as above
"""
"""Nothing is reduced inside a backward pass, as DDP does: gloo's thread lets go of such a collective some time later,
and of the pass' `contextvars.Context` with it; if Python has begun to end by then, `std::terminate` ends it."""
SPAWN = (
    HEAD
    + OWN
    + RANKS
    + """
if __name__ == "__main__":
    torch.multiprocessing.start_processes(train, args=(2,), nprocs=2, start_method=sys.argv[1])
"""
)
LAUNCHED = HEAD + OWN + RANKS + 'train(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))\n'
SWEEP = """
import subprocess, sys
for _ in range(2):
    subprocess.run([sys.executable, "train.py"], check=True)
"""


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with this checkout, what this Python has, and the file that pip puts beside them."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "a_packages.pth").write_text(f"{REPOSITORY}\n{sysconfig.get_path('purelib')}\n")
    (site / "numtui_capture.pth").write_bytes((REPOSITORY / "capture" / "numtui_capture.pth").read_bytes())
    return str(folder / "bin" / "python")


class Runs:
    """Runs in a folder with some scripts."""

    def __init__(self, python: str, folder: Path) -> None:
        self.folder = folder
        self.python = python
        for name, text in (("train.py", TRAIN), ("spawn.py", SPAWN), ("launched.py", LAUNCHED), ("sweep.py", SWEEP)):
            (folder / name).write_text(text)

    def __call__(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(
            [self.python, *command],
            check=False,
            capture_output=True,
            text=True,
            timeout=200,
            cwd=self.folder,
            env=inherited | {"OMP_NUM_THREADS": "1", "TMPDIR": str(self.folder)} | variables,
        )

    def logs(self, folder: str = "out") -> list[str]:
        """Paths of the whole logs in a folder."""
        logs = read_logs(self.folder / folder)
        assert all(log.complete for log in logs.values())
        return sorted(logs)


@pytest.fixture
def run(installed: str, tmp_path: Path) -> Runs:
    """`run(*arguments_of_python, **variables)` in a folder of its own."""
    return Runs(installed, tmp_path)


@pytest.fixture(scope="session")
def printed(installed: str, forked: Forks, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the training prints without a capture."""
    return forked(["train.py"], Runs(installed, tmp_path_factory.mktemp("plain")).folder).stdout


@pytest.fixture(scope="session")
def printed_by_two(installed: str, forked: Forks, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What two ranks print without a capture, however they are started."""
    folder = Runs(installed, tmp_path_factory.mktemp("plain")).folder
    ranks = forked(["spawn.py", "fork"], folder, {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())})
    return sorted(ranks.stdout.splitlines())


TWO = ["rank_0_activations.log", "rank_1_activations.log"]


class TestEnvironment:
    def test_whatever_trains_is_captured_and_nothing_else_changes(self, run: Runs, printed: str) -> None:
        (run.folder / "ends.py").write_text(
            "import train, signal, sys\n"
            "print(signal.getsignal(signal.SIGTERM), 'torch._dynamo' in sys.modules)\n"
            "sys.exit(5)"
        )
        captured = run("ends.py", NUMTUI_CAPTURE="out", NUMTUI_CAPTURE_ARGS="--steps 2 --weights 2")
        assert captured.stdout == f"{printed}{signal.SIG_DFL!s} False\n", "no compiler is imported either"
        assert captured.returncode == 5
        assert "step 2: " in captured.stderr
        assert run.logs() == TWO[:1]
        assert (run.folder / "out" / "numerics" / "rank_0_weights.log").exists()
        assert not list(run.folder.glob("numtui-capture-*")), "what the session noted is gone"

    @pytest.mark.parametrize(
        "code",
        [
            "print(2)",
            "import torch; print(torch.nn.ReLU()(torch.ones(2)).numel())",
        ],
    )
    def test_a_process_that_calls_no_model_says_nothing(self, run: Runs, code: str) -> None:
        done = run("-c", code, NUMTUI_CAPTURE="out")
        assert (done.stdout, done.stderr) == ("2\n", "")
        assert not (run.folder / "out").exists()

    def test_one_that_calls_a_model_and_trains_nothing_says_what_records_it(self, run: Runs) -> None:
        (run.folder / "infers.py").write_text(HEAD + "print(net()(x).numel())")
        line = "nothing was trained, but a model was called; this records its calls: "
        done = run("infers.py", NUMTUI_CAPTURE="out", NUMTUI_CAPTURE_ARGS="--compact")
        assert done.stdout == "4\n"
        assert done.stderr == f"numtui capture: {line}NUMTUI_CAPTURE_ARGS='--compact --forward'\n"
        (run.folder / "parent.py").write_text("import subprocess, sys\nsubprocess.run([sys.executable, 'infers.py'])")
        command = "-m numtui capture --compact -o out -- parent.py"
        assert f"{line}numtui capture --forward --compact -o out -- parent.py\n" in run(*command.split()).stderr
        assert not (run.folder / "out").exists()

    def test_calls_of_child_processes_are_recorded(self, run: Runs) -> None:
        (run.folder / "infers.py").write_text(HEAD + "with torch.inference_mode():\n    print(net()(x).numel())")
        assert run("infers.py", NUMTUI_CAPTURE="out", NUMTUI_CAPTURE_ARGS="--forward").stdout == "4\n"
        assert run.logs() == TWO[:1]

    def test_a_step_that_an_exception_ends_is_kept(self, run: Runs) -> None:
        (run.folder / "fails.py").write_text(HEAD + "net()(x).sum().backward()\nraise ValueError('too\\nbad')")
        done = run("fails.py", NUMTUI_CAPTURE="out")
        assert done.returncode == 1
        (log,) = read_logs(run.folder / "out").values()
        assert log.run["incomplete"] == "ValueError: too"

    def test_torch_is_left_to_the_program(self, run: Runs) -> None:
        """Nor is anything else imported before, which every Python that starts would wait for."""
        modules = "import sys; print(*sys.modules)"
        unset, armed = run("-c", modules).stdout.split(), run("-c", modules, NUMTUI_CAPTURE="out").stdout.split()
        assert not any("numtui" in name or "capture" in name for name in unset)
        assert set(armed) - set(unset) <= {"numtui", "numtui.armed", "atexit", "time"}

    def test_a_process_that_forks_before_it_imports_torch(self, run: Runs, printed: str) -> None:
        (run.folder / "forks.py").write_text(
            "import multiprocessing\n"
            "def work():\n    import train\n"
            "one = multiprocessing.get_context('fork').Process(target=work)\n"
            "one.start(), one.join()\n"
        )
        done = run("forks.py", NUMTUI_CAPTURE="out")
        assert done.stdout == printed
        assert run.logs() == TWO[:1]
        assert "1 log of the started processes, in out/numerics" in done.stderr
        assert not list(run.folder.glob("numtui-capture-*"))

    @pytest.mark.parametrize(
        ("code", "said"),
        [("pass", 0), ("import torch", "NUMTUI_CAPTURE=out: the current folder was deleted; give a path that begins")],
    )
    def test_a_deleted_folder(self, run: Runs, code: str, said: str | int) -> None:
        (run.folder / "torch.py").touch()
        gone = run.folder / "gone"
        gone.mkdir()
        done = subprocess.run(
            ["bash", "-c", 'rmdir "$PWD"; exec "$@"', "", run.python, "-c", code],
            check=False, capture_output=True, text=True, cwd=gone,
            env={**os.environ, "NUMTUI_CAPTURE": "out", "PYTHONPATH": str(run.folder)},
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr.count("\n") == bool(said), done.stderr
        assert str(said or "") in done.stderr

    def test_what_is_captured_already_is_not_captured_twice(self, run: Runs) -> None:
        done = run("-m", "capture", "-o", "own", "--", "train.py", NUMTUI_CAPTURE="out")
        assert done.stderr.count("operations in") == 1
        assert run.logs("own") == TWO[:1]
        assert not (run.folder / "out").exists()

    def test_a_notebook_asks_for_it(self, run: Runs, printed: str) -> None:
        (run.folder / "cells.py").write_text("from numtui import capture\ncapture.install('out')\nimport train\n")
        assert run("cells.py").stdout == printed
        assert run.logs() == TWO[:1]


class TestLaunchers:
    @pytest.mark.parametrize("method", ["spawn", "fork"])
    def test_multiprocessing(self, run: Runs, printed_by_two: list[str], method: str) -> None:
        front = ["-m", "numtui", "capture", "-o", "out", "--"]
        captured = run(*front, "spawn.py", method, MASTER_ADDR="localhost", MASTER_PORT=str(free_port()))
        assert len(printed_by_two) == 2
        assert sorted(captured.stdout.splitlines()) == printed_by_two
        assert run.logs() == TWO
        assert captured.stderr.splitlines()[-2].endswith("2 logs of the started processes, in out/numerics")
        assert "next: numtui out OTHER_RUN compares it" in captured.stderr
        assert "no log" not in captured.stderr

    def test_torchrun(self, run: Runs, printed_by_two: list[str]) -> None:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "launched.py"]
        done = run("-m", "numtui", "capture", "-o", "out", "--", *launcher)
        assert done.returncode == 0, done.stderr[-4000:]
        assert sorted(done.stdout.splitlines()) == printed_by_two
        assert run.logs() == TWO
        assert "2 logs of the started processes, in out/numerics" in done.stderr
        assert "no log" not in done.stderr

    def test_runs_of_one_session_do_not_overwrite_each_other(self, run: Runs) -> None:
        done = run("sweep.py", NUMTUI_CAPTURE="out")
        assert "this one writes to" in done.stderr
        assert "2 logs of the started processes, in out\n" in done.stderr
        assert sorted(str(path.relative_to(run.folder)) for path in run.folder.rglob("*.log")) == [
            "out/numerics/rank_0_activations.log",
            "out/run_2/numerics/rank_0_activations.log",
        ]


class TestModulesOfTheScript:
    """Names that are ordinary in vision and robotics."""

    USES = (
        "import sys; print([m for m in ('torch', 'numpy', 'textual', 'matchers') if m in sys.modules])\n"
        "import capture, matchers; print(capture.FRAMES, matchers.BEST)\n"
    )

    @pytest.mark.parametrize(("how", "package"), [("numtui", False), ("module", True), ("environment", False)])
    def test_are_the_scripts_own(self, run: Runs, printed: str, how: str, package: bool) -> None:
        scripts = run.folder / "scripts"
        scripts.mkdir()
        if package:
            (scripts / "capture").mkdir()
            (scripts / "capture" / "camera.py").write_text("FRAMES = 7")
            uses = self.USES.replace("import capture,", "import capture.camera as capture,")
        else:
            (scripts / "capture.py").write_text("FRAMES = 7")
            uses = self.USES
        (scripts / "matchers.py").write_text("BEST = 8")
        (scripts / "mine.py").write_text(uses + TRAIN)
        front = {
            "numtui": ["-m", "numtui", "capture", "-o", "out", "--"],
            "module": ["-m", "capture", "-o", "out", "--"],
        }
        done = run(*front.get(how, []), "scripts/mine.py", **({} if how in front else {"NUMTUI_CAPTURE": "out"}))
        assert done.stdout == "[]\n7 8\n" + printed
        assert run.logs() == TWO[:1]

    @pytest.mark.parametrize("front", [["-m", "numtui", "capture", "--"], []])
    def test_without_one_there_is_one_capture_of_two_names(self, run: Runs, printed: str, front: list[str]) -> None:
        (run.folder / "capture").mkdir()  # with logs in it, for example
        (run.folder / "mine.py").write_text(
            "import capture.settings, numtui.capture.settings as same\n"
            "from numtui import capture as ours\n"
            "assert ours is capture and same is capture.settings\n"
            "from capture import Settings, trace\n"
            "assert same.Settings is Settings\n"
            "import capture.schedule\n"
            "assert capture.schedule.trace is trace is ours.trace\n" + TRAIN
        )
        done = run(*front, "mine.py")
        assert done.stdout == printed, done.stderr
        assert (run.folder / "numerics").exists() == bool(front)


class TestPlaces:
    @pytest.fixture(autouse=True)
    def _session(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        monkeypatch.delenv(SESSION, raising=False)

    @staticmethod
    def place(monkeypatch: pytest.MonkeyPatch, owner: str, job: str | None = None) -> Places:
        """Places of another process."""
        monkeypatch.setattr("capture.session._process", lambda: owner)
        monkeypatch.setattr("capture.session._job", lambda: job or owner)
        return Places(Path("out"))

    def test_the_second_process_of_a_rank_writes_beside_the_first(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert join()
        with monkeypatch.context() as other:
            other.setattr("os.getpid", lambda: 1)
            assert not join(), "a child joins"
        a, b = Path("out/numerics/a.log"), Path("out/numerics/b.log")
        first = self.place(monkeypatch, "1")
        assert (first(a), first(b), first(a)) == (a, b, a)
        second = self.place(monkeypatch, "2")
        assert (second(b), second(a)) == (Path("out/run_2/numerics/b.log"), Path("out/run_2/numerics/a.log"))
        end()
        assert join(), "another run overwrites what the last one wrote"
        assert self.place(monkeypatch, "3")(a) == a
        end()

    def test_ranks_that_run_together_write_into_one_folder(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whichever of two jobs is first with which rank."""
        join()
        rank_0, rank_1 = (Path(f"out/numerics/rank_{rank}.log") for rank in range(2))
        assert self.place(monkeypatch, "a0", "a")(rank_0) == rank_0
        assert self.place(monkeypatch, "b1", "b")(rank_1) == Path("out/run_2/numerics/rank_1.log")
        assert self.place(monkeypatch, "a1", "a")(rank_1) == rank_1
        assert self.place(monkeypatch, "b0", "b")(rank_0) == Path("out/run_2/numerics/rank_0.log")
        end()

    def test_without_a_place_for_notes_logs_are_written_where_they_belong(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(SESSION, "/proc/none")
        path = Path("out/numerics/a.log")
        assert self.place(monkeypatch, "1")(path) == self.place(monkeypatch, "2")(path) == path
        assert written(Path("/")) == set()


@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ({}, 0),
        ({"RANK": "3"}, 3),
        ({"SLURM_PROCID": "2"}, 2),
        ({"RANK": "1", "SLURM_PROCID": "2"}, 1),
        ({"RANK": "?"}, 0),
    ],
)
def test_the_rank_is_the_launchers(variables: dict[str, str], rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOCAL_RANK", "5")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert current_rank() == rank


@pytest.mark.parametrize("installed_by_pip", [True, False])
def test_without_pip_a_script_that_does_not_train_is_told_about_its_children(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed_by_pip: bool
) -> None:
    import_module("torch._inductor")  # before the folder of torch's dependencies leaves the path
    entry = [str(tmp_path / "site")] if installed_by_pip else []
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "numtui_capture.pth").touch()
    others = [path for path in sys.path if not Path(path, "numtui_capture.pth").exists()]
    monkeypatch.setattr(sys, "path", [*others, *entry])
    assert ("only where pip has installed" in script("print(1)").said) != installed_by_pip
    assert "only where pip has installed" not in script(LOOP).said


def test_an_error_of_the_capture_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError("on two\nlines")

    monkeypatch.setattr("capture.process._current", None)
    monkeypatch.setenv(SESSION, str(tmp_path))
    capture = Capture(fail, tmp_path, inherited=True)  # type: ignore[arg-type]
    capture.begin()
    capture.close()
    assert capsys.readouterr().err == "numtui capture: nothing is captured: RuntimeError: on two\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--hash nowhere:f", "NUMTUI_CAPTURE_ARGS: --hash nowhere:f: No module named 'nowhere'"),
        ("--hash exits:f", "NUMTUI_CAPTURE_ARGS: --hash exits:f: SystemExit: 3"),
        ("--hash .x:f", "NUMTUI_CAPTURE_ARGS: --hash .x:f: expected module:function, as in mypackage.checks:row_sums"),
        ("--steps 1-1000000000000", "'1-1000000000000' is more than 100,000 numbers"),
        ("--deterministic -1", "the seed must be from 0 to 2**64 - 1, not -1"),
        ("'--steps", "NUMTUI_CAPTURE_ARGS: No closing quotation"),
        ("--\x1b[31m\nred", "unrecognized arguments: --\\x1b[31m red"),
        ("", "is no folder"),
    ],
)
def test_options_of_the_environment_are_looked_at_before_anything_is_captured(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: str,
    said: str,
) -> None:
    (tmp_path / "exits.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("capture.process._current", None)
    monkeypatch.setenv(SESSION, str(tmp_path))
    monkeypatch.setenv("NUMTUI_CAPTURE", str(tmp_path / "out" if options else tmp_path / "exits.py" / "below"))
    monkeypatch.setenv("NUMTUI_CAPTURE_ARGS", options)
    begin()
    close()
    err = capsys.readouterr().err
    assert err.startswith("numtui capture: nothing is captured: ")
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("isolated", [True, False])
def test_an_isolated_python_runs_no_code_that_the_environment_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, isolated: bool
) -> None:
    monkeypatch.setattr("capture.inherited.sys", SimpleNamespace(flags=SimpleNamespace(isolated=isolated)))
    monkeypatch.setattr("capture.process._current", None)
    monkeypatch.setenv(SESSION, str(tmp_path))
    monkeypatch.setenv("NUMTUI_CAPTURE", str(tmp_path / "out"))
    monkeypatch.setenv("NUMTUI_CAPTURE_ARGS", "--hash nowhere:f")
    begin()
    close(quiet=True)
    err = capsys.readouterr().err
    assert ("--hash is left out" in err) == isolated
    assert ("No module named" in err) != isolated


def test_the_file_that_every_python_reads_is_one_line_and_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (REPOSITORY / "capture" / "numtui_capture.pth").read_text()
    assert text.count("\n") == 1
    monkeypatch.delenv("NUMTUI_CAPTURE", raising=False)
    before = set(sys.modules)
    exec(text)
    assert set(sys.modules) == before
