"""A headless Chromium, spoken to over a pipe in its DevTools protocol: nothing but the browser itself is needed."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
from pathlib import Path
from typing import Any

__all__ = ["NAMES", "Chromium"]

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
"""What the program is called on the systems that have it."""

_PATIENCE = 60
"""Seconds until a test fails instead of waiting; nothing takes a tenth of that on a machine with other work."""


class Chromium:
    """One browser with one page."""

    def __init__(self, profile: Path) -> None:
        program = next(filter(None, map(shutil.which, NAMES)), None)
        assert program is not None, f"the tests of the HTML report need one of {', '.join(NAMES)}"
        # The browser reads commands from descriptor 3 and answers on 4.
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"]
        command = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["bash", "-c", command, program, *flags, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._rest = b""
        self._number = 0
        self._session = ""
        self.complaints: list[str] = []
        """What the page wrote to the console as an error or a warning, or threw."""
        self.requests: list[str] = []
        """What the page asked for, itself included."""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        self._process.wait(timeout=20)
        os.close(self._write)
        os.close(self._read)

    def size(self, width: int, height: int) -> None:
        """Set the size of the window."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def media(self, kind: str = "", scheme: str = "light") -> None:
        """Show pages as on the `screen` or in `print`, in the theme of a system that is light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._call("Emulation.setEmulatedMedia", media=kind, features=features)

    def printed(self) -> bytes:
        """The page as a PDF."""
        import base64

        return base64.b64decode(self._call("Page.printToPDF")["data"])

    def scripts(self, *, on: bool) -> None:
        """Switch JavaScript on or off for the pages to come."""
        self._call("Emulation.setScriptExecutionDisabled", value=not on)

    def open(self, path: Path) -> None:
        """Open a file and wait until it has been loaded."""
        self.complaints.clear()
        self.requests.clear()
        self._call("Page.navigate", url=path.as_uri())
        while self._message().get("method") != "Page.loadEventFired":
            pass

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for."""
        answer = self._call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Wait until an expression is true, looking again at every frame."""
        self.ask(
            "new Promise((done, fail) => {"
            f" setTimeout(() => fail(new Error('waited in vain for ' + {json.dumps(expression)})), {1000 * _PATIENCE});"
            f" const look = () => ({expression}) ? done(true) : requestAnimationFrame(look); look(); }})"
        )

    def press(self, *keys: str) -> None:
        """Press keys as a person does: `n`, `G`, `Enter`, `Escape`, `Control+d`."""
        for name in keys:
            *modifiers, key = name.split("+") if len(name) > 1 else [name]
            pressed = {"key": key, "modifiers": 2 * ("Control" in modifiers) + 8 * (len(key) == 1 and key.isupper())}
            text = {"text": key} if len(key) == 1 and not modifiers else {}
            self._call("Input.dispatchKeyEvent", type="keyDown", **pressed, **text)
            self._call("Input.dispatchKeyEvent", type="keyUp", **pressed)

    def type(self, text: str) -> None:
        """Put text where the focus is."""
        self._call("Input.insertText", text=text)

    def picture(self, path: Path) -> None:
        """Write what is seen to a PNG file."""
        import base64

        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"]))

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._message()).get("id") != self._number:
            pass
        assert "error" not in answer, answer["error"]
        result: dict[str, Any] = answer["result"]
        return result

    def _message(self) -> dict[str, Any]:
        """The next message of the browser; events are noted on the way."""
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], 2 * _PATIENCE)
            assert ready, "the browser does not answer"
            more = os.read(self._read, 1 << 20)
            assert more, "the browser has ended"
            self._rest += more
        raw, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        told = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(told["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if told["type"] in ("error", "warning", "assert"):
                self.complaints.append(json.dumps(told["args"]))
            case "Log.entryAdded" if told["entry"]["level"] in ("error", "warning"):
                self.complaints.append(told["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])
        return message
