"""YAML as a tree of nodes that know their positions in the text.

Built from the parser's events, not from composed nodes: aliases stay aliases, so a file of aliases to aliases costs
nothing, and nesting deeper than a rule file needs is refused.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml
from yaml.reader import Reader

__all__ = ["YAML_BREAK", "Lines", "Node", "Tree", "TreeError", "read_tree"]

_DEEPEST: Final = 16
YAML_BREAK: Final = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
# The parser in C is some ten times faster; both give the same events.
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class TreeError(ValueError):
    """Text that is not YAML, or that cannot be a rule file. `index` is the position of the offending character."""

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


class Lines:
    """The line starts of a text, by YAML's definition of a line break."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = [0, *(found.end() for found in YAML_BREAK.finditer(text))]

    def number(self, index: int) -> int:
        """0-based line of a character."""
        return bisect_right(self.starts, index) - 1

    def column(self, index: int) -> int:
        """0-based column of a character."""
        return index - self.starts[self.number(index)]

    def start(self, line: int) -> int:
        """First character of a line; the end of the text for the line after the last one."""
        return self.starts[line] if line < len(self.starts) else len(self.text)

    def content(self, line: int) -> str:
        """A line without its break."""
        return self.text[self.start(line) : self.start(line + 1)].rstrip("\r\n\x85\u2028\u2029")

    def __len__(self) -> int:
        return len(self.starts)


@dataclass(slots=True)
class Node:
    """One value. `start` and `end` delimit its characters, without trailing blanks and comments.

    `kind` is `text`, `list`, `map` or `alias`; `flow` is True for `[a, b]` and False for a list of lines; `quoted` is
    True for text in quotes or in a block; `odd` names something that rule files do not allow (a tag), else None.
    """

    kind: str
    start: int
    end: int
    text: str = ""
    quoted: bool = False
    flow: bool = False
    odd: str | None = None
    items: list[Node] = field(default_factory=list)
    pairs: list[tuple[Node, Node]] = field(default_factory=list)

    @property
    def null(self) -> bool:
        """True for nothing, `~` and `null`."""
        return self.kind == "text" and not self.quoted and self.text in _NULLS


@dataclass(slots=True)
class Tree:
    """One document. `stop` is the position of an explicit end of the document (`...`), None without one."""

    root: Node
    stop: int | None


def read_tree(text: str) -> Tree:
    """Parse a text with at most one document; raises `TreeError`."""
    bad = Reader.NON_PRINTABLE.search(text)
    if bad is not None:
        raise TreeError(
            f"YAML does not allow the character {ascii(bad.group())[1:-1]}; write it as an escape in double quotes",
            bad.start(),
        )
    try:
        return _build(text, iter(yaml.parse(text, Loader=_LOADER)))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        context = f" {error.context}" if error.context else ""
        raise TreeError(f"this is not YAML: {error.problem or 'unreadable'}{context}", _index(mark)) from error
    except yaml.YAMLError as error:
        raise TreeError(f"this is not YAML: {error}", 0) from error


def _index(mark: Any) -> int:
    """Position of a mark, 0 when the parser gives none."""
    return int(mark.index) if mark is not None else 0


def _build(text: str, events: Iterator[Any]) -> Tree:
    root: Node | None = None
    stop: int | None = None
    # Open collections, each with the key that still needs its value.
    stack: list[tuple[Node, list[Node]]] = []
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent) and root is not None:
            raise TreeError("a second document starts here; a rule file holds only one", _index(event.start_mark))
        if isinstance(event, yaml.DocumentEndEvent) and event.explicit:
            stop = _index(event.start_mark)
        if isinstance(event, yaml.CollectionEndEvent):
            node, _ = stack.pop()
            if node.flow:
                node.end = _index(event.end_mark)
            else:
                children = node.items[-1:] or [value for _, value in node.pairs[-1:]]
                node.end = max([node.end, *(child.end for child in children)])
        elif isinstance(event, yaml.NodeEvent):
            node = _node(text, event)
            if isinstance(event, yaml.CollectionStartEvent) and len(stack) >= _DEEPEST:
                raise TreeError("nested too deeply for a rule file", node.start)
            if stack:
                _attach(*stack[-1], node)
            else:
                root = node
            if isinstance(event, yaml.CollectionStartEvent):
                stack.append((node, []))
    return Tree(root or Node("text", len(text), len(text)), stop)


def _attach(parent: Node, waiting: list[Node], node: Node) -> None:
    if parent.kind == "list":
        parent.items.append(node)
    elif waiting:
        parent.pairs.append((waiting.pop(), node))
    else:
        waiting.append(node)


def _node(text: str, event: Any) -> Node:
    start, end = _index(event.start_mark), _index(event.end_mark)
    if isinstance(event, yaml.AliasEvent):
        return Node("alias", start, end, text=str(event.anchor))
    odd = f"the tag {event.tag}" if event.tag is not None else None
    if isinstance(event, yaml.ScalarEvent):
        value = event.value
        if event.style in {"|", ">"}:
            # The trailing line breaks of a block are layout, not part of the value.
            value = value.rstrip("\n")
            end = start + len(text[start:end].rstrip())
        return Node("text", start, end, value, quoted=bool(event.style), odd=odd)
    kind = "list" if isinstance(event, yaml.SequenceStartEvent) else "map"
    return Node(kind, start, start, flow=bool(event.flow_style), odd=odd)
