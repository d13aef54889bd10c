"""The file of known differences: YAML, read strictly. docs/ci.md describes it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

from matchers.errors import RulesError
from matchers.status import Status
from matchers.yaml_tree import Lines, Node, TreeError, read_tree
from numtui.report.allow import AllowEntry, AllowList

__all__ = ["load_allow_list"]

_FIELDS: Final = ("match", "why", "status", "up_to", "consequences")
_STATUSES: Final = {s.label: s for s in Status if s.red or s in (Status.ONLY_A, Status.ONLY_B)}
"""What can be allowed: the other statuses fail nothing."""


def load_allow_list(path: Path) -> AllowList:
    """Read a file.

    Raises:
        RulesError: it cannot be read, or something in it is not understood: a gate that is not what its owner thinks
            is none.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise RulesError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise RulesError(f"{path}: is not UTF-8 text") from None
    lines = Lines(text)
    try:
        return AllowList(str(path), tuple(_entry(node, lines) for node in _entries(read_tree(text).root)))
    except TreeError as error:
        spot = f"{path}:{lines.number(error.index) + 1}:{lines.column(error.index) + 1}"
        raise RulesError(f"{spot}: {error}") from None


def _entries(root: Node) -> list[Node]:
    if root.kind != "map":
        raise TreeError("expected 'version: 1' and 'allow:' with a list", root.start)
    found: list[Node] = []
    for key, value in root.pairs:
        if key.text == "version":
            if value.text != "1":
                raise TreeError("expected 'version: 1'", value.start)
        elif key.text != "allow":
            raise TreeError(f"unknown section '{key.text}'; known are version and allow", key.start)
        elif value.kind != "list" and not value.null:
            raise TreeError("'allow' must be a list, each entry beginning with '- '", value.start)
        else:
            found += value.items
    return found


def _entry(node: Node, lines: Lines) -> AllowEntry:
    if node.kind != "map":
        raise TreeError("expected 'match: …' and 'why: …'", node.start)
    values: dict[str, Node] = {}
    for key, value in node.pairs:
        if key.text not in _FIELDS or key.text in values:
            again = (
                " stands here a second time" if key.text in values else f" is unknown; known are {', '.join(_FIELDS)}"
            )
            raise TreeError(f"'{key.text}'{again}", key.start)
        values[key.text] = value
    for name in ("match", "why"):
        if name not in values or values[name].kind != "text" or values[name].null:
            raise TreeError(f"an allowed difference needs '{name}', a text", node.start)
    return AllowEntry(
        match=values["match"].text,
        why=values["why"].text,
        statuses=_statuses(values.get("status")),
        up_to=_up_to(values.get("up_to")),
        consequences=_yes(values.get("consequences")),
        line=lines.number(node.start) + 1,
    )


def _statuses(node: Node | None) -> frozenset[Status]:
    if node is None:
        return frozenset()
    texts = node.items if node.kind == "list" else [node]
    for text in texts:
        if text.text not in _STATUSES:
            raise TreeError(f"'status' is one of {', '.join(_STATUSES)}, not '{text.text}'", text.start)
    return frozenset(_STATUSES[text.text] for text in texts)


def _up_to(node: Node | None) -> float:
    if node is None:
        return math.inf
    try:
        value = float(node.text)
    except ValueError:
        value = math.nan
    if not value >= 0:
        raise TreeError(f"'up_to' is a relative error such as 1.0e-3, not '{node.text}'", node.start)
    return value


def _yes(node: Node | None) -> bool:
    if node is None:
        return False
    if node.text not in {"true", "false"}:
        raise TreeError(f"'consequences' is true or false, not '{node.text}'", node.start)
    return node.text == "true"
