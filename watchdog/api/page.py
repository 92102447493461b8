"""The page at ``/``: cards, services, alerts, collectors and outlets as plain tables.

Rendered from a snapshot on each request, without scripts; it shows and never changes anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from html import escape

from ..model import NAME, Json, Labels
from . import Snapshot

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 1rem auto; max-width: 72rem;
  padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin: 1.6rem 0 .4rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25rem .7rem .25rem 0; border-bottom: 1px solid #8886;
  vertical-align: top; }
.bad { font-weight: 700; }
"""

CARD = (
    ("Present", "accelerator_present", "flag"),
    ("Healthy", "accelerator_healthy", "flag"),
    ("Load", "accelerator_utilization_ratio", "ratio"),
    ("Memory used", "accelerator_memory_used_bytes", "bytes"),
    ("Memory", "accelerator_memory_total_bytes", "bytes"),
    ("Temperature", "accelerator_temperature_celsius", "celsius"),
    ("Power", "accelerator_power_watts", "watts"),
)
SERVICE = (
    ("Metrics page", "service_up", "flag"),
    ("Health page", "service_health", "flag"),
    ("Real request", "service_probe_success", "flag"),
    ("Running", "vllm:num_requests_running", "count"),
    ("Waiting", "vllm:num_requests_waiting", "count"),
)
LINKS = ("metrics", "api/v1/alerts", "api/v1/status", "api/v1/events")


class Bad(str):
    """A cell's text that shall stand out."""

    __slots__ = ()


def page(snapshot: Snapshot, alerts: Sequence[Json]) -> str:
    """The whole page as HTML."""
    when = datetime.fromtimestamp(snapshot.time, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    links = " · ".join(f'<a href="{link}">{link}</a>' for link in LINKS)
    parts = [
        f"<p>Version {escape(snapshot.version)}, as of {when}. {links}</p>",
        _table("Alerts", ("Alert", "State", "Since", "Value", "What"), _alerts(alerts)),
        _entities("Cards", "card", ("Card", "vendor"), CARD, snapshot.series),
        _entities("Services", "service", ("Service", ""), SERVICE, snapshot.series),
        _table(
            "Collectors", ("Collector", "State", "Seconds", "What it said"), _collectors(snapshot)
        ),
        _table("Outlets", ("Outlet", "State", "Waiting", "Sent", "Lost"), _outlets(snapshot)),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>vllm-watchdog</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body><h1>vllm-watchdog</h1>{''.join(parts)}</body></html>\n"
    )


def _table(title: str, heads: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of escaped cells, or a word that there is nothing."""
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    content = f'<div class="wide">{table}</div>' if body else "<p>None.</p>"
    return f"<h2>{escape(title)}</h2>{content}"


def _cell(text: str) -> str:
    mark = ' class="bad"' if isinstance(text, Bad) else ""
    return f"<td{mark}>{escape(text)}</td>"


def _alerts(alerts: Sequence[Json]) -> Iterable[Sequence[str]]:
    for alert in alerts:
        labels = {name: value for name, value in alert["labels"].items() if name != "alertname"}
        shown = ", ".join(f"{name}={value}" for name, value in labels.items())
        since = alert.get("fired_at") or alert.get("active_at")
        summary = alert.get("annotations", {}).get("summary", "")
        state = str(alert["state"])
        yield (
            f"{alert['alert']} ({shown})" if shown else str(alert["alert"]),
            Bad(state) if state == "firing" else state,
            _time(since),
            str(alert.get("value", "")),
            summary,
        )


def _time(value: object) -> str:
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    return str(value or "")


def _entities(
    title: str,
    label: str,
    heads: tuple[str, str],
    columns: Sequence[tuple[str, str, str]],
    series: Iterable[tuple[Labels, float]],
) -> str:
    """One row for each value of a label, with the newest values of the columns' metrics."""
    units = {metric: unit for _, metric, unit in columns}
    found: dict[str, dict[str, str]] = {}
    for key, value in series:
        labels: Mapping[str, str] = dict(key)
        name = labels[NAME]
        if name in units and label in labels:
            row = found.setdefault(labels[label], {"also": labels.get(heads[1], "")})
            row.setdefault(name, _shown(value, units[name]))
    rows = [
        (f"{entity} {row['also']}".strip(), *(row.get(metric, "") for _, metric, _ in columns))
        for entity, row in sorted(found.items())
    ]
    return _table(title, (heads[0], *(head for head, _, _ in columns)), rows)


def _shown(value: float, unit: str) -> str:
    if unit == "flag":
        return "yes" if value else Bad("no")
    if unit == "ratio":
        return f"{value * 100:.0f} %"
    if unit == "bytes":
        return f"{value / 2**30:.1f} GiB"
    return f"{value:g}" + {"celsius": " °C", "watts": " W"}.get(unit, "")


def _collectors(snapshot: Snapshot) -> Iterable[Sequence[str]]:
    for collector in sorted(snapshot.collectors, key=lambda each: each.name):
        state = "ok" if collector.success else Bad("failed")
        state = Bad("stalled") if collector.stalled else state
        state = "not on this node" if collector.absent else state
        yield collector.name, state, f"{collector.duration:.3f}", collector.error or ""


def _outlets(snapshot: Snapshot) -> Iterable[Sequence[str]]:
    for outlet in snapshot.outlets:
        state = "ok" if outlet.up else Bad(outlet.last_error or "down")
        yield outlet.name, state, str(outlet.lag), str(outlet.sent), str(outlet.lost)
