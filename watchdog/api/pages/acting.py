"""Tables of what is done about faults: cases, acts with steps, refusals, budgets, incidents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from ...model import Json
from .board import Cell, Item, Row, Table, Tone
from .docs import SHOWN, Docs
from .words import Words, clock, figure, seconds_of, since, span

ENDS: dict[str, Tone] = {
    "done": "good", "declined": "warn", "cancelled": "warn", "failed": "bad", "timed_out": "bad",
    "unknown": "bad", "withdrawn": "bad",
}  # fmt: skip
STEPS: dict[str, Tone] = {
    "done": "good", "found": "good", "failed": "bad", "undone": "warn", "not_undone": "bad",
}  # fmt: skip


def running(docs: Docs, say: Words) -> Table:
    """Acts under way, each with the steps that it has taken."""
    heads = ("Act", "For", "Because of", "Attempt", "Since", "Ends by", "Steps")
    by_request = _by_request(docs)
    rows = [
        Row(
            str(act["request"]),
            (
                Cell(say.name(str(act["act"]))),
                Cell(str(act.get("service") or say("the node"))),
                Cell(say.name(str(act["cause"]))),
                Cell(str(act["attempt"])),
                Cell(since(say, act["since"], docs.now)),
                Cell(clock(act["deadline"], docs.now)),
                _steps(by_request.get(str(act["request"]), []), say),
            ),
        )
        for act in docs.healing.get("acts", ())
    ]
    none = say("No act is under way.")
    return Table("acts", say("Acts under way"), [*map(say, heads)], rows, none)


def _called(waiting: Json, say: Words) -> str:
    """An act by its name; the way back of one as such."""
    name = say.name(str(waiting["act"]))
    return say("{act}, back", act=name) if waiting.get("back") else name


def waiting(docs: Docs, say: Words) -> Table:
    """Acts that wait for a person's yes."""
    heads = ("Act", "For", "Because of", "Since", "Also against it", "Answer")
    rows = [
        Row(
            str(each["id"]),
            (
                Cell(_called(each, say)),
                Cell(str(each.get("service") or say("the node"))),
                Cell(say.name(str(each["cause"]))),
                Cell(since(say, each["since"], docs.now)),
                Cell("; ".join(map(str, each["also"])), told=True),
                Cell("", approve=str(each["id"])),
            ),
        )
        for each in docs.healing.get("waiting", ())
    ]
    none = say("Nothing waits for a person's yes.")
    return Table("waiting", say("Waiting for approval"), [*map(say, heads)], rows, none)


def cases(docs: Docs, say: Words) -> Table:
    """Faults that are not over, and what stands against the next act."""
    heads = (
        "Case",
        "Because of",
        "Alert",
        "Since",
        "Mode",
        "Tried",
        "Next",
        "What stands against it",
    )
    rows = []
    for case in docs.healing.get("cases", ()):
        next_act = say("nothing more") if case["ended"] else say.name(str(case["next"] or ""))
        against = case["refusal"] or ""
        rows.append(
            Row(
                str(case["case"]),
                (
                    Cell(str(case["service"] or ", ".join(case["cards"]) or case["case"])),
                    Cell(say.name(str(case["cause"]))),
                    Cell(str(case["alert"])),
                    Cell(since(say, case["opened"], docs.now)),
                    Cell(say.name(str(case["mode"] or ""))),
                    Cell("", items=[_tried(each, say) for each in case["tried"]])
                    if case["tried"]
                    else Cell(say("nothing yet"), "quiet"),
                    Cell(next_act),
                    Cell(str(against), "warn" if against else "", told=True),
                ),
            )
        )
    none = say("No fault is open.")
    return Table("cases", say("Open cases"), [*map(say, heads)], rows, none)


def _tried(each: Json, say: Words) -> Item:
    status = str(each["status"])
    text = say("{what}: {how}", what=say.name(str(each["act"])), how=say.name(status))
    return Item(text, ENDS.get(status, ""))


def done(docs: Docs, say: Words) -> Table:
    """Acts that have ended, newest first."""
    heads = ("Ended", "Act", "For", "Result", "Took", "Well again after", "Steps")
    by_request = _by_request(docs)
    ends = [e for e in docs.acts if e["kind"] in ("remediation_ended", "remediation_withdrawn")]
    rows = [_done(each, by_request, docs.now, say) for each in reversed(ends[-SHOWN:])]
    none = say("Nothing has been done yet.")
    return Table("done", say("Acts done"), [*map(say, heads)], rows, none)


