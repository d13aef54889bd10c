"""Files of the pages, and their hashes for a page's content policy."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from urllib.parse import quote

from numtui import __version__
from numtui.text.safe import safe_text

__all__ = ["bullets", "link", "more", "packaged", "source_hash", "static_page"]

_MAX_SENTENCES = 500
_MAX_SENTENCE = 1_000


@cache
def packaged(name: str) -> str:
    """Return a file of this package: a style, a script, a template."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def source_hash(content: str) -> str:
    """Return the hash by which a policy allows a script or style within the page."""
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode('ascii')}"


def static_page(title: str, heading: str, result: str, body: Iterable[str], *, red: bool) -> Iterator[str]:
    """Yield the lines of a page without scripts.

    Args:
        title, heading, result: texts, safe to display.
        body: HTML.
        red: mark the result.
    """
    style = packaged("report.css")
    policy = f"default-src 'none'; style-src '{source_hash(style)}'; base-uri 'none'; form-action 'none'"
    yield '<!doctype html>\n<html lang="en" class="static">\n<head>\n<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    yield '<meta name="referrer" content="no-referrer">'
    yield f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>"
    marked = ' class="red"' if red else ""
    yield f'<header><h1>{escape(heading)}</h1><p id="result"{marked}>{escape(result)}</p></header>\n<main>'
    yield from body
    yield f"<p><small>numtui {escape(__version__)}</small></p>\n</main>\n</body>\n</html>"


def bullets(heading: str, sentences: Sequence[str]) -> Iterator[str]:
    """Yield a list under a heading; nothing for no sentences. They are made safe here."""
    if sentences:
        yield f"<h2>{heading}</h2>\n<ul>"
        yield from (f"<li>{escape(safe_text(text, _MAX_SENTENCE))}</li>" for text in sentences[:_MAX_SENTENCES])
        yield f"</ul>{more(len(sentences) - _MAX_SENTENCES)}"


def link(name: str, told: str) -> str:
    """Return a link to a page in the same folder; both are made safe here."""
    return f'<a href="./{escape(quote(name))}">{escape(safe_text(told, _MAX_SENTENCE))}</a>'


def more(n: int) -> str:
    """Return how many things of a list were left out; empty for none."""
    return f"<p>… and {n:,} more</p>" if n > 0 else ""
