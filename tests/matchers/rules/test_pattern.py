"""Templates and globs: what they match, and that none of them takes long."""

from __future__ import annotations

import fnmatch
import re
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matchers.rules.model import IgnoreRule, ModuleRule, OpRule, Rule, RuleSet, TemplateRule, ToleranceRule
from matchers.rules.pattern import Glob, Pattern, PatternError, _is_forced, _longest_reading, canonical
from matchers.rules.resolve import resolve
from matchers.rules.text_index import TextIndex
from tests.matchers.rule_logs import log_of
from tests.needs import examples


@pytest.mark.parametrize(
    ("template", "text", "captures"),
    [
        ("layers.{i}/op_{n}_add", "layers.12/op_3_add", {"i": 12, "n": 3}),
        ("layers.{i}/op_{n}_add", "layers.12/op_3_add_", None),
        ("layers.{i}/op_{n}_add", "layers.x/op_3_add", None),
        ("layers.{i}/op_{n}_add", "layers.1.2/op_3_add", None),
        ("op_{n-2}_x", "op_5_x", {"n": 7}),
        ("op_{n+1}_x", "op_5_x", {"n": 4}),
        ("op_{4k+1}_x", "op_9_x", {"k": 2}),
        ("op_{4k+1}_x", "op_1_x", {"k": 0}),
        ("op_{4k+1}_x", "op_8_x", None),
        ("op_{4k+4}_x", "op_0_x", None),
        ("op_{2k}_x", "op_6_x", {"k": 3}),
        ("layers.{5-k}/x", "layers.2/x", {"k": 3}),
        ("layers.{5-k}/x", "layers.6/x", None),
        ("op_{26-5i}_x", "op_16_x", {"i": 2}),
        ("op_{26-5i}_x", "op_17_x", None),
        ("{2layer}", "6", {"layer": 3}),
        ("op_{n}_x", "op_05_x", None),
        ("op_{n}_x", "op_0_x", {"n": 0}),
        ("op_{n}_x", "op_" + "9" * 5000 + "_x", None),
        ("{layer:int}", "7", {"layer": 7}),
        ("a.{x}/b", "a.wq/b", {"x": "wq"}),
        ("a.{x}/b", "a.w.q/b", None),
        ("a.{x}/b", "a./b", None),
        ("{rest:path}/op_{n}_{x}", "a.b.c/op_1_mm", {"rest": "a.b.c", "n": 1, "x": "mm"}),
        ("{rest:path}", "a", {"rest": "a"}),
        ("{rest:path}", "a..b", None),
        ("{rest:path}", ".a", None),
        ("{rest:path}", "a.", None),
        ("{rest:path}", "a/b", None),
        ("M.{rest:path}", "M.layers.0.wq", {"rest": "layers.0.wq"}),
        ("M.{rest:path}", "M", None),
        ("{rest:path}.wq/{x}", "a.wq.wq/y", {"rest": "a.wq", "x": "y"}),
        ("{x}_{y}", "a_b_c", {"x": "a_b", "y": "c"}),
        ("{i}{n}", "123", {"i": 12, "n": 3}),
        ("{i}.{i}", "3.3", {"i": 3}),
        ("{i}.{i}", "3.4", None),
        ("{i}.{i+1}", "3.4", {"i": 3}),
        ("{{{i}}}", "{3}", {"i": 3}),
        ("plain", "plain", {}),
        ("", "", {}),
        ("<none>/op_{n}_add", "<none>/op_66_add", {"n": 66}),
        ("{i}", "٣", None),
    ],
)
def test_match(template: str, text: str, captures: dict[str, int | str] | None) -> None:
    pattern = Pattern.of(template)
    assert pattern.match(text) == captures
    if captures is not None:
        assert pattern.expand(captures) == text


def test_expand() -> None:
    assert Pattern.of("layers.{i}/op_{n-2}_add").expand({"i": 3, "n": 7}) == "layers.3/op_5_add"
    assert Pattern.of("layers.{5-k}/op_{4k+1}_add").expand({"k": 2}) == "layers.3/op_9_add"
    assert Pattern.of("{rest}.{x}").expand({"rest": "a.b", "x": 4}) == "a.b.4"


@pytest.mark.parametrize(
    ("template", "message", "position"),
    [
        ("a{", "placeholder", 1),
        ("a}", "without", 1),
        ("{}", "placeholder", 0),
        ("{x:word}", "kind", 0),
        ("{x:path+1}", "only a number", 0),
        ("{x:name+1}", "only a number", 0),
        ("{x}.{x:path}", "both", 0),
        ("{n*2}", "placeholder", 0),
        ("{0n}", "placeholder", 0),
        ("{5-n+1}", "one offset", 0),
        ("{2x:name}", "only a number", 0),
        ("{x}" * 33, "more than 32", 0),
    ],
)
def test_templates_that_make_no_sense(template: str, message: str, position: int) -> None:
    with pytest.raises(PatternError, match=message) as caught:
        Pattern.of(template)
    assert caught.value.position == position


