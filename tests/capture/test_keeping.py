"""`--save` keeps operations whole: what is in a bundle, what is refused, and that the run goes on as without it."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from capture.keeping import bundle
from capture.keeping.bundle import Bundle, BundleError, read_bundle
from capture.keeping.contents import Contents, TooMuch
from capture.keeping.form import find_bundles, parse_size
from capture.keeping.wanted import Wanted
from tests.capture.conftest import LOOP, Script
from tests.capture.runs import Examples, Run


def bundle_of(run: Run) -> Bundle:
    (folder,) = find_bundles(run.folder)
    return read_bundle(folder)


def content(kept: Bundle, told: dict[str, Any]) -> torch.Tensor:
    """The values of a tensor of a manifest."""
    data = (kept.folder / f"{told['storage']}.safetensors").read_bytes()
    raw = torch.frombuffer(
        bytearray(data[8 + int.from_bytes(data[:8], "little") :]), dtype=getattr(torch, told["dtype"])
    )
    return raw.as_strided(told["shape"], told["strides"], told["offset"])


def call_named(kept: Bundle, end: str) -> dict[str, Any]:
    return dict(next(call for call in kept.calls if call["key"].endswith(end)))


def test_every_operation_of_a_module_is_kept_with_its_record(script: Script) -> None:
    run = script(LOOP, "--save module:*")
    kept = bundle_of(run)
    assert [call["key"] for call in kept.calls] == [row.key for row in run.log.rows]
    assert all(call["record"].startswith(f"[{call['key']}]\n") for call in kept.calls)
    assert f"kept {len(run.log.rows)} operations whole" in run.said


def test_only_the_modules_that_match_are_kept(script: Script) -> None:
    kept = bundle_of(script(LOOP, "--save module:2"))
    assert kept.calls
    assert {call["key"].partition("/")[0] for call in kept.calls} == {"2"}


def test_inputs_are_those_before_the_operation_wrote_to_them(script: Script) -> None:
    text = """
    model = nn.Linear(8, 1)
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model
        def forward(self, x):
            y = x * 1
            y.add_(1)
            return self.inner(y)
    model = Own()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(x).sum().backward()
    optimizer.step()
    """
    kept = bundle_of(script(text, "--save module:*"))
    call = call_named(kept, "_add_")
    before, after = content(kept, call["args"][0]["tensor"]), content(kept, call["returned"][0]["tensor"])
    assert torch.equal(before + 1, after)


def test_a_content_is_written_once_and_named_by_its_digest(script: Script) -> None:
    kept = bundle_of(script(LOOP, "--save module:*"))
    names = [path.name for path in kept.folder.iterdir()]
    assert sum(name.endswith(".safetensors") for name in names) == len(names) - 1
    weight = call_named(kept, "0/op_0_addmm")["args"][2]["tensor"]
    again = [json.dumps(call) for call in kept.calls if weight["storage"] in json.dumps(call)]
    assert len(again) > 1  # the optimizer reads it, too
    assert weight["strides"] == [1, 8]


def test_tensors_over_one_memory_say_so(script: Script) -> None:
    text = LOOP.replace("model(x).sum()", "(lambda y: torch.add(y[:2], y[1:3]))(model(x) * 2).sum()")
    call = call_named(bundle_of(script(text, "--save module:*")), "_add")
    first, second = (argument["tensor"] for argument in call["args"])
    assert (first["memory"], first["offset"]) == (second["memory"], 0)
    assert second["offset"] == 1


def test_a_random_operation_has_the_state_it_drew_from(script: Script) -> None:
    text = LOOP.replace("model(x)", "torch.nn.functional.dropout(model(x), 0.5)")
    call = call_named(bundle_of(script(text, "--save module:*")), "_bernoulli_")
    assert call["random"]["device"] == "cpu"
    assert not call["random"]["given"]


def test_a_bundle_is_its_owners_alone(script: Script) -> None:
    folder = bundle_of(script(LOOP, "--save module:*")).folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_nothing_is_kept_unless_asked(script: Script) -> None:
    run = script(LOOP)
    assert find_bundles(run.folder) == []
    assert "whole" not in run.said


def test_what_does_not_fit_is_left_out_and_said(script: Script) -> None:
    run = script(LOOP, "--save module:* --save-limit 600")
    kept = bundle_of(run)
    assert 0 < len(kept.calls) < len(run.log.rows)
    assert all("the limit of 600 bytes" in each["why"] for each in kept.missed)
    assert run.log.complete
    assert "the limit of 600 bytes" in run.said


def test_a_full_disk_leaves_the_log_and_no_half_bundle(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, *parts: bytes) -> None:
        write(path, *parts)
        raise OSError(28, "No space left on device")

    write = bundle._write
    monkeypatch.setattr(bundle, "_write", full)
    run = script(LOOP, "--save module:*")
    assert run.log.complete
    assert "was not written: [Errno 28] No space left on device" in run.said
    (folder,) = (run.folder / "numerics").glob("*_kept")
    assert list(folder.iterdir()) == []


def test_a_link_in_place_of_the_bundle_is_replaced(script: Script, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "out" / "numerics").mkdir(parents=True)
    (tmp_path / "out" / "numerics" / "rank_0_kept").symlink_to(other)
    assert bundle_of(script(LOOP, "--save module:*")).calls
    assert list(other.iterdir()) == []


def plan(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"version": 1, "records": records}))
    return path


def test_a_plan_keeps_its_records_and_tells_whether_they_repeat(script: Script, tmp_path: Path) -> None:
    row = next(row for row in script(LOOP).log.rows if row.key == "2/op_0_addmm")
    same = {"key_a": row.key, "key_b": row.key, "inputs_a": row.input_digests, "outputs_a": row.digests}
    file = plan(tmp_path / "plan.json", {**same, "inputs_b": ["0" * 16] * 3, "outputs_b": row.digests})
    run = script(LOOP, f"--save {file}")
    (call,) = bundle_of(run).calls
    assert (call["key"], call["planned"][0]["inputs"], call["planned"][0]["outputs"]) == (row.key, "a", "both")
    assert "neither" not in run.said


def test_a_run_that_is_not_the_planned_one_says_so(script: Script, tmp_path: Path) -> None:
    wrong = {"key_a": "2/op_0_addmm", "inputs_a": ["0" * 16] * 3}
    absent, of_b_alone = {"key_a": "2/op_9_mm", "key_b": "2/op_9_mm"}, {"key_a": None, "key_b": "2/op_8_mm"}
    file = plan(tmp_path / "plan.json", wrong, absent, of_b_alone, {**absent, "rank": 1})
    run = script(LOOP, f"--save {file}")
    assert "1 have other inputs than in the plan: this run is neither of its runs" in run.said
    assert "; 1 of the plan are not in this run" in run.said


def test_a_shard_is_kept_with_the_placement_that_the_log_tells(examples: Examples) -> None:
    run = examples.captured("--parallel tp --fake-world 2", "--save module:layers.0.*")
    told = {row.key: row.fields.get("Placement") for row in run.log.rows}
    placed = 0
    for call in bundle_of(run).calls:
        first = call["returned"][0]["tensor"].get("placement") if call["returned"] else None
        assert first == (json.loads(text) if (text := told[call["key"]]) else None)
        placed += first is not None
    assert placed


def test_a_collective_is_kept_with_its_group_and_the_result_that_was_waited_for(examples: Examples) -> None:
    kept = bundle_of(examples.captured("--parallel tp --fake-world 2", "--save module:layers.0.*"))
    groups = [call for call in kept.calls if "group" in call]
    assert groups
    assert all(call["group"]["ranks"] == [0, 1] for call in groups)
    assert all(len(call["returned"] + call["left"]) == 1 for call in groups)
    assert kept.missed == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 2, "records": []}', '{"version": 1, "records": [1]}'])
def test_what_is_no_plan_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(ValueError, match="is no plan"):
        Wanted.of([str(tmp_path / "plan.json")])


def test_a_missing_plan_is_refused_with_what_there_could_be() -> None:
    with pytest.raises(ValueError, match=r"--save nowhere: No such file or directory; expected a plan .* module:GLOB"):
        Wanted.of(["nowhere"])


@pytest.mark.parametrize(("text", "size"), [("4096", 4096), ("1 KiB", 1024), ("2GiB", 2 << 30), ("1.5m", 3 << 19)])
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


def test_contents_that_nobody_holds_any_more_make_room() -> None:
    contents = Contents(100)
    first = contents.of(torch.zeros(20))
    with pytest.raises(TooMuch):
        contents.of(torch.ones(20))
    assert contents.of(torch.zeros(4, 5).t()) is first
    del first
    assert len(contents.of(torch.ones(20)).data) == 80


def test_weights_are_kept_as_the_step_begins_with_them(script: Script) -> None:
    run = script(LOOP, "--save weights")
    kept = bundle_of(run)
    assert [each["name"] for each in kept.weights] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert kept.calls == []
    assert "and 4 weights in" in run.said
    torch.manual_seed(0)
    torch.randn(4, 8)
    assert torch.equal(content(kept, kept.weights[0]["tensor"]), torch.nn.Linear(8, 8).weight)


def test_weights_that_do_not_fit_are_missed(script: Script) -> None:
    kept = bundle_of(script(LOOP, "--save weights --save-limit 100"))
    assert kept.weights == []
    assert kept.missed[0]["key"] == "weights"


# Bundles that no capture wrote


def change(kept: Bundle, edit: Any) -> Path:
    """Edit the manifest of a bundle: its first call with a tensor."""
    path = kept.folder / "manifest.json"
    told = json.loads(path.read_text())
    call = next(call for call in told["calls"] if call["args"] and "tensor" in (call["args"][0] or ()))
    edit(call, call["args"][0]["tensor"])
    path.write_text(json.dumps(told))
    return kept.folder


HOSTILE = {
    "past the end": lambda _, tensor: tensor.update(offset=1 << 20),
    "no name that a bundle has": lambda _, tensor: tensor.update(storage="../../../etc/passwd"),
    "cannot be read": lambda _, tensor: tensor.update(storage="0" * 64),
    "whole numbers": lambda _, tensor: tensor.update(shape=[-1, 8]),
    "this machine has": lambda _, tensor: tensor.update(shape=[1 << 50, 8], strides=[0, 1]),
    "is missing": lambda call, _: call.pop("operator"),
    "float128": lambda _, tensor: tensor.update(dtype="float128"),
    "'/etc/passwd' is no file": lambda call, _: call["args"].append({"file": "/etc/passwd"}),
    "is no dtype": lambda call, _: call["args"].append({"dtype": "load"}),
    "each result has a digest": lambda call, _: call["digests"].update(returned=[]),
    "arguments have names": lambda call, _: call["kwargs"].update({"x);import os;(": 1}),
    "none of its tensors": lambda call, _: call.update(written=[99]),
    "has a name": lambda call, _: call.update(group={"ranks": [0], "nth": 0, "name": 7}),
    "ranks of a group": lambda call, _: call.update(group={"ranks": [-1], "nth": 0, "name": "w"}),
    "'disk:0'": lambda _, tensor: tensor.update(device="disk:0"),
}


@pytest.mark.parametrize("why", HOSTILE)
def test_a_hostile_manifest_is_refused(script: Script, why: str) -> None:
    folder = change(bundle_of(script(LOOP, "--save module:*")), HOSTILE[why])
    with pytest.raises(BundleError, match=why):
        read_bundle(folder)


@pytest.mark.parametrize("other", [None, True, -1, 1 << 80, 0.5, "", "nan", [], [[]], {}, {"a": 1}, "x" * 99])
def test_whatever_stands_in_a_manifest_is_read_or_refused(script: Script, other: Any) -> None:
    """Each value of an operation is put in the place of another kind of value, one at a time."""
    kept = bundle_of(script(LOOP, "--save module:2 weights"))
    path = kept.folder / "manifest.json"
    told = json.loads(path.read_text())
    told["calls"], told["weights"] = told["calls"][:1], told["weights"][:1]
    for holder, key in _places([told["calls"], told["weights"]]):
        before, holder[key] = holder[key], other
        path.write_text(json.dumps(told))
        with contextlib.suppress(BundleError):
            for call in read_bundle(kept.folder).calls:
                assert isinstance(call["key"] + call["operator"], str)
        holder[key] = before


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(range(len(tree)) if isinstance(tree, list) else tree):
        yield tree, key
        if isinstance(tree[key], (list, dict)):
            yield from _places(tree[key])


def test_a_capture_that_was_killed_leaves_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="did not come to its end"):
        read_bundle(tmp_path)


def test_what_a_killed_capture_left_is_no_bundle_and_goes_with_the_next(script: Script) -> None:
    left = bundle_of(script(LOOP, "--save module:*")).folder
    (left / "manifest.json").rename(left / ".manifest.json.part")
    with pytest.raises(BundleError, match="did not come to its end"):
        read_bundle(left)
    kept = bundle_of(script(LOOP, "--save module:2"))
    assert kept.folder == left
    told = json.dumps([kept.calls])
    names = {path.name for path in kept.folder.iterdir()} - {"manifest.json"}
    assert names
    assert all(name.removesuffix(".safetensors") in told for name in names)


def test_a_content_that_is_a_link_is_not_followed(script: Script) -> None:
    kept = bundle_of(script(LOOP, "--save module:*"))
    path = next(kept.folder.glob("*.safetensors"))
    os.replace(path, path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))
    with pytest.raises(BundleError, match="cannot be read"):
        read_bundle(kept.folder)
