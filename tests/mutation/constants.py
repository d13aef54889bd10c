"""The numeric constants of a file, where they stand, and the lines that read them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

__all__ = ["FACTORS", "Constant", "Sources", "assigned"]

FACTORS = {"x3": ("(({}) * 3)", "(({}) * 3)"), "/3": ("(({}) / 3)", "(-(-({}) // 3))")}
"""Changes of a constant, for floats and for whole numbers."""
_PLAIN = (0, 1, -1)


@dataclass(frozen=True)
class Constant:
    """One constant: its file, its source, the line and bytes where it stands.

    Attributes:
        names: what it is assigned to outside of functions; empty for a number in a function.
    """

    file: str
    line: int
    begin: int
    end: int
    text: str
    whole: bool
    names: frozenset[str] = frozenset()

    def moved(self, source: str, factor: str) -> str:
        """The source with the constant changed."""
        lines = source.encode().splitlines(keepends=True)
        line = lines[self.line - 1]
        new = FACTORS[factor][self.whole].format(self.text).encode()
        lines[self.line - 1] = line[: self.begin] + new + line[self.end :]
        return b"".join(lines).decode()


class Sources:
    """The files of a package: the constants of each, and where a name of one is read in all of them."""

    def __init__(self, room: Path) -> None:
        self.text: Mapping[str, str] = {
            path.relative_to(room.parent).as_posix(): path.read_text("utf-8") for path in sorted(room.rglob("*.py"))
        }

    @cached_property
    def trees(self) -> Mapping[str, ast.Module]:
        """The syntax tree of each file."""
        return {file: ast.parse(text) for file, text in self.text.items()}

    @cached_property
    def imported(self) -> Mapping[tuple[str, str], list[tuple[str, str]]]:
        """The (file, name) pairs that a name of a file is imported as."""
        found: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for file, tree in self.trees.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and node.module:
                    path = node.module.replace(".", "/")
                    origin = f"{path}.py" if f"{path}.py" in self.text else f"{path}/__init__.py"
                    for name in node.names:
                        found.setdefault((origin, name.name), []).append((file, name.asname or name.name))
        return found

    def constants(self, file: str) -> Iterator[Constant]:
        """Yield the constants of a file: floats, and whole numbers that have a name of their own; but 0 and 1."""
        for node in self.trees[file].body:
            names = assigned(node)
            if names and "__all__" not in names and node.value is not None:  # type: ignore[attr-defined]
                yield from _within(node.value, file, names, whole=True)  # type: ignore[attr-defined]
            for function in ast.walk(node):
                if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    for statement in function.body:
                        yield from _within(statement, file, frozenset(), whole=False)

    def made_of(self, file: str, names: frozenset[str]) -> Iterator[tuple[str, ast.stmt]]:
        """Yield the statements outside of functions that are made of names of a file, in the order to run them anew."""
        places, done = [(file, name) for name in sorted(names)], set()
        while places:
            place = places.pop(0)
            places += self.imported.get(place, [])
            for node in self.trees[place[0]].body:
                if (made := assigned(node)) and reads(node, place[1]) and (place[0], node.lineno) not in done:
                    done.add((place[0], node.lineno))
                    places += [(place[0], name) for name in sorted(made)]
                    yield place[0], node

    def read_at(self, constant: Constant) -> set[tuple[str, int]]:
        """The lines in functions, of all files, that read a constant, or others that are made of it."""
        if not constant.names:
            return {(constant.file, constant.line)}
        statements = [(constant.file, constant.names)]
        statements += [(file, assigned(node)) for file, node in self.made_of(constant.file, constant.names)]
        places = [(file, name) for file, names in statements for name in names]
        found = set()
        for place in places:
            for file, name in [place, *self.imported.get(place, [])]:
                for node in ast.walk(self.trees[file]):
                    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                        found |= {(file, line) for line in reads(node, name)}
        return found


def assigned(node: ast.stmt) -> frozenset[str]:
    """The names that a statement assigns."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return frozenset(part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name))


def reads(node: ast.AST, name: str) -> set[int]:
    """The lines at which code reads a name."""
    return {
        part.lineno
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and part.id == name and isinstance(part.ctx, ast.Load)
    }


def _within(node: ast.AST, file: str, names: frozenset[str], *, whole: bool) -> Iterator[Constant]:
    """Yield the constants in an expression; `2.0**-23` is one."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Subscript)):
        return
    value = _value(node)
    if value is None:
        for child in ast.iter_child_nodes(node):
            yield from _within(child, file, names, whole=whole)
    elif value not in _PLAIN and (whole or isinstance(value, float)):
        assert isinstance(node, ast.expr)
        assert node.end_col_offset is not None
        if node.lineno == node.end_lineno:
            begin, end = node.col_offset, node.end_col_offset
            yield Constant(file, node.lineno, begin, end, ast.unparse(node), isinstance(value, int), names)


def _value(node: ast.AST) -> float | int | None:
    """The value of a number, or of a calculation with numbers alone; None for anything else."""
    if any(
        not isinstance(part, (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop))
        for part in ast.walk(node)
    ):
        return None
    if not isinstance(node, (ast.Constant, ast.BinOp, ast.UnaryOp)):
        return None
    found = eval(ast.unparse(node))
    return found if type(found) in (int, float) else None
