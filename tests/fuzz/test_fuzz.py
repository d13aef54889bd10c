"""A small part of the campaign, the same in every run, and all that it has ever found."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.fuzz.logs import Damage, Good, check_damage, check_honest, log_pairs
from tests.fuzz.seeds import LOGS
from tests.needs import examples


@pytest.mark.parametrize("name", LOGS)
def test_found_before_in_logs(name: str) -> None:
    assert check_honest(*LOGS[name]) is not None


@settings(max_examples=examples(60))
@given(log_pairs)
def test_what_happened_to_a_log_is_said(pair: tuple[Good, list[Damage]]) -> None:
    check_damage(*pair)
