"""`numtui bisect` in a process of its own, ended in one of its phases: it goes on to the same result."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from shutil import which

import pytest

from tests.conftest import REPOSITORY
from tests.numtui.experiments.made_up import digests, make_repository, model, write_run

CAPTURE = """#!/bin/sh
[ "$STALL" != capture ] || {{ : > "{began}/capture"; sleep 1; }}
while [ "$1" != -o ]; do shift; done
cp -R "{runs}/$(cat notes.txt)/numerics" "$2"
"""
"""Stand-in for the Python that captures: it copies the run of a commit, whose number is in its notes."""
INSTALL = '[ "$STALL" != install ] || { : > "$BEGAN/install"; sleep 1; }'
GIT = """#!/bin/sh
case "$*" in *"$STALL"*) : > "$BEGAN/git"; sleep 1;; esac
exec {git} "$@"
"""


class Bed:
    """A repository with a bug, and programs that stall in one phase for a second."""

    def __init__(self, folder: Path) -> None:
        self.repository, self._folder, self.began = folder / "repository", folder, folder / "began"
        models = [model(top=1.01 if number >= 2 else 1) for number in range(4)]
        make_repository(self.repository, models)
        for number, each in enumerate(models):
            write_run(folder / "runs" / str(number), each)
        (folder / "bin").mkdir()
        self.began.mkdir()
        self._script("python", CAPTURE.format(runs=folder / "runs", began=self.began))
        self._script("git", GIT.format(git=which("git")))

    def _script(self, name: str, text: str) -> None:
        path = self._folder / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def start(self, *more: str, stall: str = "nothing") -> subprocess.Popen[str]:
        paths = {"PATH": f"{self._folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(REPOSITORY)}
        line = [sys.executable, "-m", "numtui", "bisect", "-o", str(self._folder / "out"), "--format", "json", *more]
        return subprocess.Popen(
            line, cwd=self.repository, env={**os.environ, **paths, "STALL": stall, "BEGAN": str(self.began)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def end_in(self, phase: str, number: signal.Signals) -> None:
        python = str(self._folder / "bin" / "python")
        asked = ("--good", "HEAD~3", "--install", INSTALL, "--python", python, "--", "sub/train.py")
        process = self.start(*asked, stall=phase)
        marker = self.began / (phase if phase in ("install", "capture") else "git")
        noted = self._folder / "out" / "runs.jsonl"  # two captures are there, and their comparison follows
        while process.poll() is None:
            time.sleep(0.005)
            if noted.exists() and noted.read_text().count("\n") > 2 if phase == "compare" else marker.exists():
                break
        process.send_signal(number)
        process.communicate()
        assert process.returncode in (-number, 128 + number)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("phase", "number"),
    [
        ("worktree add", signal.SIGKILL),
        ("checkout", signal.SIGKILL),
        ("install", signal.SIGTERM),
        ("capture", signal.SIGINT),
        ("compare", signal.SIGKILL),
    ],
)
def test_ended_in_a_phase_it_goes_on_to_the_same(tmp_path: Path, phase: str, number: signal.Signals) -> None:
    """A child of a killed one still runs when it is resumed, and is waited for."""
    bed = Bed(tmp_path)
    before = digests(bed.repository)
    bed.end_in(phase, number)
    resumed = bed.start("--resume")
    out, err = resumed.communicate()
    assert resumed.returncode == 1, err
    told = json.loads(out)
    assert [commit["subject"] for cause in told["causes"] for commit in cause["commits"]] == ["commit 2"]
    assert told["runs"] == 4
    assert digests(bed.repository) == before
