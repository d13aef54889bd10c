"""HTML report: one file with all rows, for a browser or a mail, without network access.

The page has an overview and a summary in plain HTML (`summary.py`), the rows in one compressed block (`columns.py`,
`names.py`, `results.py`), and a script that lists them (`js/`, joined in the order of `_SCRIPTS`). Its content policy
runs only that script and style, whatever a log contains.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from html import escape
from typing import Any, Final, TextIO

import numpy as np

from matchers.explain.sentences import headline
from matchers.logs.op_log import Phase
from matchers.pairing.pairing import Method
from matchers.status import Role, Status
from matchers.verdict.reason import Reason
from numtui.action import Action, key_label
from numtui.actions import ACTIONS
from numtui.query.fields import FIELDS, STATUS_WORDS
from numtui.query.view import Order, StatusGroup
from numtui.report.html.columns import block_of
from numtui.report.html.kept import kept_operations
from numtui.report.html.names import add_names
from numtui.report.html.page import link, packaged, source_hash
from numtui.report.html.results import add_input_numbers, add_results
from numtui.report.html.summary import coverage, logs, overview, rules, summary, text
from numtui.report.model import Report
from numtui.report.parts import MEANING
from numtui.text.glyphs import GLYPHS, STYLES, WITHOUT_ERROR, WORDS
from numtui.text.safe import safe_text

__all__ = ["View", "write"]

_SCRIPTS: Final = (
    "decode",
    "elements",
    "comparison",
    "query",
    "listing",
    "table",
    "groups",
    "inspector",
    "plot",
    "paper",
    "main",
)
_MAX_TOLD: Final = 2000
"""Rows with a sentence from the program: first causes, red and close ones, then those not judged. The page makes the
shorter sentences of the others itself.
"""

_MAX_CAUSES: Final = 300
"""First causes whose consequences the page describes."""

_BROWSERS_OWN: Final = frozenset({"ctrl+f", "f1"})
"""Keys left to the browser."""

_STATISTICS: Final = (
    ("L1", "output"),
    ("L1 norm", "L1"),
    ("L2 norm", "L2"),
    ("min", "Min"),
    ("max", "Max"),
    ("mean", "Mean"),
)
_ROLE_MEANING: Final = {
    Role.ORIGIN: "first cause: inputs agree, output differs: look here",
    Role.RECEIVER: "consequence: an input already differs",
    Role.UNKNOWN: "unknown: some inputs are unknown",
}
_PAIRED_BY: Final = {
    Method.OVERRIDE: "a rule",
    Method.TEMPLATE: "a template rule",
    Method.EXACT: "numbers, inputs included, that occur nowhere else",
    Method.ALIGNED: "dispatch order, names, data flow and values together",
    Method.VALUES: "input or output values",
    Method.DATAFLOW: "data flow",
    Method.RELAXED: "last one left of its name: doubtful",
    Method.PARTS: "parts of one operation, which read the same tensor",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Initial state of the page: the explorer's view when it was written.

    Attributes:
        hidden: status groups switched off.
        saved: saved queries by name, for `query`.
        cursor: the chosen row, -1 for the first cause or the first red row.
        notes: notes by row, in order.
    """

    hidden: frozenset[StatusGroup] = frozenset()
    query: str = ""
    search: str = ""
    saved: Mapping[str, str] = field(default_factory=dict)
    folded: bool = False
    order: Order = Order.DISPATCH
    cursor: int = -1
    notes: tuple[tuple[int, str], ...] = ()


def write(report: Report, out: TextIO, view: View | None = None) -> None:
    """Write the page."""
    block = block_of(report.comparison)
    add_names(block, report.comparison)
    add_results(block, report.comparison)
    add_input_numbers(block, report.comparison)
    view = view or View()
    block.head["page"] = _page(report, view)
    style, script = packaged("report.css"), _script()
    names = " ↔ ".join(safe_text(name, 60) for name in report.options.names)
    # The script opens no connection and loads nothing, and nothing else runs.
    only = f"script-src '{source_hash(script)}'; style-src '{source_hash(style)}'"
    policy = f"default-src 'none'; {only}; base-uri 'none'; form-action 'none'"
    parts = {
        "policy": policy,
        "title": escape(f"numtui: {names}"),
        "heading": escape(names),
        "ranks": "" if report.options.overview is None else f"<p>{link(report.options.overview, 'all ranks')}</p>",
        "result": f'<strong class="red">{text(report.result)}</strong>' if report.alarming else text(report.result),
        "coverage": coverage(report),
        "overview": overview(report),
        "summary": summary(report, view.notes) + kept_operations(report),
        "rules": rules(report),
        "logs": logs(report),
        "block": base64.b64encode(block.compressed()).decode("ascii"),
        "style": style,
        "script": script,
    }
    # In one pass, so that no inserted text is searched for placeholders.
    out.write(re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], packaged("template.html")))


