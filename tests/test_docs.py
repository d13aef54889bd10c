"""The README and the docs tell the truth: every command in them runs, every link leads somewhere."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from numtui.cli.main import main
from numtui.cli.parser import parse
from tests.conftest import REPOSITORY
from tests.forks import Forks

SKILL = REPOSITORY / "skills" / "numerics-debugging" / "SKILL.md"
PAGES = [
    REPOSITORY / "README.md",
    REPOSITORY / "examples" / "README.md",
    SKILL,
    *sorted((REPOSITORY / "docs").glob("*.md")),
]
TEXTS = {str(page.relative_to(REPOSITORY)): page.read_text(encoding="utf-8") for page in PAGES}
README = TEXTS["README.md"]


def blocks(text: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


CONSOLE = [
    (page, line[2:]) for page, text in TEXTS.items() for block in blocks(text, "console") for line in block.splitlines()
]
"""What is typed at a prompt: it runs as it stands."""


def _mentioned(text: str) -> set[str]:
    """The commands of numtui in code spans, in scripts and in workflows; lines that go on are put together."""
    joined = text.replace("\\\n", " ")
    scripts = "\n".join(block for kind in ("sh", "yaml") for block in blocks(joined, kind))
    found = set(re.findall(r"^\s*(?:- run: )?(numtui [^|>#\n]*)", scripts, re.MULTILINE))
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return found | set(re.findall(r"`(numtui [^`]*)`", prose))


MENTIONED = sorted({(page, " ".join(command.split())) for page, text in TEXTS.items() for command in _mentioned(text)})


@pytest.fixture
def path_with_numtui(tmp_path: Path) -> str:
    """A PATH on which `numtui`, `python` and `torchrun` are those of this checkout, installed or not."""
    folder = tmp_path / "bin"
    folder.mkdir()
    python = shlex.quote(sys.executable)
    for name, command in (
        ("numtui", f"{python} -m numtui"),
        ("python", python),
        ("torchrun", f"{python} -m torch.distributed.run"),
    ):
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        script.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which has what the commands name, and takes what they write."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in ("examples", "overrides.example.yaml"):
        (folder / name).symlink_to(REPOSITORY / name)
    return folder


ALONE = re.compile(r"numtui ([^|<>;&$\\]+?)( \|\| \[ \$\? -eq 1 \])?")
"""A command that needs no shell, and the red that a line may allow it."""


def run(command: str, path: str, timeout: int = 60) -> subprocess.CompletedProcess[str]:
    """Do what a line of the shell does; `numtui` alone runs in this process, which saves the start of a Python."""
    if alone := ALONE.fullmatch(command):
        with (
            contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")) as out,
            contextlib.redirect_stderr(io.StringIO()) as err,
        ):
            try:
                code = main(shlex.split(alone[1]))
            except SystemExit as end:  # --help, --version
                code = int(end.code or 0)
            out.seek(0)
            printed = out.read()
        return subprocess.CompletedProcess(command, 0 if alone[2] and code == 1 else code, printed, err.getvalue())
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        env=os.environ | {"PATH": path, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
        timeout=timeout,
    )


FINDING_RED = ("numtui demo",)
"""Commands whose two runs differ."""


def test_there_are_commands() -> None:
    assert len(CONSOLE) >= 14
    assert len(MENTIONED) >= 14


@pytest.mark.parametrize(("page", "command"), CONSOLE)
def test_every_command_runs(page: str, command: str, checkout: Path, path_with_numtui: str) -> None:
    """Without a terminal, so the explorer's commands print their report."""
    before = set(checkout.iterdir())
    done = run(command, path_with_numtui)
    assert done.returncode == (1 if command in FINDING_RED else 0), done.stderr
    assert done.stderr == ""
    assert done.stdout or set(checkout.iterdir()) - before


@pytest.mark.parametrize(("page", "command"), MENTIONED)
def test_every_command_that_is_mentioned_is_understood(page: str, command: str) -> None:
    """Its options exist and its arguments fit; it is not run, because the logs are made up."""
    arguments = shlex.split(command)[1:]
    if arguments[-1:] in (["--help"], ["--version"], ["diff"], ["suggest"]):
        return
    assert callable(parse([a.replace("…", "log") for a in arguments]).run)


def captured(command: str) -> None:
    """Runs `numtui capture …` in this process, which saves the start of a Python with torch."""
    from capture.launch import main as capture  # torch is imported by the tests that need it
    from tests.capture.runs import process_restored

    program, arguments = command.split(" capture ")
    assert program == "numtui"
    with process_restored():
        assert capture(shlex.split(arguments)) == 0


@pytest.mark.usefixtures("checkout")
def test_the_capture_commands_find_the_planted_bug(path_with_numtui: str) -> None:
    """The three commands of "Capture two runs", one after the other."""
    [block] = [block for block in blocks(README, "sh") if "numtui capture" in block]
    *captures, compare = block.splitlines()
    for command in captures:
        captured(command)
    report = run(compare, path_with_numtui)
    assert report.returncode == 1, report.stderr
    causes = report.stdout.partition("First cause")[2]
    assert "layers.2.attention" in causes.partition("2. ")[0]


