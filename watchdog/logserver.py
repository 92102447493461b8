"""What vLLM's own lines say beyond their patterns' named groups: workers, start, stalls, phases."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from .logrecords import Found, exception, number


def _engine_dead(found: Found) -> None:
    if "No heartbeat received" in found.text:
        found.fields["cause"] = "no_heartbeat"


_PROCS = re.compile(r"Failed core proc\(s\): (\{.*?\})")
_PROC = re.compile(r"'([^']+)': (-?\w+)")


def _init_failed(found: Found) -> None:
    procs = _PROCS.search(found.text)
    if procs is None:
        return
    found.fields["failed_procs"] = procs[1]
    named = _PROC.search(procs[1])
    if named is not None:
        found.fields.update(proc=named[1], exit=number(named[2]))


_TOO_LONG = (
    re.compile(r"requested (\d+)|your request has (\d+) input|passed (\d+) input|\(length (\d+)\)"),
    re.compile(r"maximum (?:context|model) length of (\d+)"),
)


def _too_long(found: Found) -> None:
    """How long the prompt was and how long it may be, in any of the wordings."""
    for name, expression in zip(("requested", "max_len"), _TOO_LONG, strict=True):
        match = expression.search(found.text)
        if match is not None:
            value = next(part for part in match.groups() if part is not None)
            found.fields.setdefault(name, int(value))


def _begins(found: Found) -> None:
    """What the server was started with stays here."""
    found.text = found.text[: found.match.end()]


def _worker_died(found: Found) -> None:
    fields = found.fields
    if "worker" in fields:
        fields["name"] = fields.pop("worker")
    if "code" in fields:
        fields["exit"] = number(fields.pop("code"))


_RAY_FIELD = re.compile(r"^\s+(pid|ip|name|class_name): (\S+)")
_RAY_EXIT = re.compile(r"Worker exit type: (\w+)")


def _ray_actor(found: Found) -> None:
    """The actor's fields stand on indented lines below."""
    for line in found.around.after(12):
        named = _RAY_FIELD.match(line)
        exit_type = _RAY_EXIT.search(line)
        if named is not None:
            name = "actor_pid" if named[1] == "pid" else f"actor_{named[1]}"
            if named[1] != "class_name":
                found.fields[name] = number(named[2])
        elif exit_type is not None:
            found.fields["exit_type"] = exit_type[1]
            _ray_exit(found, line)
            break


def _ray_exit(found: Found, line: str = "") -> None:
    if "OOM" in (line or found.text):
        found.fields["hint"] = "host OOM or SIGSEGV"


def _rpc_timeout(found: Found) -> None:
    """A frame in the queue's reader is a time-out only when the traceback ends so."""
    if "in acquire_read" not in found.text or "TimeoutError: " in found.text:
        return
    ended = exception(found.around.after(60), found.head.pid)
    if ended is None or not ended.startswith("TimeoutError"):
        found.kind = ""


_RANK_WORD = re.compile(r"\[(?:PG [^\]]*?)?Rank (\d+)\]")


def _rank_word(found: Found) -> None:
    rank = _RANK_WORD.search(found.text)
    if rank is not None:
        found.fields["rank"] = int(rank[1])


def _words(found: Found) -> None:
    found.fields["error"] = found.fields["error"].replace("-", "_").replace(" ", "_")


def _commas(found: Found) -> None:
    tokens = found.fields.get("kv_tokens")
    if isinstance(tokens, str):
        found.fields["kv_tokens"] = int(tokens.replace(",", ""))


def _tags(found: Found) -> None:
    names = sorted(re.findall(r"\w+", str(found.fields.get("tags", ""))), reverse=True)
    found.fields["tags"] = ",".join(names)


FINISHERS: Mapping[str, Callable[[Found], None]] = {
    "engine_dead": _engine_dead,
    "init_failed": _init_failed,
    "too_long": _too_long,
    "begins": _begins,
    "worker_died": _worker_died,
    "ray_actor": _ray_actor,
    "ray_exit": _ray_exit,
    "rpc_timeout": _rpc_timeout,
    "rank_word": _rank_word,
    "words": _words,
    "commas": _commas,
    "tags": _tags,
}
