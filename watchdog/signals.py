"""Which figures are drawn over time, on the page and in reports: an expression each, and its unit.

Data only. The expressions read what collectors give, no recorded series: a recording holds no more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Unit = Literal["ratio", "bytes", "seconds", "celsius", "watts", "flag", "number", "per second"]
Scope = Literal["card", "service", "peer"]

_MODEL = 'method!="GET", handler=~"(/v[12]/.+|/(gen|invoc|pool|class|embed|score|rerank).*)?"'


@dataclass(frozen=True, slots=True)
class Signal:
    """One figure: ``scope`` is the label by which its lines differ, ``live``: shown on the page.

    ``text`` is PromQL; ``$`` in it stands for the matchers that choose cards, services or peers.
    """

    name: str
    scope: Scope
    unit: Unit
    title: str
    text: str
    live: bool = False

    def expression(self, wanted: Iterable[str] = ()) -> str:
        """The expression for these cards, services or peers; for all without any."""
        names = "|".join(re.escape(name) for name in wanted)
        chosen = f'=~"{_quoted(names)}"' if names else '!=""'
        return " ".join(self.text.replace("$", f"{self.scope}{chosen}").split())


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _share(counter: str, which: str) -> str:
    """The share of failed requests by one counter; a series that began at its first failure
    counts, too."""
    of = f"{counter}{{${which}"
    bad, sound = f'{of}, status=~"5.."}}', f'{of}, status!~"4.."}}'
    fresh = f"{bad} unless {bad} offset 1m and on (service) {sound} offset 1m"
    return f"""
        (
          sum by (service) (({fresh}) / 60 or rate({bad}[1m]))
          or 0 * sum by (service) (rate({sound}[1m]))
        ) / sum by (service) (rate({sound}[1m]) or ({fresh}) / 60)
    """


def _p95(histogram: str) -> str:
    return f"histogram_quantile(0.95, sum by (service, le) (rate({histogram}_bucket{{$}}[1m])))"


_HTTP = _share("http_requests_total", f", {_MODEL}")
_LOG = _share("log_requests_total", "")

SIGNALS: tuple[Signal, ...] = (
    Signal(
        "probe", "service", "flag", "Real request answered",
        "min by (service) (service_probe_success{$})",
    ),
    Signal(
        "failures", "service", "ratio", "Share of requests that failed",
        # A server's counters die with it, the lines of its access log do not: the worse of both.
        f"""
        max by (service) (
          label_replace({_HTTP}, "of", "http", "service", ".*")
          or label_replace({_LOG}, "of", "log", "service", ".*")
        )
        """,
        live=True,
    ),
    Signal(
        "latency", "service", "seconds", "Response time, 95th percentile",
        _p95("vllm:e2e_request_latency_seconds"), live=True,
    ),
    Signal(
        "first_token", "service", "seconds", "Time to first token, 95th percentile",
        _p95("vllm:time_to_first_token_seconds"),
    ),
    Signal(
        "tokens", "service", "per second", "Tokens made",
        "sum by (service) (rate(vllm:generation_tokens_total{$}[1m]))", live=True,
    ),
    Signal(
        "running", "service", "number", "Requests running",
        "sum by (service) (vllm:num_requests_running{$})",
    ),
    Signal(
        "waiting", "service", "number", "Requests waiting",
        "sum by (service) (vllm:num_requests_waiting{$})", live=True,
    ),
    Signal(
        "process", "service", "flag", "Server process there",
        "min by (service) (service_process_up{$})",
    ),
    Signal(
        "present", "card", "flag", "Card present", "min by (card) (accelerator_present{$})",
    ),
    Signal(
        "healthy", "card", "flag", "Card healthy, by its own report",
        "min by (card) (accelerator_healthy{$})",
    ),
    Signal(
        "load", "card", "ratio", "Card load",
        "max by (card) (accelerator_utilization_ratio{$})", live=True,
    ),
    Signal(
        "memory", "card", "ratio", "Card memory used",
        "max by (card) (accelerator_memory_used_bytes{$})"
        " / max by (card) (accelerator_memory_total_bytes{$})",
        live=True,
    ),
    Signal(
        "temperature", "card", "celsius", "Card temperature",
        "max by (card) (accelerator_temperature_celsius{$})", live=True,
    ),
    Signal(
        "power", "card", "watts", "Card power", "max by (card) (accelerator_power_watts{$})",
    ),
    Signal(
        "peer", "peer", "flag", "Peer reachable", "min by (peer) (peer_reachable{$})",
    ),
    Signal(
        "round_trip", "peer", "seconds", "Round trip to a peer",
        "max by (peer) (peer_round_trip_seconds{$})",
    ),
)  # fmt: skip
