"""Kept operations run again: in fresh processes, to the bits of the log, and nothing that a bundle may not ask for."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch

from capture.keeping import replay
from capture.keeping.bundle import read_bundle
from capture.keeping.form import find_bundles
from capture.keeping.perform import Refused, digest, in_a_fork, operator
from capture.keeping.replay import AGAIN, WIDE, Kept, ReplayError, Variant, replayed
from capture.keeping.script import write_script
from capture.log_writer import format_digest
from capture.statistics import Statistics
from numtui.cli.main import main
from numtui.report.collectives import from_parts
from tests.capture.conftest import LOOP, Script
from tests.capture.runs import Examples, Run

TENSORS = {
    "float32": torch.randn(5, 7),
    "transposed": torch.randn(5, 7).t(),
    "bfloat16": torch.randn(3, 3).bfloat16(),
    "bool": torch.tensor([True, False, True]),
    "complex": torch.randn(3, dtype=torch.complex64).conj(),
    "scalar": torch.tensor(2.5, dtype=torch.float64),
    "empty": torch.empty(0, 4),
    "slice": torch.arange(20, dtype=torch.int8)[3:14],
}


@pytest.mark.parametrize("name", TENSORS)
def test_the_digest_is_that_of_the_log(name: str) -> None:
    statistics = Statistics()
    slot = statistics.measure(TENSORS[name])
    assert digest(TENSORS[name]) == format_digest(statistics.results()[slot].digest)


def kept_in(run: Run) -> list[Kept]:
    return [Kept(folder, call) for folder in find_bundles(run.folder) for call in read_bundle(folder).calls]


@pytest.fixture
def _forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the processes of a replay from this one, which has imported torch."""

    def performed(job: dict[str, Any], _python: str, _running: replay.Running) -> list[Any]:
        return [in_a_fork(job["calls"], variant, frozenset()) for variant in job["variants"]]

    monkeypatch.setattr(replay, "_performed", performed)


def again(kept: list[Kept], **options: Any) -> list[dict[str, Any]]:
    """What comes out as captured."""
    return replayed(kept, [AGAIN], **options)[0]


def is_certified(kept: Kept, result: dict[str, Any]) -> bool:
    expected = kept.call["digests"]
    pairs = [("returned", "returned"), ("written", "left")]
    return all(
        len(result.get(gave, ())) == len(expected[told])
        and all(want in (one, "-") for one, want in zip(result[gave], expected[told], strict=True))
        for gave, told in pairs
    )


@pytest.mark.usefixtures("_forked")
@pytest.mark.parametrize(
    "variant",
    [
        "",
        "--dtype amp --optimizer fused",
        "--dropout 0.1 --ac full --experts 4",
        "--parallel fsdp2 --fake-world 8",
    ],
)
def test_a_step_of_the_example_replays_to_the_bits_of_its_log(examples: Examples, variant: str) -> None:
    kept = [one for one in kept_in(examples.captured(variant, "--save module:*")) if "group" not in one.call]
    results = again(kept)
    pairs = zip(kept, results, strict=True)
    others = [(one.call["key"], found) for one, found in pairs if not is_certified(one, found)]
    assert len(kept) > 100
    assert others == []


@pytest.mark.usefixtures("_forked")
def test_in_float64_a_result_is_measured_and_stays_within_a_few_roundings(script: Script) -> None:
    kept = [one for one in kept_in(script(LOOP, "--save module:*")) if one.call["key"].endswith("_addmm")]
    for found in replayed(kept, [WIDE])[0]:
        relative, epsilons = found["distance"]["own"]
        assert 0 < epsilons < 4
        assert relative == epsilons * torch.finfo(torch.float32).eps


@pytest.mark.usefixtures("_forked")
def test_a_random_operation_draws_the_same_numbers_and_has_no_float64(script: Script) -> None:
    text = LOOP.replace("model(x)", "torch.nn.functional.dropout(model(x), 0.5)")
    (kept,) = [one for one in kept_in(script(text, "--save module:*")) if "random" in one.call]
    assert is_certified(kept, *again([kept]))
    assert replayed([kept], [WIDE])[0] == [{"refused": "it draws random numbers, which are others in float64"}]


@pytest.mark.usefixtures("_forked")
def test_memory_that_tensors_share_stays_shared(script: Script) -> None:
    step = "    optimizer.step()"
    text = LOOP.replace(step, f"    with torch.no_grad(): model[0].weight[4:].add_(model[0].weight[:4])\n{step}")
    kept = [one for one in kept_in(script(text, "--save module:*")) if one.call["aliased"]]
    assert kept
    assert all(is_certified(one, found) for one, found in zip(kept, again(kept), strict=True))


