"""What is known of a node's cards from earlier readings: a value that goes into a checkpoint.

It must not decide what is lost or sick; it only remembers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..model import Sample
from .cards import VENDOR, labels_of

KEPT = 900.0  # seconds; older answers of a former run of the daemon are not shown as if fresh
RENEWED = 300.0  # seconds; a checkpoint is written again after this time at the latest

Row = tuple[str, float, tuple[tuple[str, str], ...]]
"""A sample without its vendor and card labels."""


@dataclass(frozen=True, slots=True)
class Known:
    """``cards``: names ever seen in a complete table; ``listed``: the tool prints a process
    section; ``refused``: queries that this driver does not support; ``answers``: last answer by
    card and query; ``phy``: card by physical id, ``mapped`` the cards it was found for."""

    cards: frozenset[str] = frozenset()
    listed: bool = False
    driver: str = ""
    refused: frozenset[str] = frozenset()
    answers: Mapping[str, Mapping[str, tuple[Row, ...]]] = field(default_factory=dict)
    phy: Mapping[str, str] = field(default_factory=dict)
    mapped: frozenset[str] = frozenset()

    @staticmethod
    def read(doc: Mapping[str, Any] | None, now: float) -> Known:
        """From a checkpoint; answers that are too old are left out."""
        if not doc:
            return Known()
        fresh = 0 <= now - doc.get("at", 0.0) <= KEPT
        answers = {
            card: {
                query: tuple((name, value, tuple(labels.items())) for name, value, labels in rows)
                for query, rows in queries.items()
            }
            for card, queries in (doc.get("answers", {}) if fresh else {}).items()
        }
        return Known(
            frozenset(doc.get("cards", ())),
            bool(doc.get("listed")),
            doc.get("driver", ""),
            frozenset(doc.get("refused", ())),
            answers,
            dict(doc.get("phy", {})),
            frozenset(doc.get("mapped", ())),
        )

    def doc(self) -> dict[str, Any]:
        """As JSON, without the moment."""
        return {
            "cards": sorted(self.cards),
            "listed": self.listed,
            "driver": self.driver,
            "refused": sorted(self.refused),
            "answers": {
                card: {
                    query: [[name, value, dict(labels)] for name, value, labels in rows]
                    for query, rows in queries.items()
                }
                for card, queries in self.answers.items()
            },
            "phy": dict(self.phy),
            "mapped": sorted(self.mapped),
        }

    def refusing(self, query: str) -> Known:
        """With a query that need not be asked again."""
        return replace(self, refused=self.refused | {query})

    def with_answer(self, card: str, query: str, samples: Iterable[Sample] | None) -> Known:
        """With an answer put in place of the last one; None forgets that."""
        queries = dict(self.answers.get(card, {}))
        queries.pop(query, None)
        if samples is not None:
            home = {("vendor", VENDOR), ("card", card)}
            queries[query] = tuple(
                (
                    sample.name,
                    sample.value,
                    tuple(pair for pair in sample.labels if pair not in home),
                )
                for sample in samples
                if home <= set(sample.labels)
            )
        return replace(self, answers={**self.answers, card: queries})

    def samples(self, card: str, query: str) -> list[Sample]:
        """The last answer of a card to a query."""
        rows = self.answers.get(card, {}).get(query, ())
        return [
            Sample(name, value, labels_of(card, **dict(labels))) for name, value, labels in rows
        ]


def renewed(known: Known, old: Mapping[str, Any] | None, now: float) -> dict[str, Any] | None:
    """The checkpoint to write, or None while the old one says the same and is young enough."""
    doc = known.doc()
    before = dict(old or {})
    at = before.pop("at", 0.0)
    return None if before == doc and 0 <= now - at < RENEWED else {**doc, "at": now}
