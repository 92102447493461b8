"""Two incidents of one service, as a daemon would journal and record them.

The first is over before the second begins. Times are seconds after START.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tests.support.system import VirtualClock
from vllm_watchdog.watchdog.journal import Journal
from vllm_watchdog.watchdog.model import (
    Batch,
    Decisions,
    Event,
    Inputs,
    Page,
    Tick,
    labelset,
)
from vllm_watchdog.watchdog.recording import Manifest, Recorder
from vllm_watchdog.watchdog.window import Window

START = 1_700_000_000.0  # 2023-11-14 22:13:20 UTC
STEP, STEPS = 5, 80
HOSTILE = (
    '</pre><script>alert(1)</script><img src="https://evil.example/x.png" onerror=alert(2)> '
    "`| [click](https://evil.example) \x1b[31m\u202egnp.exe"
)
CHECKS = {"hold": "", "cooldown": "2 min are not over"}


def moment(at: float) -> str:
    return datetime.fromtimestamp(START + at, timezone.utc).isoformat().replace("+00:00", "Z")


def about(
    kind: str, message: str, severity: str = "info", alert: str = "Dead", **fields: Any
) -> Event:
    """An event of the case of the service chat."""
    labels = labelset({"service": "chat", "alertname": alert})
    return Event(kind, message, labels, {"case": "chat", **fields}, severity)


def alert(after: str, active: float, fired: float, name: str = "Dead") -> Event:
    fields = {
        "after": after, "active_at": moment(active), "fired_at": moment(fired),
        "annotations": {"summary": "chat is gone"},
    }  # fmt: skip
    labels = labelset({"service": "chat", "alertname": name, "severity": "critical"})
    return Event(f"alert_{after}", f"{name} {after}", labels, fields, "critical")


def act(kind: str, message: str, number: int, **fields: Any) -> Event:
    return about(kind, message, remediation="restart", request=f"chat-{number}", **fields)


def story(hostile: str = HOSTILE) -> list[tuple[float, Event]]:
    """Moment and event, in order."""
    opened = {"cause": "engine_dead", "policy": "dead", "mode": "act"}
    return [
        (10, alert("firing", 5, 10)),
        (10, about("case_opened", "chat: engine_dead (restart → page)", **opened, evidence=["first"])),
        (15, act("remediation_requested", "restart for chat", 1, attempt=1)),
        (30, act("remediation_ended", "restart for chat: done", 1, status="done")),
        (35, alert("resolved", 5, 10)),
        (40, about("case_closed", "chat: over", cause="engine_dead")),
        (200, alert("pending", 200, 0)),
        (205, Event("engine_dead", hostile, labelset({"service": "chat"}), severity="critical")),
        (206, Event("engine_dead", "of another", labelset({"service": "other"}), severity="critical")),
        (210, alert("firing", 200, 210)),
        (210, about("case_opened", "chat: engine_dead (restart → page)", **opened, evidence=[hostile, "card=0000:53:00"])),
        (210, about("remediation_refused", "no restart for chat", remediation="restart", reason="cooldown", checks=CHECKS)),
        (215, act("remediation_requested", "restart for chat", 2, attempt=2)),
        (217, act("remediation_step", "", 2, step="kill", state="done", seconds=1.5)),
        (218, act("remediation_step", "", 2, step="start", state="found", seconds=0.01)),
        (220, about("case_changed", "chat: planned", cause="planned", evidence=[])),
        (250, act("remediation_ended", "restart for chat: done, 2 steps", 2, status="done", seconds_to_healthy=52.0)),
        (255, alert("resolved", 200, 210)),
        (270, about("case_closed", "chat: over", cause="planned")),
    ]  # fmt: skip


def answered(at: float) -> float:
    """Whether a real request is answered: not from 10 to 30 and from 200 to 250."""
    return float(not (10 <= at < 30 or 200 <= at < 250))


def batches(at: float) -> tuple[Batch, ...]:
    """What collectors read at a moment."""
    service, card = {"service": "chat"}, {"card": "0000:53:00"}
    values = {
        labelset(service, "service_probe_success"): answered(at),
        labelset({**service, **card}, "service_card"): 1.0,
        labelset(card, "accelerator_temperature_celsius"): 40.0 + at / 10,
    }
    return (Batch("c", (Page(tuple(values), tuple(values.values())),)),)


def tick(at: float, number: int) -> Tick:
    return Tick(number, at, START + at)


def state(folder: Path, told: list[tuple[float, Event]] | None = None) -> Path:
    """The state folder of a daemon that has ended."""
    folder.mkdir(parents=True, exist_ok=True)
    journal = Journal.open(folder / "journal.db", VirtualClock(START))
    for number, (at, event) in enumerate(story() if told is None else told):
        journal.append(tick(at, number), [event])
    journal.close()
    window = Window()
    for number in range(STEPS):
        for batch in batches(number * STEP):
            window.append(batch, tick(number * STEP, number).ms)
    (folder / "engine.json").write_text(json.dumps({"window": window.dump()}))
    return folder


def recording(folder: Path) -> Path:
    """A recording of the same time."""
    manifest = Manifest("1", START, 5.0, 300.0, ("*",), (), {"instance": "node-1:9710"}, ())
    with Recorder(folder, manifest, "{}\n", []) as recorder:
        for number in range(STEPS):
            at = number * STEP
            events = tuple(e for when, e in story() if at <= when < at + STEP)
            recorder.write(tick(at, number), Inputs(batches(at)), Decisions(events=events))
    return folder


def cases(service: str, count: int) -> Iterator[tuple[float, Event]]:
    """So many short incidents of one service, one after the other."""
    for number in range(count):
        at = number * 100.0
        for kind, when in (("case_opened", at), ("case_closed", at + 50)):
            fields = {"case": service, "cause": "engine_dead"}
            yield when, Event(kind, kind, labelset({"service": service}), fields)
