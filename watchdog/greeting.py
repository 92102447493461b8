"""What a person at the terminal is told at the start: found, watched, judged by, where to look."""

from __future__ import annotations

from collections.abc import Iterator

from .daemon import Daemon
from .version import version


def greeting(daemon: Daemon) -> Iterator[str]:
    """The lines, after the first tick."""
    config = daemon.loaded.config
    host, port = config.listen
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else shown}:{port}"  # noqa: S104
    yield f"vllm-watchdog {version()}, mode {config.mode}, state in {config.state}"
    if config.mode != "observe":
        told = {
            "confirm": "acts wait for `vllm-watchdog approve`",
            "act": "acts are carried out; `vllm-watchdog pause --reason …` stops that",
        }
        yield f"          {told[config.mode]}"
    yield from _found(daemon)
    working = [name for name, state in sorted(daemon.engine.collectors.items()) if state.success]
    yield f"watches   {', '.join(name for name in working if name not in _OWN) or 'nothing yet'}"
    for name, state in sorted(daemon.engine.collectors.items()):
        if not state.success and not state.absent:
            yield f"          {name}: {state.error}"
    rules = sum(len(group.rules) for group in daemon.loaded.groups)
    origin = "the shipped files" if config.rules.files is None else "your files"
    yield f"judges by {rules} rules in {len(daemon.loaded.groups)} groups from {origin}"
    yield f"look at   {url}/ and {url}/metrics"
    there = "" if url == DEFAULT else f", each with --url {url}"
    yield f"or ask    vllm-watchdog status | alerts | query 'up'{there}   (Ctrl-C ends it)"


DEFAULT = "http://127.0.0.1:9710"
"""Where the commands that ask look by themselves."""

_OWN = frozenset({"services", "schedules"})


def _found(daemon: Daemon) -> Iterator[str]:
    cards = daemon.seen.cards
    names = ", ".join(f"{c.get('card')} ({c.get('model', c.get('vendor'))})" for c in cards)
    absent = [
        name
        for name in ("npu_smi", "nvidia_smi")
        if (state := daemon.engine.collectors.get(name)) is not None and state.absent
    ]
    tools = f"; not on this node: {', '.join(absent)}" if absent else ""
    count = f"{len(cards)} card{'' if len(cards) == 1 else 's'}"
    yield f"found     {count}{': ' + names if names else ''}{tools}"
    services = daemon.seen.services
    if services:
        listed = ", ".join(f"{name} at {s.url}" for name, s in sorted(services.items()))
        yield f"          {len(services)} vLLM server{'' if len(services) == 1 else 's'}: {listed}"
    else:
        yield "          no vLLM server yet (looked for every 30 s; each one found is told)"
