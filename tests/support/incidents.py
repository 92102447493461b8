"""Incidents written inline, and what comes of them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from vllm_watchdog.watchdog.incidents import Finding, Incident, Played, judge, play
from vllm_watchdog.watchdog.incidents.noise import Noise
from vllm_watchdog.watchdog.incidents.reading import parse

ONE = '{chat: {url: "http://127.0.0.1:8000", cards: ["0000:53:00"]}}'
STANDBY = (
    '{chat: {url: "http://127.0.0.1:8000", cards: ["0000:53:00"], '
    'standby: {url: "http://127.0.0.1:8001", cards: ["0000:64:00"]}}}'
)
SPARE = '{chat: {url: "http://127.0.0.1:8000", cards: ["0000:53:00"], spares: ["0000:75:00"]}}'


def incident(
    body: str, services: str = ONE, until: str = "5m", name: str = "an incident"
) -> Incident:
    """The incident of a file's text; name, services and until may be left out of it."""
    text = textwrap.dedent(body)
    head = f"name: {name}\nuntil: {until}\n"
    if "services:" not in text:
        head += f"services: {services}\n"
    if "\nexpect:" not in f"\n{text}":
        head += "expect: {}\n"
    return parse(head + text, "inline.yaml")


def series(**values: str) -> str:
    """A ``series:`` key of the engine's usual series of service chat; names as in ``SHORT``."""
    lines = [f"  - {{series: '{SHORT[key]}', values: '{text}'}}" for key, text in values.items()]
    return "series:\n" + "\n".join(lines) + "\n"


SHORT = {
    "present": 'accelerator_present{vendor="nvidia",card="0000:53:00"}',
    "standby_present": 'accelerator_present{vendor="nvidia",card="0000:64:00"}',
    "up": 'service_up{service="chat"}',
    "health": 'service_health{service="chat"}',
    "probe": 'service_probe_success{service="chat"}',
    "slow": 'service_probe_verdict{service="chat",verdict="slow"}',
    "running": 'vllm:num_requests_running{service="chat"}',
    "waiting": 'vllm:num_requests_waiting{service="chat"}',
    "tokens": 'vllm:generation_tokens_total{service="chat"}',
    "steps": 'vllm:iteration_tokens_total_count{service="chat"}',
    "fragmented": 'memory_fragmentation_ratio{service="chat",vendor="nvidia",card="0000:53:00"}',
    "peer": 'peer_reachable{peer="node-2"}',
    "canary": 'service_canary_success{service="chat"}',
    "ecc": 'accelerator_ecc_errors_total{vendor="nvidia",card="0000:53:00",kind="uncorrectable"}',
    "phase": 'service_phase{service="chat",phase="stopped"}',
    "process": 'service_process_up{service="chat"}',
    "awake": 'vllm:engine_sleep_state{service="chat",sleep_state="awake"}',
    "reset": 'accelerator_reset_required{vendor="nvidia",card="0000:53:00"}',
    "healthy": 'accelerator_healthy{vendor="nvidia",card="0000:53:00"}',
}


def problems(one: Incident, noise: Noise | None = None) -> list[str]:
    """What is not as the incident expects."""
    return [text for finding in judged(one, play(one, noise)) for text in finding.problems]


def judged(one: Incident, played: Played) -> Sequence[Finding]:
    """The findings about an incident."""
    return judge(one, played)


def event_kinds(played: Played) -> list[str]:
    """The kinds of all journal events but those of alerts, in order."""
    return [event.kind for _, event in played.events if not event.kind.startswith("alert_")]
