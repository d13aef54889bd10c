"""Names and places of what a rank holds of FSDP1's flat parameters, of a wrapper that has what torch's has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from capture.flat_parameters import NamedSlice, members_of_flat, named_slices
from capture.modules import ModuleNames
from capture.statistics import Statistics
from capture.step_start import ModelState

SHAPES = {"norm.weight": (3,), "up.weight": (2, 4), "up.bias": (2,)}


class Wrapped(nn.Module):
    """One rank of two with seven of thirteen elements: the first parameter, four of the next, from the fourth on."""

    def __init__(self, flat: nn.Parameter) -> None:
        super().__init__()
        self._flat_param = flat
        places = ((True, 0, 3, 0, 2), (True, 3, 4, 0, 3), (False, None, None, None, None))
        fields = ["in_shard", "offset_in_shard", "numel_in_shard", "intra_param_start_idx", "intra_param_end_idx"]
        metadata: Any = flat
        metadata._fqns, metadata._shapes = tuple(SHAPES), tuple(SHAPES.values())
        metadata._shard_param_infos = [SimpleNamespace(**dict(zip(fields, place, strict=True))) for place in places]
        self._handle = SimpleNamespace(flat_param=flat, world_size=2)


def _model() -> nn.Module:
    return nn.ModuleDict({"block": Wrapped(nn.Parameter(torch.arange(7.0)))})


def test_a_flat_parameter_is_the_slices_in_it() -> None:
    names = ModuleNames([_model()])
    found = dict(named_slices(names.parameters(), names.roots))
    assert [*found] == ["block.norm.weight", "block.up.weight", "block.up.bias"]
    assert all(isinstance(of, NamedSlice) for of in found.values())
    assert [of._local_tensor.tolist() for of in found.values()] == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0, 6.0], []]
    places = ModelState(found.items()).placements().values()
    assert [(of["shape"], of["offsets"]) for of in places] == [([3], [0]), ([8], [0]), ([2], [2])]
    assert members_of_flat(names) == {"block._flat_param": [*found]}


def test_slices_of_all_ranks_have_the_sketch_of_the_whole() -> None:
    whole = torch.arange(8.0)
    names = ModuleNames([_model()])
    held = dict(named_slices(names.parameters(), names.roots))["block.up.weight"]
    rest = NamedSlice(held.held, whole[4:], type(held._spec)(8, 4, 4, 2))
    first = NamedSlice(held.held, whole[:4], held._spec)
    parts, one = (
        (ModelState([("x", of)], Statistics()) for of in (first, rest)),
        ModelState([("x", whole)], Statistics()),
    )
    sums = sum(torch.tensor(_numbers(of)) for of in parts)
    assert torch.equal(sums, torch.tensor(_numbers(one)))
    # of a part, the end of a step has a sketch, too
    assert [len(of.as_json()["x"]) for of in (ModelState([("x", rest)], Statistics()), one)] == [4, 3]


def _numbers(state: ModelState) -> list[float]:
    import base64
    import struct

    text, *_ = state.sketches()["x"]
    return list(struct.unpack("<16d", base64.b64decode(text)))


def test_parameters_of_their_own_are_slices_but_where_they_are_gathered() -> None:
    model: Any = _model()
    originals = [
        nn.Parameter(torch.arange(3.0)),
        nn.Parameter(torch.arange(8.0).view(2, 4)),
        nn.Parameter(torch.empty(0)),
    ]
    model.block._flat_param._params = originals
    pairs = [*zip(SHAPES, originals, strict=True)]
    found = dict(named_slices(pairs, [model]))
    assert [type(of) for of in found.values()] == [NamedSlice, nn.Parameter, NamedSlice]


def test_a_model_without_flat_parameters_is_as_it_is() -> None:
    names = ModuleNames([nn.Linear(2, 2)])
    assert [*named_slices(names.parameters(), names.roots)] == [*names.parameters()]
    assert members_of_flat(names) == {}
