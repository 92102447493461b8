"""A node in the middle of healing, as the daemon's documents tell it; for tests and pictures.

One card of eight is lost, its service moves to the standby, another act waits for a yes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vllm_watchdog.watchdog.api import Snapshot
from vllm_watchdog.watchdog.signals import SIGNALS
from vllm_watchdog.watchdog.wire import moment

NOW = 1_700_000_000.0  # 2023-11-14 22:13:20 UTC
GIB = 2**30
HOSTILE = '</td><script>alert(1)</script><img src="https://evil.example/x.png" onerror=alert(2)>'
BUSES = ("01", "02", "41", "42", "81", "82", "c1", "c2")
LOST = "0000:41:00"
CHAT, CODE = "deepseek-r1", "qwen-coder"


def at(seconds: float) -> str:
    """A moment so many seconds from NOW."""
    return str(moment(NOW + seconds))


def card(bus: str, number: int) -> dict[str, Any]:
    name = f"0000:{bus}:00"
    lost = name == LOST
    return {
        "card": name,
        "vendor": "ascend",
        "model": "Ascend 910B3",
        "present": 0 if lost else 1,
        "healthy": None if lost else 1,
        "utilization": None if lost else (0.0 if number > 5 else 0.71 + number / 40),
        "memory_used_bytes": None if lost else (3.1 if number > 5 else 57.2 + number) * GIB,
        "memory_total_bytes": None if lost else 64 * GIB,
        "temperature": None if lost else 47 + 3 * number,
        "power_watts": None if lost else 93.4 if number > 5 else 281 + 5.5 * number,
    }


def service(name: str, **more: Any) -> dict[str, Any]:
    """A row of the document of ``status``."""
    row = {"service": name, "url": "http://127.0.0.1:8000", "mode": "act", "up": 1, "health": 1,
           "probe": "ok", "running": 24, "waiting": 3, "cards": [f"0000:{bus}:00" for bus in BUSES[:4]]}  # fmt: skip
    return {**row, **more}


def healed(name: str, **more: Any) -> dict[str, Any]:
    """A row of a service in the document of ``healing``."""
    row = {"service": name, "serving": "primary", "front": "open", "profile": None, "cards": [],
           "operation": None, "probe": "ok", "process": True, "pending": 27, "idle": 0.4}  # fmt: skip
    return {**row, **more}


def alert(name: str, severity: str, summary: str, state: str = "firing", **labels: str) -> Any:
    return {
        "alert": name,
        "labels": {"alertname": name, "severity": severity, **labels},
        "annotations": {"summary": summary, "summary_zh": ZH.get(name, summary)},
        "state": state,
        "active_at": at(-52),
        "fired_at": at(-42) if state == "firing" else None,
        "value": 0,
        "service": labels.get("service"),
    }


ZH = {
    "CardLost": "加速卡 0000:41:00（ascend）已丢失",
    "RequestFailuresHigh": "服务 deepseek-r1 的请求失败率过高",
    "MemoryOverflow": "服务 qwen-coder 的显存将满",
}


def event(number: int, after: float, kind: str, message: str, **fields: Any) -> dict[str, Any]:
    """A journal event about an act."""
    return {
        "seq": number,
        "id": f"event-{number}",
        "time": at(after),
        "kind": kind,
        "severity": "info",
        "message": message,
        "labels": {"service": fields.pop("service", CHAT)},
        "fields": fields,
    }


def steps(number: int, after: float, request: str, *told: tuple[str, str, float]) -> list[Any]:
    return [
        event(number + n, after + n, "remediation_step", "", request=request,
              step=name, state=state, seconds=took)
        for n, (name, state, took) in enumerate(told)
    ]  # fmt: skip


class Story:
    """The Views of that node. A test may change every document before the next look."""

    def __init__(self) -> None:
        self.shown = Snapshot(ready=True, time=NOW)
        self.status_doc: dict[str, Any] = {
            "version": "0.1.0",
            "mode": "act",
            "observing_because": None,
            "instance": "node-1:9710",
            "time": at(0),
            "uptime": 1_036_800.0,
            "ticks": 207_360,
            "firing": 3,
            "alerts": [],
            "cards": [card(bus, number) for number, bus in enumerate(BUSES)],
            "services": [
                service(CHAT, probe="failed", running=0, waiting=31),
                service(CODE, mode="confirm", cards=["0000:81:00", "0000:82:00"], running=9, waiting=0),
            ],
            "collectors": [
                collector("host", "ok", 0.0041),
                collector("kernel_log", "ok", 0.0008),
                collector("npu_smi", "ok", 0.8312),
                collector("nvidia_smi", "not on this node", 0.0, "nvidia-smi is not installed"),
                collector("peers/node-2", "ok", 0.0023),
                collector("vllm_metrics/deepseek-r1", "failed", 0.0017,
                          "connection refused by 127.0.0.1:8000"),
                collector("vllm_metrics/qwen-coder", "ok", 0.0112),
            ],
            "outlets": [
                {"outlet": "alertmanager", "up": True, "lag": 0, "error": None},
                {"outlet": "elasticsearch", "up": False, "lag": 1840, "error": "es-1:9200: connection timed out"},
            ],
            "groups": [],
            "journal": {"error": None},
            "window": {"series": 4210},
        }  # fmt: skip
        self.healing_doc: dict[str, Any] = {
            "time": at(0),
            "mode": "act",
            "held_back": [],
            "hold_file": False,
            "paused": [],
            "breaker": None,
            "budgets": [
                {"budget": "device", "most": 4, "per": 3600.0, "left": 2},
                {"budget": "traffic", "most": 20, "per": 3600.0, "left": 19},
            ],
            "cases": [
                case(CHAT, "card_lost", "CardLost", "act", ("card_failover", "page"), tried=[]),
                case(CODE, "device_memory", "MemoryOverflow", "confirm", ("quantize", "page"),
                     refused="mode", refusal="waits for a person's yes"),
            ],
            "acts": [
                {"act": "card_failover", "case": CHAT, "service": CHAT, "cause": "card_lost",
                 "attempt": 1, "request": "act-2", "since": at(-12), "deadline": at(288)},
            ],
            "waiting": [
                {"id": CODE, "act": "quantize", "service": CODE, "cause": "device_memory",
                 "since": at(-30), "also": [], "back": False},
            ],
            "quarantined": [{"card": LOST, "why": "card_lost", "by": "the daemon"}],
            "reserved": {"0000:c1:00": CHAT},
            "services": [
                healed(CHAT, serving="standby", idle=38.2, probe="failed", process=False, operation=None),
                healed(CODE, profile="int8", pending=9),
            ],
            "recent": [],
        }  # fmt: skip
        self.alert_docs: list[Any] = [
            alert("CardLost", "critical", "Card 0000:41:00 (ascend) is gone", card=LOST, vendor="ascend"),
            alert("RequestFailuresHigh", "critical", "More than 5 % of the requests of deepseek-r1 fail", service=CHAT),
            alert("MemoryOverflow", "warning", "The memory of qwen-coder will be full", service=CODE),
            alert("ResponseSlow", "warning", "Responses of deepseek-r1 are slow", "pending", service=CHAT),
        ]  # fmt: skip
        self.act_events = [
            event(1, -5400, "remediation_requested", "", request="act-1", remediation="restart"),
            *steps(2, -5399, "act-1", ("evidence", "done", 1.2), ("stop by the manager", "done", 8.1),
                   ("end orphans", "found", 0.0), ("start", "done", 74.0)),
            event(9, -5310, "remediation_ended", "", request="act-1", remediation="restart",
                  status="done", seconds=90.0, seconds_to_healthy=104.5),
            event(10, -12, "remediation_requested", "", request="act-2", remediation="card_failover"),
            *steps(11, -11, "act-2", ("evidence", "done", 1.4), ("front", "done", 0.2)),
        ]  # fmt: skip
        self.refusal_events = [
            event(20, -5420, "remediation_refused",
                  "no reset_card for deepseek-r1: the card's memory is in use by another service",
                  remediation="reset_card"),
        ]  # fmt: skip
        self.incident_docs: list[Any] = [
            incident("deepseek-r1-2", "card_lost", -42, None, "card_failover is under way"),
            incident(
                "deepseek-r1-1",
                "engine_stalled",
                -5430,
                -5300,
                "restart: done, well again after 104.5 s",
            ),
        ]
        self.figure_doc = figures()

    def snapshot(self) -> Snapshot:
        return self.shown

    def status(self) -> Any:
        return self.status_doc

    def healing(self) -> Any:
        return self.healing_doc

    def alerts(self) -> Sequence[Any]:
        return self.alert_docs

    def events(self, after: int, limit: int, filters: Mapping[str, Any]) -> Sequence[Any]:
        kinds = filters["kind"].split(",")
        found = [e for e in self.act_events + self.refusal_events if e["kind"] in kinds]
        return found[-limit:]

    def figures(self) -> Any:
        return self.figure_doc

    def incidents(self) -> Sequence[Any]:
        return self.incident_docs

    def report(self, name: str, form: str) -> tuple[str, str]:
        return name, "<!doctype html><title>report</title>"

    def query(self, expr: str, at_ms: int | None) -> Any: ...

    def query_range(self, expr: str, start_ms: int, end_ms: int, step_ms: int) -> Any: ...

    def explain(self, what: str) -> Any: ...


def collector(name: str, state: str, duration: float, error: str | None = None) -> dict[str, Any]:
    return {"collector": name, "state": state, "since": at(-9000), "duration": duration,
            "last_success": at(-2), "error": error}  # fmt: skip


def case(
    name: str, cause: str, alert: str, mode: str, ladder: tuple[str, ...], **more: Any
) -> dict[str, Any]:
    return {
        "case": name, "service": name, "cards": [], "cause": cause, "alert": alert, "opened": at(-42),
        "policy": cause, "mode": mode, "ladder": list(ladder), "next": ladder[0], "refused": None,
        "refusal": None, "tried": [], "ended": None, "paged": False, **more,
    }  # fmt: skip


def incident(
    name: str, cause: str, opened: float, closed: float | None, result: str
) -> dict[str, Any]:
    return {
        "incident": name, "service": CHAT, "cards": [], "cause": cause, "alert": "CardLost",
        "opened": at(opened), "closed": None if closed is None else at(closed), "result": result,
        "kept": closed is not None,
    }  # fmt: skip


def figures(points: int = 61) -> dict[str, Any]:
    """A quarter of an hour; the last minute is the fault's."""
    times = [round(NOW) + 15 * (n - points + 1) for n in range(points)]
    names = {"service": [CHAT, CODE], "card": [f"0000:{bus}:00" for bus in BUSES]}
    plots = [
        {"name": signal.name, "title": signal.title, "unit": signal.unit, "scope": signal.scope,
         "lines": [{"name": name, "values": [value(signal.name, name, number, n, points) for n in range(points)]}
                   for number, name in enumerate(names[signal.scope])]}
        for signal in SIGNALS if signal.live
    ]  # fmt: skip
    return {"times": times, "plots": plots}


def value(what: str, name: str, number: int, n: int, points: int) -> float | None:
    """What a signal shows at a point: waves, and the fault at the end."""
    wave = math.sin(n / 5 + number) + 0.4 * math.sin(n / 1.7 + 2 * number)
    faulty = n >= points - 4
    if name == LOST and faulty:
        return None
    idle = number > 5
    hit = faulty and name == CHAT
    return {
        "failures": 0.62 if hit else max(0.0, 0.002 * wave),
        "latency": (14.0 if hit else 3.1 - number) + 0.3 * wave,
        "tokens": 0.0 if hit else 1900 - 700 * number + 140 * wave,
        "waiting": 31.0 if hit else max(0.0, round(2 + 2 * wave)),
        "load": 0.0 if idle else min(1.0, 0.72 + number / 40 + 0.06 * wave),
        "memory": 0.05 if idle else 0.89 + number / 64,
        "temperature": 47 + 3 * number + 1.5 * wave,
    }[what]
