"""Compile the libraries of the viewer into the wheel. Without a compiler it has none, and is one for all platforms."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_SOURCES = (
    "matchers/graph.c",
    "matchers/joins.c",
    "matchers/logs/imported/json_shapes.c",
    "matchers/logs/reader.c",
    "numtui/terminal/restore.c",
)


class ReaderHook(BuildHookInterface):  # type: ignore[type-arg] # hatchling is there while a wheel is built
    """Adds the libraries to the wheel; an editable install compiles at first use."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it builds."""
        if version == "editable":
            return
        self._folder = tempfile.mkdtemp(prefix="numtui-")
        builder = runpy.run_path(str(Path(self.root, "capture", "native_library.py")))
        compiler = next(filter(None, map(shutil.which, builder["COMPILERS"])), None)
        libraries = {}
        for source in _SOURCES:
            made = Path(self._folder, Path(source).with_suffix(".so").name)
            # the last set of flags is for any machine
            command = [compiler, *builder["FLAGS"][-1], "-o", str(made), str(Path(self.root, source)), "-lm"]
            if compiler is None or subprocess.run(command, check=False).returncode:  # noqa: S603  the machine's own compiler
                self.app.display_warning(f"{source} is not compiled: it will be at first use, where a compiler is")
                return
            # as `native_library.installed` looks for it
            libraries[str(made)] = str(Path(source).with_name(f"{made.stem}-{builder['digest'](made)}.so"))
        build_data["force_include"].update(libraries)
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called by hatchling after it has built."""
        if version != "editable":
            shutil.rmtree(self._folder, ignore_errors=True)
