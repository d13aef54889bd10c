"""The HTML report as a file: small, complete, and closed to whatever a log holds. tests/browser opens it."""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import io
import json
import re
import tempfile
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matchers.comparison import compare
from matchers.explain.facts import facts_of
from matchers.logs.parser import read_log
from numtui.report.html import View
from numtui.report.html import write as write_page
from numtui.report.html.columns import block_of, decimal
from numtui.report.html.results import add_input_numbers
from numtui.report.model import Report
from numtui.report.options import ReportOptions
from numtui.report.write import write
from tests.builders import op, write_log
from tests.conftest import EXAMPLES, REPOSITORY
from tests.matchers.logs.imported.dumps import msprobe
from tests.needs import examples

DATA = REPOSITORY / "tests" / "data"


def page_of(a: Path, b: Path) -> str:
    out = io.StringIO()
    write(Report(compare(read_log(a), read_log(b)), ReportOptions(names=("a", "b"))), out, "html")
    return out.getvalue()


@pytest.fixture(scope="module")
def page() -> str:
    return page_of(DATA / "bug_base.log.gz", DATA / "bug_neg_attn_l2.log.gz")


def as_text(digits: int, exponent: int) -> str:
    """`decode.js`'s numberText in Python."""
    if exponent >= 124:
        return {127: "", 126: "nan", 125: "inf", 124: "-inf"}[exponent]
    whole = f"{abs(digits):07}"
    return f"{'-' * (digits < 0)}{whole[0]}.{whole[1:]}e{'-' if exponent < 0 else '+'}{abs(exponent):02}"


@given(st.lists(st.tuples(st.integers(-9_999_999, 9_999_999), st.integers(-50, 50)), max_size=20))
def test_printed_numbers_stay_as_they_were_printed(parts: list[tuple[int, int]]) -> None:
    values = [float(f"{digits}e{exponent - 6}") for digits, exponent in parts]
    digits, exponent = decimal(np.array(values, np.float64))
    # A nought has no sign in a report.
    expected = [f"{value + 0.0:.6e}" for value in values]
    assert list(map(as_text, digits.tolist(), exponent.tolist())) == expected


@given(st.lists(st.floats(min_value=-1e120, max_value=1e120).filter(lambda x: x == 0 or abs(x) > 1e-100), max_size=20))
def test_other_numbers_are_rounded_to_seven_digits(values: list[float]) -> None:
    digits, exponent = decimal(np.array(values, np.float64))
    for value, text in zip(values, map(as_text, digits.tolist(), exponent.tolist()), strict=True):
        assert float(text) == pytest.approx(value, rel=5.1e-7, abs=0)


def test_what_is_no_number() -> None:
    digits, exponent = decimal(np.array([np.nan, np.inf, -np.inf, 0.0, 1e300, 1e-300]))
    assert list(map(as_text, digits.tolist(), exponent.tolist()))[:4] == ["nan", "inf", "-inf", "0.000000e+00"]
    assert exponent.tolist()[4:] == [123, -128]


