"""Header and footer of a log, read without the rest of it."""

from __future__ import annotations

import gzip
from pathlib import Path

from matchers.logs.head import captured_step, read_ends
from tests.builders import training_step, write_log

FOOTER = "End of capture: 2 records, digest a3e6b696e4d96cb1, content 0123456789abcdef\n"
HEADER = 'Total captured activations: 2\nFormat: numtui 2\nRun: {"step": 7, "rank": 3}\n====\n'
RECORDS = "\n[a/op_0_x]\n  Seq: 0\n\n[a/op_1_x]\n  Seq: 1\n\n"


def log_of(folder: Path, text: str) -> str:
    path = folder / "rank_0_activations.log"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_the_ends_of_a_whole_log(tmp_path: Path) -> None:
    path = log_of(tmp_path, HEADER + RECORDS + FOOTER)
    ends = read_ends(path)
    assert ends is not None
    assert ends.header.run == {"step": 7, "rank": 3}
    assert ends.footer == (2, "a3e6b696e4d96cb1", "0123456789abcdef")
    assert ends.size == len("====\n" + RECORDS)
    assert captured_step(path) == 7


def test_older_footers_say_less(tmp_path: Path) -> None:
    for footer, told in (
        ("2 records, digest a3e6b696e4d96cb1", (2, "a3e6b696e4d96cb1", "")),
        ("1 record", (1, "", "")),
    ):
        ends = read_ends(log_of(tmp_path, f"{HEADER}{RECORDS}End of capture: {footer}\n"))
        assert ends is not None
        assert ends.footer == told


def test_a_log_that_was_cut_off_has_no_footer(tmp_path: Path) -> None:
    whole = HEADER + RECORDS + FOOTER
    for cut in range(len(HEADER) + 1, len(whole)):
        ends = read_ends(log_of(tmp_path, whole[:cut]))
        assert ends is not None
        assert ends.footer is None


def test_nothing_that_cannot_be_read_by_its_ends(tmp_path: Path) -> None:
    packed = tmp_path / "rank_1_activations.log.gz"
    packed.write_bytes(gzip.compress((HEADER + RECORDS + FOOTER).encode()))
    for path in (str(packed), str(tmp_path), str(tmp_path / "missing"), "/dev/null", "\0"):
        assert read_ends(path) is None


def test_a_log_of_torchtitan_has_no_footer(tmp_path: Path) -> None:
    ends = read_ends(str(write_log(tmp_path / "a.log", training_step(layers=1))))
    assert ends is not None
    assert ends.footer is None