def test_what_the_other_side_captures() -> None:
    source = Pattern.of("{rest:path}/op_{n}_{x}")
    Pattern.of("{rest}/op_{n+1}_{x}").check_against(source)
    with pytest.raises(PatternError, match=r"\{i\} is not captured.*\{rest\}, \{n\}, \{x\}"):
        Pattern.of("{i}").check_against(source)
    with pytest.raises(PatternError, match="is not a number"):
        Pattern.of("{x+1}").check_against(source)


PIECES = st.sampled_from(["{i}", "{n}", "{x}", "{y}", "{r:path}", "{s:path}", "1", "a", ".", "/", "_", "a.", "/op_"])
TEXTS = st.text("a1._/", max_size=12)
SLOW = {"i": "([0-9]+)", "n": "([0-9]+)", "r": r"([^./]+(?:\.[^./]+)*)", "s": r"([^./]+(?:\.[^./]+)*)"}


@given(st.lists(PIECES, max_size=6, unique_by=lambda p: p if p[0] == "{" else object()), TEXTS)
def test_matches_as_a_backtracking_engine_does(pieces: list[str], text: str) -> None:
    """Both the reading from left to right and the dynamic program read a text as Python's `re` would."""
    pattern = Pattern.of("".join(pieces))
    slow = "".join(SLOW.get(p[1], "([^./]+)") if p[0] == "{" else re.escape(p) for p in pieces)
    found = re.fullmatch(slow, text)
    expected = None if found is None else found.groups()
    assert _longest_reading(pattern.parts, text) == pattern.reading(text) == expected
    if found is None:
        assert pattern.match(text) is None


@given(st.lists(st.lists(PIECES, max_size=5), min_size=1, max_size=2), st.lists(TEXTS, max_size=4))
def test_searched_in_many_texts_it_matches_as_in_each(pieces: list[list[str]], texts: list[str]) -> None:
    index = TextIndex(texts)
    for template in pieces:
        try:
            pattern = Pattern.of("".join(template))
        except PatternError:
            continue
        expected = {k: found for k, text in enumerate(texts) if (found := pattern.match(text)) is not None}
        assert index.matching(pattern) == expected
        assert index.may_match(pattern.literals) or not expected


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("{i}/op_{n+2}_mm", "{i}/op_{n+3}_mm"), ("{j}/op_{k}_mm", "{j}/op_{k+1}_mm"), True),
        (("{i}/op_{n+2}_mm", "{i}/op_{n+3}_mm"), ("{j}/op_{k}_mm", "{j}/op_{k+2}_mm"), False),
        (("{i}.{j}", "{j}.{i}"), ("{a:int}.{b:int}", "{b:int}.{a:int}"), True),
        (("{i}.{j}", "{j}.{i}"), ("{i}.{j}", "{i}.{j}"), False),
        (("{4k+4}", "{k}"), ("{4k}", "{k-1}"), False),
        (("{x}", "y"), ("{x:path}", "y"), False),
    ],
)
def test_templates_of_one_meaning_have_one_form(one: tuple[str, ...], other: tuple[str, ...], same: bool) -> None:
    forms = [tuple(p.parts for p in canonical(texts)) for texts in (one, other)]
    assert (forms[0] == forms[1]) is same


@given(st.lists(PIECES, max_size=6), st.lists(TEXTS, max_size=3))
def test_halves_match_when_the_whole_does(pieces: list[str], texts: list[str]) -> None:
    try:
        pattern = Pattern.of("".join(pieces))
    except PatternError:
        return
    head, tail = pattern.halves
    for text in texts:
        cut = text.rfind("/") + 1
        first, second = head.match(text[:cut]), tail.match(text[cut:])
        whole = pattern.match(text)
        if whole is not None:
            assert first is not None
            assert second is not None
            assert first | second == whole
        elif first is not None and second is not None:
            assert any(first[name] != second[name] for name in first.keys() & second.keys())


@settings(max_examples=examples(300))
@given(st.text("ab*?./[", max_size=10), st.text("ab./[", max_size=14))
def test_globs_match_as_fnmatch_does(glob: str, text: str) -> None:
    expected = fnmatch.fnmatchcase(text, glob.replace("[", "[[]"))
    assert Glob.of(glob).match(text) == expected
    assert TextIndex([text, "", text + "x"]).globbed(Glob.of(glob)) == [
        k for k, other in enumerate((text, "", text + "x")) if Glob.of(glob).match(other)
    ]


def test_globs_cross_dots_and_slashes() -> None:
    glob = Glob.of("layers.*.attention/*softmax*")
    assert glob.match("layers.3.x.attention/op_1_softmax_backward")
    assert not glob.match("norm/op_1_softmax")
    assert Glob.of("*").match("")
    assert not Glob.of("?").match("")