class _Elements(HTMLParser):
    """Every element with its attributes, and the text of scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, list[str]] = {"script": [], "style": []}
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.found and self.found[-1][0] in self.text:
            self.text[self.found[-1][0]].append(data)
            self.found.append(("", {}))


def test_it_is_one_file(page: str) -> None:
    """Nothing is loaded from anywhere."""
    elements = _Elements(page)
    assert not {tag for tag, _ in elements.found} & {
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "base",
        "form",
        "video",
    }
    for tag, attributes in elements.found:
        assert not set(attributes) & {"src", "href", "srcset", "action", "style"}, tag
        assert not [name for name in attributes if name.startswith("on")], tag
    assert not re.search(
        r"url\(|@import|https?:|\bfetch\(|XMLHttpRequest|WebSocket|innerHTML|insertAdjacentHTML|eval\(", page
    )


def test_a_drift_to_no_module_is_a_word() -> None:
    """`<none>` stands for no module in names of kinds of drift."""
    drifted = page_of(DATA / "fsdp2_sac.log.gz", DATA / "fsdp2_traced.log.gz")
    assert "moved to or from &lt;none&gt;" in drifted
    assert "none" not in {tag for tag, _ in _Elements(drifted).found}


SIGNS = ["<", ">", '"', "'", "&", "</script>", "<!--", "]]>", "<img src=x onerror=y>", "{{script}}", "</title>"]
markup = st.lists(st.sampled_from(SIGNS) | st.text(max_size=5), min_size=1).map("".join)


def page_with(key: str, location: str, note: str) -> _Elements:
    """The page of two logs that hold these texts, with a note on their first row."""
    with tempfile.TemporaryDirectory() as folder:
        a, b = (
            read_log(write_log(Path(folder) / f"{name}.log", [op(f"{key}/op_0_mm", value, location=location), *others]))
            for name, value, others in (("a", 3.0, []), ("b", 4.0, [op(f"{note}/op_0_add", 1.0)]))
        )
    out = io.StringIO()
    write_page(Report(compare(a, b), ReportOptions(names=(key, note))), out, View(query=note, notes=((0, note),)))
    return _Elements(out.getvalue())


@functools.cache
def _of_harmless(page: str) -> set[tuple[str, str]]:
    """Elements, and their attributes, of a page and of one with harmless names."""
    harmless = [*_Elements(page).found, *page_with("m", "model.py:1", "n").found]
    return {(tag, name) for tag, attributes in harmless for name in ("", *attributes)}


@settings(max_examples=examples(60))
@given(markup, markup, markup)
def test_no_text_of_a_log_or_a_person_becomes_an_element(page: str, key: str, location: str, note: str) -> None:
    """Elements and attributes are those of pages with harmless names."""
    found = page_with(key, location, note).found
    assert {(tag, name) for tag, attributes in found for name in ("", *attributes)} <= _of_harmless(page)
    tags = [tag for tag, _ in found]
    assert [tags.count(tag) for tag in ("script", "style", "title", "main")] == [2, 1, 1, 1]


def test_its_policy_lets_only_its_own_script_run(page: str) -> None:
    elements = _Elements(page)
    policy = next(a["content"] for tag, a in elements.found if "http-equiv" in a)
    (style,), (_, script) = elements.text["style"], elements.text["script"]
    for name, content in (("script-src", script), ("style-src", style)):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}';" in str(policy)
    assert str(policy).startswith("default-src 'none'; ")


def test_the_block_is_what_its_head_says(page: str) -> None:
    block = gzip.decompress(base64.b64decode(_Elements(page).text["script"][0]))
    size = int.from_bytes(block[:4], "little")
    head = json.loads(block[4 : 4 + size])
    assert head["rows"] == 410
    assert len(block) == 4 + size + sum(a["length"] * np.dtype(a["type"]).itemsize for a in head["arrays"])
    added = [a["name"] for a in head["arrays"]]
    assert all(a.get("base", added[0]) in added[: added.index(a["name"]) + 1] for a in head["arrays"])


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (DATA / "bug_base.log.gz", DATA / "bug_neg_attn_l2.log.gz"),
        (DATA / "fsdp2_sac.log.gz", DATA / "fsdp2_traced.log.gz"),
        (EXAMPLES / "eager" / "rank_0_activations.log", EXAMPLES / "traced" / "rank_0_activations.log"),
    ],
)
def test_a_small_pair_is_a_small_page(a: Path, b: Path) -> None:
    assert len(page_of(a, b).encode()) < 150_000


def test_extremes_of_inputs_are_told_where_they_differ(tmp_path: Path) -> None:
    """Of logs that have such numbers; msprobe's do."""
    one, other = (read_log(msprobe(tmp_path / name, scale=scale)) for name, scale in (("a", 1.0), ("b", 1.5)))
    block = block_of(c := compare(one, other))
    add_input_numbers(block, c)
    row = next(iter(block.head["inputNumbers"]))
    told = [fact for fact in facts_of(c, int(row)) if " of input " in fact.name]
    assert block.head["inputNumbers"][row] == [[fact.name, fact.a, fact.b, fact.difference] for fact in told] != []


def test_the_rules_and_what_was_not_captured_are_on_the_page(page: str) -> None:
    assert "No rules: every pair was found automatically." in page
    assert "Uncaptured operations" in page
    assert "in both: <code>_to_copy, as_strided, cat," in page