@pytest.mark.parametrize(
    "name",
    ["aten::from_file", "aten::no_such_operator", "aten::set_.source_Storage", "aten::mm.no_such_overload",
    "os::system", "aten::mm; import os", "aten::__import__", "profiler::_record_function_enter_new", "c10d::allreduce_",
    "aten::save"],
)  # fmt: skip
def test_an_operator_that_only_harms_is_refused(name: str) -> None:
    with pytest.raises(Refused):
        operator(name, frozenset())


def test_operators_of_a_library_run_if_the_user_names_it(script: Script, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "own_operators.py").write_text(
        "import torch\n@torch.library.custom_op('own::twice', mutates_args=())\n"
        "def twice(x: torch.Tensor) -> torch.Tensor:\n    return x + x\n"
        "twice.register_fake(lambda x: torch.empty_like(x))\n"
        "twice.register_autograd(lambda ctx, grad: grad * 2)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    text = "import own_operators\n" + LOOP.replace("model(x)", "own_operators.twice(model(x))").strip()
    kept = [one for one in kept_in(script(text, "--save module:*")) if one.call["operator"].startswith("own::")]
    assert len(kept) == 1
    assert "may not run" in again(kept)[0]["refused"]
    assert is_certified(kept[0], *again(kept, imports=["own_operators"]))


@pytest.mark.usefixtures("_forked")
def test_an_operation_that_wants_all_memory_fails_by_itself(script: Script) -> None:
    kept = kept_in(script(LOOP, "--save module:*"))
    greedy = Kept(kept[0].folder, {**kept[0].call, "operator": "aten::full", "args": [[1 << 44], 1], "kwargs": {}})
    found = again([greedy, kept[1]])
    assert "failed" in found[0]
    assert is_certified(kept[1], found[1])


@pytest.mark.usefixtures("_forked")
def test_a_content_that_was_edited_is_refused(script: Script) -> None:
    kept = kept_in(script(LOOP, "--save module:2"))
    path = kept[0].folder / f"{kept[0].call['args'][0]['tensor']['storage']}.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert "was changed since it was kept" in again(kept[:1])[0]["refused"]


@pytest.mark.usefixtures("_forked")
def test_an_opaque_argument_is_named(script: Script) -> None:
    kept = kept_in(script(LOOP, "--save module:2"))[0]
    call = {**kept.call, "args": [{"opaque": "BlockMask"}, *kept.call["args"][1:]]}
    assert again([Kept(kept.folder, call)]) == [{"refused": "an argument is a BlockMask, which cannot be kept"}]


def test_a_call_that_ends_its_process_costs_no_other(script: Script, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "ending.py").write_text(
        "import os, torch\n@torch.library.custom_op('ending::it', mutates_args=())\n"
        "def it(x: torch.Tensor) -> torch.Tensor:\n    os.kill(os.getpid(), 9)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    kept = kept_in(script(LOOP, "--save module:*"))[:2]
    kept[1] = Kept(kept[1].folder, {**kept[1].call, "operator": "ending::it", "args": kept[1].call["args"][:1]})
    found = again(kept, imports=["ending"])
    assert found[1] == {"failed": "its process was ended: ended with -9"}
    assert is_certified(kept[0], found[0])


def test_a_replay_says_how_far_it_is_and_can_be_cancelled(script: Script) -> None:
    kept = kept_in(script(LOOP, "--save module:2"))
    told: list[str] = []

    def tell(name: str, _done: float) -> None:
        told.append(name)
        if len(told) == 2:
            running.cancel()

    running = replay.Running(tell)
    with pytest.raises(ReplayError, match="cancelled"):
        replayed(kept, [AGAIN, Variant("once more"), WIDE], running=running)
    assert told[:2] == ["as captured", "once more"]


ALONE = """
import torch.distributed as dist
dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
""" + LOOP.replace("optimizer.step()", "dist.all_reduce(model[0].weight.grad)\n    optimizer.step()")


def test_a_collective_is_put_together_from_what_the_ranks_gave(script: Script) -> None:
    try:
        kept = kept_in(script(ALONE, "--save module:*"))
    finally:
        torch.distributed.destroy_process_group()
    (one,) = [each for each in kept if "group" in each.call]
    found = from_parts(one)["as captured"]
    assert found["together"] == "sum of the ranks in rank order, in float32"
    assert is_certified(one, found)
    of_two = {**one.call, "group": {**one.call["group"], "ranks": [0, 1]}}
    lacking = from_parts(Kept(one.folder, of_two))["as captured"]
    assert lacking == {"refused": "communication needs the part of rank 0, which was not kept"}


def test_a_python_without_torch_is_named(script: Script, tmp_path: Path) -> None:
    kept = kept_in(script(LOOP, "--save module:2"))
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    python.chmod(0o755)
    with pytest.raises(ReplayError, match="has no torch; name one that has with --python"):
        again(kept, python=str(python))
    with pytest.raises(ReplayError, match="No such file"):
        replayed(kept, [Variant("x")], python=str(tmp_path / "none"))


# The whole path: plan, keep, replay, script

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "schema" / "replay.schema.json").read_text(encoding="utf-8"))


