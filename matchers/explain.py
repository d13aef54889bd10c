"""What is known about one row, in words: the text of the inspector and of the reports.

Pure: a comparison and a row in, text out. Nothing is escaped here; whoever prints it makes it safe.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Explanation", "Fact", "InputFact"]


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of the side-by-side table: what is compared, both sides as text, and their difference."""

    name: str
    a: str
    b: str
    difference: str
    agrees: bool | None
    """None when one side does not say."""


@dataclass(frozen=True, slots=True)
class InputFact:
    """One input position: its hash on both sides and the records that produced it (-1: not known)."""

    position: int
    a: str
    b: str
    difference: str
    agrees: bool | None
    producer_a: int
    producer_b: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything the inspector says about a row.

    Attributes:
        headline: verdict and role in one sentence ("origin: both inputs agree, the output differs by ≥1.2e-3 …").
        pairing: why these two were paired, confidence and runner-up; or why it is alone.
        notes: what is known and what cannot be known, a sentence each.
        facts: the table of both sides.
        inputs: inputs with their producers.
    """

    headline: str
    pairing: str
    notes: tuple[str, ...]
    facts: tuple[Fact, ...]
    inputs: tuple[InputFact, ...]