def test_the_skill_leads_from_two_runs_to_the_line(
    checkout: Path, path_with_numtui: str, forked: Forks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command of the page, one after the other, and those that the report names next."""
    for source in (REPOSITORY / "examples").glob("*.py"):
        (checkout / source.name).symlink_to(source)
    monkeypatch.syspath_prepend(checkout)
    told = ""
    for block in blocks(TEXTS[str(SKILL.relative_to(REPOSITORY))], "sh"):
        for command in [block] if block.startswith("python") else block.splitlines():
            if " capture " in command and "--weights" not in command:
                captured(command)
                continue
            if " capture " in command:
                # Two models of one process would not have the same names.
                done = forked(["-m", *shlex.split(command)], checkout)
            else:
                done = run(command, path_with_numtui, timeout=120)
            assert done.returncode == (1 if command.endswith("report.json") else 0), (command, done.stderr)
            told += done.stdout
    assert "model.py:" in told
    assert "layers.1.attention" in told
    assert "First difference: step 2" in told, "the weights part where the bug was planted"
    for step in json.loads((checkout / "report.json").read_text(encoding="utf-8"))["next"]:
        done = run(shlex.join(step["command"]), path_with_numtui)
        assert done.returncode in (0, 1), (step, done.stderr)
        assert done.stdout or (checkout / step["command"][-1]).exists()


TRAIN = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
"""


INFER = """
import torch

model = torch.nn.Linear(4, 4)
torch.nn.init.ones_(model.weight)
torch.nn.init.zeros_(model.bias)
with torch.no_grad():
    x = model(torch.ones(2, 4))
    model(x)
"""


def test_the_commands_of_the_page_about_capturing_run(checkout: Path, path_with_numtui: str) -> None:
    """With a script of the name that the page takes for an example; what pip installs, `make wheel` shows.

    Under torchrun every rank has its log; that it computes what it does without a capture, tests/capture says.
    """
    from tests.capture.logs import read_logs
    from tests.capture.test_children import LAUNCHED

    block, calls = [block for block in blocks(TEXTS["docs/capture.md"], "sh") if "numtui capture" in block]
    (checkout / "package").mkdir()
    for path in ("train.py", "package/train.py"):
        (checkout / path).write_text(TRAIN)
    _pip, alone, module, torchrun, compare = block.splitlines()
    for command in (alone, module):
        captured(command)
    assert run(compare, path_with_numtui).returncode in (0, 1)
    (checkout / "generate.py").write_text(INFER)
    for path in ("engine", "trainer"):
        captured(calls.splitlines()[0].replace("runs/engine", f"runs/{path}"))
    assert run(calls.splitlines()[1], path_with_numtui).returncode == 0

    (checkout / "train.py").write_text(LAUNCHED)
    done = run(torchrun, path_with_numtui, timeout=120)
    assert done.returncode == 0, done.stderr[-4000:]
    logs = read_logs(checkout / "runs" / "c")
    assert [(name, log.run["rank"], log.run["world_size"], log.complete) for name, log in logs.items()] == [
        (f"rank_{rank}_activations.log", rank, 2, True) for rank in range(2)
    ]


def test_the_workflow_runs(checkout: Path, path_with_numtui: str) -> None:
    """The comparison of the recipe for GitHub, with the page's own example of known differences."""
    known, workflow = blocks(TEXTS["docs/ci.md"], "yaml")
    (checkout / "known.yaml").write_text(known)
    (checkout / "runs").mkdir()
    (checkout / "runs" / "baseline").symlink_to(checkout / "examples" / "eager")
    (checkout / "runs" / "now").symlink_to(checkout / "examples" / "traced")
    compare, summary = re.findall(
        r"^ +((?:numtui|- if: always\(\)\n +run: cat) .*(?:\n {12}.*)*)", workflow, re.MULTILINE
    )
    done = run(compare, path_with_numtui)
    # Nothing of the example's allowances is to be found in the shipped logs, and the recipe fails on that.
    assert done.returncode == 1
    assert done.stderr.count("fails on stale-rule: known.yaml:") == 2
    assert done.stdout.startswith("::error title=numtui%3A")
    shown = run(f"GITHUB_STEP_SUMMARY=s.md; {summary.partition('run: ')[2]}", path_with_numtui)
    assert shown.returncode == 0
    assert (checkout / "s.md").read_text(encoding="utf-8").startswith("## No divergence")
    assert {path.name for path in checkout.glob("numtui.*")} == {"numtui.md", "numtui.xml", "numtui.html"}


@pytest.mark.parametrize("target", re.findall(r"^make (\w+)", README, re.MULTILINE))
def test_every_make_target_exists(target: str) -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{target}:", makefile, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=list(TEXTS))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert "://" in link or (page.parent / link).exists(), link
