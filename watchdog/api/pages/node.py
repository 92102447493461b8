"""Tables of what is on the node: alerts, services, cards, and how the daemon itself fares."""

from __future__ import annotations

from typing import Any

from ...model import Json
from .board import Cell, Row, Table, Tone
from .docs import Docs
from .words import Words, figure, gibibytes, percent, plain, since, span

HOT = 85.0  # degrees Celsius from which a card's temperature stands out
FULL = 0.95  # share of a card's memory from which it stands out
STUCK = 30.0  # seconds without progress, while requests wait, that stand out
SEVERITY: dict[str, Tone] = {"critical": "bad", "warning": "warn", "page": "bad"}


def alerts(docs: Docs, say: Words) -> Table:
    """What fires, the gravest first, then what is about to."""
    heads = ("Alert", "State", "On", "Since", "Value", "What")
    shown = [each for each in docs.alerts if each["state"] in ("firing", "pending")]
    shown.sort(key=_urgency)
    rows = [_alert(each, docs.now, say) for each in shown]
    return Table("alerts", say("Alerts"), [*map(say, heads)], rows, say("No alert is firing."))


def _urgency(alert: Json) -> tuple[bool, bool]:
    severity = str(alert["labels"].get("severity", ""))
    return alert["state"] != "firing", SEVERITY.get(severity, "") != "bad"


def _alert(alert: Json, now: float | None, say: Words) -> Row:
    labels = {str(k): str(v) for k, v in alert["labels"].items()}
    severity = labels.get("severity", "")
    firing = alert["state"] == "firing"
    tone: Tone = SEVERITY.get(severity, "") if firing else "quiet"
    state = say.name(str(alert["state"]))
    notes = alert.get("annotations") or {}
    text = notes.get(f"summary_{say.lang}") or notes.get("summary") or ""
    told = say.lang != "en" and f"summary_{say.lang}" not in notes
    key = " ".join([str(alert["alert"]), *(f"{k}={v}" for k, v in sorted(labels.items()))])
    return Row(
        key,
        (
            Cell(str(alert["alert"])),
            Cell(f"{state} · {say.name(severity)}" if severity else state, tone),
            Cell(_subject(labels)),
            Cell(since(say, alert.get("fired_at") or alert.get("active_at"), now)),
            Cell(plain(alert.get("value"))),
            Cell(" ".join(str(text).split()), told=told, wide=True),
        ),
    )


def _subject(labels: dict[str, str]) -> str:
    """Whom an alert is about."""
    known = [labels[name] for name in ("service", "card", "peer") if labels.get(name)]
    hidden = {"alertname", "severity", "service", "card", "peer", "job", "instance", "vendor",
              "evaluator"}  # fmt: skip
    rest = [f"{name}={value}" for name, value in sorted(labels.items()) if name not in hidden]
    return ", ".join(known + rest[:4])


def services(docs: Docs, say: Words) -> Table:
    """The servers, and how they stand because of what was done."""
    heads = ("Service", "Health", "Mode", "Serving", "Profile", "Requests", "Progress", "Failed",
             "Cards")  # fmt: skip
    rows = [_service(each, docs, say) for each in docs.services()]
    none = say("No service is known: none is configured, none was found.")
    return Table("services", say("Services"), [*map(say, heads)], rows, none)


def _service(service: Json, docs: Docs, say: Words) -> Row:
    name = str(service["service"])
    failed = docs.failures.get(name)
    tone: Tone = "bad" if failed and failed >= 0.05 else "warn" if failed else ""
    serving = say.name(str(service.get("serving") or ""))
    front = service.get("front") or "open"
    aside = service.get("serving") == "standby" or front != "open"
    if front != "open":
        serving = f"{serving} · {say.name(str(front))}"
    profile = service.get("profile") or ("" if "serving" not in service else say("as configured"))
    return Row(
        name,
        (
            Cell(name),
            service_health(service, say),
            Cell(say.name(str(service.get("mode") or ""))),
            Cell(serving, "warn" if aside else ""),
            Cell(str(profile), "warn" if service.get("profile") else "quiet"),
            Cell(_requests(service, say)),
            _progress(service, say),
            Cell(percent(failed), tone),
            Cell(", ".join(map(str, service.get("cards") or ())), wide=True),
        ),
    )


def service_health(service: Json, say: Words) -> Cell:
    """One word for what a service's probe, process and pages say together."""
    probe = service.get("probe")
    if service.get("operation"):
        return Cell(say("{what} under way", what=say.name(str(service["operation"]))), "warn")
    if service.get("process") is False:
        return Cell(say("no process"), "bad")
    if probe == "failed":
        return Cell(say("real request failed"), "bad")
    if service.get("up") == 0 or service.get("health") == 0:
        return Cell(say("does not answer"), "bad")
    if probe == "slow":
        return Cell(say("slow"), "warn")
    if probe == "ok":
        return Cell(say("answers"), "good")
    if service.get("up") == 1:
        return Cell(say("is up"), "good")
    return Cell(say("unknown"), "quiet")


