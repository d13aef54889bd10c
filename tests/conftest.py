"""What every test starts from: no colours, no state of the user, nothing of the terminal that runs the tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.two_ranks import TwoRanks

# Workers run side by side, one to a core: threads of their own would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shared machine is slow now and then; a deadline would make that a failure.
# The same examples in every run: a red run must be red again when somebody looks at it.
settings.register_profile(
    "numtui", max_examples=50, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("numtui")

REPOSITORY = Path(__file__).resolve().parent.parent
EXAMPLES = REPOSITORY / "examples"
DATA = REPOSITORY / "tests" / "data"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The one option of these tests."""
    parser.addoption("--update-snapshots", action="store_true", help="write the snapshots of screens anew")


@pytest.fixture(autouse=True)
def _own_world(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test keeps and reads of a user is in folders of its own; colour settings of the caller are dropped."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "TMUX", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    # Programs that a test starts import this checkout, from whatever folder they run in.
    paths = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))


@pytest.fixture
def example_logs() -> tuple[str, str]:
    """The shipped pair, eager and traced."""
    return tuple(str(EXAMPLES / run / "rank_0_activations.log") for run in ("eager", "traced"))  # type: ignore[return-value]


@pytest.fixture(scope="session")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> TwoRanks:
    """Runs of the training example on two ranks, with and without a capture."""
    from tests.two_ranks import start_two_ranks

    return start_two_ranks(tmp_path_factory)
