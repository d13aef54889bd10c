"""torchtitan's override files become rule files that say the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matchers.rules.file import parse_rules
from matchers.rules.model import PairRule
from matchers.rules.torchtitan_csv import read_overrides


def problems(text: str) -> list[tuple[int, str]]:
    return [(problem.line, problem.message) for problem in read_overrides(text.encode(), "o.csv").problems]


def pairs(data: bytes) -> list[tuple[str, str]]:
    """What the converted file says; that it is read without a problem is part of it."""
    overrides = read_overrides(data, "o.csv")
    rules = parse_rules(overrides.yaml)
    assert not overrides.problems
    assert not rules.problems
    assert rules.rules == overrides.pairs
    return [(rule.a[0], rule.b[0]) for rule in overrides.pairs]


def test_comments_stay_where_they_are() -> None:
    text = (
        "# for run 7\n\n# the prefix is lost\nfeed_forward/op_7_mul, layers.2.feed_forward/op_3_mul\n\n\n"
        "a/op_0_x,b/op_0_x # by eye\n# end\n"
    )
    assert read_overrides(text.encode(), "o.csv").yaml == (
        "version: 1\n\npairs:\n"
        "  # for run 7\n\n"
        "  # the prefix is lost\n"
        "  - a: feed_forward/op_7_mul\n    b: layers.2.feed_forward/op_3_mul\n\n"
        "  - a: a/op_0_x\n    b: b/op_0_x\n    why: by eye\n"
        "  # end\n"
    )
    assert pairs(text.encode()) == [
        ("feed_forward/op_7_mul", "layers.2.feed_forward/op_3_mul"),
        ("a/op_0_x", "b/op_0_x"),
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"\xef\xbb\xbfa/x,b/y\r\n", ("a/x", "b/y")),
        (b"\r\n \t a/x \t,\t b/y  ", ("a/x", "b/y")),
        (b'"a/x" , "b/y"', ("a/x", "b/y")),
        (b'"a,1/x","b ""q""/y" # why', ("a,1/x", 'b "q"/y')),
        (b"<none>/op_66_add,<none>/op_67_add", ("<none>/op_66_add", "<none>/op_67_add")),
        (b"a/x#2,b/y#1", ("a/x#2", "b/y#1")),
        (b"a/x, b/y, z", ("a/x", "b/y, z")),
        ("é/x,ü/y".encode(), ("é/x", "ü/y")),
    ],
    ids=str,
)
def test_files_as_people_have_them(line: bytes, expected: tuple[str, str]) -> None:
    assert pairs(line) == [expected]


def test_a_file_without_pairs_is_a_rule_file_too() -> None:
    assert pairs(b"") == []
    assert pairs(b"\n# nothing\x01 yet\n\n") == []


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("a/x b/y", "the comma is missing; write"),
        ("a/x,", "the key of b is missing"),
        ("a/x, # c", "the key of b is missing"),
        (", b/y", "the key of a is missing"),
        ('"a/x, b/y', "not closed"),
        ('a/x, "b/y', "not closed"),
        ('"a" x, b', "between the closing quote and the comma"),
        ('"a" x', "the comma is missing"),
        ('a, "b" c', "after the closing quote"),
        ("k, other", "'k' of a already has another partner in line 1"),
        ("other, v", "'v' of b already has another partner in line 1"),
        ("k,v", "repeats line 1; remove one"),
    ],
)
def test_a_line_that_is_no_pair_is_named_with_advice(line: str, advice: str) -> None:
    ((number, message),) = problems(f"k, v\n\n{line}\nfine, too\n")
    assert number == 3
    assert advice in message


def test_bytes_that_are_no_text_are_named() -> None:
    (problem,) = read_overrides(b"a,b\nc,\xff\n", "o.csv").problems
    assert str(problem) == "o.csv:2:0: byte 0xff is not UTF-8; save the file as UTF-8"


@given(st.lists(st.tuples(st.text(min_size=1), st.text(min_size=1), st.text()), max_size=4))
def test_what_is_quoted_comes_back(entries: list[tuple[str, str, str]]) -> None:
    """Any text in a key and in a comment leaves a file that is read, and read as the same pairs."""
    lines, wanted = [], []
    for at, (a, b, comment) in enumerate(entries):
        a, b = (" ".join(f"{at}{key}".split()) for key in (a, b))
        comment = " ".join(comment.split())
        quoted = ['"' + key.replace('"', '""') + '"' for key in (a, b)]
        lines += [f"# {comment}", f"{quoted[0]}, {quoted[1]} # {comment}"]
        wanted.append((a, b))
    assert pairs("\n".join(lines).encode()) == wanted


@given(st.text(alphabet='a,"# \t\n', max_size=30))
def test_every_line_is_a_pair_a_comment_or_a_problem(text: str) -> None:
    overrides = read_overrides(text.encode(), "o.csv")
    lines = [line for line in map(str.strip, text.split("\n")) if line and not line.startswith("#")]
    assert len(overrides.pairs) + len(overrides.problems) == len(lines)
    rules = parse_rules(overrides.yaml)
    assert not rules.problems
    assert rules.rules == overrides.pairs
    assert all(isinstance(rule, PairRule) for rule in rules)