def _requests(service: Json, say: Words) -> str:
    running, waiting = figure(service.get("running")), figure(service.get("waiting"))
    parts = [] if running is None else [say("{n} running", n=f"{running:.0f}")]
    parts += [] if waiting is None else [say("{n} waiting", n=f"{waiting:.0f}")]
    return say.listed(parts)


def _progress(service: Json, say: Words) -> Cell:
    pending, idle = figure(service.get("pending")), figure(service.get("idle"))
    if pending == 0:
        return Cell(say("nothing to do"), "quiet")
    if idle is None:
        return Cell(say("unknown"), "quiet") if pending else Cell("")
    stuck = bool(pending) and idle >= STUCK
    return Cell(say("last token {span} ago", span=span(say, idle)), "bad" if stuck else "")


def cards(docs: Docs, say: Words) -> Table:
    """The accelerators."""
    heads = ("Card", "Model", "Health", "Load", "Memory, GiB", "Temperature", "Power",
             "Quarantine")  # fmt: skip
    aside = {each["card"]: each for each in docs.healing.get("quarantined", ())}
    kept = docs.healing.get("reserved") or {}
    shown = list(docs.status.get("cards", ()))
    shown += [{"card": card} for card in sorted(aside) if card not in {c["card"] for c in shown}]
    rows = [_card(each, aside.get(each["card"]), kept.get(each["card"]), say) for each in shown]
    none = say("No accelerator was found on this node.")
    return Table("cards", say("Cards"), [*map(say, heads)], rows, none)


def _card(card: Json, aside: Json | None, kept: Any, say: Words) -> Row:
    load = figure(card.get("utilization"))
    used, total = figure(card.get("memory_used_bytes")), figure(card.get("memory_total_bytes"))
    share = used / total if used is not None and total else None
    memory = "\u00a0/\u00a0".join(filter(None, (gibibytes(used), gibibytes(total))))
    hot = (figure(card.get("temperature")) or 0.0) >= HOT
    return Row(
        str(card["card"]),
        (
            Cell(str(card["card"])),
            Cell(str(card.get("model") or card.get("vendor") or "")),
            card_health(card, say),
            Cell(percent(load), bar=load),
            Cell(memory, "warn" if share is not None and share >= FULL else "", share),
            Cell(plain(card.get("temperature"), " °C"), "warn" if hot else ""),
            Cell(plain(card.get("power_watts"), " W")),
            _aside(aside, kept, say),
        ),
    )


def card_health(card: Json, say: Words) -> Cell:
    """One word for how a card is."""
    if card.get("present") == 0:
        return Cell(say("gone"), "bad")
    if card.get("healthy") == 0:
        return Cell(say("sick"), "bad")
    if card.get("healthy") == 1:
        return Cell(say("healthy"), "good")
    return Cell(say("present" if card.get("present") == 1 else "unknown"), "quiet")


def _aside(aside: Json | None, kept: Any, say: Words) -> Cell:
    """By whom a card is out of use, and why; or for whom it is kept."""
    if aside is not None:
        who, why = say(str(aside["by"])), say.name(str(aside["why"]))
        return Cell(say("by {who}: {why}", who=who, why=why), "warn", wide=True)
    return Cell(say("kept for {what}", what=str(kept))) if kept else Cell("")


def outlets(docs: Docs, say: Words) -> Table:
    """Who is told, and what still waits."""
    heads = ("Outlet", "State", "Waiting", "What it said")
    rows = [
        Row(
            str(each["outlet"]),
            (
                Cell(str(each["outlet"])),
                Cell(say("ok"), "good") if each["up"] else Cell(say("down"), "bad"),
                Cell(f"{each['lag']:,}", "warn" if each["lag"] and not each["up"] else ""),
                Cell(str(each.get("error") or ""), told=True),
            ),
        )
        for each in docs.status.get("outlets", ())
    ]
    none = say("Nobody is told: no outlet is configured.")
    return Table("outlets", say("Outlets"), [*map(say, heads)], rows, none, small=True)


def collectors(docs: Docs, say: Words) -> Table:
    """By what the node is seen."""
    heads = ("Collector", "State", "Took", "What it said")
    tones: dict[str, Tone] = {"ok": "good", "not on this node": "quiet"}
    rows = [
        Row(
            str(each["collector"]),
            (
                Cell(str(each["collector"])),
                Cell(say(str(each["state"])), tones.get(str(each["state"]), "bad")),
                Cell(f"{each['duration']:.3f}\u00a0" + say("s")),
                Cell(str(each.get("error") or ""), told=True),
            ),
        )
        for each in docs.status.get("collectors", ())
    ]
    none = say("No collector has run yet.")
    return Table("collectors", say("Collectors"), [*map(say, heads)], rows, none)
