"""Options of the capture that no run needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from capture.options import from_text


@pytest.mark.parametrize("option", ["--save", "--ops", "--exclude-ops", "--modules", "--dtypes", "--rows"])
def test_an_option_of_several_values_may_be_given_again(option: str) -> None:
    args = from_text([option, "one", "two", option, "three"], Path("run"))
    assert getattr(args, option.strip("-").replace("-", "_")) == ["one", "two", "three"]
    assert getattr(from_text([], Path("run")), option.strip("-").replace("-", "_")) == []
