"""What a person asks, held against the node: names are looked up among those that are known.

Gives the engine's commands, or one line that says what is wrong. Pure; passes nothing on.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ..config.durations import positive
from ..errors import WatchdogError
from ..model import Json
from .standing import Standing

MAX_REASON = 500  # characters
_TOOLS_ADDRESS = re.compile(
    r"^(?:0000)?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-7])?(/\d+)?$", re.IGNORECASE
)


class Refused(WatchdogError):
    """A command that cannot be followed; ``status`` 400: bad as written, 409: not as things are."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


Given = list[tuple[str, dict[str, Any]]]


def commands_of(verb: str, args: Json, standing: Standing) -> Given:
    """The engine's commands for what a person asked: verb and arguments. Raises Refused."""
    reader = _READERS.get(verb)
    if reader is None:
        raise Refused(f"no such command: {_shown(verb)}{_hint(verb, _READERS)}")
    known, read = reader
    for name in args:
        if name not in known:
            raise Refused(f"{verb} takes no {_shown(name)}{_hint(name, known)}")
    return read({key: value for key, value in args.items() if value is not None}, standing)


def _pause(args: dict[str, Any], standing: Standing) -> Given:
    reason = _text(args, "reason", MAX_REASON)
    if not reason:
        raise Refused("reason: is missing: say why, for whoever finds it paused at night")
    service = _service(args, standing)
    given: dict[str, Any] = {"service": service, "reason": reason}
    if "for" in args:
        try:
            given["for"] = positive(args["for"])
        except ValueError as fault:
            raise Refused(f"for: {fault}") from fault
    return [("pause", given)]


def _resume(args: dict[str, Any], standing: Standing) -> Given:
    service = _service(args, standing)
    if service:
        return [("resume", {"service": service})]
    return [("resume", {}), ("close_breaker", {})]


def _approve(args: dict[str, Any], standing: Standing) -> Given:
    wanted = _text(args, "id", 200) or _service(args, standing)
    waiting = standing.waiting
    found = [each for each in waiting if wanted in ("", each.id, each.service)]
    exact = [each for each in found if each.id == wanted]
    found = exact or found
    if len(found) == 1:
        return [("approve", {"id": found[0].id})]
    if found:
        shown = ", ".join(each.id for each in found)
        raise Refused(f"several acts wait for approval: name one of {shown}")
    if not waiting:
        raise Refused("no act waits for approval", 409)
    known = {name for each in waiting for name in (each.id, each.service)} - {""}
    raise Refused(f"nothing waits for approval under {_shown(wanted)}{_hint(wanted, known)}", 409)


def _cancel(args: dict[str, Any], standing: Standing) -> Given:
    wanted = _text(args, "id", 200) or _service(args, standing)
    for act in standing.acts:
        if wanted and wanted in (act.id, act.case):
            return [("cancel", {"service": act.service, "id": act.case})]
    for key, service in standing.open.items():
        if wanted and wanted in (key, service):
            return [("cancel", {"service": service, "id": key})]
    if wanted:
        raise Refused(f"nothing is under way or due for {_shown(wanted)}"
                      f"{_hint(wanted, standing.open)}", 409)  # fmt: skip
    targets = dict.fromkeys([*(act.case for act in standing.acts), *standing.open])
    if not targets:
        raise Refused("nothing is under way or due", 409)
    if len(targets) > 1:
        raise Refused(f"several are under way or due: name one of {', '.join(targets)}")
    return _cancel({"id": next(iter(targets))}, standing)


def _quarantine(args: dict[str, Any], standing: Standing) -> Given:
    card = _card(args, standing)
    if card in standing.quarantined:
        why = standing.quarantined[card]
        raise Refused(f"{card} is quarantined already ({why})", 409)
    given = {"card": card}
    reason = _text(args, "reason", MAX_REASON)
    return [("quarantine", {**given, "reason": reason} if reason else given)]


def _release(args: dict[str, Any], standing: Standing) -> Given:
    card = _card(args, standing)
    if card not in standing.quarantined:
        held = ", ".join(sorted(standing.quarantined)) or "none is"
        raise Refused(f"{card} is not quarantined (quarantined: {held})", 409)
    return [("release", {"card": card})]


_READERS: Mapping[
    str, tuple[frozenset[str], Callable[[dict[str, Any], Standing], Given]]
] = {
    "pause": (frozenset({"service", "for", "reason"}), _pause),
    "resume": (frozenset({"service"}), _resume),
    "approve": (frozenset({"id", "service"}), _approve),
    "cancel": (frozenset({"id", "service"}), _cancel),
    "quarantine": (frozenset({"card", "reason"}), _quarantine),
    "release": (frozenset({"card"}), _release),
}  # fmt: skip


def _service(args: Json, standing: Standing) -> str:
    name = _text(args, "service", 200)
    if name and name not in standing.services:
        raise Refused(f"no such service: {_shown(name)}{_hint(name, standing.services)}")
    return name


def _card(args: Json, standing: Standing) -> str:
    """The card that is meant, by any of its names, also as a tool prints its address."""
    name = _text(args, "card", 200)
    if not name:
        raise Refused("card: is missing")
    match = _TOOLS_ADDRESS.match(name)
    usual = f"{match[1]}{match[2] or ''}".lower() if match else name
    for each in (name, usual, usual.lower()):
        if each in standing.cards:
            return standing.cards[each]
        if each in standing.quarantined:
            return each
    known = {*standing.cards, *standing.quarantined}
    raise Refused(f"no such card: {_shown(name)}{_hint(usual, known)}")


def _text(args: Json, name: str, most: int) -> str:
    value = args.get(name, "")
    if not isinstance(value, str):
        raise Refused(f"{name}: is a text")
    text = " ".join(value.split())
    if len(text) > most or not text.isprintable():
        raise Refused(f"{name}: is longer than {most} characters, or cannot be printed")
    return text


def _shown(text: str) -> str:
    return repr(text[:80])


def _hint(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, sorted(known), 1)
    if close:
        return f"; did you mean {close[0]!r}?"
    if not known:
        return "; there is none"
    some = sorted(known)
    return f"; known: {', '.join(some[:12])}{' …' if len(some) > 12 else ''}"
