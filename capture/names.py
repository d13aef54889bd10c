"""Names of this package: in a captured process `numtui.capture`, so that a script may have a `capture` of its own.

Either name gives one and the same package there, but `import capture` finds the script's module first.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec, spec_from_file_location, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["SAFE_NAME", "OtherName", "become_safe"]

SAFE_NAME = "numtui.capture"
"""A name that no script's module has."""
_INIT = Path(__file__).with_name("__init__.py")


def become_safe() -> None:
    """Load this package under its safe name in place of `capture`, which it gives up."""
    if SAFE_NAME not in sys.modules:
        spec = spec_from_file_location(SAFE_NAME, _INIT)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[SAFE_NAME] = package = module_from_spec(spec)
        spec.loader.exec_module(package)
    for name in [name for name in sys.modules if name.partition(".")[0] == "capture"]:
        del sys.modules[name]


class OtherName:
    """Import hook: modules of this package under a second name are those that the first name gives.

    Args:
        name: the second name.
        package: the first name, under which the package is loaded.
    """

    def __init__(self, name: str, package: str) -> None:
        self._name, self._package = name, package
        self._specs: dict[str, ModuleSpec | None] = {}

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        """Find what the second name stands for; None for the script's own module, and for anything else."""
        if fullname == self._name:
            if (own := self._of_the_script(fullname)) is not None:
                return own
        elif (
            not fullname.startswith(f"{self._name}.")
            # what runs as the main program is loaded for that alone
            or fullname == f"{self._name}.__main__"
            or sys.modules.get(self._name) is not sys.modules[self._package]
        ):
            return None
        module = import_module(self._package + fullname[len(self._name) :])
        loader: Any = self
        return spec_from_loader(fullname, loader, is_package=hasattr(module, "__path__"))

    def _of_the_script(self, name: str) -> ModuleSpec | None:
        if "." in name:
            return None
        for finder in sys.meta_path:
            if finder is not self and (find := getattr(finder, "find_spec", None)) is not None:
                spec = find(name, None)
                if spec is not None and spec.origin is not None and not _is_this(Path(spec.origin).parent):
                    return spec
        # modules in a folder without an __init__.py, which a package anywhere on the path hides
        spec = PathFinder.find_spec(name, [entry for entry in sys.path if not _is_this(Path(entry, name))])
        if spec is None or spec.origin is not None:
            return spec
        # a folder without code is not meant, such as one of logs
        folders = map(Path, spec.submodule_search_locations or ())
        return spec if any(any(folder.glob(code)) for folder in folders for code in ("*.py", "*/*.py")) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module that there is."""
        module = import_module(self._package + spec.name[len(self._name) :])
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Keep the module as it is: the import system has put the spec of its second name into it."""
        found: Any = module.__spec__
        module.__spec__ = self._specs.pop(found.name)


def _is_this(folder: Path) -> bool:
    """Return True for the folder of this package, or of another installation of it."""
    return (folder / _INIT.name).exists() and (folder / "log_format.py").exists()
