"""What was said can be read again."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from numtui.views.message_log import Messages


def test_sentences_are_listed_the_last_first_with_the_time() -> None:
    start = datetime(2026, 3, 1, 3, 0, 0, tzinfo=timezone.utc)
    times = iter(start + timedelta(seconds=s) for s in range(1000))
    said = Messages(lambda: next(times))
    said.add("")
    assert said.lines() == [[(" no messages yet", "dim")]]
    said.add("saved to r.yaml")
    said.add("no red row below: from the top")
    said.add("no red row below: from the top")
    said.add("the disk\x1b[2J is full", trouble=True)
    shown = ["".join(text for text, _ in line) for line in said.lines()]
    assert shown[0] == " 03:00:03  the disk␛[2J is full"
    assert shown[1] == " 03:00:02  2×  no red row below: from the top"
    assert shown[2] == " 03:00:00  saved to r.yaml"
    assert said.lines()[0][-1][1] == "red"


def test_an_hour_of_sentences_is_kept() -> None:
    said = Messages()
    for n in range(5000):
        said.add(f"sentence {n}")
    assert 100 < len(said.lines()) < 1000
    assert said.lines()[0][-1][0] == "sentence 4999"
