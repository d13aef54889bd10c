"""The command line: exit codes, streams, and one line per mistake."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import pytest

from matchers.errors import InputError
from matchers.logs import reader_library
from matchers.rules.file import parse_rules
from numtui import __version__
from numtui.cli import explore
from numtui.cli import main as cli
from numtui.cli.config import load_config
from numtui.cli.main import ExitCode, main
from numtui.inputs import OpenRequest
from numtui.report.known_differences import load_allow_list
from numtui.report.options import FORMATS
from numtui.terminal.signals import ending_signals, raising
from tests.builders import op, training_step, write_log
from tests.conftest import EXAMPLES, REPOSITORY
from tests.hostile import small_log

NUMTUI = [sys.executable, "-m", "numtui"]


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def red_logs(tmp_path: Path) -> tuple[str, str]:
    """Two logs of the same step; the first operation gives something else in b."""
    ops = training_step(1)
    a = write_log(tmp_path / "x" / "rank_0_activations.log", ops)
    b = write_log(tmp_path / "y" / "rank_0_activations.log", [replace(ops[0], outputs=[1.0], l2=1.0), *ops[1:]])
    return str(a), str(b)


def numtui(*arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*NUMTUI, *arguments], capture_output=True, check=False, timeout=60, **options)


@pytest.mark.parametrize("start", [["-m", "numtui"], ["-c", "from numtui.__main__ import run; run()"]])
def test_modules_of_the_user_are_not_taken_for_ours(start: list[str], example_logs: tuple[str, str]) -> None:
    """Names that are ordinary elsewhere, in the current folder, which is on the path as well."""
    for name in ("capture.py", "matchers.py", *(["rich.py", "yaml.py"] if start[0] == "-m" else [])):
        Path(name).write_text("raise SystemExit('of the user')")
    path = "" if start[0] == "-m" else f".{os.pathsep}"
    environment = os.environ | {"PYTHONPATH": path + os.environ["PYTHONPATH"]}
    command = [sys.executable, *start, "diff", *example_logs]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""


# What comes out


def test_nothing_red_is_0(example_logs: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", *example_logs]) == ExitCode.SAME
    out, err = capsys.readouterr()
    assert "numtui: eager <-> traced" in out
    assert err == ""


def test_something_red_is_1(red_logs: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", *red_logs]) == ExitCode.RED
    assert "diverged" in capsys.readouterr().out


def test_without_a_terminal_the_explorer_is_a_report(
    example_logs: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*example_logs, "--name-a", "left", "--name-b", "right"]) == 0
    shown = capsys.readouterr().out
    assert "numtui: left <-> right" in shown
    assert main(["diff", *example_logs, "--name-a", "left", "--name-b", "right"]) == 0
    assert capsys.readouterr().out == shown


def test_folders_and_files_give_the_same(example_logs: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    main(["diff", *example_logs, "--format", "jsonl"])
    from_files = capsys.readouterr().out
    main(["diff", *(os.path.dirname(p) for p in example_logs), "--format", "jsonl"])
    assert capsys.readouterr().out == from_files


def test_the_demo_runs(capsys: pytest.CaptureFixture[str]) -> None:
    Path("overrides.yaml").write_text("these: [belong to other logs")
    assert main(["demo", "agree"]) == 0
    assert "eager <-> traced" in capsys.readouterr().out
    assert main(["demo"]) == 1
    shown = capsys.readouterr().out
    assert main(["demo", "bug"]) == 1
    assert capsys.readouterr().out == shown, "another name of it"
    assert "base <-> neg_attn" in shown
    assert "layers.2.attention.inner_attention/op_1_neg" in shown


@pytest.mark.parametrize("side", ["a", "b"])
def test_one_log_from_standard_input(side: str, example_logs: tuple[str, str]) -> None:
    paths = dict(zip("ab", example_logs, strict=True))
    data = Path(paths[side]).read_bytes()
    expected = numtui("diff", *example_logs, "--format", "jsonl").stdout
    paths[side] = "-"
    done = numtui("diff", paths["a"], paths["b"], "--format", "jsonl", input=data)
    assert done.stderr == b""
    assert done.stdout == expected


def test_output_goes_to_a_file(red_logs: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", *red_logs, "--format", "jsonl", "-o", "out.jsonl"]) == 1
    assert capsys.readouterr().out == ""
    written = Path("out.jsonl").read_text()
    main(["diff", *red_logs, "--format", "jsonl"])
    assert capsys.readouterr().out == written
    assert all(json.loads(line)["status"] for line in written.splitlines())


def test_the_same_logs_give_the_same_bytes(red_logs: tuple[str, str]) -> None:
    """Also with another hash seed, which orders sets differently."""
    seen = {
        numtui("diff", *red_logs, "--format", form, env=os.environ | {"PYTHONHASHSEED": seed}).stdout
        for form in ("jsonl",)
        for seed in ("1", "2", "3")
    }
    assert len(seen) == 1


def test_rules_apply_by_name_or_on_request(red_logs: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    rules = "version: 1\nignore:\n  - op: embedding\n  - op: no_such_op\n"
    assert main(["diff", *red_logs, "--auto-rules"]) == 1
    assert "Rules" not in capsys.readouterr().out
    Path("overrides.yaml").write_text(rules)
    assert main(["diff", *red_logs, "--auto-rules"]) == 0
    assert "Rules: 2 rules from overrides.yaml, 1 unused" in capsys.readouterr().out
    Path("overrides.yaml").rename("mine.yaml")
    assert main(["diff", *red_logs, "-r", "mine.yaml"]) == 0


# What goes wrong


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "which logs? numtui A B compares two logs or run folders, numtui demo opens an example"),
        (["missing", "other"], "missing: no such file or folder"),
        (["diff", "-", "-"], "only one of the two logs can be '-' (standard input)"),
        (["diff", "good.log", "binary"], "binary"),
        (["diff", "good.log", "empty folder"], "empty folder: no rank_N_activations.log here"),
        (["diff", "good.log", "good.log", "-r", "missing.yaml"], "missing.yaml: no such rule file"),
        (["diff", "good.log", "good.log", "-o", "x.foo"], "-o x.foo: .foo is no known form (.txt, .jsonl,"),
        (["diff", "good.log", "good.log", "-o", "missing/out"], "missing/out: cannot be written: No such file"),
        (["diff", "good.log", "good.log", "-o", "empty folder"], "empty folder: cannot be written: Is a directory"),
        (["diff", "good.log", "good.log", "--rank", "0"], "--rank chooses a log of a folder"),
    ],
)
def test_trouble_is_one_line_and_2(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("good.log").write_bytes(small_log())
    Path("binary").write_bytes(bytes(range(256)) * 100)
    Path("empty folder").mkdir()
    assert main(arguments) == ExitCode.TROUBLE
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("numtui: ")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["diff"],
        ["a", "b", "c"],
        ["diff", "a", "b", "--format", "x"],
        ["a", "b", "--rank", "-1"],
        ["a", "b", "--nam", "x"],
    ],
)
def test_a_wrong_command_line_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "usage: numtui" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out in {f"numtui {__version__} ({which} reader)\n" for which in ("compiled", "plain")}


def test_a_name_from_the_command_line_is_made_safe(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["\x1b[2Jmissing", "other"]) == 2
    assert "␛[2Jmissing" in capsys.readouterr().err


def test_a_reader_that_had_enough_is_no_error(example_logs: tuple[str, str]) -> None:
    with subprocess.Popen(
        [*NUMTUI, "diff", *example_logs, "--format", "jsonl"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 128 + signal.SIGPIPE


def test_a_full_disk_is_said(example_logs: tuple[str, str]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*NUMTUI, "diff", *example_logs], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2
    assert done.stderr.decode() == "numtui: standard output cannot be written: No space left on device\n"


def test_a_closed_output_is_said(example_logs: tuple[str, str]) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *NUMTUI, "diff", *example_logs], stderr=subprocess.PIPE, check=False
    )
    assert done.returncode == 2
    assert b"numtui: standard output is closed" in done.stderr


def test_output_that_the_encoding_lacks_is_escaped(red_logs: tuple[str, str]) -> None:
    """A name that ASCII does not have, in the C locale."""
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    done = numtui("diff", *red_logs, "--name-a", "ε", env=environment)
    assert done.returncode == 1
    assert b"\\u03b5" in done.stdout


_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGALRM, signal.SIGUSR1, signal.SIGRTMIN)


@pytest.mark.parametrize("number", _ENDS)
@pytest.mark.parametrize("command", ["diff", "check", "suggest"])
def test_a_signal_leaves_no_half_of_a_report(
    command: str, number: signal.Signals, red_logs: tuple[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    before = signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    # what is written is on its way to the disk
    monkeypatch.setattr(os, "fsync", lambda _: os.kill(os.getpid(), number))
    logs = [str(Path(log).parent) for log in red_logs][:1] if command == "check" else red_logs
    try:
        assert main([command, *logs, "-o", str(tmp_path / "out" / "report")]) == 128 + number
        assert signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)
    finally:
        signal.signal(number, before)
    assert os.listdir(tmp_path / "out") == []


def test_a_signal_that_is_ignored_stays_so() -> None:
    """As by `nohup`, or of a shell without job control in its background."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending_signals() as numbers, raising():
            assert signal.SIGTERM in numbers
            assert not {signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD, signal.SIGTSTP, signal.SIGSEGV} & {*numbers}
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_ctrl_c_while_modules_are_imported_is_130_without_a_traceback() -> None:
    script = (
        "import builtins, signal; imported = builtins.__import__\n"
        "def stop(name, *rest, **more):\n"
        "    if name == 'numtui.cli.main': signal.raise_signal(signal.SIGINT)\n"
        "    return imported(name, *rest, **more)\n"
        "from numtui.__main__ import run; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "builtins.__import__ = stop; run()"
    )
    done = subprocess.run([sys.executable, "-c", script, "--version"], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_a_bug_is_one_line_and_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fail(_: list[str]) -> int:
        raise RuntimeError("unexpected \x1b[31m")

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(cli, "parse", fail)
    assert main([]) == 2
    err = capsys.readouterr().err
    (crash,) = (tmp_path / "numtui").glob("crash-*.txt")
    assert err == f"numtui: internal error: RuntimeError: unexpected ␛[31m (this is a bug; details: {crash})\n"
    assert "Traceback" in crash.read_text()

    monkeypatch.setenv("XDG_STATE_HOME", "/proc/none")
    assert main([]) == 2
    assert "Traceback" in capsys.readouterr().err


# On the way to the explorer


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> tuple[list[OpenRequest], list[bytes]]:
    """The requests that reach the explorer, which here ends at once with 1. Everything is a terminal."""
    import numtui.tui.app

    requests: list[OpenRequest] = []
    contents: list[bytes] = []

    def run_app(request: OpenRequest, ranks: None) -> int:
        assert ranks is None
        requests.append(request)
        # A copy of standard input is there only while the explorer runs.
        contents.append(Path(request.path_a).read_bytes())
        return 1

    monkeypatch.setattr(numtui.tui.app, "run_app", run_app)
    monkeypatch.setattr(explore, "is_terminal", lambda _: True)
    monkeypatch.setattr(explore, "reopen_keyboard", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    Path("a.log").write_bytes(small_log())
    return requests, contents


def test_the_explorer_gets_what_was_asked(opened: tuple[list[OpenRequest], list[bytes]]) -> None:
    assert main(["a.log", "a.log", "-r", "new.yaml", "--name-a", "x", "--no-color", "--theme", "nord"]) == 1
    requests, _ = opened
    assert requests == [
        OpenRequest(
            path_a="a.log",
            path_b="a.log",
            name_a="x",
            name_b="b",
            rules_path=Path("new.yaml"),
            rules_given=True,
            floor="found",
            color=False,
            theme="nord",
        )
    ]
    assert main(["a.log", "a.log"]) == 1
    assert (requests[1].rules_path, requests[1].rules_given, requests[1].color) == (Path("overrides.yaml"), False, True)
    assert main(["demo"]) == 1
    assert requests[2].rules_path != Path("overrides.yaml")


def test_standard_input_is_put_where_it_can_be_read_twice(
    opened: tuple[list[OpenRequest], list[bytes]],
) -> None:
    before = os.dup(0)
    try:
        with open("a.log", "rb") as log:
            os.dup2(log.fileno(), 0)
        assert main(["-", "a.log"]) == 1
    finally:
        os.dup2(before, 0)
        os.close(before)
    (request,), (content,) = opened
    assert content == small_log()
    assert request.name_a == "stdin"
    assert not os.path.exists(request.path_a)


def test_without_a_keyboard_there_is_a_report(
    opened: tuple[list[OpenRequest], list[bytes]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(explore, "reopen_keyboard", lambda: False)
    assert main(["a.log", "a.log"]) == 0
    assert opened == ([], [])
    assert "no terminal to read keys from" in capsys.readouterr().err


def test_what_makes_nothing_red_mean_less_is_said_on_standard_error(tmp_path: Path) -> None:
    """A program that reads JSON Lines, or only the exit code, does not see the report."""
    text = (EXAMPLES / "eager" / "rank_0_activations.log").read_text()
    cut, empty, typo = tmp_path / "cut.log", tmp_path / "empty.log", tmp_path / "typo.yaml"
    cut.write_text(text[:30_000])
    empty.write_text("Total captured activations: 0\n====\n\n")
    typo.write_text("pairz: []\n")
    traced = EXAMPLES / "traced"
    for arguments, words, code in (
        ((cut, traced), "cut.log: the log is cut off: 98 of 400 operations were read", 1),
        ((empty, traced), "empty.log: the log has no operations", 1),
        ((EXAMPLES / "eager", traced, "-r", typo), "typo.yaml:1:1: unknown section 'pairz'", 0),
    ):
        done = numtui("diff", *map(str, arguments), "--format", "jsonl")
        assert words in done.stderr.decode()
        assert done.returncode == code


def test_rules_that_are_no_rules_are_an_error(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_bytes(b"\x7fELF\x02\x01\x01\x00\xff\xfe")
    done = numtui("diff", str(EXAMPLES / "eager"), str(EXAMPLES / "traced"), "-r", str(rules))
    assert done.returncode == 2
    assert "rules.yaml:1" in done.stderr.decode()


# Suggestions


def drifted_logs() -> tuple[str, str]:
    ops = training_step(3)
    a = write_log(Path("x") / "rank_0_activations.log", ops)
    b = write_log(Path("y") / "rank_0_activations.log", [replace(o, key=o.key.replace("silu", "swish")) for o in ops])
    return str(a), str(b)


def test_suggestions_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["suggest", *drifted_logs()]) == 0
    out, err = capsys.readouterr()
    assert "1. equivalent ops: 3 rows, 1 rule covers 3" in out
    assert "Effect: 3 more same-print, 3 fewer only-a, 3 fewer only-b." in out
    assert "ops: {a: silu, b: swish, why: the same operation under another name}" in out
    assert err == ""


def test_suggestions_are_a_rule_file_that_settles_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    logs = drifted_logs()
    assert main(["diff", *logs, "--format", "jsonl"]) == 0
    assert "only-a" in capsys.readouterr().out
    assert main(["suggest", *logs, "--format", "yaml", "-o", "found.yaml"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["diff", *logs, "--format", "jsonl", "-r", "found.yaml"]) == 0
    out, err = capsys.readouterr()
    assert '"only-a"' not in out.partition("\n")[2]
    assert err == ""
    # with them in force there is nothing left to suggest
    assert main(["suggest", *logs, "--format", "yaml", "-r", "found.yaml"]) == 0
    assert "swish" not in capsys.readouterr().out


@pytest.mark.parametrize("form", ["text", "yaml"])
def test_rules_that_change_no_verdict_are_counted_and_all_writes_them(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = [str(EXAMPLES / name) for name in ("eager", "traced")]
    assert main(["suggest", *logs, "--format", form]) == 0
    out, _ = capsys.readouterr()
    assert "Names drift in 211 rows; nothing is red because of it.\n" in out
    assert "--all" in out
    assert "43 rules" in out
    assert "shifted counters" not in out
    assert main(["suggest", *logs, "--format", form, "--all"]) == 0
    out, _ = capsys.readouterr()
    assert "shifted counters: 140 rows, 28 rules cover 140\n" in out
    assert "recomputed copies: 78 rows, no rule" in out
    assert "nothing is red" not in out
    if form == "yaml":
        assert len(parse_rules(out).rules) == 43


def test_a_rule_that_is_off_is_suggested_to_be_taken_back(capsys: pytest.CaptureFixture[str]) -> None:
    logs = [str(write_log(Path(side) / "rank_0_activations.log", training_step(4))) for side in ("x", "y")]
    rule = 'templates:\n  - {a: "layers.{i}.attention.wq/op_0_mm", b: "layers.{i}.attention.wk/op_0_mm"}\n'
    Path("wrong.yaml").write_text(rule, encoding="utf-8")
    assert main(["suggest", *logs, "-r", "wrong.yaml"]) == 0
    out, _ = capsys.readouterr()
    assert "1. realign: 4 rows, dropping 1 rule fixes 4" in out
    assert "Effect: 8 more same-print, 4 fewer only-a, 4 fewer only-b, 4 fewer diverged." in out
    assert "drop wrong.yaml:2: templates: {a:" in out
    assert "Removes 4 red rows: layers.0.attention.wq/op_0_mm (#4), layers.1.attention.wq/op_0_mm (#" in " ".join(
        out.split()
    )
    assert "… in 4 layers; first cause #4 disappears." in " ".join(out.split())
    assert main(["suggest", *logs, "-r", "wrong.yaml", "--format", "yaml"]) == 0
    out, _ = capsys.readouterr()
    assert "# realign: 4 rows, dropping 1 rule fixes 4\n#   removes 4 red rows: layers.0" in out
    assert "\n# drop wrong.yaml:2: templates: {a:" in out
    assert out.endswith("version: 1\n")


def test_nothing_to_suggest(example_logs: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["suggest", example_logs[0], example_logs[0]]) == 0
    assert "No known kind of drift" in capsys.readouterr().out
    assert main(["suggest", example_logs[0], example_logs[0], "--format", "yaml", "-o", "none.yaml"]) == 0
    assert main(["diff", *example_logs, "-r", "none.yaml"]) == 0


def test_rules_that_are_not_needed_are_a_hint_on_standard_error(
    example_logs: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And no reason to fail."""
    key = "tok_embeddings/op_0_embedding"
    rules = tmp_path / "needless.yaml"
    rules.write_text(f"pairs: [{{a: {key}, b: {key}}}]\n", encoding="utf-8")
    assert main(["suggest", example_logs[0], example_logs[0], "-r", str(rules)]) == 0
    assert "needless.yaml:1: is not needed for these two logs" in capsys.readouterr().err
    assert main(["diff", example_logs[0], example_logs[0], "-r", str(rules), "--fail-on", "stale-rule"]) == 0


def test_the_drift_of_red_logs_is_no_trouble(red_logs: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["suggest", *red_logs]) == 0
    capsys.readouterr()
    assert main(["suggest", red_logs[0], "missing.log"]) == ExitCode.TROUBLE
    assert capsys.readouterr().out == ""


def test_names_of_a_log_cannot_act_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    ops = training_step(3)
    a = write_log(Path("x.log"), ops)
    b = write_log(Path("y.log"), [replace(o, key=o.key.replace("silu", "si\x1b[31mlu_")) for o in ops])
    for form in ("text", "yaml"):
        assert main(["suggest", str(a), str(b), "--format", form]) == 0
        assert "\x1b" not in capsys.readouterr().out


def test_one_log_by_itself_is_told_in_a_few_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = str(write_log(tmp_path / "lr3" / "rank_0_activations.log", training_step()))
    assert main([log]) == 0
    assert capsys.readouterr().out.startswith("lr3: 32 operations, 0 of them with NaN or Inf\n\nlargest values:\n")
    assert main([str(tmp_path / "lr3")]) == 0, "the folder of the run"
    capsys.readouterr()
    assert main([log, "--noise", log]) == 2
    assert "--noise is about two logs" in capsys.readouterr().err
    assert main([str(tmp_path / "none")]) == 2
    odd = str(write_log(tmp_path / "odd.log", [op("w/op_0_mm", outputs=["nan"], inputs=[1.0])]))
    assert main([odd]) == 1
    told = capsys.readouterr().out
    assert (
        "NaN and Inf begin at (1):\n      1 w/op_0_mm   model.py:1\n"
        "        FIRST CAUSE: the output has NaN; all inputs are finite" in told
    )


def test_one_log_that_is_cut_off_says_so_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write_log(tmp_path / "rank_0_activations.log", training_step())
    log.write_text(log.read_text()[:1500])
    assert main(["diff", str(log)]) == 0
    first, _, _ = capsys.readouterr().out.partition("\n")
    assert " with NaN or Inf; the log is cut off, " in first
    assert first.endswith("; 1 unreadable spot")
    assert main(["check", str(tmp_path)]) in (0, 1)
    assert capsys.readouterr().out.partition("\n")[0].endswith("; rank 0 left no whole log")


@pytest.mark.parametrize("key", ["", "/", "m/op_3_"])
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_record_without_a_name_is_reported(
    key: str, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ops = training_step(2, seed=1)
    a = write_log(tmp_path / "a.log", ops)
    b = write_log(tmp_path / "b.log", [replace(ops[0], key=key), *ops[1:]])
    assert main(["diff", str(a), str(b), "--format", form]) == 0
    out = capsys.readouterr().out
    assert "search failed" not in out
    assert '"failed": true' not in out


@pytest.mark.parametrize("form", list(FORMATS))
def test_a_report_that_fails_midway_is_not_there(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = str(write_log(tmp_path / "a.log", training_step(2)))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def half(_: object, out: TextIO, *__: object, **___: object) -> None:
        out.write("half of it\n")
        raise KeyError("i")

    monkeypatch.setattr("numtui.report.write.write", half)
    assert main(["diff", log, log, "--format", form]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "internal error: KeyError: 'i'" in captured.err


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/full", "/dev/urandom"])
@pytest.mark.parametrize("command", ["diff", "suggest", "weights", "numtui", "diff LOG LOG --noise"])
def test_a_device_is_no_log(device: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = str(write_log(tmp_path / "a.log", training_step(1)))
    words = [log if word == "LOG" else word for word in command.split() if word != "numtui"]
    assert main([*words, device, *([] if "--noise" in words else [log])]) == 2
    told = capsys.readouterr().err
    assert f"{device}: is a device" in told


def test_standard_input_may_be_a_pipe_and_no_device(example_logs: tuple[str, str]) -> None:
    with open("/dev/zero", "rb") as zeros:
        done = numtui("diff", "-", example_logs[1], stdin=zeros)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"standard input: is a device" in done.stderr


def test_too_little_memory_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = str(write_log(tmp_path / "a.log", training_step(1)))

    def full(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 37.3 GiB")

    monkeypatch.setattr("numtui.cli.comparing.compare", full)
    assert main(["diff", log, log]) == 2
    told = capsys.readouterr().err
    assert told.startswith("numtui: not enough memory")
    assert told.count("\n") == 1


def test_a_settings_file_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numtui.paths._MAX_TEXT", 10)
    (tmp_path / "config.yaml").write_text("# " + "x" * 20)
    with pytest.raises(InputError, match="this is no file of settings"):
        load_config(tmp_path / "config.yaml")
    with pytest.raises(InputError, match="this is no list of known differences"):
        load_allow_list(tmp_path / "config.yaml")


@pytest.mark.parametrize(("broken", "command"), [("numtui.cli.main", "diff"), ("numtui.capture", "capture")])
def test_a_traceback_is_never_exit_1(broken: str, command: str) -> None:
    """1 says that something is red."""
    start = (
        f"import sys; sys.modules[{broken!r}] = None; sys.argv[1:] = [{command!r}]; "
        "from numtui.__main__ import run; run()"
    )
    done = subprocess.run([sys.executable, "-c", start], capture_output=True, check=False, timeout=60)
    assert done.returncode == 2
    assert b"Traceback" in done.stderr


def test_a_script_that_is_captured_keeps_its_exit_code(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise KeyError('of the script')")
    done = numtui("capture", "--", "train.py", cwd=tmp_path)
    assert done.returncode == 1
    assert b"of the script" in done.stderr


def test_a_bug_is_told_where_there_is_no_folder_for_its_details(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def bug(*_: object, **__: object) -> None:
        raise KeyError("i")

    log = str(write_log(tmp_path / "a.log", training_step(1)))
    monkeypatch.setattr("numtui.cli.comparing.compare", bug)
    monkeypatch.setattr("numtui.folders.state_folders", bug)
    assert main(["diff", log, log]) == 2
    told = capsys.readouterr().err
    assert "Traceback" in told
    assert told.endswith("numtui: internal error: KeyError: 'i'\n")


def test_a_current_folder_that_was_deleted(tmp_path: Path) -> None:
    log = str(write_log(tmp_path / "a.log", training_step(1)))
    (tmp_path / "gone").mkdir()
    start = f'cd gone && rmdir ../gone && exec "$0" -m numtui diff {log} {log}'
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        ["sh", "-c", start, sys.executable], cwd=tmp_path, env=environment, capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_slow_reading_is_said_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, example_logs: tuple[str, str]
) -> None:
    monkeypatch.setattr(reader_library, "library", lambda: (None, "no C compiler"))
    main(["diff", *example_logs, "--format", "csv", "-o", os.devnull])
    assert capsys.readouterr().err.count("logs are read by the plain reader") == 1


def test_a_comparison_loads_nothing_for_other_tools_logs(tmp_path: Path) -> None:
    """Nor numpy's masked arrays, which some of its functions load: each takes as long as a stage of the comparison."""
    log = str(write_log(tmp_path / "a.log", training_step(1)))
    start = (
        f"import sys; from numtui.cli.main import main; main(['diff', {log!r}, {log!r}, '--format', 'jsonl']); "
        "print(*({'matchers.logs.imported.formats', 'matchers.logs.imported.columns', 'numpy.ma'} & {*sys.modules}), "
        "file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", start], capture_output=True, check=False, timeout=60)
    assert done.stdout.startswith(b'{"a":0,')
    assert done.stderr.strip() == b""
