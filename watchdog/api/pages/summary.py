"""What a person wants to know first: one line, what holds healing back, and a few figures."""

from __future__ import annotations

from collections.abc import Iterator

from . import acting, node
from .board import Board, Item, Tile, Tone
from .docs import Docs
from .words import Words, clock, span


def board(docs: Docs, say: Words) -> Board:
    """The whole page but its plots."""
    headline, tone = _headline(docs, say)
    tables = [
        node.alerts(docs, say), acting.running(docs, say), acting.waiting(docs, say),
        acting.cases(docs, say), node.services(docs, say), node.cards(docs, say),
        acting.done(docs, say), acting.refused(docs, say), acting.incidents(docs, say),
        acting.budgets(docs, say), node.outlets(docs, say), node.collectors(docs, say),
    ]  # fmt: skip
    return Board(
        node=str(docs.status.get("instance") or ""),
        at=_at(docs, say),
        about=_about(docs, say),
        headline=headline,
        tone=tone,
        notes=list(_notes(docs, say)),
        tiles=list(_tiles(docs, say)),
        tables=[table.cut(say) for table in tables],
        services=[str(each["service"]) for each in docs.status.get("services", ())],
    )


def _at(docs: Docs, say: Words) -> str:
    if docs.now is None:
        return say("The daemon has not finished its first look yet.")
    return say("As of {time} UTC", time=clock(docs.now, docs.now))


def _about(docs: Docs, say: Words) -> str:
    """The daemon itself, in a line."""
    parts = [say("version {version}", version=docs.version)]
    uptime = docs.status.get("uptime")
    if isinstance(uptime, int | float):
        parts.append(say("runs for {span}", span=span(say, float(uptime))))
    parts.append(say("mode: {mode}", mode=say.name(str(docs.status.get("mode") or "observe"))))
    return " · ".join(parts)


def _headline(docs: Docs, say: Words) -> tuple[str, Tone]:
    firing = _firing(docs)
    acts = len(docs.healing.get("acts", ()))
    parts = []
    if acts:
        parts.append(say.count(acts, "1 act is under way", "{n} acts are under way"))
    if firing:
        parts.append(say.count(len(firing), "1 alert is firing", "{n} alerts are firing"))
    if docs.now is None:
        return say("Starting"), "warn"
    if not parts and "bad" in _service_tones(docs, say) + _card_tones(docs, say):
        return say("No alert is firing, but not all is well"), "warn"
    if not parts:
        return say("No alert is firing"), "good"
    grave = any(node.SEVERITY.get(each, "") == "bad" for each in firing)
    return say.listed(parts), "bad" if grave else "warn"


def _firing(docs: Docs) -> list[str]:
    """The severities of the alerts that fire; that an act is under way is none of them."""
    return [
        str(each["labels"].get("severity", ""))
        for each in docs.alerts
        if each["state"] == "firing" and each["alert"] != "RemediationRunning"
    ]


def _notes(docs: Docs, say: Words) -> Iterator[Item]:
    """What holds healing back just now."""
    status, healing = docs.status, docs.healing
    if status.get("observing_because"):
        yield Item(say("Only observing: {why}", why=status["observing_because"]), "warn")
    if healing.get("hold_file"):
        yield Item(say("A hold file stops all acts."), "warn")
    if healing.get("breaker"):
        yield Item(say("The breaker is open: {why}", why=healing["breaker"]), "bad")
    for each in healing.get("paused", ()):
        whom = each["service"] or say("all services")
        until = clock(each["until"], docs.now) if each["until"] else ""
        text = (
            say("Paused: {whom}, until {time} UTC", whom=whom, time=until)
            if until
            else say("Paused: {whom}, until resumed", whom=whom)
        )
        yield Item(text, "warn")
    for each in healing.get("held_back", ()):
        yield Item(say("Held back: {what}", what=each), "warn")
    if (status.get("journal") or {}).get("error"):
        yield Item(say("The journal cannot be written: {why}", why=status["journal"]["error"]),
                   "bad")  # fmt: skip


def _tiles(docs: Docs, say: Words) -> Iterator[Tile]:
    firing, healing = _firing(docs), docs.healing
    grave = any(node.SEVERITY.get(each, "") == "bad" for each in firing)
    tone: Tone = "bad" if grave else "warn" if firing else ""
    yield Tile("firing", say("Alerts firing"), str(len(firing)), tone)
    acts = len(healing.get("acts", ()))
    yield Tile("acts", say("Acts under way"), str(acts), "warn" if acts else "")
    waiting = len(healing.get("waiting", ()))
    yield Tile("waiting", say("Waiting for approval"), str(waiting), "warn" if waiting else "")
    yield _well("services", say("Services well"), _service_tones(docs, say), say)
    yield _well("cards", say("Cards healthy"), _card_tones(docs, say), say)
    budgets = {each["budget"]: each for each in healing.get("budgets", ())}
    if "device" in budgets:
        left, most = budgets["device"]["left"], budgets["device"]["most"]
        text = say("{n} of {all}", n=left, all=most)
        yield Tile("budget", say("Acts left"), text, "" if left else "bad")


def _service_tones(docs: Docs, say: Words) -> list[Tone]:
    return [node.service_health(each, say).tone for each in docs.services()]


def _card_tones(docs: Docs, say: Words) -> list[Tone]:
    return [node.card_health(each, say).tone for each in docs.status.get("cards", ())]


def _well(name: str, label: str, tones: list[Tone], say: Words) -> Tile:
    """So many of all; those of whom nothing is known are neither well nor ill."""
    good, bad = tones.count("good"), tones.count("bad")
    tone: Tone = "bad" if bad else "warn" if "warn" in tones else ""
    text = say("{n} of {all}", n=good, all=len(tones)) if tones else say("none")
    return Tile(name, label, text, tone)
