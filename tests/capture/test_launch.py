"""`python -m capture`: the script runs as Python would have run it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from capture.launch import main
from tests.capture.conftest import HEAD, LOOP, Script
from tests.capture.logs import read_logs
from tests.capture.runs import EXAMPLE, process_restored, run_python
from tests.capture.test_children import TRAIN


class TestScript:
    def test_sees_its_own_arguments_name_and_file(self, script: Script, tmp_path: Path) -> None:
        printed = script("import sys; print(sys.argv, __name__, __file__)", arguments="--lr 1 -- -o x").printed
        path = tmp_path / "script.py"
        assert printed == f"{[str(path), '--lr', '1', '--', '-o', 'x']} __main__ {path}\n"

    def test_imports_what_lies_beside_it(self, script: Script, tmp_path: Path) -> None:
        (tmp_path / "beside_the_script.py").write_text("VALUE = 7")
        assert script("import beside_the_script; print(beside_the_script.VALUE)").printed == "7\n"

    def test_can_be_a_module(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        package = tmp_path / "a_trainer"
        package.mkdir()
        (package / "__init__.py").write_text("")
        (package / "run.py").write_text(HEAD + LOOP + "import sys; sys.exit(len(sys.argv))")
        monkeypatch.chdir(tmp_path)
        with process_restored(), pytest.raises(SystemExit) as ended:
            main(["-o", "out", "--", "-m", "a_trainer.run", "--lr", "1"])
        assert ended.value.code == 3
        assert [log.ops["addmm"] for log in read_logs(Path("out")).values()] == [2]

    def test_can_stand_behind_the_interpreter(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "shown.py").write_text("import sys; print(sys.argv)")
        monkeypatch.chdir(tmp_path)
        for command, shown in (
            ([sys.executable, "shown.py", "-u"], "['shown.py', '-u']"),
            ([sys.executable, "-m", "shown", "3"], f"['{tmp_path / 'shown.py'}', '3']"),
        ):
            with process_restored():
                main(["-o", "out", "--", *command])
            assert capsys.readouterr().out == f"{shown}\n"

    def test_can_be_made_deterministic(self, script: Script) -> None:
        once = script(
            LOOP + "print(torch.initial_seed(), torch.are_deterministic_algorithms_enabled())", "--deterministic 7"
        )
        assert once.printed.split()[1] == "True"
        assert once.log.run["deterministic"]["algorithms"] is True


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "answer"),
        [
            ([], "Put the script after --"),
            (["--"], "Put the script after --"),
            (["--", "-m"], "Put the script after --"),
            (["--", "no_such_script.py"], "no_such_script.py: no such script"),
            (["--", sys.executable], "Put the script after --"),
            (["--", sys.executable, "-c", "pass"], "a program is captured by NUMTUI_CAPTURE="),
            (["--", shutil.which("tar"), "-x"], "tar: no such script"),
            (["--steps", "0", "--", EXAMPLE], "steps are counted from 1"),
            (["--steps", "one", "--", EXAMPLE], "not a list of numbers"),
            (["--steps", "1,every:0", "--", EXAMPLE], "not a list of steps such as 1,5-7,every:100"),
            (["--nonsense", "--", EXAMPLE], "--nonsense"),
            (["--steps", "1-1000000000000", "--", EXAMPLE], "more than 100,000 numbers"),
            (["--ranks", "5-3", "--", EXAMPLE], "not a list of numbers"),
            (["--of", "layers.3", "--", EXAMPLE], "expected module:GLOB, as in module:layers.3"),
            (["--deterministic", "-1", "--", EXAMPLE], "the seed must be from 0"),
            (["--\x1b[31m", "--", EXAMPLE], "--\\x1b[31m"),
        ],
    )
    def test_are_answered_before_anything_runs(
        self, capsys: pytest.CaptureFixture[str], arguments: list[object], answer: str
    ) -> None:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        assert ended.value.code == 2
        assert answer in capsys.readouterr().err

    @pytest.mark.parametrize(
        "option",
        [
            *("--hash no_colon", "--hash no_such_module:f", "--hash math:no_such_function", "--hash math:pi"),
            *("--hash .x:f", "--hash broken:f", "--hash exits:f", "-o broken.py", "-o broken.py/x/y"),
            *("--weights every --forward", "--weights 1 --calls 2"),
        ],
    )
    def test_what_cannot_be_is_said(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
    ) -> None:
        (tmp_path / "broken.py").write_text("def (")
        (tmp_path / "exits.py").write_text("raise SystemExit(3)")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.chdir(tmp_path)
        with process_restored():
            assert main([*option.split(), "--", str(EXAMPLE)]) == 2
        assert " ".join(option.split()[:2]) in capsys.readouterr().err


def test_help_and_mistakes_do_not_wait_for_torch(tmp_path: Path) -> None:
    code = "import sys; from capture.launch import main\ntry: main(['--help'])\nfinally: print('torch' in sys.modules)"
    done = run_python(["-c", code], tmp_path)
    assert "python -m capture" in done.stdout
    assert done.stdout.endswith("False\n")


def test_a_process_of_its_own_ends_with_the_scripts_exit_code(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(TRAIN + "raise SystemExit(5)")
    done = run_python(["-m", "capture", "-o", "out", "--", "script.py"], tmp_path)
    assert done.returncode == 5
    assert "operations in out/numerics/rank_0_activations.log" in done.stderr
    assert "next:" not in done.stderr
    (log,) = read_logs(tmp_path / "out").values()
    assert log.complete
    assert log.run["command"][-6:] == ["-m", "capture", "-o", "out", "--", "script.py"]


def test_a_log_of_another_run_is_replaced_which_is_said(script: Script) -> None:
    first, second = script(LOOP), script(LOOP)
    assert "numtui capture: next: numtui " in first.said
    assert "replaces" not in first.said
    assert "rank_0_activations.log (replaces the log of another run)" in second.said
