"""Archive of kept operations to be sent to somebody: bundles of them alone, with texts redacted as in a log."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from capture.keeping.bundle import Bundle, safetensors_head
from capture.keeping.form import MANIFEST, VERSION, given_to, read_content, results_of
from capture.keeping.replay import Kept
from capture.log_format import private
from numtui.text.counts import plural

__all__ = ["Archive"]


class Archive:
    """Files to send.

    Args:
        cases: kept calls of each operation, by side.
        bundles: where they are.
        scripts: further files by name.
    """

    def __init__(
        self, cases: Sequence[Mapping[str, Kept]], bundles: Sequence[Bundle], scripts: Mapping[str, bytes]
    ) -> None:
        self._runs = {bundle.folder: bundle.run for bundle in bundles}
        self._scripts = scripts
        self._calls: dict[tuple[str, Path], list[dict[str, Any]]] = {}
        self._redacted = 0
        for sides in cases:
            for side, kept in sides.items():
                self._calls.setdefault((side, kept.folder), []).append(self._shown(kept.call))

    def told(self) -> Iterator[str]:
        """Yield lines that say what is in it."""
        calls = [call for of in self._calls.values() for call in of]
        keys = list(dict.fromkeys(call["key"] for call in calls))
        names = {(folder, name) for (_, folder), of in self._calls.items() for call in of for name in _contents(call)}
        size = sum((folder / f"{name}.safetensors").stat().st_size for folder, name in names)
        yield f"{plural(len(calls), 'call')} of {plural(len(keys), 'operation')}: {', '.join(keys[:8])}" + (
            f" and {len(keys) - 8} more" if len(keys) > 8 else ""
        )
        forms = sum(len(given_to(call)) + len(results_of(call)) for call in calls)
        yield f"{plural(forms, 'tensor')} with all their numbers, {size:,} bytes: activations, gradients, weights"
        yield "their records, with file names, lines and shapes, and the headers' run info, as the logs have them"
        if self._redacted:
            yield f"{plural(self._redacted, 'text')} among the arguments as digests, as in the logs"
        if self._scripts:
            yield f"{' and '.join(self._scripts)}, which need torch alone"

    def write(self, path: Path) -> None:
        """Write it, readable by its owner alone.

        Raises:
            OSError: it cannot be written, or a content cannot be read.
        """
        private_file = open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600))  # noqa: SIM115
        with private_file, zipfile.ZipFile(private_file, "w", zipfile.ZIP_DEFLATED) as out:
            for (side, folder), calls in self._calls.items():
                name = f"{side}/{folder.name}"
                for content in sorted({each for call in calls for each in _contents(call)}):
                    data = read_content(folder, content)
                    out.writestr(f"{name}/{content}.safetensors", safetensors_head({"bytes": data}) + data)
                head = json.dumps({"version": VERSION, "run": dict(self._runs[folder]), "missed": []})
                told = ",\n".join(map(json.dumps, calls))
                out.writestr(f"{name}/{MANIFEST}", f'{head.removesuffix("}")}, "calls": [\n{told}\n]}}\n')
            for script, text in self._scripts.items():
                out.writestr(script, text)

    def _shown(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """Return a call whose texts are digests, but for those that its record has in clear."""
        record = call["record"]

        def shown(tree: Any) -> Any:
            if isinstance(tree, list):
                return [shown(each) for each in tree]
            if isinstance(tree, str) and json.dumps(tree) not in record:
                self._redacted += 1
                return private(tree)
            return tree

        kwargs = {name: shown(tree) for name, tree in call["kwargs"].items()}
        told = {name: value for name, value in call.items() if name != "bytes"}
        return told | {"args": shown(call["args"]), "kwargs": kwargs}


def _contents(tree: Any) -> Iterator[str]:
    """Yield the names of the contents that a call has: of storages, and of states of generators."""
    if isinstance(tree, dict):
        yield from (tree[name] for name in ("storage", "state") if isinstance(tree.get(name), str))
        for each in tree.values():
            yield from _contents(each)
    elif isinstance(tree, list):
        for each in tree:
            yield from _contents(each)
