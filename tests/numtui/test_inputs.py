"""Folders, ranks, steps and names: what A and B stand for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from matchers.errors import InputError
from numtui import inputs
from numtui.inputs import DEMOS, default_names, demo_logs, resolve_logs, run_names
from tests.builders import op, write_log


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def touch(*paths: str) -> None:
    for path in paths:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("")


def test_files_are_taken_as_they_are() -> None:
    touch("a.log", "b.log.gz")
    assert resolve_logs("a.log", "b.log.gz") == ("a.log", "b.log.gz")
    assert resolve_logs("-", "a.log") == ("-", "a.log")
    assert resolve_logs("a.log", "-") == ("a.log", "-")


@pytest.mark.parametrize("place", ["", "numerics/", "numerics/step_2/", "step_2/"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_the_only_log_of_a_run_is_found(place: str, suffix: str) -> None:
    touch(f"x/{place}rank_3_activations.log{suffix}", f"y/{place}rank_3_activations.log", "x/config.json", "x/step_x")
    assert resolve_logs("x", "y/") == (
        f"x/{place}rank_3_activations.log{suffix}",
        f"y/{place}rank_3_activations.log",
    )


def test_the_one_common_rank_is_taken() -> None:
    touch("x/rank_0_activations.log", "x/rank_1_activations.log", "y/rank_1_activations.log")
    assert resolve_logs("x", "y") == ("x/rank_1_activations.log", "y/rank_1_activations.log")


def test_rank_chooses() -> None:
    touch(*(f"{run}/rank_{rank}_activations.log" for run in "xy" for rank in range(12)))
    assert resolve_logs("x", "y", rank=11) == ("x/rank_11_activations.log", "y/rank_11_activations.log")
    with pytest.raises(InputError, match=r"ranks 0, 1, 2, 3, …, 11 \(12 in all\); choose one with --rank N"):
        resolve_logs("x", "y")
    with pytest.raises(InputError, match="x has no log of rank 12"):
        resolve_logs("x", "y", rank=12)


def test_all_ranks_of_a_run_are_one_log_on_request() -> None:
    touch(*(f"{run}/rank_{rank}_activations.log" for run in "xy" for rank in range(2)), "z/rank_0_activations.log")
    assert resolve_logs("x", "y", merged=True) == ("x", "y")
    assert resolve_logs("z", "y", merged=True) == ("z/rank_0_activations.log", "y")
    with pytest.raises(InputError, match="exclude each other"):
        resolve_logs("x", "y", rank=1, merged=True)
    with pytest.raises(InputError, match="a file was given"):
        resolve_logs("z/rank_0_activations.log", "y", merged=True)


def test_ranks_that_do_not_meet() -> None:
    touch("x/rank_0_activations.log", "y/rank_1_activations.log", "y/rank_2_activations.log")
    with pytest.raises(InputError, match="no rank in common: x has rank 0, y has rank 1 and 2"):
        resolve_logs("x", "y")


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize(
    ("logs", "message"),
    [
        (["0", "2", "02"], "x/rank_02_activations.log and x/rank_2_activations.log are both of rank 2"),
        (["0", "0.gz"], "x/rank_0_activations.log and x/rank_0_activations.log.gz are both of rank 0"),
        (
            ["0", "\u0661"],
            "x/rank_\u0661_activations.log: the number in this name is not written with the digits 0 to 9",
        ),
        (["step_\u0661/0"], "x/step_\u0661: the number in this name"),
        (["step_1/0", "step_01/1"], "x/step_01 and x/step_1 are both of step 1"),
        (["0", "numerics/0"], "are both of rank 0"),
        (["0", "numerics/1"], "x and x/numerics both have logs"),
        (["step_2/0"], "no captured step in common (x: 2; y: 1); to compare two steps, name the folder step_S of each"),
    ],
)
def test_no_log_is_chosen_among_several_in_silence(logs: list[str], message: str, merged: bool) -> None:
    for log in logs:
        place, _, name = log.rpartition("/")
        rank, _, suffix = name.partition(".")
        touch(f"x/{place and place + '/'}rank_{rank}_activations.log{suffix and '.' + suffix}")
    touch("y/step_1/rank_0_activations.log")
    for sides in (("x", "y"), ("y", "x")) if "common" not in message else (("x", "y"),):
        with pytest.raises(InputError, match=re.escape(message)):
            resolve_logs(*sides, merged=merged)


def test_the_step_that_is_asked_for_is_taken_or_missed() -> None:
    touch(*(f"x/step_{step}/rank_0_activations.log" for step in (1, 2)), "y/rank_0_activations.log")
    assert resolve_logs("x", "x", step=2) == ("x/step_2/rank_0_activations.log",) * 2
    assert resolve_logs("x", "x", step=2, merged=True) == ("x/step_2/rank_0_activations.log",) * 2
    with pytest.raises(InputError, match="x: no log of step 9; there are steps 1, 2"):
        resolve_logs("x", "y", step=9)
    with pytest.raises(InputError, match="y: no log of step 1; it has no folders step_S, and its logs do not say"):
        resolve_logs("x", "y", step=1)
    write_log(Path("z/rank_0_activations.log"), [op("x/op_0_mm", 1.0)], run={"step": 2})
    assert resolve_logs("x", "z", step=2)[1] == "z/rank_0_activations.log"
    with pytest.raises(InputError, match="z: no log of step 1; its logs say step 2"):
        resolve_logs("x", "z", step=1)
    with pytest.raises(InputError, match="--step chooses a log of a folder"):
        resolve_logs("y/rank_0_activations.log", "z/rank_0_activations.log", step=1)


def test_the_one_common_step_is_taken_else_the_user_is_asked() -> None:
    touch(
        "x/numerics/step_1/rank_0_activations.log",
        "x/numerics/step_2/rank_0_activations.log",
        "y/numerics/step_2/rank_0_activations.log",
    )
    assert resolve_logs("x", "y") == (
        "x/numerics/step_2/rank_0_activations.log",
        "y/numerics/step_2/rank_0_activations.log",
    )
    with pytest.raises(InputError, match=r"several captured steps.*x/numerics/step_1 and x/numerics/step_2"):
        resolve_logs("x", "x")
    assert resolve_logs("x/numerics/step_1", "y") == (
        "x/numerics/step_1/rank_0_activations.log",
        "y/numerics/step_2/rank_0_activations.log",
    )


def test_a_file_against_a_folder_takes_the_rank_of_the_file() -> None:
    touch("x/rank_0_activations.log", "x/rank_1_activations.log", "y/rank_1_activations.log", "z.log")
    assert resolve_logs("x", "y/rank_1_activations.log")[0] == "x/rank_1_activations.log"
    assert resolve_logs("y/rank_1_activations.log", "x")[1] == "x/rank_1_activations.log"
    assert resolve_logs("-", "y")[1] == "y/rank_1_activations.log"
    assert resolve_logs("z.log", "x", rank=0)[1] == "x/rank_0_activations.log"
    with pytest.raises(InputError, match="choose one with --rank N"):
        resolve_logs("z.log", "x")
    touch("s/step_1/rank_0_activations.log", "s/step_2/rank_0_activations.log")
    with pytest.raises(InputError, match="several captured steps; name one: s/step_1 and s/step_2"):
        resolve_logs("z.log", "s")


@pytest.mark.parametrize("named", ["one", "one/rank_0_activations.log"])
@pytest.mark.parametrize("world_size", [1, 2])
def test_a_log_of_one_process_is_its_run(named: str, world_size: int) -> None:
    """Against the folder of several ranks it is compared with all of them; the log of a rank is with that rank."""
    run = {"parameters": 3, "parameter_digests": {"weight": "00"}}
    for path, size in (("one", world_size), *(("two", 2),) * 2):
        rank = len(list(Path(path).glob("*"))) if Path(path).exists() else 0
        of = {**run, "world_size": size, "rank": rank}
        write_log(Path(path) / f"rank_{rank}_activations.log", [op("x/op_0_mm")], run=of, footer=True)
    merged = world_size == 1
    other = "two" if merged else "two/rank_0_activations.log"
    assert resolve_logs(named, "two") == ("one/rank_0_activations.log", other)
    assert resolve_logs("two", named) == (other, "one/rank_0_activations.log")
    assert resolve_logs(named, "two", rank=0)[1] == "two/rank_0_activations.log"


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ("-", "-", "only one of the two logs"),
        ("missing", "a.log", "missing: no such file or folder"),
        ("a.log", "missing/x.log", "missing/x.log: no such file or folder"),
        ("a.log/x", "a.log", "a.log/x: Not a directory"),
        ("a\0b", "a.log", "null"),
        ("n" * 5000, "a.log", "File name too long"),
        ("empty", "a.log", "empty: no rank_N_activations.log here"),
    ],
)
def test_what_cannot_be_opened_is_said(a: str, b: str, message: str) -> None:
    touch("a.log")
    Path("empty").mkdir()
    with pytest.raises(InputError, match=re.escape(message)):
        resolve_logs(a, b)


def test_a_folder_of_folders_names_the_runs_in_it() -> None:
    touch("runs/base/rank_0_activations.log", "runs/group/other/numerics/rank_0_activations.log", "runs/notes/x.txt")
    with pytest.raises(InputError, match=r"runs: no .*; runs in it: base, group/other$"):
        resolve_logs("runs", "runs")


def test_no_permission_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    touch("a.log")
    # The tests may run as root, whom permissions do not stop.
    monkeypatch.setattr("numtui.inputs.os.access", lambda *_: False)
    with pytest.raises(InputError, match=r"a.log: cannot be read \(permission denied\)"):
        resolve_logs("a.log", "a.log")


def test_rank_needs_a_folder() -> None:
    touch("a.log")
    with pytest.raises(InputError, match="A and B are both files"):
        resolve_logs("a.log", "a.log", rank=0)


@pytest.mark.parametrize(
    ("a", "b", "names"),
    [
        ("eager/rank_0_activations.log", "traced/rank_0_activations.log", ("eager", "traced")),
        ("eager.log", "traced.log.gz", ("eager", "traced")),
        ("out/x/numerics/rank_0_activations.log", "out/y/numerics/rank_0_activations.log", ("x", "y")),
        ("x/step_1/rank_0_activations.log", "y/step_2/rank_0_activations.log", ("x", "y")),
        ("x/step_1/rank_0_activations.log", "x/step_2/rank_0_activations.log", ("step_1", "step_2")),
        ("/data/x/rank_0_activations.log", "/home/me/y/rank_0_activations.log", ("x", "y")),
        ("x/rank_0_activations.log", "x/rank_1_activations.log", ("rank_0_activations", "rank_1_activations")),
        ("same.log", "same.log", ("a", "b")),
        ("-", "run.log", ("stdin", "run")),
    ],
)
def test_names_tell_the_runs_apart(a: str, b: str, names: tuple[str, str]) -> None:
    assert default_names(a, b) == names


def test_the_demo_is_shipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for pair in DEMOS:
        assert all(Path(p).is_file() for p in resolve_logs(*demo_logs(pair)))
    monkeypatch.setattr(inputs, "__file__", str(tmp_path / "numtui" / "inputs.py"))
    with pytest.raises(InputError, match="missing from this installation"):
        demo_logs("agree")


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["o/run_a/numerics/rank_0_weights.log", "o/run_b/numerics/rank_0_weights.log"], ["run_a", "run_b"]),
        (["o/lr1/s1/rank_0_weights.log", "o/lr1/s2/rank_0_weights.log", "o/lr2/s1/rank_0_weights.log"],
         ["lr1/s1", "lr1/s2", "lr2/s1"]),
        (["o/a/1/w.log", "o/b/1/w.log", "o/c/2/w.log"], ["a", "b", "c"]),
        (["rank_0_weights.log", "rank_1_weights.log.gz"], ["rank_0_weights", "rank_1_weights"]),
        (["w.log", "run/numerics/rank_0_weights.log"], ["w", "run"]),
        (["w.log", "w.log", "v.log"], ["w", "w (2)", "v"]),
        (["w.log", "w.log"], ["w", "w (2)"]),
    ],
)  # fmt: skip
def test_runs_are_named_by_what_distinguishes_their_paths(paths: list[str], names: list[str]) -> None:
    assert run_names(paths) == names
