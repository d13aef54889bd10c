"""What every test starts from: no colours, no state of the user, nothing of the terminal that runs the tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A shared machine is slow now and then; a deadline would make that a failure.
# The same examples in every run: a red run must be red again when somebody looks at it.
settings.register_profile("numtui", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("numtui")

REPOSITORY = Path(__file__).resolve().parent.parent
EXAMPLES = REPOSITORY / "examples"


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
