"""Whether a fault is proved well enough for an act: two readings, a reading and a line, or a line
that no later reading contradicts; and whether all that could name another cause has been heard.

Texts are reasons to wait, empty where there is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..diagnosis import ServiceFacts
from ..model import Alert, Diagnosis
from .sight import Sight

PATIENCE = 65.0  # seconds that a source may be silent before its word is no longer awaited
AWHILE = 10.0  # seconds to wait for the tool's own reading after a line that may be withdrawn
APART = 1.0  # seconds between two readings
LOW_TRAFFIC = 2.0  # requests that run or wait
LOGS = ("kernel_log", "ascend_log", "vllm_log")
TOOLS = {"nvidia": "nvidia_smi", "ascend": "npu_smi"}
_SPAN = 300_000  # milliseconds in which an uncorrectable error would have been counted
_RECENT = 60_000  # milliseconds in which a reading still denies though its series ended
_CARDS = frozenset({"CardLost", "CardUncorrectable", "CardResetRequired"})
_CARD_LAYER = frozenset({"card_lost", "card_uncorrectable", "card_reset_required", "driver_fault"})


def unknown(sight: Sight, diagnosis: Diagnosis, own: ServiceFacts | None = None) -> str:
    """Inputs behind the diagnosis that are unknown, or not yet heard since it fired."""
    alert = diagnosis.alert
    known = [each for each in siblings(sight, diagnosis) if each.unknown_since is None]
    if alert.unknown_since is not None and not known:
        return f"what {alert.name} rests on is unknown"
    if diagnosis.cause in (*_CARD_LAYER, "none") or not diagnosis.service:
        return ""
    fired = alert.fired_at if alert.fired_at is not None else alert.active_at
    away = own.unreachable if own is not None and diagnosis.cause != "network_outage" else ()
    if away and sight.now - fired < PATIENCE:
        return f"{away[0]}, which it needs, does not answer: it may be the network"
    for name in _sources(sight, diagnosis.service):
        state = sight.collectors[name]
        if state.absent or (state.succeeded is not None and state.succeeded >= fired):
            continue
        silent = sight.now - (state.succeeded if state.succeeded is not None else fired)
        if silent < PATIENCE:
            return f"{name} has said nothing since {alert.name} fired"
    return ""


def _sources(sight: Sight, service: str) -> Iterator[str]:
    """The collectors that could name an earlier cause for a service."""
    ms = sight.tick.ms
    vendors = {
        labels.get("vendor", "")
        for labels, _ in sight.readings.rows("service_card", ms, service=service)
    }
    needs = any(True for _ in sight.readings.rows("service_needs", ms, service=service))
    for name in sorted(sight.collectors):
        kind, _, of = name.partition("/")
        tool = any(TOOLS.get(vendor) == name for vendor in vendors)  # not what is read seldom
        if tool or (kind in LOGS and of in ("", service)) or (kind == "peers" and needs):
            yield name


def siblings(sight: Sight, diagnosis: Diagnosis) -> list[Alert]:
    """All firing alerts of the naming alert's name for the same service and cards."""
    wanted = dict(diagnosis.alert.labels)
    found = []
    for alert in sight.firing:
        labels = dict(alert.labels)
        same = alert.name == diagnosis.alert.name
        if same and all(labels.get(key) == wanted.get(key) for key in ("service", "card", "peer")):
            found.append(alert)
    return found or [diagnosis.alert]


def unproved(sight: Sight, diagnosis: Diagnosis, facts: ServiceFacts | None, act: str, *,
             moves_traffic: bool) -> str:  # fmt: skip
    """What is missing until the fault is proved again just before the act."""
    if diagnosis.cause == "sensor":
        return "other readings of the card contradict it"
    missing = _act_condition(diagnosis, facts, act)
    if missing:
        return missing
    alerts = siblings(sight, diagnosis)
    if diagnosis.alert.name in _CARDS:
        return _card_unproved(sight, diagnosis, alerts, moves_traffic=moves_traffic)
    if any(_read_again(sight, alert) for alert in alerts):
        return ""
    told = [alert for alert in alerts if _by_line(sight, alert)]
    if not told:
        return "no second reading yet"
    if sight.now - min(alert.active_at for alert in told) < sight.healing.interval:
        return "one line so far: whoever manages the server may be at it"
    return _contradicted(facts, told)


