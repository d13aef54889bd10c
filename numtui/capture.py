"""The package `capture` under a name that no script's module has: `from numtui import capture` always gives it.

There is one instance: if it is loaded as `capture`, that one; else it is loaded under this name, and `import capture`
then gives it as well, unless the script has a module of that name.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from capture import *  # noqa: F403 - what the package has
    from capture import launch as launch  # noqa: PLC0414 - exported

_INIT = Path(__file__).resolve().parents[1] / "capture" / "__init__.py"


def _load() -> None:
    loaded = sys.modules.get("capture")
    if loaded is not None and getattr(loaded, "__file__", None) and Path(str(loaded.__file__)).resolve() == _INIT:
        sys.modules[__name__] = loaded
        sys.meta_path.insert(0, import_module("capture.names").OtherName(__name__, "capture"))
        return
    spec = spec_from_file_location(__name__, _INIT)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[__name__] = package = module_from_spec(spec)
    spec.loader.exec_module(package)


_load()
