"""What every test starts from: no colours, no state of the user, nothing of the terminal that runs the tests."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from _pytest.assertion import rewrite
from hypothesis import HealthCheck, settings

from tests.ignored_signals import hear_again
from tests.needs import HAS_TORCH, MARKS, TORCH_FOLDERS, lacking, marks_of

if TYPE_CHECKING:
    from tests.forks import Forks
    from tests.two_ranks import TwoRanks

# Workers run side by side, one to a core: threads of their own would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shared machine is slow now and then; a deadline would make that a failure.
# The same examples in every run: a red run must be red again when somebody looks at it. More of them hold what is known
# to hold; examples that nobody has tried are for `make fuzz`.
settings.register_profile(
    "numtui", max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("fast", settings.get_profile("numtui"), max_examples=5)
settings.load_profile("numtui")

REPOSITORY = Path(__file__).resolve().parent.parent
EXAMPLES = REPOSITORY / "examples"
TESTS = REPOSITORY / "tests"
DATA = TESTS / "data"


def pytest_configure(config: pytest.Config) -> None:
    """Hear the signals that tests send; make the cache of all workers, because the kernels in it take seconds."""
    hear_again()
    if "PYTEST_XDIST_WORKER" not in os.environ:
        cache = tempfile.TemporaryDirectory(prefix="numtui-tests-")
        config.add_cleanup(cache.cleanup)
        os.environ["XDG_CACHE_HOME"] = cache.name  # also for what runs before the first test


def pytest_sessionstart(session: pytest.Session) -> None:
    """Share the work of rewriting the assertions of a fresh checkout, which else each worker does for all files.

    Each begins elsewhere, and leaves out what another has done.
    """
    state = session.config.stash.get(rewrite.assertstate_key, None)
    if state is None or sys.dont_write_bytecode or "PYTEST_XDIST_WORKER" not in os.environ:
        return
    files = sorted(TESTS.rglob("test_*.py"))
    worker, workers = (int(os.environ[f"PYTEST_XDIST_{name}"].strip("gw")) for name in ("WORKER", "WORKER_COUNT"))
    first = len(files) * worker // workers
    for file in files[first:] + files[:first]:
        cached = rewrite.get_cache_dir(file) / (file.stem + rewrite.PYC_TAIL)
        if rewrite._read_pyc(file, cached) is None and rewrite.try_makedirs(cached.parent):
            digest, code = rewrite._rewrite_test(file, session.config)
            rewrite._write_pyc(state, code, digest, cached)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The one option of these tests."""
    parser.addoption("--update-snapshots", action="store_true", help="write the snapshots of screens anew")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out modules that cannot even be imported without torch; the head of the run says so, CI stops at it."""
    if HAS_TORCH or os.environ.get("CI"):
        return None
    parts = collection_path.relative_to(TESTS).parts if collection_path.is_relative_to(TESTS) else ()
    return True if parts and parts[0] in TORCH_FOLDERS else None


def pytest_report_header() -> list[str]:
    """Name what this machine lacks, and the tests that it costs."""
    return [f"not run: tests marked '{mark}': {reason}" for mark in MARKS if (reason := lacking(mark))]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their folder and fixtures, too; skip those that lack something, except on CI, where they fail."""
    for item in items:
        fixtures = item.fixturenames if isinstance(item, pytest.Function) else ()
        of_its_own = {mark.name for mark in item.iter_markers()} & {*MARKS}
        for mark in marks_of(item.path.relative_to(TESTS), fixtures) | of_its_own:
            item.add_marker(mark)
            if (reason := lacking(mark)) and not os.environ.get("CI"):
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Set aside what is there to stay, such as torch and the tests, from the collection of garbage, and let that wait.

    Each look at all objects would take as long as some tests: reports collect garbage when they have read logs, and a
    capture looks for what holds a model.
    """
    if HAS_TORCH and any(item.get_closest_marker("torch") for item in session.items):
        import_module("torch._inductor")  # as the first optimizer does
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)


@pytest.fixture(autouse=True, scope="module")
def _what_was_imported() -> Iterator[None]:
    """Set aside what the tests of a file have imported: torch has parts that are as large as itself."""
    yield
    gc.collect(1)
    gc.freeze()


@pytest.fixture(autouse=True)
def _what_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave aside what was set aside: the explorer sets all aside when it opens, and takes it back when it ends."""
    freeze = gc.freeze

    def without_garbage() -> None:
        gc.collect(1)  # what the last test has left
        freeze()

    monkeypatch.setattr(gc, "freeze", without_garbage)
    monkeypatch.setattr(gc, "unfreeze", lambda: None)


@pytest.fixture(scope="session")
def _worlds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where tests have their folders; one by one, `mktemp` would look through those of thousands of tests each time."""
    return tmp_path_factory.mktemp("worlds")


@pytest.fixture(autouse=True)
def _own_world(_worlds: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test keeps and reads of a user is in folders of its own; colour settings of the caller are dropped."""
    world = Path(tempfile.mkdtemp(dir=_worlds))
    state, config = world / "state", world / "config"
    (state / "numtui").mkdir(parents=True)
    config.mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(config))
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "TMUX", "COLUMNS", "LINES", "NUMTUI_CACHE"):
        monkeypatch.delenv(name, raising=False)
    # Programs that a test starts import this checkout, from whatever folder they run in.
    paths = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    yield
    shutil.rmtree(world, ignore_errors=True)


@pytest.fixture
def example_logs() -> tuple[str, str]:
    """The shipped pair, eager and traced."""
    return tuple(str(EXAMPLES / run / "rank_0_activations.log") for run in ("eager", "traced"))  # type: ignore[return-value]


@pytest.fixture(scope="session")
def forked() -> Iterator[Forks]:
    """`forked(arguments, folder)`: a Python program in a process of its own, which has imported torch."""
    from tests.forks import Forks

    with Forks() as forks:
        yield forks


@pytest.fixture(scope="session")
def two_ranks(tmp_path_factory: pytest.TempPathFactory, forked: Forks) -> TwoRanks:
    """Runs of the training example on two ranks, with and without a capture."""
    from tests.two_ranks import start_two_ranks

    return start_two_ranks(tmp_path_factory, forked)


@pytest.fixture(scope="session")
def runs_bed(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest, forked: Forks) -> Path:
    """The folder with the logs of tests/bed_cases.py that tests need: runs of four ranks with planted faults."""
    from tests.runs_bed import start_runs_bed

    return start_runs_bed(tmp_path_factory, request.session.items, forked)
