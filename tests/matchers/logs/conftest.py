from __future__ import annotations

from collections.abc import Iterator

import pytest

from matchers.logs import parser
from matchers.logs.compiled_reader import CompiledReader
from matchers.logs.plain_reader import PlainReader
from tests.needs import lacking


@pytest.fixture(
    scope="module",
    params=[
        PlainReader,
        pytest.param(CompiledReader, marks=pytest.mark.skipif(bool(lacking("compiler")), reason=lacking("compiler"))),
    ],
)
def reader(request: pytest.FixtureRequest) -> Iterator[None]:
    """All logs are read by one of the readers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parser, "record_reader", request.param)
        yield