def _page(r: Report, view: View) -> dict[str, Any]:
    """Return the data of the script besides the rows."""
    c = r.comparison
    causes = r.causes(_MAX_CAUSES)
    cursor = view.cursor
    if cursor < 0 and r.red:
        cursor = causes[0].row.row if causes else int(c.red.argmax())
    elif cursor < 0 and r.first_difference is not None:
        cursor = r.first_difference.row.row
    return {
        "names": [safe_text(name, 60) for name in r.options.names],
        "statuses": [_status(status) for status in Status],
        "groupNames": [group.label for group in StatusGroup],
        "fields": _fields(),
        "roles": ["", *(role.label for role in Role if role)],
        "roleWords": ["", *(role.word for role in Role if role)],
        "roleMeaning": {role.label: meaning for role, meaning in _ROLE_MEANING.items()},
        "phases": [phase.label for phase in Phase],
        "reasons": [reason.label for reason in Reason],
        "methods": ["", *(method.label for method in Method if method)],
        "pairedBy": {method.label: told for method, told in _PAIRED_BY.items()},
        "statistics": _STATISTICS,
        "keys": [_keys(action) for action in ACTIONS],
        "told": _told(r),
        "firstDifference": -1 if r.first_difference is None else r.first_difference.row.row,
        "follows": {str(cause.row.row): safe_text(cause.follows, 1000) for cause in causes},
        "notes": {str(row): safe_text(note, 2000) for row, note in view.notes},
        "state": {
            "hidden": sorted(view.hidden),
            "query": safe_text(view.query),
            "search": safe_text(view.search),
            "saved": {safe_text(name): safe_text(query) for name, query in view.saved.items()},
            "folded": view.folded,
            "order": view.order.label,
            "cursor": cursor,
        },
    }


def _keys(action: Action) -> dict[str, Any]:
    """Return the keys of an action; the page has no palette, so one without a key keeps its former one."""
    keys = [key for key in action.keys or (action.former,) if key and key not in _BROWSERS_OWN]
    return {"id": action.id, "keys": keys, "label": " ".join(map(key_label, keys)), "help": action.help}


def _fields() -> dict[str, dict[str, list[int]]]:
    """Return the query fields that take words, with the numbers of each word."""
    members: dict[str, type[Phase | Method | Role | Reason]] = {
        "phase": Phase,
        "method": Method,
        "role": Role,
        "reason": Reason,
    }
    words = {word: [int(s) for s in STATUS_WORDS.get(word, ())] for word in FIELDS["status"].values}
    told: dict[str, dict[str, list[int]]] = {"status": words, "is": words, "differs": {"args": []}}
    return told | {
        name: {word: [int(kind[member])] for word, member in FIELDS[name].values.items()}
        for name, kind in members.items()
    }


def _told(r: Report) -> dict[str, str]:
    c = r.comparison
    differing = np.flatnonzero(c.red | (c.status == Status.CLOSE))
    unjudged = np.flatnonzero(c.status == Status.NOT_JUDGED)
    first = [] if r.first_difference is None else [r.first_difference.row.row]
    rows = np.unique(np.concatenate((first, r.cause_rows, differing, unjudged)).astype(np.int64)[:_MAX_TOLD])
    return {str(row): safe_text(headline(c, row), 1000) for row in rows.tolist()}


def _status(status: Status) -> dict[str, Any]:
    group = next(g for g in StatusGroup if status in STATUS_WORDS[g.name.lower().replace("_", "-")])
    return {
        "label": status.label,
        "word": WORDS[status],
        "meaning": MEANING[status],
        "glyph": GLYPHS[status],
        "group": int(group),
        "red": status.red,
        "equal": group is StatusGroup.EQUAL,
        "style": STYLES.get(status, "plain"),
        "without_error": status in WITHOUT_ERROR,
    }


@cache
def _script() -> str:
    """Join all scripts in one scope."""
    parts = "\n".join(packaged(f"js/{name}.js") for name in _SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}}})();\n'
