"""The HTML report in a real browser: what a person does with it, and that it says what the program says."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.explain.facts import facts_of, inputs_of
from matchers.explain.sentences import explain, format_eps, format_error, row_epsilon
from matchers.logs.parser import read_log
from matchers.status import Status
from numtui.action import key_label
from numtui.actions import ACTIONS
from numtui.query.query import QueryError, parse_query
from numtui.query.view import Filter, Order, StatusGroup, build_view, sorted_rows
from numtui.report.html import View
from numtui.text.safe import safe_text
from tests.browser.chromium import Chromium
from tests.builders import log_text, training_step, write_log
from tests.matchers.regions.test_find import compared, model

Page = Callable[..., Chromium]

PLANTED = "layers.2.attention.inner_attention/op_1_neg"


def chosen(browser: Chromium) -> int:
    """The row under the cursor, as the list shows it; waits for the list to be drawn."""
    browser.wait_for("document.querySelector('#rows .chosen')?.dataset.row == numtui.listing.cursor")
    return int(browser.ask("numtui.listing.cursor"))


def text(browser: Chromium, selector: str) -> str:
    return str(browser.ask(f"document.querySelector({selector!r}).innerText"))


# Opening


def test_it_opens_with_the_summary_and_the_first_cause(page: Page, planted: Comparison) -> None:
    browser = page(planted)
    assert text(browser, "#result") == "339 of 410 rows are red, 1 first cause"
    assert PLANTED in text(browser, "#overview")
    assert PLANTED in text(browser, "#inspector")
    assert browser.ask("document.querySelector('#note').offsetHeight") == 0
    assert chosen(browser) == int(np.flatnonzero(planted.cause)[0])
    assert browser.complaints == []


def test_it_asks_nothing_of_the_network(page: Page, planted: Comparison, tmp_path: Path) -> None:
    browser = page(planted)
    assert browser.requests == [(tmp_path / "report.html").as_uri()]


def test_without_scripts_the_summary_is_there(page: Page, planted: Comparison, tmp_path: Path) -> None:
    """As in the preview of a mail program."""
    browser = page(planted)
    browser.scripts(on=False)
    try:
        browser.open(tmp_path / "report.html")
    finally:
        browser.scripts(on=True)
    shown = text(browser, "body")
    assert "339 of 410 rows are red, 1 first cause" in shown
    assert "1. " in shown or PLANTED in shown
    assert "need a browser with JavaScript" in shown
    assert "view_as_complex" in shown, "operations that were not captured"
    assert browser.ask("document.querySelector('#list').offsetHeight") == 0


def test_an_old_browser_gets_the_summary_and_a_reason(page: Page, planted: Comparison, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    browser = page(planted)
    path.write_text(path.read_text(encoding="utf-8").replace('id="block">', 'id="block">!'), encoding="utf-8")
    browser.open(path)
    browser.wait_for("document.querySelector('#note').textContent.includes('cannot be shown')")
    assert PLANTED in text(browser, "#overview")
    assert browser.ask("document.querySelector('#list').offsetHeight") == 0


def test_tens_of_thousands_of_rows(page: Page, tmp_path: Path) -> None:
    """Only what can be seen is in the page; the end of the list is as near as its beginning."""
    text = log_text(training_step(1500))
    a, b = tmp_path / "a.log", tmp_path / "b.log"
    a.write_text(text)
    wrong = text.index("Output hash: ", len(text) // 2) + len("Output hash: ")
    b.write_text(text[:wrong] + "9" + text[wrong + 1 :])
    c = compare(read_log(a), read_log(b))
    (row,) = np.flatnonzero(c.red)
    browser = page(c)
    assert (tmp_path / "report.html").stat().st_size < 2_000_000
    assert browser.ask("document.querySelectorAll('#rows .row').length") < 60
    assert chosen(browser) == row
    browser.press("G")
    assert chosen(browser) == len(c) - 1 == 22_501
    browser.press("n")
    assert chosen(browser) == row
    browser.press("f")
    browser.type("op:silu phase:forward")
    assert browser.ask("numtui.listing.lines.length") == 1500
    assert browser.complaints == []


# Moving


def test_the_keys_lead_from_red_row_to_red_row(page: Page, planted: Comparison) -> None:
    browser = page(planted)
    reds = np.flatnonzero(planted.red).tolist()
    browser.press("n")
    assert chosen(browser) == reds[0]
    browser.press("n", "n")
    assert chosen(browser) == reds[2]
    browser.press("N")
    assert chosen(browser) == reds[1]
    browser.press("5", "n")
    assert chosen(browser) == reds[6]
    browser.press("o")
    assert chosen(browser) == int(np.flatnonzero(planted.cause)[0])
    browser.press("g")
    assert chosen(browser) == 0
    browser.press("j", "j", "k")
    assert chosen(browser) == 1
    browser.press("1", "2", "3", "G")
    assert chosen(browser) == 122
    browser.press("]", "c")
    assert chosen(browser) == 123


def test_errors_in_order(page: Page, planted: Comparison) -> None:
    browser = page(planted)
    browser.press("e")
    assert planted.error[chosen(browser)] == np.nanmax(planted.error)
    browser.press("E")
    assert planted.error[chosen(browser)] == np.unique(planted.error[planted.error > 0])[-2]


def test_the_data_can_be_followed(page: Page, planted: Comparison) -> None:
    """From a consequence up to its cause and down again."""
    browser = page(planted)
    browser.press("n")
    consequence = chosen(browser)
    browser.press("p")
    cause = chosen(browser)
    assert planted.cause[cause]
    browser.press("c")
    assert chosen(browser) == consequence
    browser.press("Control+o", "Control+o")
    assert chosen(browser) == consequence


def test_its_keys_are_those_of_the_explorer(page: Page, planted: Comparison) -> None:
    """All that move, find, follow and list; those that change rules or the terminal are not there."""
    browser = page(planted)
    known = dict(browser.ask("Array.from(numtui.keys)"))
    theirs = {key: action.id for action in ACTIONS for key in action.keys or (action.former,)}
    assert known.items() <= theirs.items()
    wanted = {
        "next_red",
        "previous_red",
        "next_cause",
        "larger_error",
        "producer",
        "consumer",
        "back",
        "search",
        "filter",
    }
    assert {*wanted, "fold", "sort", "toggle_red", "copy", "copy_row", "help"} <= set(known.values())
    assert not {"mark", "unpair", "ignore", "undo", "save", "quit"} & set(known.values())
    assert set(browser.ask("Object.keys(numtui.actions)")) <= set(theirs.values())
    browser.press("?")
    shown = text(browser, "#keys")
    assert all(action.help in shown for action in ACTIONS if action.id in known.values())
    labels = set(browser.ask("document.querySelector('#keys table').innerText").split())
    assert labels >= {key_label(key) for key in known}
    assert "ctrl+f" not in labels, "the browser's own"


# Choosing what is listed


def test_a_filter_is_typed(page: Page, planted: Comparison) -> None:
    browser = page(planted)
    browser.press("f")
    browser.type("phase:backward op:mm status:red")
    expected = int(np.count_nonzero(parse_query("phase:backward op:mm status:red").mask(planted)))
    assert expected > 10
    assert browser.ask("numtui.listing.lines.length") == expected
    browser.press("Enter", "n", "n")
    assert parse_query("phase:backward op:mm status:red").mask(planted)[chosen(browser)]
    browser.press("Escape")
    assert browser.ask("numtui.listing.lines.length") == len(planted)
    browser.press("f")
    browser.type("status:bad")
    assert text(browser, "#message").startswith("status:bad is unknown; expected one of red, close, equal,")


@pytest.mark.parametrize("pair", ["planted", "lowered"])
def test_a_query_lists_what_it_lists_in_the_explorer(
    pair: str, page: Page, planted: Comparison, lowered: Comparison
) -> None:
    c = planted if pair == "planted" else lowered
    queries = [
        "attention", "-attention", "status:red", "is:cause", "status:close,only-b", "status:equal", "status:other",
        "role:receiver", "phase:backward", "phase:fwd,opt", "op:mm", "op:mm,bmm", "op:=mm", "op:=*add*", "op:=m?",
        "module:=layers.#.*", "module:=layers.#",
        "module:layers.3", "module:layers.1", "module:=layers.*.attention_norm", 'module:"layers.2"',
        "dtype:float", "shape:256,", "shape:256,256", 'shape:"256, 256"', "at:attention.py", "at:attention.py:9",
        "file:model", "file:=llama3/model.py", "method:exact", "method:aligned,values", "conf<0.9", "conf>=.95",
        "error>1e-3", "error<=1e-3", "error>0", "error>inf", "eps>100", "eps<10", "row>100", "row<=7", "cause:1",
        "largest>10", "largest<=1", "is:cast", "status:cast,red", "reason:only-one-run,beyond-tolerance",
        "cause:1,2", "cause:9", "-status:red op:add phase:forward", "NORM", '"op_0_mm"', "@mine", "-@mine norm",
    ]  # fmt: skip
    saved = {"mine": "op:mm,add phase:fwd"}
    browser = page(c, View(saved=saved))
    for query in queries:
        browser.ask(f"numtui.listing.setQuery({json.dumps(query)})")
        expected = np.flatnonzero(parse_query(query, saved).mask(c)).tolist()
        assert browser.ask("Array.from(numtui.listing.lines)") == expected, query


@pytest.mark.parametrize(
    "query",
    [
        "status:bad",
        "status:",
        "op:",
        "colour:red",
        "error>much",
        "error:1",
        "status>1",
        "cause:0",
        'a"b',
        "@none",
        "@loop",
    ],
)
def test_what_means_nothing_means_nothing_here_either(query: str, page: Page, planted: Comparison) -> None:
    saved = {"loop": "mm @loop"}
    with pytest.raises(QueryError):
        parse_query(query, saved)
    browser = page(planted, View(saved=saved))
    failed = (
        f"(() => {{ try {{ numtui.listing.setQuery({json.dumps(query)}); }} catch (e) {{ return e.message; }} }})()"
    )
    assert browser.ask(failed)


def test_statuses_are_switched_by_number_and_by_click(page: Page, planted: Comparison) -> None:
    browser = page(planted)
    browser.press("3")
    browser.wait_for("!numtui.listing.shown.has(2)")
    hidden = Filter(frozenset(StatusGroup) - {StatusGroup.EQUAL})
    assert browser.ask("numtui.listing.lines.length") == len(build_view(planted, hidden))
    browser.ask("document.querySelector('#chips [data-group=\"2\"]').click()")
    assert browser.ask("numtui.listing.lines.length") == len(planted)


def test_stretches_fold_as_in_the_explorer(page: Page, planted: Comparison) -> None:
    other = compared(model(fused=False), model(fused=True))
    for c in (other, planted):
        browser = page(c)
        browser.press("G", "=")
        view = build_view(c, Filter(), folded=True, cursor=len(c) - 1)
        assert browser.ask("Array.from(numtui.listing.lines)") == view.row.tolist()
        assert browser.ask("Array.from(numtui.listing.folds)") == view.fold.tolist()
        if c is other:
            browser.wait_for("document.body.innerText.includes('… 2 in a, 1 in b: reached in another way …')")
    browser.press("g", "Enter")
    assert browser.ask("numtui.listing.lines.length") == len(view) + int(view.fold[0]) - 1


@pytest.mark.parametrize("order", Order)
def test_rows_are_sorted_as_in_the_explorer(order: Order, page: Page, lowered: Comparison) -> None:
    browser = page(lowered)
    browser.press(*["S"] * int(order))
    assert browser.ask("document.querySelector('#order').value") == order.label
    assert browser.ask("Array.from(numtui.listing.lines)") == sorted_rows(lowered, order).tolist()


def test_search_goes_to_the_hits(page: Page, planted: Comparison) -> None:
    browser = page(planted)
    browser.press("g", "/")
    browser.type("softmax")
    browser.press("Enter")
    hits = np.flatnonzero(parse_query("softmax").mask(planted)).tolist()
    assert text(browser, "#hits") == f"{len(hits)} found"
    assert chosen(browser) == hits[0]
    browser.press(";")
    assert chosen(browser) == hits[1]
    browser.press(",")
    assert chosen(browser) == hits[0]


def test_a_click_on_the_plot_goes_to_the_row(page: Page, planted: Comparison) -> None:
    browser = page(planted)
    row = int(np.nanargmax(planted.error))
    browser.press("g")
    browser.ask(
        "(() => { const plot = document.querySelector('#plot'), box = plot.getBoundingClientRect();"
        f" const x = box.left + numtui.plot.x({row});"
        " plot.dispatchEvent(new MouseEvent('click', { clientX: x, clientY: box.top + 20, bubbles: true })); })()"
    )
    assert abs(chosen(browser) - row) <= 3
    assert planted.red[chosen(browser)]


def test_the_explorers_view_is_kept(page: Page, planted: Comparison) -> None:
    view = View(hidden=frozenset({StatusGroup.EQUAL}), query="phase:forward", search="norm", cursor=60)
    browser = page(planted, view)
    assert chosen(browser) == 60
    wanted = Filter(frozenset(StatusGroup) - {StatusGroup.EQUAL}, parse_query("phase:forward"))
    assert browser.ask("Array.from(numtui.listing.lines)") == build_view(planted, wanted).row.tolist()
    assert browser.ask("document.querySelector('#search').value") == "norm"


def test_notes_are_shown(page: Page, planted: Comparison) -> None:
    row = int(np.flatnonzero(planted.red)[3])
    browser = page(planted, View(cursor=row, notes=((row, "Kim: <b>this</b> is the kernel"),)))
    assert "Kim: <b>this</b> is the kernel" in text(browser, "[data-panel=summary]")
    browser.press("Enter")
    assert "✎ Kim: <b>this</b> is the kernel" in text(browser, "#inspector")
    assert browser.ask(f"document.querySelector('#rows [data-row=\"{row}\"] .cause').textContent") == "✎"


def test_colours_can_be_set(page: Page, planted: Comparison) -> None:
    """The scale of the errors, and light or dark."""
    browser = page(planted)
    browser.ask("numtui.table.setScale(-3, -1)")
    assert [browser.ask(f"numtui.table.heat({x})") for x in (1e-4, 1e-2, 1)] == [0, 0.5, 1]
    before = browser.ask("getComputedStyle(document.body).backgroundColor")
    browser.ask("document.querySelector('#theme').click()")
    assert browser.ask("getComputedStyle(document.body).backgroundColor") != before


# What it says of a row


def test_the_inspector_says_why(page: Page, planted: Comparison) -> None:
    browser = page(planted)
    browser.press("n", "Enter")
    row = chosen(browser)
    shown = text(browser, "#inspector")
    assert explain(planted, row).headline in shown
    assert "consequence: an input already differs" in shown
    assert f"{PLANTED}" in shown
    assert "the tolerance is 1.5e-05" in shown
    browser.press("o")
    assert "FIRST CAUSE: only b has this operation" in text(browser, "#inspector")
    assert browser.complaints == []


@pytest.mark.parametrize("pair", ["planted", "lowered"])
def test_it_says_what_the_program_says(pair: str, page: Page, planted: Comparison, lowered: Comparison) -> None:
    """Every row: keys, error, units, numbers of both sides, inputs and who made them."""
    c = planted if pair == "planted" else lowered
    browser = page(c)
    told: list[dict[str, Any]] = browser.ask(
        "Array.from({ length: numtui.c.length }, (_, row) => ({ a: numtui.c.key('A', row), b: numtui.c.key('B', row),"
        " error: numtui.c.errorText(row), units: numtui.c.units(row), facts: numtui.c.facts(row),"
        " inputs: numtui.c.inputs(row), headline: numtui.c.headline(row) }))"
    )
    names = {"L1": "L1", "L2 norm": "L2 norm", "min": "min", "max": "max", "mean": "mean"} | {
        n: n for n in ("shape", "dtype", "location", "phase")
    }
    for row, page_says in enumerate(told):
        a, b = c.members(row)
        assert page_says["a"] == " + ".join(c.a.keys[r] for r in a)
        assert page_says["b"] == " + ".join(c.b.keys[r] for r in b)
        error = float(c.error[row])
        assert page_says["error"] == ("" if np.isnan(error) else format_error(error, bool(c.bound[row])))
        assert page_says["units"] == format_eps(error, row_epsilon(c, row)).removesuffix(" ε")
        facts = {name: (x, y) for name, x, y, _ in page_says["facts"]}
        for fact in facts_of(c, row):
            name = "L1" if fact.name == "L1 of output 0" else fact.name
            if name in names:
                assert facts[name] == (fact.a, fact.b), (row, name)
        for mine, given in zip(page_says["inputs"], inputs_of(c, row), strict=True):
            assert (mine["a"]["value"], mine["b"]["value"], mine["agrees"]) == (given.a, given.b, given.agrees)
            for side, maker, at in (("a", given.producer_a, c.at_a), ("b", given.producer_b, c.at_b)):
                expected = int(at[maker]) if maker >= 0 and at[maker] != row else -1
                assert mine[side]["maker"] == expected
        if c.status[row] in (Status.DIVERGED, Status.CLOSE):
            assert page_says["headline"] == explain(c, row).headline


def test_what_the_page_says_itself_is_what_the_program_says(page: Page, planted: Comparison) -> None:
    """Of a large comparison it has sentences for some rows only."""
    browser = page(planted)
    rows = np.flatnonzero((planted.status == Status.DIVERGED) | (planted.status == Status.CLOSE)).tolist()
    told = browser.ask(f"(numtui.c.told = {{}}, {rows}.map((row) => numtui.c.headline(row)))")
    assert told == [explain(planted, row).headline for row in rows]


def test_a_row_is_markdown_for_a_discussion(page: Page, planted: Comparison) -> None:
    browser = page(planted)
    browser.press("n")
    assert browser.ask("numtui.c.markdown(numtui.listing.cursor)").startswith(
        "`layers.2.attention.wo/op_0_mm`  \ndiverged, consequence, error ≥2.3e-01, forward, "
        "`[256, 256]`, `float32`, `common/attention.py:945`"
    )


# Untrusted text


def test_no_name_is_markup(page: Page, tmp_path: Path) -> None:
    evil = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=1>{{script}}\u202e\x1b[31m"
    ops = [replace(o, key=f"{evil}.{o.key}", location=f"{evil}:1") for o in training_step()]
    a = write_log(tmp_path / "a.log", ops)
    b = write_log(tmp_path / "b.log", [*ops[:3], replace(ops[3], outputs=[1e3], l2=1e3), *ops[4:]])
    browser = page(compare(read_log(a), read_log(b)), names=(evil, "b"), rules_path=evil)
    browser.press("n", "Enter")
    shown = safe_text(evil)
    assert shown in text(browser, "#inspector")
    assert shown in text(browser, "#overview")
    assert browser.ask("window.pwned") is None
    assert browser.ask("document.querySelectorAll('img').length") == 0
    assert browser.complaints == []


def test_empty_logs_make_a_page(page: Page, tmp_path: Path) -> None:
    log = read_log(write_log(tmp_path / "a.log", []))
    browser = page(compare(log, log))
    browser.press("n", "G", "o", "p", "c", "e", "Enter", "=")
    assert text(browser, "#result") == "Nothing was compared: both logs are empty."
    assert browser.complaints == []