BUGS = {
    "negated-attention": r"its result is the negative of its input → a has no such operation; b is 0 ε from float64",
    "bf16-matmul": r"dtype of self float32 in a, bfloat16 in b; .*: float64 sides with a",
}


@pytest.mark.usefixtures("_forked")
@pytest.mark.parametrize("bug", BUGS)
def test_from_the_first_cause_to_a_script(
    examples: Examples, bug: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a bug of the example the replay names what differs, and the script runs alone and gives both runs' bits."""
    broken = f"--bug {bug}"
    good, bad = examples.captured(""), examples.captured(broken)
    plan = tmp_path / "plan.json"
    assert main(["plan", str(good.folder), str(bad.folder), "-o", str(plan)]) == 0
    a, b = (examples.captured(arguments, f"--save {plan}") for arguments in ("", broken))
    assert "neither" not in a.said + b.said
    capsys.readouterr()
    assert main(["replay", str(a.folder), str(b.folder)]) == 0
    told = capsys.readouterr().out
    assert re.search(BUGS[bug], " ".join(told.split()))
    beside = json.loads((find_bundles(a.folder)[0] / "replay.json").read_text())
    jsonschema.validate(beside, SCHEMA)
    assert all(side["certified"] for case in beside["cases"] for side in case["sides"].values())
    folder = tmp_path / "script"
    assert main(["replay", str(a.folder), str(b.folder), "--script", str(folder)]) == 0
    done = subprocess.run([sys.executable, "-I", "repro.py"], cwd=folder, capture_output=True, text=True, check=True)
    recorded = [side["recorded"] for side in beside["cases"][0]["sides"].values()]
    assert [json.loads(line.partition(" ")[2].replace("'", '"')) for line in done.stdout.splitlines()] == recorded


def test_weights_that_differ_before_the_step_are_named(examples: Examples, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = (examples.captured(f"--seed {seed} --data-seed 1", "--save weights") for seed in (1, 2))
    assert main(["replay", str(a.folder), str(b.folder)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"weights before the step: \d+ of \d+ differ", told[0])
    assert re.match(r"  embedding.weight: [\d,]+ of [\d,]+ elements differ: most by more than a factor of two", told[1])


def test_a_script_whose_tensors_were_changed_fails(script: Script, tmp_path: Path) -> None:
    kept = kept_in(script(LOOP, "--save module:2"))[0]
    write_script(tmp_path / "s", {"a": kept})
    data = bytearray((tmp_path / "s" / "tensors.safetensors").read_bytes())
    data[-1] ^= 1
    (tmp_path / "s" / "tensors.safetensors").write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-I", "repro.py"], cwd=tmp_path / "s", capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "not the bits of a" in done.stderr


def test_a_whole_step_is_counted(examples: Examples) -> None:
    """In a process that shows the result, and has no torch itself."""
    run = examples.captured("", "--save module:*")
    many = len(run.log.rows)
    code = (
        "import sys; from numtui.cli.main import main; "
        f"assert main(['replay', {str(run.folder)!r}]) == 0; assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert f"{many} of {many} operations replay to the bits of the log (100.0 %)" in done.stdout


def test_what_is_no_bundle_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for nothing in ("", '{"version": 1, "calls": []}'):
        if nothing:
            (tmp_path / "manifest.json").write_text(nothing)
        for line in (["replay", str(tmp_path)], ["bisect", "--replay", str(tmp_path), "--python", "x", "y"]):
            assert main(line) == 2
            assert "no kept operations here" in capsys.readouterr().err
    (tmp_path / "manifest.json").write_text('{"version": 1, "calls": [{"operator": "aten::from_file"}]}')
    assert main(["replay", str(tmp_path)]) == 2
    assert "call 0 is refused, and nothing was run: key is missing" in capsys.readouterr().err
