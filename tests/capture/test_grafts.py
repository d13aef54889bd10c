"""`--graft`: what another run kept of a module's boundary stands in place of a step's own values, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from capture import launch
from capture.keeping.bundle import Bundle, read_bundle
from capture.keeping.form import find_bundles
from capture.keeping.given import Given
from capture.keeping.grafts import held_alike, read_grafts
from capture.keeping.kept_values import Chunks, KeptRun, NotKept, nearest_part
from capture.keeping.layout import GradientScale, Group, NoWhole, Rows, cut, put_together
from tests.capture.conftest import HEAD, Script
from tests.capture.runs import Run, run_captured

TRAINING = """
class Half(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.inner, self.drop, self.factor = nn.Linear(8, 8), nn.Dropout(0.5), factor
    def forward(self, x, *, scale=None):
        return x + self.drop(self.inner(x * self.factor))
import sys
factor = float(sys.argv[1])
model = nn.Sequential(Half(1.0), Half(factor), Half(1.0))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
print([p.double().sum().item().hex() for p in model.parameters()])
"""


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A run with the boundaries of all modules."""
    return captured(tmp_path, "kept", "1.0", "--save boundary:*").folder


def captured(tmp_path: Path, name: str, arguments: str, options: str = "") -> Run:
    path = tmp_path / "training.py"
    path.write_text(HEAD + TRAINING)
    return run_captured(path, tmp_path / name, arguments, options)


def numbers(run: Run) -> list[tuple[str, list[str], str | None]]:
    return [(row.key, row.digests, row.fields.get("Input digests")) for row in run.log.rows]


def bundle_of(run: Run | Path) -> Bundle:
    (folder,) = find_bundles(run if isinstance(run, Path) else run.folder)
    return read_bundle(folder)


def test_grafts_of_a_run_onto_itself_change_no_bit(tmp_path: Path, kept: Path) -> None:
    plain = captured(tmp_path, "plain", "1.0")
    grafted = captured(tmp_path, "self", "1.0", f"--graft *={kept} --graft-after *={kept} --graft optimizer={kept}")
    assert grafted.printed == plain.printed
    assert numbers(grafted) == numbers(plain)
    assert "grafted tensors had these bits already" in grafted.said
    assert grafted.log.run["grafts"]["overwritten"] == 0
    assert len(grafted.log.run["settings"]["changes_run"]) == 3


def test_behind_a_module_all_is_as_in_the_other_run(tmp_path: Path, kept: Path) -> None:
    plain = captured(tmp_path, "plain", "1.0")
    grafted = captured(tmp_path, "b", "1.25", f"--graft 1.*={kept} --graft-after 1={kept}")
    differ = [one[0] for one, other in zip(numbers(grafted), numbers(plain), strict=True) if one != other]
    assert differ
    assert all(key.startswith("1/") for key in differ)


def test_gradients_are_grafted_where_they_enter(tmp_path: Path, kept: Path) -> None:
    run = captured(tmp_path, "b", "1.25", f"--graft 0={kept} --save boundary:0")
    of_a, of_b = ({call["module"]: call for call in bundle_of(each).boundaries} for each in (kept, run))
    assert of_b["0"]["grafted"] == {"output_gradients": [""]}
    weights = [of["gradients"]["inputs"] for of in (of_a, of_b)]
    same = [name for name, told in weights[0].items() if told["storage"] == weights[1][name]["storage"]]
    assert same == ["0.inner.weight", "0.inner.bias"]


def test_modules_may_have_other_names_there(tmp_path: Path, kept: Path) -> None:
    run = captured(tmp_path, "b", "1.25", f"--graft 2:0={kept}")
    assert "grafted 2 tensors" in run.said
    (graft,) = read_grafts([f"model.*.inner:*.inner={kept}"], [])
    assert graft.name_there("model.1.inner") == "1.inner"
    assert graft.name_there("1.inner") is None


def test_what_cannot_be_grafted_is_said(script: Script, kept: Path) -> None:
    text = """
    model = nn.Sequential(nn.Linear(8, 4), nn.Sequential(nn.Linear(4, 4)), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(x[:2] * 1).sum().backward()
    optimizer.step()
    """
    run = script(text, f"--graft 2={kept}")
    assert "nothing was grafted" in run.said
    assert "its shape is [2, 4] here, [4, 8] there" in run.said
    assert run.log.run["grafts"]["missed"]["2: inputs input"] == "its shape is [2, 4] here, [4, 8] there"


def test_what_a_module_was_given_is_known_to_be_overwritten_by_a_graft_of_another() -> None:
    given, x = Given(), torch.rand(4, 6)
    first: dict[str, Any] = {}
    last: dict[str, Any] = {}
    given.note(first, "x", x[:, 0])
    given.note(last, "x", x[3:])
    given.overwritten(torch.rand(4, 6))
    given.overwritten(x[1:3, 1:])  # between the elements of the first: by their extent
    assert (first, last) == ({"rewritten": ["x"]}, {})
    x.mul_(2)  # known to autograd
    given.overwritten(x)
    assert last == {}


def test_data_and_weights_stay(tmp_path: Path, kept: Path) -> None:
    run = captured(tmp_path, "b", "1.0", f"--graft 0={kept}")
    assert "all 2 grafted tensors" in run.said
    text = HEAD.replace("manual_seed(0)", "manual_seed(1)") + TRAINING
    (tmp_path / "other.py").write_text(text)
    other = run_captured(tmp_path / "other.py", tmp_path / "o", "1.0", f"--graft 0={kept}")
    assert other.log.run["grafts"]["missed"] == {"0: inputs x": "it is data or a weight, which stay as they are"}


def test_a_damaged_content_is_not_grafted(tmp_path: Path, kept: Path) -> None:
    told = next(call for call in bundle_of(kept).boundaries if call["module"] == "1")["inputs"]["x"]
    file = bundle_of(kept).folder / f"{told['storage']}.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    run = captured(tmp_path, "b", "1.25", f"--graft 1={kept}")
    assert "was changed since it was kept" in run.log.run["grafts"]["missed"]["1: inputs x"]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("layers.7", "expected MODULES=RUN"),
        ("a*:b={kept}", "have not the same number of *"),
        ("a={kept}/nothing", "kept none: capture it with --save 'boundary:a'"),
    ],
)
def test_a_wrong_graft_is_refused_before_anything_runs(
    spec: str, why: str, kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.py").write_text("raise SystemExit(5)")
    arguments = ["--graft", spec.format(kept=kept), "-o", str(tmp_path / "x"), "--", str(tmp_path / "s.py")]
    assert launch.main(arguments) == 2
    assert why in capsys.readouterr().err


@given(st.permutations(range(6)), st.integers(1, 3))
def test_rows_are_found_wherever_ranks_and_micro_batches_have_them(order: list[int], each: int) -> None:
    whole = np.arange(6 * each * 2.0).reshape(6 * each, 2)
    names = [f"row {k}" for k in range(6)]
    parts = {(0, 0): order[:3], (1, 0): order[3:5], (1, 1): order[5:]}
    rows = Rows({key: [names[k] for k in of] for key, of in parts.items()})
    held: dict[Group, Any] = {
        (batch, (rank,)): np.concatenate([whole[each * k : each * (k + 1)] for k in of])
        for (rank, batch), of in parts.items()
    }
    found = rows.gathered(names, whole.shape, held.__getitem__, lambda shape, _: np.empty(shape))
    assert np.array_equal(found, whole)


def test_rows_that_the_other_run_did_not_have_are_refused() -> None:
    with pytest.raises(NoWhole, match="other rows"):
        Rows({(0, 0): ["a"]}).gathered(["b"], (1, 2), lambda _: np.zeros((1, 2)), lambda shape, _: np.empty(shape))


def test_of_a_gradient_summed_over_all_rows_a_rank_gets_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks average gradients of means over their rows: as those of a table of positions, which has no rows."""
    graft = last_rows_of_four(monkeypatch)
    of_rows, of_table = torch.arange(8.0).reshape(4, 2), torch.ones(5, 2)
    with pytest.raises(NotKept, match="how gradients are scaled"):
        graft(of_table, of_table)
    changed = of_rows[2:] * 0.9
    assert torch.equal(graft(of_rows, changed), of_rows[2:]), "nearer to a sum"
    assert torch.equal(graft(of_rows, of_rows[2:] * 2), of_rows[2:] * 2), "a mean, of which rounding alone tells"
    assert torch.equal(graft(of_rows, changed), of_rows[2:] * 2)
    assert torch.equal(graft(of_table, of_table), of_table)


def test_a_loss_that_a_model_returns_keeps_its_gradient_and_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is 1 in any layout, of which the rows say nothing; a number without dimensions is not made of rows."""
    graft = last_rows_of_four(monkeypatch)
    of_loss, of_rows = torch.ones(()), torch.arange(8.0).reshape(4, 2)
    assert torch.equal(graft(of_loss, of_loss.clone()), of_loss)
    assert torch.equal(graft(of_rows, of_rows[2:] * 2), of_rows[2:] * 2)
    with pytest.raises(NoWhole, match="not consist of the rows"):
        Rows({(0, None): ["a"], (0, 1): ["b"]}).gathered(
            ["a", "b"], (), lambda _: np.ones(()), lambda shape, _: np.empty(shape)
        )


def test_how_gradients_are_scaled_is_told_by_all_that_tell() -> None:
    scale = GradientScale()
    assert scale.of(2.0, 1.0, 2.0, 3) == (2.0, True)
    assert scale.of(1.7, 1.0, 2.0, 3) == (2.0, True), "a bug is in it, and no other says anything else"
    scale = GradientScale()
    assert [scale.of(*norms, 2.0, 3)[0] for norms in ((2.0, 1.0), (3.0, 3.0))] == [2.0, 1.0]
    assert scale.of(1.7, 1.0, 2.0, 3)[1] is False, "they contradict each other"


def test_what_all_ranks_hold_alike_is_whole_however_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    run, whole = KeptRun([]), torch.arange(1.0, 9.0).reshape(4, 2)
    names = ["a", "b", "c", "d"]
    run._rows, run._world, run._own = Rows({(0, None): names}), 2, {None: names}
    monkeypatch.setattr(run, "_parts", lambda *_: [({}, whole)])
    call = {"module": "m", "micro_batch": None, "recompute": False, "nth": 0}

    def value(part: torch.Tensor, *, alike: bool) -> torch.Tensor:
        return run.value(call, "output_gradients", "", part, None, alike=alike)

    assert torch.equal(value(whole * 9, alike=True), whole)
    with pytest.raises(NotKept, match="far from"):
        value(whole * 9, alike=False)
    with pytest.raises(NotKept, match="far from"):
        value(whole * 0, alike=True)  # a term may be zero on each rank


def test_an_earlier_capture_tells_what_ranks_hold_alike() -> None:
    def rank(number: int, **storages: str) -> Any:
        side: dict[str, dict[str, Any]] = {
            name: {"storage": storage, "shape": [2]} for name, storage in storages.items()
        }
        side["placed"]["placement"] = {}
        call = {"module": "m", "micro_batch": 0, "recompute": False, "nth": 0, "inputs": side}
        return SimpleNamespace(run={"rank": number}, boundaries=[call])

    ranks = [rank(0, x="1", y="1", placed="1"), rank(1, x="1", y="2", placed="1")]
    assert held_alike(ranks) == {("m", 0, False, 0, "inputs", "x")}
    assert held_alike(ranks[:1]) == frozenset(), "one process holds all of it anyway"


def test_numbers_of_rows_of_the_batch_stay_as_this_rank_counts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of the nodes of a batch of graphs: those of another run would be out of this rank's range."""
    graft = last_rows_of_four(monkeypatch)
    nodes = torch.tensor([0, 2, 1, 3, 5, 4, 7, 6, 8, 9, 11, 10])  # three of each row
    here = nodes[6:] - 6
    assert torch.equal(graft(nodes, here), here)
    with pytest.raises(NotKept, match="count rows of the batch"):
        graft(nodes, here.flip(0))
    tokens = torch.tensor([7, 1, 7, 3])
    assert torch.equal(graft(tokens, torch.tensor([0, 0])), tokens[2:])


def last_rows_of_four(monkeypatch: pytest.MonkeyPatch) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return what a rank with the last two of four rows gets of a tensor that one process kept, in place of its own."""
    run = KeptRun([])
    run._rows, run._world, run._own = Rows({(0, None): ["a", "b", "c", "d"]}), 2, {None: ["c", "d"]}

    def graft(kept: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
        monkeypatch.setattr(run, "_parts", lambda *_: [({}, kept)])
        return run.value(
            {"module": "m", "micro_batch": None, "recompute": False, "nth": 0}, "output_gradients", "", part, None
        )

    return graft


@given(st.integers(1, 4), st.integers(0, 1))
def test_shards_make_a_whole_which_gives_them_back(size: int, dim: int) -> None:
    whole = np.arange(4.0 * size * 3).reshape((2 * size, 6) if dim == 0 else (6, 2 * size))
    parts = []
    for rank, part in enumerate(np.split(whole, 2, dim)):
        offsets = [0, 0]
        offsets[dim] = rank * size
        placement = {"placements": [f"Shard({dim})"], "shape": list(whole.shape), "offsets": offsets}
        parts.append(({"placement": placement}, part))
    assert np.array_equal(put_together(parts, lambda shape, _: np.full(shape, np.nan)), whole)
    for told, part in parts:
        assert np.array_equal(cut(whole, told["placement"], part.shape), part)
    with pytest.raises(NoWhole, match="no whole"):
        put_together(parts[:1], lambda shape, _: np.zeros(shape))


def test_a_term_of_a_sum_has_no_part() -> None:
    with pytest.raises(NoWhole, match="term of a sum"):
        cut(np.zeros(4), {"placements": ["Partial(sum)"], "shape": [4], "offsets": [0]}, (4,))


def test_an_unknown_part_is_known_by_its_values_or_not_at_all() -> None:
    whole = torch.randn(2, 8, 3, generator=torch.Generator().manual_seed(1))
    known: Chunks = {}
    with pytest.raises(NoWhole, match="far from"):
        nearest_part(torch.zeros(2, 4, 3), whole, known)
    assert torch.equal(nearest_part(whole[:, 4:] * 1.01, whole, known), whole[:, 4:])
    assert torch.equal(nearest_part(torch.zeros(2, 4, 3), whole, known), whole[:, 4:])  # as the one before
    nearest_part(whole[:, :4], whole, known)
    with pytest.raises(NoWhole, match="far from"):
        nearest_part(torch.zeros(2, 4, 3), whole, known)
    nearest_part(whole, whole, known)
    with pytest.raises(NoWhole, match="far from"):
        nearest_part(whole / 3, whole, known)  # a term of a sum over three ranks