def _act_condition(diagnosis: Diagnosis, facts: ServiceFacts | None, act: str) -> str:
    """What an act asks for beside the fault itself."""
    if act == "quantize" and diagnosis.cause != "device_memory":
        return f"quantize cures no {diagnosis.cause}"
    if act == "defragment" and facts is not None and (facts.pending or 0.0) > LOW_TRAFFIC:
        return f"{facts.pending:g} requests run or wait: not at low traffic"
    return ""


def _read_again(sight: Sight, alert: Alert) -> bool:
    """Whether what the alert reads was read a second time since it began."""
    if alert.unknown_since is not None:
        return False
    for name in sight.owners(alert):
        state = sight.collectors.get(name)
        if name.partition("/")[0] in LOGS or state is None or not state.success:
            continue
        if state.succeeded is not None and state.succeeded >= alert.active_at + APART:
            return True
    return False


def _by_line(sight: Sight, alert: Alert) -> bool:
    """Whether the alert rests on lines of a log."""
    owners = sight.owners(alert)
    return any(name.partition("/")[0] in LOGS for name in owners)


def _contradicted(facts: ServiceFacts | None, told: Sequence[Alert]) -> str:
    """Whether the service itself shows, after the line, that it works (again)."""
    line = max(alert.active_at for alert in told)
    if facts is not None and (facts.started or 0.0) > line:
        return "the server was started after the line"
    if facts is None or facts.moved is None or facts.probe != "ok" or facts.process is False:
        return ""
    if facts.moved[0] > line and (facts.probe_at or 0.0) > line:
        return "the service answers after the line"
    return ""


def _card_unproved(
    sight: Sight, diagnosis: Diagnosis, alerts: Sequence[Alert], *, moves_traffic: bool
) -> str:  # fmt: skip
    lines = [alert for alert in alerts if _line_of_card(sight, alert)]
    readings = [alert for alert in alerts if alert not in lines]
    if readings and (lines or any(_read_again(sight, alert) for alert in readings)):
        return ""
    if not lines:
        return "one reading only"
    card = dict(diagnosis.alert.labels).get("card", "")
    line = max(alert.active_at for alert in lines)
    at_once = diagnosis.alert.name == "CardLost" and moves_traffic
    if not at_once and not _tool_ran(sight, diagnosis, line):
        return "one line so far, and the tool has not been asked since"
    if _denied(sight, diagnosis.alert.name, card, line):
        return "a later reading of the card contradicts the line"
    return ""


def _line_of_card(sight: Sight, alert: Alert) -> bool:
    """Whether a card's alert rests on a log's line (and not on the tool that reads the card)."""
    labels = dict(alert.labels)
    if labels.get("proof") != "driver":
        return False
    rows = sight.readings.rows("accelerator_fault", sight.tick.ms, card=labels.get("card", ""))
    owners = {series.owner.partition("/")[0] for _, series in rows}
    return not owners or bool(owners & set(LOGS))


def _denied(sight: Sight, alertname: str, card: str, line: float) -> bool:
    """Whether a complete reading after the line says the opposite."""
    name, labels = {
        "CardLost": ("accelerator_present", {"card": card}),
        "CardResetRequired": ("accelerator_reset_required", {"card": card}),
        "CardUncorrectable": (
            "accelerator_ecc_errors_total",
            {"card": card, "kind": "uncorrectable"},
        ),
    }.get(alertname, ("", {}))
    if not name:
        return False
    ms, read = sight.tick.ms, sight.readings
    last = [(at, value) for at, value in read.last(name, ms, _RECENT, **labels) if at > line]
    if not last:
        return False
    if alertname == "CardUncorrectable":
        return not read.rise(name, ms, _SPAN, **labels)
    return max(last)[1] == (1.0 if alertname == "CardLost" else 0.0)


def _tool_ran(sight: Sight, diagnosis: Diagnosis, line: float) -> bool:
    """Whether the card's tool was asked since the line, or has had its time."""
    vendor = dict(diagnosis.alert.labels).get("vendor", "")
    state = sight.collectors.get(TOOLS.get(vendor, ""))
    if state is not None and not state.absent and state.ran > line:
        return True
    return sight.now - line >= AWHILE
