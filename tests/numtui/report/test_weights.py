"""Reports on the weights of several runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from numtui.cli.main import main
from tests.conftest import REPOSITORY
from tests.matchers.weights.test_weights import Change, log, moved

SCHEMA = json.loads((REPOSITORY / "docs" / "schema" / "weights.schema.json").read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(name: str, changes: Change | None = None, *, rank: int = 0, **settings: Any) -> str:
    """Writes the folder of a run with a log of weights."""
    numerics = Path(name, "numerics")
    numerics.mkdir(parents=True, exist_ok=True)
    log(numerics / f"rank_{rank}_weights.log", changes, **settings)
    return name


def operations(name: str, step: int) -> str:
    """Writes a log of operations into the folder of a run."""
    path = Path(name, "numerics", "rank_0_activations.log")
    path.write_text(f'Total captured activations: 0\nFormat: numtui 2\nRun: {{"step": {step}}}\n{"=" * 80}\n')
    return str(path)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 1) -> str:
    assert main(["weights", *arguments]) == code
    out: str = capsys.readouterr().out
    return out


LATER: Change = {(3, "norm.weight", "weight"): moved(0.003)}
EARLIER: Change = {
    (2, "layers.0.wq.weight", "grad"): moved(0.03),
    (2, "layers.0.wq.weight", "exp_avg"): moved(0.03),
    (2, "layers.0.wq.weight", "weight"): moved(0.03),
}


def test_the_earliest_cell_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [run("run_a"), run("run_b"), run("run_c", LATER), run("run_d", EARLIER, footer=False)]
    logs = [operations(name, step) for name, step in (("run_a", 3), ("run_c", 3), ("run_d", 2))]
    assert printed(capsys, *runs) == (
        "run_d diverges first: step 2, gradient of layers.0.wq.weight, then its\n"
        "  parameter, exp_avg\n"
        "  relative error 0.01; 3 of 9 tensors differ after this step\n"
        "\n"
        "Different tensors after each step, against run_a:\n"
        "\n"
        " step   1  2  3\n"
        " run_b  =  =  =\n"
        " run_c  =  =  1\n"
        " run_d  =  3  =\n"
        "   =  no difference\n"
        "\n"
        " run_b  equal in 3 steps\n"
        " run_c  step 3, parameter norm.weight, relative error 0.001\n"
        " run_d  step 2, gradient of layers.0.wq.weight, relative error 0.01; no footer:\n"
        "        the run was cut off or continues\n"
        "\n"
        "Equal bit for bit: run_a, run_b\n"
        "\n"
        "Capture step 2 of both (numtui capture --steps 2) to find the operation.\n"
        f"numtui diff {logs[0]} {logs[1]}\n"
        "  names the first operation of step 3 that differs\n"
        "numtui weights run_a/numerics/rank_0_weights.log run_d/numerics/rank_0_weights.log\n"
        "  shows the largest difference after each step\n"
    )


def test_against_another_run(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [run("run_a"), run("run_b"), run("run_c", LATER)]
    out = printed(capsys, *runs, "--against", "run_c")
    assert out.startswith("run_a diverges first: step 3, parameter norm.weight\n")
    assert "  Its gradient agrees: the optimizer's step differs.\n" in out
    assert "against run_c:\n" in out
    assert main(["weights", *runs, "--against", "run_x"]) == 2
    assert "--against run_x: no such run; there are run_a, run_b, run_c" in capsys.readouterr().err


def test_what_was_not_compared_is_no_agreement(capsys: pytest.CaptureFixture[str]) -> None:
    other: Change = {(step, "norm.weight", "grad"): {"shape": [4]} for step in (1, 2)}
    runs = [run("run_a"), run("shapes", other), run("short", steps=2), run("none", steps=0)]
    out = printed(capsys, *runs)
    assert (
        " step     1   2  3\n"
        " shapes  =*  =*  =\n"
        " short    =   =  –\n"
        " none     –   –  –\n"
        "   =  no difference\n"
        "   *  some tensors are in one run only, or have other shapes or shards\n"
        "   –  step not in both logs\n"
    ) in out
    assert out.startswith("No difference found, but only 0 of 3 steps could be compared completely.\n")
    assert " none    nothing compared\n" in out
    assert "Equal" not in out


def test_runs_that_agree(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [run("run_a"), run("run_b"), run("run_c")]
    out = printed(capsys, *runs, code=0)
    assert out.startswith("No difference in 3 steps of 3 runs.\n")
    assert out.endswith("Equal bit for bit: run_a, run_b, run_c\n")
    run("run_c", steps=2, footer=False)
    out = printed(capsys, *runs, code=0)
    assert out.startswith("No difference found, but only 2 of 3 steps could be compared completely.\n")


def test_a_gap_in_the_steps_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        path = log(Path(f"{name}.log"), LATER if name == "b" else None)
        kept = [line for line in path.read_text().splitlines(True) if '{"step": 2' not in line]
        path.write_text("".join(kept))
    assert "  Step 2 is not in both logs: the runs may diverge there already.\n" in printed(capsys, "a.log", "b.log")


@pytest.mark.parametrize("steps", [12, 300])
def test_many_steps_fit_80_columns(capsys: pytest.CaptureFixture[str], steps: int) -> None:
    part = ("grad", "weight", "exp_avg")
    late: Change = {(step, "norm.weight", p): moved(1) for step in range(steps - 20, steps) for p in part[: step % 4]}
    runs = [run("run_a", steps=steps), run("r" * 60 + "_b", late, steps=steps), run("run_c", steps=steps)]
    out = printed(capsys, *runs)
    table = [line for line in out.splitlines() if not line.startswith("numtui ")]
    assert max(map(len, table)) <= 80
    assert ("more steps are in --format json" in out) == (steps > 12)
    assert ("steps a–b: the same in each of them" in out) == (steps > 12)


def test_equal_steps_are_merged_before_any_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    late: Change = {(step, "norm.weight", "grad"): moved(1) for step in range(151, 301)}
    out = printed(capsys, run("run_a", steps=300), run("run_b", late, steps=300), run("run_c", steps=300))
    assert " step   1–150  151–300\n run_b      =        1\n run_c      =        =\n" in out


def test_json_is_what_its_schema_says(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [run("run_a"), run("run_b"), run("run_c", LATER), run("run_d", EARLIER), run("none", steps=0)]
    logs = [operations(name, 3) for name in ("run_a", "run_c")]
    report = json.loads(printed(capsys, *runs, "--format", "json"))
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(report, SCHEMA)
    assert set(report) == set(SCHEMA["properties"])
    for part in ("run", "cell", "difference", "next"):
        of = {"run": report["runs"], "cell": report["cells"], "next": report["next"]}
        found = of.get(part, [report["runs"][2]["first"]])
        assert {key for each in found for key in each} == set(SCHEMA["$defs"][part]["properties"])
    first = report["first"]
    assert (first["run"], first["step"], first["kind"]) == ("run_d", 2, "gradient")
    assert [each["part"] for each in first["then"]] == ["weight", "exp_avg"]
    assert report["equal"] == [["run_a", "run_b"]]
    assert report["next"][0]["command"] == ["numtui", "diff", *logs]
    cells = {(cell["run"], cell["step"]): cell["state"] for cell in report["cells"]}
    assert [cells[name, 3] for name in runs[1:]] == ["equal", "different", "equal", "missing"]
    agreeing = json.loads(printed(capsys, *runs[:2], "--format", "json", code=0))
    jsonschema.validate(agreeing, SCHEMA)


def test_json_lines_of_several(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, run("run_a"), run("run_b"), run("run_c", LATER), "--format", "jsonl")
    assert [(line["first"] or {}).get("step") for line in map(json.loads, out.splitlines())] == [None, 3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["two", "two_too"], "there are logs of weights of ranks 0 and 1; choose one with --rank N"),
        (["two", "run_a", "--rank", "1"], "run_a has no log of weights of rank 1, only of rank 0"),
        (["ops", "run_a"], "ops: no rank_N_weights.log here, nor in numerics/; numtui capture --weights every"),
        (["none", "run_a"], "none: no such file or folder"),
    ],
)
def test_folders_that_need_a_word(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    for name in ("two", "two_too"):
        run(name)
        run(name, rank=1)
    run("run_a")
    Path("ops/numerics").mkdir(parents=True)
    operations("ops", 1)
    assert main(["weights", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert main(["weights", "two", "two_too", "--rank", "1"]) == 0


def test_a_sweep_has_a_reference_for_each_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [run("eager_bs1"), run("eager_bs8", EARLIER), run("graph_bs1"), run("graph_bs8", LATER), run("other")]
    assert main(["weights", *runs, "--pair", "eager:graph"]) == 1
    said = capsys.readouterr()
    assert "Different tensors after each step, each against the run of its configuration:" in said.out
    assert " graph_bs1  =  =  =" in said.out.replace("   =", "  =")
    assert "graph_bs8  step 2, gradient of layers.0.wq.weight, relative error" in said.out
    assert "without partner: other" in said.err
    assert main(["weights", *runs, "--pair", "eager:graph", "--format", "jsonl"]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["a"].split("/")[0] for line in lines] == ["eager_bs1", "eager_bs8"]
    assert main(["weights", *runs, "--pair", "a:b"]) == 2
