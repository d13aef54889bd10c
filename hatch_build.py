"""Compile the reader of logs into the wheel. Without a compiler the wheel has none, and is one for all platforms."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_SOURCE = "matchers/logs/reader.c"


class ReaderHook(BuildHookInterface):  # type: ignore[type-arg] # hatchling is there while a wheel is built
    """Adds the library to the wheel; an editable install compiles at first use."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it builds."""
        if version == "editable":
            return
        self._folder = tempfile.mkdtemp(prefix="numtui-")
        library = Path(self._folder, "reader.so")
        builder = runpy.run_path(str(Path(self.root, "capture", "native_library.py")))
        compiler = next(filter(None, map(shutil.which, builder["COMPILERS"])), None)
        # the last set of flags is for any machine
        command = [compiler, *builder["FLAGS"][-1], "-o", str(library), str(Path(self.root, _SOURCE)), "-lm"]
        if compiler is None or subprocess.run(command, check=False).returncode:  # noqa: S603  the machine's own compiler
            self.app.display_warning("no compiled reader of logs: it is compiled at first use, where a compiler is")
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        # as matchers/logs/reader_library.py looks for it
        build_data["force_include"][str(library)] = f"matchers/logs/reader-{builder['digest'](library)}.so"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called by hatchling after it has built."""
        if version != "editable":
            shutil.rmtree(self._folder, ignore_errors=True)
