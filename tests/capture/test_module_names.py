"""Names of the modules of several models."""

from __future__ import annotations

import pytest
from torch import nn

from capture.modules import ModuleNames


class Stage(nn.Module):
    """Some layers of a model, under the names that they have in it."""

    def __init__(self, *layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({str(k): nn.Linear(2, 2) for k in layers})


@pytest.mark.parametrize(
    ("second", "name"),
    [(Stage(2, 3), "layers.2.weight"), (Stage(1), "stage_.layers.1.weight"), (Stage(0, 1), "stage_.layers.0.weight")],
    ids=["other layers", "one of them again", "the same names"],
)
def test_stages_of_one_rank_have_the_names_of_one_model(second: Stage, name: str) -> None:
    """Containers may have one name; a layer that both have may not."""
    names = ModuleNames([Stage(0, 1)])
    names.add_root(second, "stage_")
    held = [path for path, _ in names.parameters()]
    assert held[:2] == ["layers.0.weight", "layers.0.bias"]
    assert name in held
    assert len({*held}) == len(held)
