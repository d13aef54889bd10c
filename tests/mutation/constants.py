"""The numeric constants of a file, where they stand, and the functions that use them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

__all__ = ["FACTORS", "Constant", "constants"]

FACTORS = {"x3": ("(({}) * 3)", "(({}) * 3)"), "/3": ("(({}) / 3)", "(-(-({}) // 3))")}
"""Changes of a constant, for floats and for whole numbers."""
_PLAIN = (0, 1, -1)


@dataclass(frozen=True)
class Constant:
    """One constant: its file below `matchers`, its source, the line and bytes where it stands, and who uses it.

    Attributes:
        users: names of functions; the functions of all files that load the name that it is assigned to.
        names: these names; tests that mention one use it, too.
    """

    file: str
    line: int
    begin: int
    end: int
    text: str
    whole: bool
    users: frozenset[str]
    names: frozenset[str] = frozenset()

    def moved(self, source: bytes, factor: str) -> bytes:
        """The source with the constant changed."""
        lines = source.splitlines(keepends=True)
        line = lines[self.line - 1]
        new = FACTORS[factor][self.whole].format(self.text).encode()
        lines[self.line - 1] = line[: self.begin] + new + line[self.end :]
        return b"".join(lines)


def constants(room: Path, file: str) -> Iterator[Constant]:
    """Yield the constants of a file: floats, and whole numbers that have a name of their own; but 0 and 1."""
    tree = ast.parse((room / file).read_bytes())
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
            if "__all__" not in names and node.value is not None:
                users = frozenset(_users(room, names))
                for found in _within(node.value, file, users, whole=True):
                    yield replace(found, names=frozenset(names))
        for function in ast.walk(node):
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                for statement in function.body:
                    yield from _within(statement, file, frozenset({f"{file}:{function.name}"}), whole=False)


def _within(node: ast.AST, file: str, users: frozenset[str], *, whole: bool) -> Iterator[Constant]:
    """Yield the constants in an expression; `2.0**-23` is one."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Subscript)):
        return
    value = _value(node)
    if value is None:
        for child in ast.iter_child_nodes(node):
            yield from _within(child, file, users, whole=whole)
    elif value not in _PLAIN and (whole or isinstance(value, float)):
        assert isinstance(node, ast.expr)
        assert node.end_col_offset is not None
        if node.lineno == node.end_lineno:
            begin, end = node.col_offset, node.end_col_offset
            yield Constant(file, node.lineno, begin, end, ast.unparse(node), isinstance(value, int), users)


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


def _users(room: Path, names: set[str]) -> Iterator[str]:
    """Yield the functions of all files that load one of some names, over other constants made of them too."""
    for path in room.rglob("*.py"):
        source = path.read_text("utf-8")
        if not any(name in source for name in names):
            continue
        file, tree = path.relative_to(room).as_posix(), ast.parse(source)
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and _loads(node, names):
                yield f"{file}:{node.name}"
        for node in tree.body:
            if isinstance(node, ast.Assign) and _loads(node.value, names):
                more = {target.id for target in node.targets if isinstance(target, ast.Name)} - names
                yield from _users(room, more) if more else ()


def _loads(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(node))
