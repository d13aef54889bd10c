"""The page about filters and settings: what stands there works."""

from __future__ import annotations

import re
from pathlib import Path

from numtui.cli.config import load_config
from numtui.query.fields import FIELDS, NUMBERS
from numtui.query.query import parse_query
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs" / "finding.md").read_text(encoding="utf-8")


def test_every_word_of_the_table_means_something() -> None:
    table = PAGE.partition("| word |")[2].partition("\n\n")[0]
    words = [word for line in table.splitlines()[2:] for word in re.findall(r"`([^`]+)`", line.split("|")[1])]
    assert len(words) > 20
    for word in words:
        parse_query(word + "red" * (word == "is:"), {"heads": "op:mm"})
    fields = " ".join(words)
    assert not [name for name in (*FIELDS, *NUMBERS) if name != "confidence" and name not in fields]


def test_the_settings_are_settings(tmp_path: Path) -> None:
    [block] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "config.yaml").write_text(block, encoding="utf-8")
    assert load_config(tmp_path / "config.yaml").theme == "nord"
