from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from capture import native_library as build
from capture.kernels.native import SOURCE
from capture.statistics import Statistics
from matchers.logs import reader_library

LOAD = """
import sys
from pathlib import Path
from capture import native_library
native_library.COMPILERS = sys.argv[2:]
print(native_library.load(Path(sys.argv[1])).answer())
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A source that takes no time to compile."""
    source = tmp_path / "small.c"
    source.write_text("int answer(void) { return 42; }\n")
    return source


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "numtui"


PAGE = os.sysconf("SC_PAGE_SIZE")
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "one byte": lambda data: data[:1],
    "its header alone": lambda data: data[:64],
    "a page": lambda data: data[:PAGE],
    "half": lambda data: data[: len(data) // 2],
    "a page less": lambda data: data[:-PAGE],
    "one byte less": lambda data: data[:-1],
    "one byte more": lambda data: data + b"\0",
    "a bit": lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :],
    "zeros": lambda data: bytes(len(data)),
    "no library": lambda data: b"hello\n",
}


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_of_processes_that_start_together_one_compiles(cache: Path, small: Path, tmp_path: Path) -> None:
    compiled = tmp_path / "compiled"
    slow = script(tmp_path / "slow", f'echo compiled >> "{compiled}"; sleep 0.3; exec {build._compiler()} "$@"')
    command = [sys.executable, "-c", LOAD, str(small), slow]
    root = str(Path(build.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": root}
    running = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate(timeout=120)[0].strip() for process in running] == ["42"] * 3
    assert compiled.read_text().count("compiled") == 1, "the others wait for it"
    (library,) = cache.iterdir()
    assert library.suffix == ".so"
    assert cache.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("call", ["flock", "open"])
def test_a_folder_that_cannot_be_locked_is_no_obstacle(
    cache: Path, small: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    if call == "flock":
        monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOLCK, "no locks")))
    else:
        opened = os.open
        refused = OSError(errno.EACCES, "not readable")
        monkeypatch.setattr(os, "open", lambda path, *how: raised(refused) if path == cache else opened(path, *how))
    assert build.load(small).answer() == 42
    assert len(list(cache.iterdir())) == 1


def raised(error: OSError) -> int:
    raise error


def test_a_compiled_kernel_is_not_compiled_again(cache: Path, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build.load(small)

    def compile_again(source: Path, compiler: str, library: Path) -> None:
        raise AssertionError(compiler)

    monkeypatch.setattr(build, "_compile", compile_again)
    assert build.load(small) is not None


@pytest.mark.parametrize("source", [SOURCE, reader_library.SOURCE], ids=lambda source: source.stem)
def test_a_damaged_library_is_made_anew(source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Loaded, it would end the process with SIGBUS, or give wrong numbers."""
    good = Path(build.load(source)._name).read_bytes()
    made = []

    def compiled(source: Path, compiler: str, library: Path) -> None:
        made.append(source)
        library.write_bytes(good)

    monkeypatch.setattr(build, "_compile", compiled)
    for name, damaged in DAMAGES.items():
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
        library = Path(build.load(source)._name)
        # a file of its own: what is loaded stays as it is
        library.unlink()
        library.write_bytes(damaged(good))
        other = library.with_name(f"{library.stem[:-16]}{'0' * 16}.so")
        other.write_bytes(damaged(good))
        made.clear()
        for _ in range(2):
            build.load(source)
            assert made == [source]  # once
        assert [path.read_bytes() for path in library.parent.iterdir()] == [good]


def test_a_damaged_library_of_the_wheel_is_not_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiled = Path(build.load(reader_library.SOURCE)._name)
    installed = tmp_path / f"reader-{build.digest(compiled)}.so"
    monkeypatch.setattr(reader_library, "INSTALLED", installed)
    found = []
    for data in (compiled.read_bytes(), compiled.read_bytes()[: compiled.stat().st_size // 2], b""):
        installed.unlink(missing_ok=True)
        installed.write_bytes(data)
        build.attempt.cache_clear()
        try:
            library, problem = reader_library.library()
        finally:
            build.attempt.cache_clear()
        assert library is not None, problem
        found.append(library._name)
    assert found == [str(installed), str(compiled), str(compiled)]


def test_a_kernel_for_any_machine_gives_the_same_bits(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = (torch.randn(40_000) * torch.rand(40_000).gt(0.1)).masked_fill(torch.rand(40_000) < 0.01, torch.inf)
    tensors = [values.to(dtype) for dtype in (torch.float16, torch.float32, torch.float64, torch.complex64)]
    tensors += [x.view(200, 200).t() for x in tensors]
    found = []
    for flags in build.FLAGS:
        monkeypatch.setattr(build, "FLAGS", (flags,))
        build.attempt.cache_clear()
        try:
            statistics = Statistics()
        finally:
            build.attempt.cache_clear()
        for tensor in tensors:
            statistics.measure(tensor)
        assert statistics.kernel_name == "c"
        found.append(statistics.results())
    assert len(list(cache.iterdir())) == len(found)
    assert found[0] == found[1]


def test_a_directory_that_others_can_write_to_is_not_trusted(cache: Path, small: Path) -> None:
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    assert build.load(small) is not None
    assert list(cache.iterdir()) == []


def test_a_home_that_cannot_be_written_to_is_no_obstacle(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    assert build.load(small) is not None


def test_no_compiler(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(build.BuildError, match="no C compiler"):
        build.load(SOURCE)


def test_a_compiler_that_fails(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = script(tmp_path / "broken", "echo no headers >&2; exit 1")
    monkeypatch.setattr(build, "COMPILERS", (broken,))
    with pytest.raises(build.BuildError, match="no headers"):
        build.load(SOURCE)
    assert list(cache.iterdir()) == []


def test_a_compiler_that_hangs(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(build, "COMPILERS", (script(tmp_path / "slow", "exec sleep 100"),))
    monkeypatch.setattr(build, "_TIMEOUT", 0.1)
    with pytest.raises(build.BuildError, match="more than"):
        build.load(SOURCE)


def test_a_compiler_that_makes_nonsense(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(build, "COMPILERS", (script(tmp_path / "odd", "exit 0"),))
    with pytest.raises(build.BuildError, match="cannot be used"):
        build.load(SOURCE)
    assert list(cache.iterdir()) == []


def test_without_a_compiler_the_statistics_are_the_same_and_say_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    x = torch.arange(1000.0)
    compiled = Statistics()
    compiled.measure(x)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    build.attempt.cache_clear()
    try:
        plain = Statistics()
    finally:
        build.attempt.cache_clear()
    plain.measure(x)
    assert plain.kernel_name == "torch"
    assert plain.notes == ("statistics take longer: no C compiler (cc, gcc or clang) was found",)
    assert plain.results() == compiled.results()
