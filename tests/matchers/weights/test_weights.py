"""Logs of weights: where two runs part, on logs that the capture wrote and on logs that are broken."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from capture.log_format import render_weights_footer, render_weights_header
from matchers.errors import LogError
from matchers.weights.compare import Kind, compare_weights, differences_at
from matchers.weights.log import read_weights
from matchers.weights.matrix import compare_runs
from numtui.cli.main import main

NAMES = ("embed.weight", "layers.0.wq.weight", "norm.weight")
PARTS = ("grad", "weight", "exp_avg")


def tensor(step: int, name: str, part: str, **other: Any) -> dict[str, Any]:
    sketch = b64encode(pack("<16d", *[3.0] * 16)).decode()
    known = {"shape": [2, 2], "dtype": "float32", "l1": 4.0, "l2": 3.0, "counts": [4, 0, 0, 0], "digest": "0" * 16}
    return {"step": step, "parameter": name, "part": part, **known, "sketch": sketch, **other}


def moved(by: float) -> dict[str, Any]:
    """The fields of a tensor whose bits, and every projection, are others."""
    return {"digest": "f" * 16, "sketch": b64encode(pack("<16d", *[3.0 + by] * 16)).decode()}


Change = dict[tuple[int, str, str], dict[str, Any]]


def log(
    path: Path, changes: Change | None = None, *, steps: int = 3, names: Any = NAMES, footer: bool = True, **run: Any
) -> Path:
    """Writes a log in which nothing is special but the `changes`."""
    lines = [
        json.dumps(tensor(step, name, part, **(changes or {}).get((step, name, part), {})))
        for step in range(1, steps + 1)
        for name in names
        for part in PARTS
    ]
    text = render_weights_header(run) + "".join(line + "\n" for line in lines)
    path.write_text(text + (render_weights_footer(steps) if footer else ""))
    return path


def compared(tmp_path: Path, changes: Change, **settings: Any) -> Any:
    return compare_weights(
        read_weights(log(tmp_path / "a.log", **settings)), read_weights(log(tmp_path / "b.log", changes, **settings))
    )


def test_equal_logs(tmp_path: Path) -> None:
    result = compared(tmp_path, {})
    assert result.first is None
    assert [(step.compared, step.different) for step in result.steps] == [(3, 0)] * 3
    assert result.a.complete
    assert result.starts_differ is None


def test_the_first_difference_is_by_step_then_gradients_then_the_order_of_the_model(tmp_path: Path) -> None:
    result = compared(
        tmp_path,
        {
            (3, "embed.weight", "grad"): moved(1),
            (2, "embed.weight", "weight"): moved(1),
            (2, "norm.weight", "grad"): moved(0.3),
            (2, "layers.0.wq.weight", "grad"): moved(0.003),
        },
    )
    assert (result.first.step, result.first.parameter, result.first.part) == (2, "layers.0.wq.weight", "grad")
    # every projection moved by 0.003, and b's norm is 3
    assert result.first.error == pytest.approx(0.001)
    assert [(step.step, step.different) for step in result.steps] == [(1, 0), (2, 3), (3, 1)]
    assert result.steps[1].largest.parameter == "embed.weight"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"digest": "f" * 16}, 0.0),  # as −0.0 for 0.0
        ({"digest": "f" * 16, "sketch": None, "l2": 6.0}, 0.5),
        ({"digest": "f" * 16, "counts": [4, 1, 0, 0]}, float("inf")),
        ({"digest": "f" * 16, "l2": None}, None),
        ({"dtype": "bfloat16", "l1": 4.5, **moved(0.03)}, 0.01),
        ({"digest": None, **{k: v for k, v in moved(3).items() if k == "sketch"}}, 1.0),
    ],
)
def test_how_much_differs(tmp_path: Path, change: dict[str, Any], error: float | None) -> None:
    result = compared(tmp_path, {(1, "embed.weight", "grad"): change})
    assert result.first.step == 1
    assert result.first.error == pytest.approx(error, nan_ok=True) if error is not None else result.first.error != 0


@pytest.mark.parametrize("change", [{"dtype": "bfloat16", "digest": "a" * 16}, {"digest": None}])
def test_equal_numbers_of_another_dtype_or_without_digests_are_equal(tmp_path: Path, change: dict[str, Any]) -> None:
    assert compared(tmp_path, {(1, "embed.weight", "grad"): change}).first is None


@pytest.mark.parametrize("change", [{"shape": [4]}, {"placement": {"placements": ["Shard(0)"]}}])
def test_other_shapes_and_shards_are_not_compared_and_said(tmp_path: Path, change: dict[str, Any]) -> None:
    result = compared(tmp_path, {(1, "embed.weight", "grad"): {**change, **moved(1)}})
    assert result.first is None
    assert result.not_comparable == ((1, "embed.weight", "grad"),)


def test_what_only_one_has(tmp_path: Path) -> None:
    a = read_weights(log(tmp_path / "a.log", steps=2, parameter_digests={"w": "1", "v": "2"}))
    b = read_weights(log(tmp_path / "b.log", steps=3, names=NAMES[1:], parameter_digests={"w": "1", "v": "3"}))
    result = compare_weights(a, b)
    assert result.only_a == ("embed.weight",)
    assert result.only_b == ()
    assert result.steps_only_b == (3,)
    assert result.starts_differ == ("v",)


def test_a_matrix_of_runs(tmp_path: Path) -> None:
    changes: list[Change] = [
        {},
        {(2, "norm.weight", "weight"): moved(2), (3, "norm.weight", "grad"): moved(1)},
        {},
        {(2, "norm.weight", "exp_avg"): moved(3), (2, "norm.weight", "grad"): moved(3)},
    ]
    logs = [read_weights(log(tmp_path / f"{i}.log", change)) for i, change in enumerate(changes)]
    matrix = compare_runs(logs, "abcd")
    assert [[cell.different_tensors for cell in cells.values()] for cells in matrix.cells] == [
        [],
        [0, 1, 1],
        [0, 0, 0],
        [0, 2, 0],
    ]
    assert matrix.equal == ((0, 2),)
    assert matrix.first is not None
    run, first = matrix.first
    assert (run, first.step, first.kind) == (3, 2, Kind.GRADIENT), "a gradient comes before a weight in the same step"
    assert [d.part for d in matrix.differences(run, 2)] == ["grad", "exp_avg"]
    assert compare_runs(logs, "abcd", 3).first == (0, *[differences_at(logs[3], logs[0], 2)[0]])


def test_kinds_of_tensors(tmp_path: Path) -> None:
    """A weight without a gradient that changes is an averaged copy; one that does not is a parameter, frozen."""
    states = [
        ("w", "grad", ""), ("w", "weight", ""), ("w", "exp_avg", ""),
        ("ema.w", "weight", "changes"), ("frozen", "weight", ""), ("mean", "buffer", "changes"),
    ]  # fmt: skip

    def written(name: str, digest: str) -> Any:
        lines = [
            json.dumps(tensor(step, parameter, part, digest=f"{digest}{step if changes else 0}"))
            for step in (1, 2)
            for parameter, part, changes in states
        ]
        (tmp_path / name).write_text(render_weights_header({}) + "\n".join(lines) + "\n")
        return read_weights(tmp_path / name)

    kinds = [d.kind.value for d in differences_at(written("a", "a"), written("b", "b"), 2)]
    assert kinds == ["gradient", "parameter", "optimizer state", "averaged copy", "parameter", "buffer"]


def test_a_run_that_was_killed(tmp_path: Path) -> None:
    path = log(tmp_path / "a.log", footer=False)
    whole = read_weights(path)
    assert not whole.complete
    assert not whole.cut_off
    path.write_bytes(path.read_bytes()[:-30])
    cut = read_weights(path)
    assert cut.cut_off
    assert cut.problem_count == 0
    assert len(cut.states) == len(whole.states) - 1


def test_gzip_whole_and_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.log.gz"
    data = gzip.compress(log(tmp_path / "a.log", steps=200).read_bytes())
    path.write_bytes(data)
    assert read_weights(path).complete
    path.write_bytes(data[:-200])
    cut = read_weights(path)
    assert cut.cut_off
    assert cut.steps


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{nonsense", "not a tensor in JSON"),
        ('{"step": 1}', "parameter is missing"),
        (
            '{"step": "1", "parameter": "w", "part": "grad", "shape": []}',
            "step, parameter or part is of the wrong kind",
        ),
        (json.dumps(tensor(9, "w", "grad", shape="x")), "shape is not a list of numbers"),
        (json.dumps(tensor(9, "w", "grad", l2="x")), "l2 is not a number"),
        (json.dumps(tensor(9, "w", "grad", l2=10**400)), "not a tensor in JSON"),
        (json.dumps(tensor(9, "w", "grad", counts=[1])), "counts are not four numbers"),
        (json.dumps(tensor(9, "w", "grad", counts=3)), "not a tensor in JSON"),
        (json.dumps(tensor(9, "w", "grad", sketch="AAAA")), "sketch is not base64 of 16 numbers"),
        (json.dumps(tensor(1, "embed.weight", "grad")), "a second entry for this tensor in step 1; the first counts"),
        ("hello", "not a line of a log of weights"),
        ("{" * 5000, "not a tensor in JSON"),
    ],
)
def test_a_broken_line_costs_only_itself(tmp_path: Path, line: str, message: str) -> None:
    path = log(tmp_path / "a.log", footer=False)
    path.write_text(path.read_text() + line + "\n" + json.dumps(tensor(4, "w", "grad")) + "\n")
    found = read_weights(path)
    assert [problem.message for problem in found.problems] == [message]
    assert path.read_text().splitlines()[found.problems[0].line - 1] == line
    assert found.steps == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "1: is not a log of weights: expected a line 'Format: numtui weights 1'"),
        (b"Total captured activations: 3\n====\n", "1: is not a log of weights"),
        (b"Format: numtui weights 99\nRun: {}\n====\n", "not 'numtui weights 99'"),
        (b"\x00" * 100, "1: is not a log of weights"),
    ],
)
def test_what_is_no_log_of_weights_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(data)
    with pytest.raises(LogError, match=message):
        read_weights(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"none\.log: cannot be read: No such file"):
        read_weights(tmp_path / "none.log")


# The command line


def test_diff_tells_the_format_and_prints_where_they_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = log(tmp_path / "a.log", footer=False)
    b = log(tmp_path / "b.log", {(2, "norm.weight", "grad"): moved(0.003)})
    assert main(["diff", str(a), str(b)]) == 1
    out = capsys.readouterr().out.replace(str(tmp_path) + "/", "")
    assert out == (
        "a  a.log  3 steps (1 to 3), 3 parameters, no footer: the run was cut off or continues\n"
        "b  b.log  3 steps (1 to 3), 3 parameters\n"
        "\n"
        "First difference: step 2, gradient of norm.weight\n"
        "  relative error 0.001\n"
        "  a  line 19: 2×2 float32, L2 norm 3.0, digest 0000000000000000\n"
        "  b  line 19: 2×2 float32, L2 norm 3.0, digest ffffffffffffffff\n"
        "\n"
        " step    differing parameters  largest error\n"
        "    1                  0 of 3\n"
        "    2                  1 of 3  0.001          gradient of norm.weight\n"
        "    3                  0 of 3\n"
        "\n"
        "Capture step 2 of both (numtui capture --steps 2) to find the operation.\n"
    )


def test_diff_of_equal_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = log(tmp_path / "a.log"), log(tmp_path / "b.log")
    b_packed = tmp_path / "b.log.gz"
    b_packed.write_bytes(gzip.compress(b.read_bytes()))
    assert main(["diff", str(a), str(b_packed)]) == 0
    assert "No difference in 3 steps and 3 parameters.\n" in capsys.readouterr().out


def test_diff_as_json_lines_into_a_file(tmp_path: Path) -> None:
    a = log(tmp_path / "a.log")
    b = log(tmp_path / "b.log", {(3, "norm.weight", "grad"): {"digest": "1" * 16, "counts": [4, 1, 0, 0]}})
    assert main(["diff", str(a), str(b), "--format", "jsonl", "-o", str(tmp_path / "out")]) == 1
    first, *steps = map(json.loads, (tmp_path / "out").read_text().splitlines())
    found = {"step": 3, "parameter": "norm.weight", "part": "grad", "kind": "gradient", "error": None}
    found |= {"a_line": 28, "b_line": 28}
    assert first == {"first": found}
    assert steps[1:] == [
        {"step": 2, "compared": 3, "different": 0, "largest": None},
        {"step": 3, "compared": 3, "different": 1, "largest": found},
    ]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            ["A", "A"],
            "which the explorer does not show: compare it with 'numtui weights",
        ),
        (["weights", "A"], "give two or more logs of weights to compare"),
        (["diff", "A", "C"], "C:1: is not a log of weights"),
        (["diff", "A", "B"], "no step is in both: steps 1 to 3 and no steps"),
    ],
)
def test_trouble_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    log(Path("A"))
    log(Path("B"), steps=0)
    Path("C").write_text("Total captured activations: 0\n====\n")
    assert main(command) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_no_name_reaches_the_terminal_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("w\x1b[31m\n", "v")
    a = log(tmp_path / "a.log", names=names)
    b = log(tmp_path / "b.log", {(1, names[0], "grad"): moved(1)}, names=names)
    main(["diff", str(a), str(b)])
    main(["diff", str(a), str(b), "--format", "jsonl"])
    assert "\x1b" not in capsys.readouterr().out
