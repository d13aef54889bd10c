"""What the program looks like in its main situations: as text that a test compares, and as pictures for the README.

`python -m tests.numtui.scenes` writes the pictures to docs/screenshots; `pytest tests/numtui/tui/test_snapshots.py
--update-snapshots` writes the texts. Both are to be looked at before they are committed.
"""

from __future__ import annotations

import asyncio
import html
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from textual.pilot import Pilot

from numtui.inputs import OpenRequest
from tests.conftest import REPOSITORY
from tests.numtui.tui.test_app import opened, press, screen

__all__ = ["PICTURES", "SCENES", "Scene", "picture", "played", "snapshot", "words_of"]

PICTURES = REPOSITORY / "docs" / "screenshots"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One situation.

    Attributes:
        proves: what its snapshot is there for, a sentence.
        logs: one log or two, below the repository; names: what they are called.
        keys: what is pressed once they have been read.
        rules: content of the rule file.
        picture: name of the picture that is made of it, empty for none; title: what stands over it.
    """

    proves: str
    logs: tuple[str, ...]
    names: tuple[str, str] = ("main", "branch")
    keys: tuple[str, ...] = ()
    size: tuple[int, int] = (120, 40)
    rules: str = ""
    picture: str = ""
    title: str = "numtui"


_SCALED = ("tests/data/order_f32_a.log.gz", "tests/data/order_f32_bug.log.gz")
_NEGATED = ("examples/base/rank_0_activations.log.gz", "examples/neg_attn/rank_0_activations.log.gz")
_DTYPES = ("tests/data/order_f32_a.log.gz", "tests/data/order_bf16_a.log.gz")
_SHIPPED = ("examples/eager/rank_0_activations.log", "examples/traced/rank_0_activations.log")
_MODES = ("eager", "traced")
_RULES = """\
version: 1
ignore:
  - {side: b, op: wait_tensor, why: only this run communicates}
pairs:
  - {a: tok_embeddings/op_0_embedding, b: tok_embeddings/op_0_embedding}
tolerance:
  - {match: layers.*/op_0_add, rtol: 1e-4}
"""

SCENES = {
    "agreement": Scene(
        proves="Two runs that agree say so, and names that differ are no differences.",
        logs=_SHIPPED,
        names=_MODES,
        size=(80, 24),
    ),
    "opening": Scene(
        proves="The first screen answers: how much is red, where it begins and why, around what differs.",
        logs=_NEGATED,
        names=("base", "neg_attn"),
        size=(80, 24),
    ),
    "opening-59x20": Scene(
        proves="So it does on the smallest terminal.",
        logs=_NEGATED,
        names=("base", "neg_attn"),
        size=(59, 20),
    ),
    "first-cause": Scene(
        proves="It opens at the planted operation, with its source line and both sides' numbers.",
        logs=_SCALED,
    ),
    "first-cause-80x24": Scene(
        proves="The smallest usual terminal shows the same operation, line and verdict.",
        logs=_SCALED,
        size=(80, 24),
    ),
    "inspector": Scene(
        proves="With the focus the inspector takes half of the screen, and an input can be chosen.",
        logs=_SCALED,
        keys=("n", "enter", "down"),
        size=(80, 24),
    ),
    "only-in-one-run": Scene(
        proves="An operation that only one run has is the first cause, though every norm stays as it was.",
        logs=_NEGATED,
        names=("base", "neg_attn"),
    ),
    "found": Scene(
        proves="The demo opens at its bug; two keys show what it makes red, and the way between them.",
        logs=_NEGATED,
        names=("base", "neg_attn"),
        keys=("n", "w"),
        size=(100, 30),
        picture="found",
        title="numtui demo, then:  n next red  w why",
    ),
    "causes": Scene(
        proves="C tells what follows from each first cause: rows, modules, how the error grows.",
        logs=_SCALED,
        keys=("C",),
        size=(80, 24),
    ),
    "why": Scene(
        proves="w leads from a red row back to its first cause, with the error and the line of each step.",
        logs=_SCALED,
        keys=(*("n",) * 12, "w"),
    ),
    "plot": Scene(
        proves="v draws the error of every row over the step, with the tolerance and the first cause.",
        logs=_NEGATED,
        names=("base", "neg_attn"),
        keys=("v",),
        picture="plot",
    ),
    "comparability": Scene(
        proves="I tells first what the two runs do not have in common, the gravest first, if that is much.",
        logs=_DTYPES,
        keys=("I",),
        size=(80, 24),
    ),
    "one-log": Scene(
        proves="One log by itself is explored with the same screen, without a second column.",
        logs=_SCALED[:1],
        keys=("S", "enter"),
        size=(80, 24),
    ),
    "rules": Scene(
        proves="Each rule stands beside what it matched; one that matched nothing is marked.",
        logs=_SHIPPED,
        names=_MODES,
        keys=("r",),
        rules=_RULES,
        size=(80, 24),
    ),
    "suggestions": Scene(
        proves="Each family of drift comes with an explanation, its rows and rules that were tried; v lists them all.",
        logs=("tests/data/fsdp2_sac.log.gz", "tests/data/fsdp2_traced.log.gz"),
        names=_MODES,
        keys=("s", "v"),
        picture="suggestions",
    ),
}


@asynccontextmanager
async def played(scene: Scene, folder: Path) -> AsyncIterator[Pilot[None]]:
    """The program in this situation; `folder` takes its rule file."""
    rules = Path("rules.yaml")
    if scene.rules:
        (folder / rules).write_text(scene.rules, encoding="utf-8")
    one, other = (*(str(REPOSITORY / log) for log in scene.logs), "")[:2]
    asked = OpenRequest(
        path_a=one, path_b=other, name_a=scene.names[0], name_b=scene.names[1], rules_path=rules, resume=False
    )
    before = Path.cwd()
    os.chdir(folder)  # where the rules have a short name
    try:
        async with opened(asked, scene.size) as (pilot, _):
            await press(pilot, *scene.keys)
            yield pilot
    finally:
        os.chdir(before)


def snapshot(pilot: Pilot[None]) -> str:
    """The screen as text, without the blanks at the ends of lines."""
    return "\n".join(line.rstrip() for line in screen(pilot).split("\n")) + "\n"


def picture(pilot: Pilot[None], title: str) -> str:
    """The screen as SVG."""
    return pilot.app.export_screenshot(title=title, simplify=True)


def words_of(svg: str) -> Iterator[str]:
    """The texts of a picture, in order; how they are drawn is the business of whoever draws."""
    for found in re.findall(r"<text[^>]*>([^<]*)</text>", svg):
        yield from html.unescape(found).split()


async def _draw() -> None:
    for scene in SCENES.values():
        if scene.picture:
            with tempfile.TemporaryDirectory() as folder:
                async with played(scene, Path(folder)) as pilot:
                    drawn = picture(pilot, scene.title)
            (PICTURES / f"{scene.picture}.svg").write_text(drawn, encoding="utf-8")


def main() -> int:
    """Write the pictures."""
    with tempfile.TemporaryDirectory() as own:
        # colours and settings of whoever runs this are not the program's
        os.environ.update(XDG_CONFIG_HOME=own, XDG_STATE_HOME=own)
        os.environ.pop("NO_COLOR", None)
        PICTURES.mkdir(exist_ok=True)
        asyncio.run(_draw())
    return 0


if __name__ == "__main__":
    sys.exit(main())
