"""A small part of the campaign, the same in every run, and all that it has ever found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz.imported import FORMATS, check_imported
from tests.fuzz.logs import Damage, Good, check_damage, check_honest, log_pairs
from tests.fuzz.ranks import FolderDamage, GoodFolder, check_folder, folder_pairs
from tests.fuzz.rule_files import CHANGES, Change, check_saves, files
from tests.fuzz.seeds import LOGS, RANKS, RULE_FILES, USER_FILES
from tests.fuzz.user_files import check_read, user_files
from tests.needs import examples


@pytest.mark.parametrize("name", LOGS)
def test_found_before_in_logs(name: str) -> None:
    assert check_honest(*LOGS[name]) is not None


@pytest.mark.parametrize("name", RULE_FILES)
def test_found_before_in_rule_files(name: str, tmp_path: Path) -> None:
    check_saves(tmp_path / "rules.yaml", *RULE_FILES[name])


@pytest.mark.parametrize("name", USER_FILES)
def test_found_before_in_files_of_the_user(name: str, tmp_path: Path) -> None:
    check_read(tmp_path, *USER_FILES[name])


@pytest.mark.parametrize("name", RANKS)
def test_found_before_in_folders_of_ranks(name: str, tmp_path: Path) -> None:
    check_folder(tmp_path, RANKS[name])


@settings(max_examples=examples(40))
@given(log_pairs)
def test_what_happened_to_a_log_is_said(pair: tuple[Good, list[Damage]]) -> None:
    check_damage(*pair)


@settings(max_examples=examples(4), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(folder_pairs)
def test_nothing_that_happens_to_a_folder_of_ranks_passes(
    tmp_path: Path, pair: tuple[GoodFolder, list[FolderDamage]]
) -> None:
    check_folder(tmp_path, pair)


@pytest.mark.parametrize("form", FORMATS)
def test_damaged_files_of_other_tools_are_errors_or_logs(form: str, tmp_path: Path) -> None:
    for seed in range(examples(12)):
        check_imported(tmp_path, (form, seed))


@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files(), CHANGES)
def test_what_was_saved_is_read_again(tmp_path: Path, text: str, changes: list[Change]) -> None:
    check_saves(tmp_path / "rules.yaml", text, changes)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(user_files())
def test_any_file_of_the_user_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, file: tuple[str, bytes]
) -> None:
    check_read(tmp_path_factory.mktemp("user"), *file)


@pytest.mark.parametrize(
    ("module", "tries"),
    [
        ("kills", "15"),
        ("races", "20"),
        pytest.param("libraries", "10", marks=pytest.mark.compiler),
        ("memory", "2"),
    ],
)
def test_programs_of_their_own(module: str, tries: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"tests.fuzz.{module}", tries, "0"], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split()[-1] == tries
