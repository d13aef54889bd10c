"""HTML report of two logs: time to write it, its size, and time until it is usable in a browser.

    python -m benchmarks.report_page A.log B.log [--repeat 3]

Headless Chromium opens the page; the clock runs from the request to the first rows in the page. The steps are timed
within the page. Targets for two logs of 91,000 operations: at most 8 MB, and 3 seconds to the first rows.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.browser.chromium import Chromium

_STEPS = {
    "next red row": "numtui.actions.next_red(null)",
    "next first cause": "numtui.actions.next_cause(null)",
    "what is known of a row": "numtui.openTab('inspector')",
    "filter": "numtui.filter('op:mm status:red')",
    "all again": "numtui.filter('')",
    "group": "numtui.openTab('groups')",
    "search": "numtui.search('softmax')",
    "sort by error": "numtui.listing.setOrder('error')",
    "fold": "numtui.listing.setOrder('order'), numtui.listing.setFolded(true)",
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report_page")
    parser.add_argument("a", type=Path)
    parser.add_argument("b", type=Path)
    parser.add_argument("--repeat", type=int, default=3)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        page = Path(folder) / "report.html"
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "numtui", "diff", chosen.a, chosen.b, "-o", page], check=False)
        print(f"read, compare, write  {time.perf_counter() - began:8.2f} s")
        print(f"size                  {page.stat().st_size / 1e6:8.2f} MB")
        browser = Chromium(Path(folder) / "profile")
        browser.size(1400, 900)
        try:
            waits = [_wait(browser, page) for _ in range(chosen.repeat)]
            print(f"until the first rows  {statistics.median(waits):8.2f} s")
            for name, step in _STEPS.items():
                expression = f"(() => {{ const from = performance.now(); {step}; return performance.now() - from; }})()"
                print(f"{name:<22}{browser.ask(expression):8.1f} ms")
            print(f"complaints            {len(browser.complaints):8}")
        finally:
            browser.close()


def _wait(browser: Chromium, page: Path) -> float:
    began = time.perf_counter()
    browser.open(page)
    browser.wait_for("window.numtui && document.querySelector('#rows .row')")
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
