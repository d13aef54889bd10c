from __future__ import annotations

import pytest

from matchers.laws import register
from matchers.laws.law import Amplifies, Form, Kind, Law
from matchers.laws.register import known, law
from matchers.laws.reviewed import REVIEWED
from tests.matchers.laws.names_contract import breaches


@pytest.mark.parametrize("name", ["silu", "hardswish", "mish", "nan_to_num", "mul_", "_foreach_mul_", "_fused_adamw_"])
def test_elements_are_computed_one_by_one(name: str) -> None:
    assert law(name).by_element


@pytest.mark.parametrize("name", ["mm", "sum", "_softmax", "native_layer_norm", "_fused_rms_norm", "max", "unheard_of"])
def test_sums_and_what_nobody_knows_may_be_added_up_in_another_order(name: str) -> None:
    """A name with overloads that disagree, as of `max`, has the careful default."""
    assert not law(name).by_element


def test_an_operation_on_lists_or_in_place_has_the_law_of_its_base() -> None:
    assert [law(name).form for name in ("add", "add_", "_foreach_add", "_foreach_add_")] == [Form.ADD] * 4
    assert [law(name).on_lists for name in ("add_", "_foreach_add", "_fused_adamw_", "_fused_rms_norm", "cat")] == [
        False,
        True,
        True,
        False,
        False,
    ]
    assert law("_foreach_pow_").amplifies is Amplifies.BY_EXPONENT
    assert law("_foreach_copy_").passes_on is None  # its second tensor is one of the first list


def test_what_is_written_in_place_is_in_the_schema() -> None:
    assert law("add_").writes == (0,)
    assert law("native_batch_norm").writes == ()  # with statistics that it may not be given
    assert not law("__and__").in_place
    assert law("allreduce_").in_place
    assert not law("all_reduce").in_place


def test_an_operation_that_nobody_knows() -> None:
    assert law("unheard_of") == Law(base="unheard_of")
    assert law("unheard_of_") == Law(base="unheard_of", writes=(0,))


def test_copies_hand_on_one_tensor() -> None:
    positions = {name: law(name).passes_on for name in ("view", "clone", "_to_copy", "copy_", "cat", "slice_scatter")}
    assert positions == {"view": 0, "clone": 0, "_to_copy": 0, "copy_": 1, "cat": None, "slice_scatter": None}
    assert law("clone").moves
    assert not law("view").moves  # no new memory
    assert not law("_to_copy").moves  # a cast rounds


def test_draws_of_random_numbers() -> None:
    assert all(law(name).random for name in ("bernoulli_", "native_dropout", "rand_like", "normal_"))
    attention = law("_scaled_dot_product_flash_attention")
    assert (attention.random, attention.may_drop) == (False, True)


def test_constants_read_no_values() -> None:
    assert all(law(name).constant for name in ("zeros", "zeros_like", "new_empty", "arange"))
    assert not law("rand_like").constant
    assert law("empty_strided").unwritten


def test_collectives() -> None:
    start, whole, wait = law("all_gather_into_tensor"), law("_allgather_base_"), law("wait_tensor")
    assert (start.kind, start.lowered, start.in_place) == (Kind.ALL_GATHER, "_allgather_base_", False)
    assert (whole.kind, whole.lowered, whole.in_place) == (Kind.ALL_GATHER, "", True)
    assert (wait.waits, wait.communicates, wait.reduces) == (True, True, False)
    assert law("reduce_scatter_tensor").reduces
    assert law("scatter_").kind is None  # torch has an operation of that name
    assert law("c10d::scatter_").kind is Kind.SCATTER


def test_each_entry_of_the_review_has_a_reason() -> None:
    for entry in REVIEWED:
        assert entry.why
        assert entry.attributes.keys() <= set(Law.__dataclass_fields__)
    assert {"mm", "allreduce_"} <= known()


def test_no_entry_of_the_review_repeats_what_torch_says(monkeypatch: pytest.MonkeyPatch) -> None:
    reviewed = {name: dict(attributes) for name, attributes in register._reviewed().items()}
    monkeypatch.setattr(register, "_reviewed", lambda: reviewed)

    def laws(name: str) -> list[Law]:
        law.cache_clear()
        return [law(form) for form in (name, f"{name}_", f"_foreach_{name}", f"_foreach_{name}_")]

    repeated = []
    for name, attributes in reviewed.items():
        told = laws(name)
        for attribute in [] if "collective" in attributes else [*attributes]:
            value = attributes.pop(attribute)
            repeated += [(name, attribute)] if laws(name) == told else []
            attributes[attribute] = value
    law.cache_clear()
    assert repeated == []


def test_a_module_that_names_an_operation_breaks_the_contract() -> None:
    source = '"""mm is fine here."""\nfor op in ("mm", "min"):\n    op.startswith("_foreach_")\n    x = b"add_"\n'
    assert sorted(breaches(source, known())) == [(2, "mm"), (3, "_foreach_"), (4, "add_")]
