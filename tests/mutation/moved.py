"""A constant of an imported package changed in this process, which is to end after it."""

from __future__ import annotations

import ast
import gc
import sys
from collections.abc import Iterator
from functools import _lru_cache_wrapper
from importlib import import_module
from types import CodeType, FunctionType, ModuleType

from tests.mutation.constants import Constant, Sources, assigned

__all__ = ["Package"]


class Package:
    """The modules of some sources, all imported, their functions and their caches."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        for file in sources.text:
            import_module(_name(file))
        gc.unfreeze()
        everything = gc.get_objects()
        files = {self._module(file).__file__ for file in sources.text}
        self._functions: dict[tuple[str, int, str], list[FunctionType]] = {}
        for one in everything:
            if isinstance(one, FunctionType) and one.__code__.co_filename in files:
                self._functions.setdefault(_key(one.__code__), []).append(one)
        self._caches = [one for one in everything if isinstance(one, _lru_cache_wrapper)]

    def move(self, constant: Constant, factor: str) -> None:
        """Change a constant: the code of its function, or what it is assigned to and all that is made of that."""
        for cache in self._caches:
            cache.cache_clear()
        module = self._module(constant.file)
        source = constant.moved(self.sources.text[constant.file], factor)
        if not constant.names:
            for code in _codes(compile(source, str(module.__file__), "exec", dont_inherit=True)):
                for function in self._functions.get(_key(code), []) if code.co_name != "<module>" else []:
                    function.__code__ = code
            return
        (statement,) = (
            node
            for node in ast.parse(source).body
            if constant.names <= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
            and node.lineno <= constant.line <= (node.end_lineno or 0)
        )
        self._run(constant.file, statement)
        for file, node in self.sources.made_of(constant.file, constant.names):
            self._run(file, node)

    def _run(self, file: str, statement: ast.stmt) -> None:
        """Run a statement of a module anew, and give what it assigns to all that have imported it."""
        module = self._module(file)
        exec(compile(ast.Module([statement], []), str(module.__file__), "exec", dont_inherit=True), vars(module))
        for name in assigned(statement):
            places = [(file, name)]
            for place in places:
                places += self.sources.imported.get(place, [])
                setattr(self._module(place[0]), place[1], getattr(module, name))

    @staticmethod
    def _module(file: str) -> ModuleType:
        return sys.modules[_name(file)]


def _name(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _key(code: CodeType) -> tuple[str, int, str]:
    return code.co_filename, code.co_firstlineno, code.co_name


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)