def _done(end: Json, by_request: dict[str, list[Json]], now: float | None, say: Words) -> Row:
    fields = end["fields"]
    status = str(fields.get("status") or "withdrawn")
    request = str(fields.get("request") or end["id"])
    own = by_request.get(request, [])
    took = figure(fields.get("seconds"))
    began = next((e["time"] for e in own if e["kind"] == "remediation_requested"), None)
    if took is None and began is not None:
        took = (seconds_of(end["time"]) or 0.0) - (seconds_of(began) or 0.0)
    healthy = figure(fields.get("seconds_to_healthy"))
    return Row(
        str(end["id"]),
        (
            Cell(clock(end["time"], now)),
            Cell(say.name(str(fields.get("remediation") or ""))),
            Cell(_whom(end, say)),
            Cell(say.name(status), ENDS.get(status, "")),
            Cell("" if took is None else span(say, took)),
            Cell("" if healthy is None else span(say, healthy)),
            _steps(own, say),
        ),
    )


def refused(docs: Docs, say: Words) -> Table:
    """What was not done, and why; pages; newest first."""
    heads = ("When", "What", "Act", "For", "Why")
    kinds: dict[str, tuple[str, Tone]] = {
        "remediation_refused": ("refused", "warn"),
        "remediation_would": ("would be done", "quiet"),
        "page_sent": ("a person was paged", "bad"),
    }
    rows = []
    for event in reversed(docs.refusals[-SHOWN:]):
        word, tone = kinds.get(event["kind"], (str(event["kind"]), ""))
        act = say.name(str(event["fields"].get("remediation") or ""))
        rows.append(
            Row(
                str(event["id"]),
                (
                    Cell(clock(event["time"], docs.now)),
                    Cell(say(word), tone),
                    Cell(act),
                    Cell(_whom(event, say)),
                    Cell(str(event["message"]), told=True),
                ),
            )
        )
    none = say("Nothing was refused.")
    return Table("refused", say("Not done, and why"), [*map(say, heads)], rows, none)


def incidents(docs: Docs, say: Words) -> Table:
    """The newest incidents, each with its report."""
    heads = ("Began", "Incident", "Because of", "Lasted", "Result")
    rows = []
    for each in docs.incidents:
        began, ended = seconds_of(each["opened"]), seconds_of(each["closed"])
        lasted = say("not over") if ended is None or began is None else span(say, ended - began)
        about = str(each["service"] or ", ".join(each["cards"]) or each["incident"])
        rows.append(
            Row(
                str(each["incident"]),
                (
                    Cell(clock(each["opened"], docs.now)),
                    Cell(about, href="report?incident=" + quote(str(each["incident"]), safe="")),
                    Cell(say.name(str(each["cause"]))),
                    Cell(lasted, "warn" if ended is None else ""),
                    Cell(str(each["result"]), told=True),
                ),
            )
        )
    none = say("There has been none.")
    return Table("incidents", say("Incidents and their reports"), [*map(say, heads)], rows, none)


def budgets(docs: Docs, say: Words) -> Table:
    """How much may still be done before people are asked."""
    heads = ("Acts on", "Left", "Of", "In")
    names = {"device": "servers and cards", "traffic": "requests"}
    rows = []
    for each in docs.healing.get("budgets", ()):
        left, most = int(each["left"]), int(each["most"])
        tone: Tone = "bad" if not left else "warn" if left == 1 < most else ""
        share = left / most if most else 0.0
        cells = (
            Cell(say(names.get(str(each["budget"]), str(each["budget"])))),
            Cell(str(left), tone, share),
            Cell(str(most)),
            Cell(span(say, float(each["per"]))),
        )
        rows.append(Row(str(each["budget"]), cells))
    none = say("Acts are not counted.")
    return Table("budgets", say("Budget left"), [*map(say, heads)], rows, none, small=True)


def _by_request(docs: Docs) -> dict[str, list[Json]]:
    """Events by the act that they are about, in order."""
    found: dict[str, list[Json]] = {}
    for event in docs.acts:
        found.setdefault(str(event["fields"].get("request") or ""), []).append(event)
    return found


def _whom(event: Json, say: Words) -> str:
    labels = event.get("labels") or {}
    return str(labels.get("service") or labels.get("card") or say("the node"))


def _steps(events: list[Json], say: Words) -> Cell:
    """The steps of an act, the newest word on each, in the order in which they began."""
    newest: dict[str, Any] = {}
    for event in events:
        if event["kind"] == "remediation_step":
            newest[str(event["fields"].get("step") or "")] = event["fields"]
    return Cell("", items=list(_items(newest, say)))


def _items(newest: dict[str, Any], say: Words) -> Iterator[Item]:
    for name, fields in newest.items():
        state = str(fields.get("state") or "")
        took = figure(fields.get("seconds"))
        how = say(_STATES.get(state, state.replace("_", " ")))
        if took and state == "done":
            how = say.listed([how, span(say, took)])
        yield Item(say("{what}: {how}", what=say(name), how=how), STEPS.get(state, ""))


_STATES = {"found": "was so already", "undone": "put back", "not_undone": "could not be put back"}
