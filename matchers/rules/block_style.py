"""Rule lists in brackets, `pairs: [{…}, …]`, rewritten as lists of lines, which can be edited line by line.

The entries stay as they are, one on each line behind a dash. A comment behind one of the outermost brackets stands
behind the section's name afterwards, every other comment between two entries on a line of its own above the entry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from matchers.files.yaml_tree import YAML_BREAK, Node
from matchers.rules.emit import indented
from matchers.rules.grammar import Document, Section, parse_document
from matchers.rules.item import Edit, dedented

__all__ = ["LayoutError", "applied", "dash_indent", "in_lines"]

_LAYOUT: Final = frozenset("[]{},:-")


class LayoutError(ValueError):
    """Valid YAML in a layout (a dash behind `? key` and `:`) that cannot be edited without losing some of it."""


def in_lines(document: Document, sections: Collection[int], break_: str) -> Document:
    """The document with these of its sections, and the outermost level, as lines; itself where they are already.

    Raises:
        LayoutError: the text would not say the same, or would have lost something.
    """
    if document.root is not None and document.root.flow:
        document = _same(document, applied(document.text, [_outermost(document, document.root, break_)]))
    edits = [
        _list(document, section, document.root, break_)
        for at, section in enumerate(document.sections)
        if at in sections and section.value.flow and document.root is not None
    ]
    return _same(document, applied(document.text, edits)) if edits else document


def applied(text: str, edits: Iterable[Edit], offset: int = 0) -> str:
    """A text, which begins at `offset`, with all edits; those inside a stretch that another one removes do nothing."""
    pieces: list[str] = []
    done = offset
    # Of two that begin at the same place, text that is inserted comes first, then the longer one.
    for start, end, replacement in sorted(edits, key=lambda edit: (edit[0], edit[1] > edit[0], -edit[1])):
        if start >= done:
            pieces += [text[done - offset : start - offset], replacement]
            done = end
    return "".join(pieces) + text[done - offset :]


def dash_indent(document: Document) -> int:
    """Columns by which the dashes of this file are indented."""
    root = document.root
    for section in document.sections:
        if root is not None and section.value.kind == "list" and not section.value.flow:
            return document.lines.column(section.value.start) - document.lines.column(root.start)
    return 2


def _outermost(document: Document, root: Node, break_: str) -> Edit:
    """`{pairs: …, ops: …}` with each of its keys on a line of its own."""
    text = document.text
    margin = text[document.lines.start(document.lines.number(root.start)) : root.start]
    if margin.strip(" ") or text[root.start] != "{":
        raise LayoutError("the outermost level stands in brackets behind something else")
    out: list[str] = []
    at = root.start + 1
    for key, value in root.pairs:
        first, above = _comments(text[at : key.start])
        behind, below = _comments(text[key.end : value.start])
        name, said = text[key.start : key.end], text[value.start : value.end]
        line = f"{name}: {dedented(said, document.lines.column(value.start))}" if said else f"{name}:"
        out += [*first, *above, *behind, *below, indented(line, f"{margin}  ", break_)]
        at = max(key.end, value.end)
    first, above = _comments(text[at : root.end - 1])
    return root.start, root.end, (break_ + margin).join([*out, *first, *above])


def _list(document: Document, section: Section, root: Node, break_: str) -> Edit:
    """`[{…}, {…}]` with each of its entries on a line of its own; nothing for `[]`."""
    text, lines, value = document.text, document.lines, section.value
    if text[value.start] != "[":
        raise LayoutError(f"'{section.kind.section}' is not a plain list in brackets")
    starts = [value.start + 1, *(item.node.end for item in section.items)]
    ends = [*(item.node.start for item in section.items), value.end - 1]
    gaps = [_comments(text[start:end]) for start, end in zip(starts, ends, strict=True)]
    last = lines.number(value.end)
    stop = lines.start(last) + len(lines.content(last))
    closing, _ = _comments(text[value.end : stop])
    opening = gaps[0][0]
    start = value.start
    while text[start - 1].isspace():
        start -= 1
    heading = ""
    if text[section.key.end : start].strip() == ":" and (opening or closing):
        heading = f"  {(opening or closing).pop(0)}"
    out = [heading, *opening]
    for item, (_, above), (behind, _) in zip(section.items, gaps[:-1], gaps[1:], strict=True):
        entry = dedented(text[item.node.start : item.node.end], lines.column(item.node.start))
        out += [*above, *behind, f"- {indented(entry, '  ', break_)}"]
    margin = " " * (lines.column(root.start) + dash_indent(document))
    joined = break_.join([*out, *gaps[-1][1], *closing])
    return start, stop, joined.replace(break_, break_ + margin)


def _comments(gap: str) -> tuple[list[str], list[str]]:
    """(the comment on the first line, those on further lines) of a text between two entries."""
    found = [line.strip(" \t,:") for line in YAML_BREAK.split(gap)]
    if any(line and not line.startswith("#") for line in found):
        raise LayoutError("there is more than comments between the entries of a list in brackets")
    return [line for line in found[:1] if line], [line for line in found[1:] if line]


def _same(document: Document, text: str) -> Document:
    """The document of another text that says the same, comments included."""
    again = parse_document(text)
    if _said(again.root) != _said(document.root) or _characters(text) != _characters(document.text):
        raise LayoutError("a list in brackets cannot be written as lines without losing some of it")
    return again


def _said(node: Node | None) -> object:
    """A tree without its layout; None where there is nothing."""
    if node is None or node.null or (node.kind != "text" and node.kind != "alias" and not (node.items or node.pairs)):
        return None
    pairs = [(_said(key), _said(value)) for key, value in node.pairs]
    return node.kind, node.text, node.quoted, node.odd, list(map(_said, node.items)), pairs


def _characters(text: str) -> Counter[str]:
    """The characters of a text and their numbers, without blanks and punctuation that lays out lists."""
    return Counter(char for char in text if not char.isspace() and char not in _LAYOUT)
