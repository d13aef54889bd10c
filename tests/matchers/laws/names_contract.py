"""Contract of `make check`: no module of matchers but those of `laws` knows the name of an operation.

A string that is such a name, or that begins or ends several of them, is one; docstrings are none. `python -m
tests.matchers.laws.names_contract` lists the breaches and exits with 1.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from matchers.laws.register import known

__all__ = ["breaches"]

_MATCHERS = Path(__file__).parents[3] / "matchers"
_WORDS = frozenset(
    {
        *("alias", "all", "clip", "complex", "cuda", "data", "detach", "equal", "full", "grad", "gradient"),
        *("hash", "indices", "item", "log", "logit", "max", "maximum", "mean", "min", "minimum", "mode"),
        *("numel", "random", "repeat", "seed", "size", "sorted", "stack", "std", "sum", "tensor", "to"),
        *("trace", "values", "where", "zero", "zeros"),
    }
)
"""English, and names of statistics and fields, that are operations too."""
_LEAST, _SEVERAL = 4, 3
"""Characters of a beginning or end that counts, and the operations that have it."""


def breaches(source: str, names: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Yield (line, string) of each string in some source that names operations."""
    tree = ast.parse(source)
    texts = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)  # docstrings
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in texts and isinstance(node.value, str | bytes):
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            if text not in _WORDS and (text in names or _part_of_several(text, names)):
                yield node.lineno, text


def _part_of_several(text: str, names: frozenset[str]) -> bool:
    """True for a beginning or an end of names, cut where their words are."""
    if len(text) < _LEAST or not (text.startswith("_") or text.endswith("_")):
        return False
    return sum(name.startswith(text) or name.endswith(text) for name in names) >= _SEVERAL


def main() -> int:
    """See the module."""
    names, found = known(), 0
    for path in sorted(_MATCHERS.rglob("*.py")):
        if path.parent.name != "laws":
            for line, text in breaches(path.read_text("utf-8"), names):
                found += 1
                sys.stdout.write(
                    f"{path.relative_to(_MATCHERS.parent)}:{line}: {text!r} names operations: ask their law\n"
                )
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