def steps(run: Callable[[], object]) -> int:
    """Lines of Python that run: a measure of work that is the same on every machine."""
    count = 0

    def on_line(_frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal count
        count += event == "line"
        return on_line

    before = sys.gettrace()
    sys.settrace(on_line)
    try:
        run()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("*a" * 40 + "b", "a"),
        ("*" + "?" * 200 + "b", "ab"),
        ("*" * 4000, "x"),
        ("*a*?" * 900, "ab."),
        ("a*" * 2000, "a"),
    ],
)
def test_the_work_of_a_glob_is_linear_in_the_text(pattern: str, text: str) -> None:
    few, many = (steps(partial(Glob(pattern).match, text * times)) for times in (3_000, 12_000))
    assert few <= 200 * 3_000 * len(text)
    assert many <= 4.1 * few


NASTY = [
    "_".join(f"{{x{k}}}" for k in range(20)) + "!",
    "{a:path}.{b:path}.{c:path}.{d:path}!",
    "{a:path}" * 16 + "!",
    "".join(f"{{n{k}:int}}" for k in range(32)),
    "{x}" * 30 + "/",
]


@pytest.mark.parametrize("template", NASTY)
@pytest.mark.parametrize("text", ["a_.b_", "a_", "1", "a.", "."])
def test_the_work_of_a_template_is_linear_in_the_text(template: str, text: str) -> None:
    """Nothing is tried twice: each of the at most 32 placeholders looks at each character a few times."""
    pattern = Pattern.of(template)
    few, many = (steps(partial(pattern.match, text * times)) for times in (250, 1_000))
    assert few <= 32 * 10 * 250 * len(text)
    assert many <= 4.1 * few + 100


def test_a_text_too_long_is_no_instance() -> None:
    assert steps(partial(Pattern.of(NASTY[0]).match, "a_" * 500_000)) < 10


@given(st.lists(PIECES, max_size=6))
def test_where_a_text_is_read_once_there_is_one_way_to_read_it(pieces: list[str]) -> None:
    """What follows a placeholder cannot begin inside of it."""
    try:
        pattern = Pattern.of("".join(pieces))
    except PatternError:
        return
    if not _is_forced(pattern.parts):
        return
    for part, after in pairwise(pattern.parts):
        if not isinstance(part, str):
            assert isinstance(after, str)
            alone = Pattern.of(f"{{z:{part.kind}}}")
            # with a path, a dot may go on when a segment follows
            assert alone.match(f"1{after[0]}1") is None


MANY: dict[str, Callable[[int], Rule]] = {
    "templates": lambda k: TemplateRule(a=(f"layers.{{i}}.m{k}/op_{{n}}_mm",), b=(f"blocks.{{i}}.m{k}/op_{{n}}_mm",)),
    "templates that match": lambda k: TemplateRule(a=(f"{{x:path}}/op_{{n+{k}}}_{{o}}",), b=(f"b{k}.{{x}}/{{o}}",)),
    "modules": lambda k: ModuleRule(a=f"layers.{{i}}.m{k}", b=f"blocks.{{i}}.m{k}"),
    "modules that match": lambda k: ModuleRule(a=f"{{x:path}}.w{k}", b=f"{{x:path}}.w{k + 1}"),
    "globs": lambda k: IgnoreRule(match=f"layers.*.m{k}*/op_*_mm"),
    "globs of ops": lambda k: IgnoreRule(op=f"*m{k}*_backward"),
    "globs with ?": lambda k: IgnoreRule(match=f"layers.?.*m{k}?*"),
    "tolerances": lambda k: ToleranceRule(match=f"*wq*m{k}*", rtol=0.5),
    "ops": lambda k: OpRule(a=(f"mm{k}",), b=(f"mm{k}", "add")),
}
"""Rules of one kind by number."""


@pytest.mark.parametrize("kind", MANY)
def test_the_work_for_a_rule_does_not_grow_with_their_number(kind: str) -> None:
    """Nor does it, for rules that match nothing, with the keys: a rule file may have tens of thousands of rules."""
    log = log_of([f"layers.{k % 8}.w{k % 5}/op_{k}_mm" for k in range(400)])
    few, many = (steps(partial(resolve, RuleSet(tuple(map(MANY[kind], range(n)))), log, log)) for n in (200, 800))
    assert many <= 4.2 * few
    per_rule = (many - few) / 600
    assert per_rule <= (3_000 if "that match" in kind else 200), per_rule


def test_the_work_of_a_rule_file_is_linear_in_the_keys() -> None:
    """Every kind of pattern, on keys that nearly fit."""
    rules = RuleSet(
        (
            *(TemplateRule(a=(template,), b=("x",)) for template in NASTY),
            TemplateRule(a=("{r:path}.{s:path}.{n}/op_{n}_{x}{y}!",), b=("{r}/{x}",)),
            *(ModuleRule(a=template, b="x") for template in NASTY),
            IgnoreRule(match="*a*?" * 1_000),
            IgnoreRule(op="*x_" * 1_300),
            ToleranceRule(match="*" * 4_000 + "!", rtol=0.5),
        )
    )

    def look_up(length: int) -> None:
        log = log_of([f"{'a.' * length}{k}/op_{k}_{'x_' * length}y" for k in range(3)])
        assert not resolve(rules, log, log).forced

    look_up(1)  # compiles the patterns
    few, many = (steps(partial(look_up, length)) for length in (50, 200))
    assert many <= 4.2 * few
