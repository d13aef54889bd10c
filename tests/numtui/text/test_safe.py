from __future__ import annotations

import io
import json
import unicodedata
from pathlib import Path

import pytest

from matchers.invisible import DEFAULT_IGNORABLE, is_visible
from matchers.rules.emit import quoted
from numtui.cli.main import main
from numtui.text.safe import inert, safe_text, write_lines
from tests.builders import log_text, op
from tests.hostile import WORKFLOW_COMMAND

INVISIBLE = (
    "\u00ad\u034f\u115f\u1160\u17b4\u180b\u180f\u200b\u200d\u2060\u2064\u3164\ufe00\ufe0f\uffa0\ufff0"
    "\U000e0100\U000e01ef"
)


@pytest.mark.parametrize("character", INVISIBLE, ids=lambda character: f"U+{ord(character):04X}")
def test_an_invisible_character_is_shown_as_its_number(character: str) -> None:
    shown = safe_text(f"wq{character}")
    assert shown == f"wq{ascii(character)[1:-1]}"
    assert quoted(f"wq{character}").isascii()
    assert not is_visible(character)


def test_the_property_covers_no_letter_that_has_a_shape() -> None:
    """Of its characters that Unicode has assigned, all are marks, formats, or letters that are called fillers."""
    assigned = [c for c in map(chr, range(0x110000)) if unicodedata.category(c) not in ("Cn", "Cs", "Co", "Cc")]
    kinds = {unicodedata.category(c) for c in DEFAULT_IGNORABLE.findall("".join(assigned))}
    assert kinds <= {"Cf", "Mn", "Lo"}
    letters = [c for c in DEFAULT_IGNORABLE.findall("".join(assigned)) if unicodedata.category(c) == "Lo"]
    assert all("FILLER" in unicodedata.name(c) for c in letters)
    assert all(DEFAULT_IGNORABLE.search(c) for c in assigned if "VARIATION SELECTOR" in unicodedata.name(c, ""))


def test_other_scripts_are_left_as_they_are() -> None:
    for text in ("층.이", "層", "слой.0", "e\u0301", "naïve", "🙂", "layers.0.wq"):
        assert safe_text(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("::error::x", "\\x3a:error::x"),
        ("\u2003 ::error::x", "\u2003 \\x3a:error::x"),
        ("a\n  ::add-mask::x", "a\n  \\x3a:add-mask::x"),
        ("a ##[error]x ##vso[task.complete]", "a \\x23#[error]x \\x23#vso[task.complete]"),
        ("###[x]", "#\\x23#[x]"),
        ("std::vector ## heading", "std::vector ## heading"),
        (":::", "\\x3a::"),
    ],
)
def test_no_line_is_a_command_of_a_ci_service(text: str, shown: str) -> None:
    assert inert(text) == shown
    assert not WORKFLOW_COMMAND.search(shown)
    out = io.StringIO()
    write_lines([text], out)
    assert out.getvalue() == f"{shown}\n"


WEIGHTS = "Format: numtui weights 1\n" + "=" * 80 + "\n"
NAME = " ::error::owned ##[error]owned" * 12


def _weights(l2: float) -> str:
    state = {"step": 1, "parameter": NAME, "part": "weight", "shape": [1], "l1": l2, "l2": l2}
    return f"{WEIGHTS}{json.dumps(state)}\n"


@pytest.mark.parametrize(
    "command",
    [
        "diff b##[error].log",
        "diff run##[error] b##[error].log",
        "diff run##[error] b##[error].log --format markdown",
        "suggest run##[error] b##[error].log",
        "weights weights##[error]1 weights##[error]2",
        "check run##[error]",
        "rules check rules##[error] run##[error] b##[error].log",
        "diff ::error::x ##[error]x",
    ],
)
def test_no_name_makes_a_command_of_a_ci_service(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In reports and messages of every command, also where a long name is wrapped."""
    monkeypatch.chdir(tmp_path)
    Path("run##[error]").mkdir()
    for path, value in (("run##[error]/rank_0_activations.log", 1.0), ("b##[error].log", float("nan"))):
        Path(path).write_text(log_text([op(f"{NAME}/op_{k}_mm", value + k) for k in range(2)]))
    for number in "12":
        Path(f"weights##[error]{number}").write_text(_weights(float(number)))
    Path("rules##[error]").write_text(f'version: 1\npairs:\n  - {{a: "{NAME}", b: "{NAME}"}}\n')
    assert main(command.split()) in (0, 1, 2)
    told = capsys.readouterr()
    assert "error" in told.out + told.err
    for text in told:
        found = WORKFLOW_COMMAND.search(text)
        assert found is None, text[max(found.start() - 80, 0) : found.end() + 80]
