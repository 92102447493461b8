"""Who holds a card's memory, whether it is free, and which cards are fit to take over.

Every answer comes from one complete look of now. What cannot be told is unknown, never free: a
tool that hangs or is missing, a card that the tool lacks, a process list that is not there.
Nothing is changed here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...watchdog.acting import Done
from ...watchdog.system import System
from .cardmemory import idle_limit
from .cardview import PATIENCE, Seen, View, look

__all__ = ["Held", "fit", "hold", "holders", "memory_free"]


@dataclass(frozen=True, slots=True)
class Held:
    """Who has what of a card: bytes in use, processes with memory on it; None: not told.

    ``limit``: bytes up to which the card counts as idle, None where no figure is known for it.
    Programs that only draw on the card (NVIDIA's type G) and their memory count as nobody's.
    """

    used_bytes: float | None
    pids: tuple[int, ...] | None
    limit: float | None = None

    @property
    def free(self) -> Done:
        """Whether nobody holds it and its memory is at the idle figure of its model."""
        if self.pids or self._above:
            return "no"
        known = self.pids is not None and self.used_bytes is not None and self.limit is not None
        return "yes" if known else "unknown"

    @property
    def _above(self) -> bool:
        return (
            self.used_bytes is not None and self.limit is not None and self.used_bytes > self.limit
        )


NOBODY_KNOWS = Held(None, None)


def holders(
    system: System,
    cards: Sequence[str],
    vendors: Mapping[str, str],
    timeout: float = PATIENCE,
) -> Mapping[str, Held]:
    """Each card's memory in use and the processes on it. ``vendors`` by card.

    Never raises for a tool: a card that is not seen is ``Held(None, None)``.
    """
    view = look(system, cards, vendors, timeout)
    return {card: hold(view, card, cards) for card in cards}


def hold(view: View, card: str, asked: Collection[str]) -> Held:
    """Who has what of a card in a view. ``asked``: the cards in question, no measure of idle."""
    seen = view.there(card)
    if seen is None:
        return NOBODY_KNOWS
    used = None if seen.used is None else max(seen.used - seen.drawn, 0.0)
    return Held(used, seen.pids, idle_limit(seen, view.cards.values(), asked))


def memory_free(
    system: System,
    cards: Sequence[str],
    vendors: Mapping[str, str],
    timeout: float = PATIENCE,
) -> Done:
    """Whether every card is free: no process on it and its memory at the idle figure.

    Yes for no cards at all. A card that its tool lacks is unknown: leave lost ones out.
    """
    states = [held.free for held in holders(system, cards, vendors, timeout).values()]
    if "no" in states:
        return "no"
    return "unknown" if "unknown" in states else "yes"


def fit(
    system: System,
    cards: Sequence[str],
    vendors: Mapping[str, str],
    *,
    like: Sequence[str] = (),
    quarantined: Collection[str] = (),
    timeout: float = PATIENCE,
) -> Mapping[str, str]:
    """Why each card is not fit to take over, in one line; empty = fit.

    ``like``: cards whose model and memory size it must have (those of the service that are still
    seen count; a lost one shows neither). ``quarantined``: those never to be used.
    """
    view = look(system, [*cards, *like], vendors, timeout)
    models = [seen for card in like if (seen := view.there(card)) and seen.model]
    return {
        card: "it is in quarantine" if card in quarantined else _unfit(view, card, cards, models)
        for card in cards
    }


def _unfit(view: View, card: str, asked: Collection[str], models: Iterable[Seen]) -> str:
    seen = view.there(card)
    if seen is None:
        return view.absence(card)
    if seen.healthy is not True or seen.fault or seen.reset_required:
        return "it is sick" if seen.healthy is False or seen.fault else "its health is not known"
    for other in models:
        if (seen.vendor, seen.model) != (other.vendor, other.model):
            return f"it is a {seen.model or 'card of unknown model'}, not a {other.model}"
        if seen.total != other.total:
            return "its memory is of another size"
    held = hold(view, card, asked)
    if held.pids:
        return f"process {held.pids[0]} holds it"
    if held.free == "no":
        return "its memory is in use, by nobody whom the tool names"
    return "" if held.free == "yes" else "it cannot be told whether anybody holds it"
